"""Make ``src/libra/formats/chakra_messages.py`` of ``chakra.proto``.

    python tools/generate_chakra.py           needs grpcio-tools
    python tools/generate_chakra.py --check   only says whether the module is up to date

The module holds the schema as a serialised descriptor and asks the protobuf runtime for the
message types, so that it runs with every runtime of the range in pyproject.toml: what the protobuf
compiler itself would generate is tied to one major version.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "libra" / "formats"
MESSAGES = ("AttributeProto", "GlobalMetadata", "IOInfo", "Node")

TEXT = '''\
"""Protobuf messages of Chakra traces. Made by tools/generate_chakra.py of chakra.proto."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = [{names}]

_SCHEMA = base64.b64decode(
    """
{schema}
"""
)


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto.FromString(_SCHEMA)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {{
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"libra.chakra.{{name}}"))
        for name in __all__
    }}


_FOUND = _messages()
{assignments}
'''


def generate() -> str:
    """Text of the module."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        code = protoc.main(
            ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", str(FOLDER / "chakra.proto")]
        )
        if code:
            raise SystemExit(code)
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    schema = base64.b64encode(found.file[0].SerializeToString(deterministic=True)).decode()
    return TEXT.format(
        names=", ".join(f'"{name}"' for name in MESSAGES),
        schema="\n".join(textwrap.wrap(schema, 96)),
        assignments="\n".join(f'{name}: Any = _FOUND["{name}"]' for name in MESSAGES),
    )


def main() -> None:
    """Write the module, or compare it."""
    path = FOLDER / "chakra_messages.py"
    text = generate()
    if "--check" in sys.argv:
        raise SystemExit(0 if path.read_text("utf-8") == text else f"{path} is out of date.")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
