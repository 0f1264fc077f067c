"""Chakra traces made by hand, and designs that name them."""

from pathlib import Path

from libra.formats.chakra import NodeType
from libra.formats.chakra_messages import AttributeProto, GlobalMetadata, Node

COMPUTE, SEND, RECEIVE, COLLECTIVE = (
    NodeType.COMPUTE,
    NodeType.SEND,
    NodeType.RECEIVE,
    NodeType.COLLECTIVE,
)
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 2, 5, 6, 7, 9


def varint(value):
    """Number as the wire has it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def framed(message):
    """Message after its length."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return varint(len(data)) + data


def attribute(name, value):
    """Attribute of the type that public files give it."""
    if isinstance(value, bool):
        return AttributeProto(name=name, bool_val=value)
    if isinstance(value, str):
        return AttributeProto(name=name, string_val=value)
    if isinstance(value, float):
        return AttributeProto(name=name, double_val=value)
    if isinstance(value, list):
        made = AttributeProto(name=name)
        made.bool_list.values.extend(value)
        return made
    return AttributeProto(name=name, int64_val=value)


def node(number, kind, *, after=(), control=(), us=0, name="", **attributes):
    """Node of a trace."""
    made = Node(
        id=number,
        name=name or f"n{number}",
        type=int(kind),
        data_deps=after,
        ctrl_deps=control,
        duration_micros=us,
    )
    made.attr.extend(attribute(k, v) for k, v in {"is_cpu_op": False, **attributes}.items())
    return made


def compute(number, us, after=(), **attributes):
    return node(number, COMPUTE, after=after, us=us, **attributes)


def collective(number, kind, size, after=(), **attributes):
    return node(number, COLLECTIVE, after=after, comm_type=kind, comm_size=size, **attributes)


def send(number, target, size, after=(), tag=0, **attributes):
    return node(
        number, SEND, after=after, comm_dst=target, comm_size=size, comm_tag=tag, **attributes
    )


def receive(number, source, size, after=(), tag=0, **attributes):
    return node(
        number, RECEIVE, after=after, comm_src=source, comm_size=size, comm_tag=tag, **attributes
    )


def stream(nodes, version="0.0.4", **attributes):
    """Bytes of a trace."""
    metadata = GlobalMetadata(version=version)
    metadata.attr.extend(attribute(k, v) for k, v in attributes.items())
    return framed(metadata) + b"".join(map(framed, nodes))


def write_traces(folder, traces, name="w"):
    """One file an NPU; returns the name a design gives them."""
    for npu, given in enumerate(traces):
        data = given if isinstance(given, bytes) else stream(given)
        (Path(folder) / f"{name}.{npu}.et").write_bytes(data)
    return f"{name}.*.et"


def design_text(trace, shape="RI(4)_SW(2)", tiers="[node, pod]", extra=""):
    """Design of one trace."""
    return (
        f"network:\n  shape: {shape}\n  tiers: {tiers}\n"
        f"workloads:\n  - trace: '{trace}'\n{extra}"
        "constraints:\n  - total <= 100 GB/s\n"
    )


def write_design(folder, trace, **parts):
    """Path of a design of one trace."""
    path = Path(folder) / "d.yaml"
    path.write_text(design_text(trace, **parts))
    return path


SAMPLE = [
    compute(0, 120),
    collective(1, ALL_GATHER, 1_000_000, [0], involved_dim=[True, False]),
    compute(2, 80, [1]),
    collective(3, ALL_REDUCE, 4_000_000, [2], involved_dim=[False, True]),
    compute(4, 200, [2]),
    collective(5, REDUCE_SCATTER, 8_000_000, [4], pg_name="1"),
    node(6, COMPUTE, control=[3, 5], us=10),
]
GROUPS = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
