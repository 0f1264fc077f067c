"""JSON forms of Chakra traces: of the schema, one message after the other, or recorded by a host.

Spelling of keys differs between the tools that write them (``dataDeps``, ``data_deps``, ``runtime``
for ``duration_micros`` …), so case and underscores do not count.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from libra.errors import InputError, Problem, shown
from libra.formats.chakra import Trace, build_trace
from libra.formats.chakra_metadata import check_version
from libra.formats.chakra_wire import ABSENT, ATTRIBUTES, Column

__all__ = ["MOST_JSON", "read_json_trace"]

MOST_JSON = 100_000_000
"""Bytes of the largest JSON trace that is read."""

_TYPES = {
    "INVALID_NODE": 0,
    "METADATA_NODE": 1,
    "MEM_LOAD_NODE": 2,
    "MEM_STORE_NODE": 3,
    "COMP_NODE": 4,
    "COMM_SEND_NODE": 5,
    "COMM_RECV_NODE": 6,
    "COMM_COLL_NODE": 7,
}
_DURATIONS = ("durationmicros", "runtime", "dur", "duration")
_HOST_COMMUNICATION = ("record_param_comms", "nccl:", "c10d::")
_NODES = ("nodes", "workloadgraph", "graph")


def read_json_trace(data: bytes, file: str) -> Trace:
    """Read the JSON form of a trace.

    Parameters
    ----------
    data : bytes
        What the file holds.
    file : str
        What messages call it.

    Raises
    ------
    InputError
        If it is no JSON, holds no nodes, or was recorded by a host alone, without sizes.
    """
    nodes = []
    for document in _documents(data, file):
        keys = _plain_keys(document, file)
        check_version(str(keys.get("version", "")), file)
        check_version(str(keys.get("schema", "")), file, is_schema=True)
        found = next((keys[k] for k in _NODES if k in keys), None)
        if found is not None:
            if not isinstance(found, list):
                _fail(file, f"the nodes are a list, got {shown(found)}. Is it the right file?")
            nodes += found
        elif keys.keys() & {"id", "name", "type", "nodetype"}:  # an id of 0 may be left out
            nodes.append(document)
    if not nodes:
        _fail(file, f"holds no nodes, got none of {', '.join(_NODES)}. Is it a Chakra trace?")
    plain = [_plain_keys(node, file) for node in nodes]
    _refuse_host_trace(plain, file)
    return _read_nodes(plain, file)


def _fail(file: str, message: str) -> NoReturn:
    raise InputError(Problem(message, file=file))


def _documents(data: bytes, file: str) -> Iterator[Any]:
    """JSON values one after the other."""
    try:
        text = data.decode("utf-8-sig")
        decoder = json.JSONDecoder()
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            yield value
    except UnicodeDecodeError:
        _fail(file, "is not UTF-8 text, got other bytes. Is it the right file?")
    except json.JSONDecodeError as error:
        line = text.count("\n", 0, error.pos) + 1
        problem = Problem(f"is no JSON, got {error.msg}. Mend it.", file=file, line=line)
        raise InputError(problem) from None
    except (RecursionError, ValueError) as error:
        _fail(file, f"is no JSON that can be read, got {shown(str(error))}. Mend it.")


def _plain_keys(value: Any, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _fail(file, f"a node is a mapping, got {shown(value)}. Is it a Chakra trace?")
    return {str(k).lower().replace("_", ""): v for k, v in value.items()}


def _refuse_host_trace(nodes: list[dict[str, Any]], file: str) -> None:
    """Refuse what a host recorded on its own: operators, but no kernels and no sizes."""
    if any("type" in node or "nodetype" in node for node in nodes):
        return
    found = [n for n in nodes if str(n.get("name", "")).startswith(_HOST_COMMUNICATION)]
    first = found[0] if found else nodes[0]
    name = f"node {shown(first.get('id'))} {shown(first.get('name'))}"
    what = f"{len(found)} communications, the first {name}," if found else "nodes without a type,"
    _fail(
        file,
        f"is a recorded host trace, which has no communicator sizes (comm_size) and no kernel "
        f"times, got {what} of {len(nodes)} nodes. Link it with the device trace and convert it "
        "(chakra_trace_link, chakra_converter): that adds comm_size, pg_name and durations.",
    )


def _read_nodes(nodes: list[dict[str, Any]], file: str) -> Trace:
    rows = np.full((len(nodes), len(Column)), ABSENT, dtype=np.int64)
    rows[:, [Column.ID, Column.TYPE, Column.DURATION]] = 0
    dependencies: list[int] = []
    counts, names, groups = [], [], dict[str, int]()
    for row, node in zip(rows, nodes, strict=True):
        where = f"node {shown(node.get('id'))}"
        name = str(node.get("name", ""))
        row[Column.ID] = _whole(node.get("id", 0), f"{where}: id", file)
        row[Column.TYPE] = _type(node, where, file)
        duration = next((node[k] for k in _DURATIONS if node.get(k) is not None), 0)
        row[Column.DURATION] = _whole(duration, f"{where}: duration", file)
        waits = [
            _whole(d, f"{where}: {key}", file)
            for key in ("ctrldeps", "datadeps")
            for d in _list(node.get(key))
        ]
        for key, value in _attributes(node, where, file):
            _set(row, key, value, groups, f"{where}: {key}", file)
        dependencies += waits
        counts.append(len(waits))
        names.append(name)
    return build_trace(
        rows,
        np.array(counts, dtype=np.int64),
        np.array(dependencies, dtype=np.int64),
        names,
        tuple(groups),
        file,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _type(node: Mapping[str, Any], where: str, file: str) -> int:
    value = node.get("type", node.get("nodetype", 0))
    if isinstance(value, str) and value in _TYPES:
        return _TYPES[value]
    return _whole(value, f"{where}: type", file)


def _whole(value: Any, what: str, file: str) -> int:
    """Whole number of 64 bits, which the JSON form of protobuf writes as text."""
    text = str(value)
    number = None
    if not isinstance(value, bool) and len(text) <= 20:
        try:
            number = int(text)
        except ValueError:
            number = int(value) if isinstance(value, float) and value.is_integer() else None
    if number is None or not -(2**63) <= number < 2**63:
        _fail(file, f"{what} is a whole number, got {shown(value)}. Correct it.")
    return number


def _attributes(node: Mapping[str, Any], where: str, file: str) -> Iterator[tuple[str, Any]]:
    """Attributes that count: of a list of them, or beside the node's other keys."""
    for known in ATTRIBUTES:
        if known.replace("_", "") in node:
            yield known, node[known.replace("_", "")]
    for attribute in [*_list(node.get("attr")), *_list(node.get("attrs"))]:
        keys = _plain_keys(attribute, file)
        name = str(keys.get("name"))
        if name in ATTRIBUTES:
            values = [v for k, v in keys.items() if k.endswith(("val", "value", "list"))]
            if len(values) != 1:
                _fail(file, f"{where}: {name} needs one value, got {len(values)}. Correct it.")
            value = values[0]
            yield name, value.get("values") if isinstance(value, dict) else value


def _set(
    row: np.ndarray, name: str, value: Any, groups: dict[str, int], what: str, file: str
) -> None:
    if value is None:
        return
    column = ATTRIBUTES[name]
    if name == "pg_name":
        row[column] = groups.setdefault(str(value), len(groups))
    elif name == "involved_dim":
        flags = _list(value)
        if len(flags) > 62 or not all(isinstance(flag, bool | int) for flag in flags):
            _fail(file, f"{what} is a list of true and false, got {shown(value)}. Correct it.")
        row[Column.DIMS] = sum(1 << k for k, flag in enumerate(flags) if flag)
        row[Column.DIMS_COUNT] = len(flags)
    elif name == "libra_seconds":
        if isinstance(value, bool) or not isinstance(value, int | float):
            _fail(file, f"{what} is a number, got {shown(value)}. Correct it.")
        row[column] = struct.unpack("<q", struct.pack("<d", value))[0]
    else:
        row[column] = int(value) if isinstance(value, bool) else _whole(value, what, file)
