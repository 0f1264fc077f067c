"""Chakra execution traces, written: protobuf stream, or gzip of it by the file's name.

Durations are whole microseconds by the schema, so each computation also carries its exact time
(``libra_seconds``) and, for simulators with a roofline, operations at a rate of 1000 a nanosecond.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from libra.collectives import Collective, CollectiveKind
from libra.files import write_whole
from libra.formats.chakra import NodeType
from libra.formats.chakra_lower import LoweredNode

__all__ = ["Address", "TraceWriter", "comm_size", "nanoseconds", "write_trace"]

VERSION = "0.0.4"
OPERATIONS_PER_NS = 1000
"""Peak of 1 TFLOP/s, which turns operations into nanoseconds."""

_COMM_TYPES = {
    CollectiveKind.ALL_REDUCE: 0,
    CollectiveKind.ALL_GATHER: 2,
    CollectiveKind.BROADCAST: 5,
    CollectiveKind.ALL_TO_ALL: 6,
    CollectiveKind.REDUCE_SCATTER: 7,
}

Address = tuple[str, tuple[bool, ...]]
"""How a trace says who takes part: name of a process group (empty: none), dimensions (or none)."""


def comm_size(collective: Collective) -> int:
    """Size as a trace has it: the shard of an all-gather, at least a byte [bytes]."""
    gathered = collective.group.size if collective.kind is CollectiveKind.ALL_GATHER else 1
    return max(1, round(collective.size / gathered))


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, at least one: simulators give a node without time one, too."""
    return max(1, round(seconds * 1e9))


class TraceWriter:
    """Writes the traces of all NPUs that run the same nodes.

    What they share is made once; who takes part in a collective or message is appended to it.

    Parameters
    ----------
    nodes : sequence of LoweredNode
        In order of their ids.
    """

    def __init__(self, nodes: Sequence[LoweredNode]) -> None:
        from libra.formats.chakra_messages import AttributeProto, GlobalMetadata

        metadata = GlobalMetadata(version=VERSION)
        metadata.attr.append(AttributeProto(name="schema", string_val=f"1.1.1-chakra.{VERSION}"))
        data = metadata.SerializeToString()
        self.nodes = nodes
        self.start = _length(len(data)) + data
        self.shared = [_shared(number, node) for number, node in enumerate(nodes)]
        self.addresses: dict[Address, bytes] = {}

    def trace(self, addresses: Sequence[Address], peers: Sequence[int], npu: int) -> bytes:
        """Trace of one NPU.

        Parameters
        ----------
        addresses : sequence of Address, one a node
            Who takes part in a collective; anything for other nodes.
        peers : sequence of int, one a node
            NPU that a message goes to or comes from; anything for other nodes.
        npu : int
            The NPU.
        """
        parts = [self.start]
        for node, shared, address, peer in zip(
            self.nodes, self.shared, addresses, peers, strict=True
        ):
            own = b""
            if node.type is NodeType.COLLECTIVE:
                if address not in self.addresses:
                    self.addresses[address] = _attributes(_address(address))
                own = self.addresses[address]
            elif node.type is not NodeType.COMPUTE:
                own = _attributes(_ends(node, npu, peer))
            parts += (_length(len(shared) + len(own)), shared, own)
        return b"".join(parts)


def _shared(number: int, node: LoweredNode) -> bytes:
    """Message of a node without what differs between NPUs."""
    from libra.formats.chakra_messages import AttributeProto, Node

    message = Node(id=number, name=node.name, type=int(node.type), data_deps=node.after)
    attributes: list[Any] = [AttributeProto(name="is_cpu_op", bool_val=False)]
    if node.type is NodeType.COMPUTE:
        message.duration_micros = round(node.seconds * 1e6)
        operations = nanoseconds(node.seconds) * OPERATIONS_PER_NS + OPERATIONS_PER_NS // 2
        attributes += [
            AttributeProto(name="libra_seconds", double_val=node.seconds),
            AttributeProto(name="num_ops", int64_val=operations),
            AttributeProto(name="tensor_size", uint64_val=1),
        ]
    elif node.collective is not None:
        size = comm_size(node.collective)
        attributes.append(AttributeProto(name="comm_size", int64_val=size))
        if node.type is NodeType.COLLECTIVE:
            kind = _COMM_TYPES[node.collective.kind]
            attributes.append(AttributeProto(name="comm_type", int64_val=kind))
    message.attr.extend(attributes)
    data: bytes = message.SerializeToString()
    return data


def _attributes(attributes: Iterable[Any]) -> bytes:
    """Attributes as a node's message has them, to be appended to it."""
    from libra.formats.chakra_messages import Node

    message = Node()
    message.attr.extend(attributes)
    data: bytes = message.SerializeToString()
    return data


def _address(address: Address) -> list[Any]:
    from libra.formats.chakra_messages import AttributeProto

    name, dimensions = address
    result = [AttributeProto(name="pg_name", string_val=name)] if name else []
    if dimensions:
        attribute = AttributeProto(name="involved_dim")
        attribute.bool_list.values.extend(dimensions)
        result.append(attribute)
    return result


def _ends(node: LoweredNode, npu: int, peer: int) -> list[Any]:
    from libra.formats.chakra_messages import AttributeProto

    source, target = (npu, peer) if node.type is NodeType.SEND else (peer, npu)
    return [
        AttributeProto(name="comm_src", int32_val=source),
        AttributeProto(name="comm_dst", int32_val=target),
        AttributeProto(name="comm_tag", int32_val=node.tag),
    ]


def _length(value: int) -> bytes:
    """Length of a message as the wire has it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_trace(path: Path, data: bytes) -> None:
    """Write a trace, compressed if the name ends with ``.gz``.

    Raises
    ------
    InputError
        If it cannot be written there.
    """
    content = gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
    write_whole(path, content, make_folder=True)
