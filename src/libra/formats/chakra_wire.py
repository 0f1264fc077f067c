"""Bytes of a Chakra execution trace → columns, one row a node.

A trace is a stream of protobuf messages, each after its length: GlobalMetadata, then Nodes (the
public schema is in ``chakra.proto``). Building a Python object for each of a million nodes would
take a minute and gigabytes, so one loop reads the wire format into an array: as plain Python for
small files, compiled for large ones. It trusts nothing: every length stays inside the message that
holds it.

References
----------
.. [1] Sridharan et al., "Chakra: Advancing performance benchmarking and co-design using
   standardized execution traces", arXiv 2305.14516, 2023.
.. [2] Protocol Buffers, "Encoding", protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from libra.jit import faster

__all__ = ["ABSENT", "ATTRIBUTES", "Column", "Fault", "scan_block"]

Ints = NDArray[np.int64]

ABSENT = -(2**63) + 1
"""What stands in a column where a node does not say."""
MISTYPED = -(2**63) + 2
"""What stands in a column where the value is of another type than its attribute's."""


class Column(IntEnum):
    """Columns of the array that `scan_block` fills."""

    ID = 0
    TYPE = auto()
    DURATION = auto()
    NAME_AT = auto()
    NAME_LENGTH = auto()
    DEPENDENCIES = auto()
    """Where the node's dependencies end in the array of all."""
    IS_CPU_OP = auto()
    COMM_TYPE = auto()
    COMM_SIZE = auto()
    COMM_SRC = auto()
    COMM_DST = auto()
    COMM_TAG = auto()
    NUM_OPS = auto()
    TENSOR_SIZE = auto()
    SECONDS = auto()
    """Bits of a double: the exact time, which libra writes beside whole microseconds."""
    GROUP_AT = auto()
    """Where the text of ``pg_name`` begins, or the number it is."""
    GROUP_LENGTH = auto()
    """Its length; -1: it is a number."""
    DIMS = auto()
    """``involved_dim`` as bits."""
    DIMS_COUNT = auto()


ATTRIBUTES: dict[str, Column] = {
    "is_cpu_op": Column.IS_CPU_OP,
    "comm_type": Column.COMM_TYPE,
    "comm_size": Column.COMM_SIZE,
    "comm_src": Column.COMM_SRC,
    "comm_dst": Column.COMM_DST,
    "comm_tag": Column.COMM_TAG,
    "num_ops": Column.NUM_OPS,
    "tensor_size": Column.TENSOR_SIZE,
    "libra_seconds": Column.SECONDS,
    "pg_name": Column.GROUP_AT,
    "involved_dim": Column.DIMS,
}
"""Attributes that count, and the column of each."""


class Fault(IntEnum):
    """Why `scan_block` stopped."""

    NONE = 0
    """The block is read to its last whole message."""
    FULL = auto()
    """The output is full; call again from where it stopped."""
    VARINT = auto()
    LENGTH = auto()
    WIRE_TYPE = auto()
    EMPTY = auto()
    HUGE = auto()
    OLD = auto()
    """Attributes stand where schemas before 0.0.4 have them."""


MOST_MESSAGE = 1 << 26
"""Bytes of the largest message that is read: recorded tensors' lists take a few MB."""
ROWS = 1 << 16
"""Nodes read at a time."""


_KINDS = {Column.SECONDS: 2, Column.GROUP_AT: 1, Column.DIMS: 4}
"""Kind of value that an attribute has, if not a whole number."""
_FIXED = MISTYPED + 1
"""Values of fixed width are left where they stand: this plus 4 x their place plus their kind."""
_FIXED_END = _FIXED + (1 << 40)
_WIDTHS = ("<u4", "<i4", "<i8")


def _hash(name: bytes) -> int:
    """Hash of an attribute's name, as `_scan` makes it."""
    result = len(name)
    for byte in name:
        result = (result * 1_000_003 + byte) & 0xFFFFFFFFFFF
    return result


def _table() -> Ints:
    """Hash, column and allowed kinds (as bits) of each attribute."""
    rows = []
    for name, column in ATTRIBUTES.items():
        kinds = 1 << _KINDS.get(column, 1) | (8 if column == Column.GROUP_AT else 0)
        rows.append([_hash(name.encode()), column, kinds])
    return np.array(rows, dtype=np.int64)


_TABLE = _table()


def scan_block(
    data: bytes, start: int, first: bool, rows: Ints, dependencies: Ints
) -> tuple[Fault, int, int, int]:
    """Read whole messages of a block of a trace.

    Parameters
    ----------
    data : bytes
        The block.
    start : int
        Where to begin.
    first : bool
        Whether the first message is the GlobalMetadata, which is passed over.
    rows : ndarray of int, shape (most nodes, columns)
        Gets one row a node.
    dependencies : ndarray of int
        Gets the dependencies of all nodes, at least as long as the block.

    Returns
    -------
    fault : Fault
        Why it stopped.
    at : int
        Where: the beginning of the message that is not whole, or is at fault.
    nodes : int
        Rows filled.
    where : int
        Byte at fault.
    """
    # This loop takes longer to compile than most, and passes over many bytes: less counts as work.
    scan = faster(_scan, (len(data) - start) // 12)
    plain = scan is _scan
    source = data if plain else np.frombuffer(data, dtype=np.uint8)
    table = _TABLE.tolist() if plain else _TABLE
    fault, at, nodes, where = scan(source, start, first, rows, dependencies, table, ABSENT)
    _read_fixed(np.frombuffer(data, dtype=np.uint8), rows[:nodes])
    return Fault(fault), int(at), int(nodes), int(where)


def _scan(  # noqa: PLR0912, PLR0915 (one loop over bytes: what the compiler can take)
    data: NDArray[np.uint8],
    start: int,
    first: bool,
    rows: Ints,
    dependencies: Ints,
    table: Ints,
    absent: int,
) -> tuple[int, int, int, int]:
    """Walk over keys and values with a stack of the messages that are open.

    Depth 0 is the stream of messages, each after its length; 1 a message; 2 an attribute or packed
    dependencies; 3 an attribute's list; 4 its packed values. `kind`: 0 stream, 1 metadata (passed
    over), 2 node, 3 attribute, 4 list, 5 packed dependencies, 6 packed values.
    """
    stop, most = len(data), len(rows)
    ends = np.zeros(6, np.int64)
    kinds = np.zeros(6, np.int64)
    ends[0] = stop
    at, depth, kind, end = start, 0, 0, stop
    message, node, used = start, 0, 0
    name, value, value_kind, extra = 0, 0, 0, 0
    while True:
        while depth > 0 and at == end:
            if kind == 3 and value_kind > 0:
                for k in range(len(table)):
                    if table[k][0] == name:
                        column = table[k][1]
                        rows[node, column] = value
                        if (table[k][2] >> value_kind) & 1 == 0:
                            rows[node, column] = absent + 1
                        if column > 14:  # a text's length, a list's
                            rows[node, column + 1] = extra
            if kind == 2:
                rows[node, 5] = used
                node += 1
            depth -= 1
            kind, end = kinds[depth], ends[depth]
        if depth == 0:
            message = at
            if at >= stop:
                return 0, at, node, at
            if node >= most:
                return 1, at, node, at
        key, wire, field = 2, 2, 0
        head = at
        # A key before each value, but not between messages nor in packed lists.
        if 0 < kind < 5:
            key, shift = 0, 0
            while True:
                if at >= end:
                    return 3, message, node, head
                byte = int(data[at])
                at += 1
                key += (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 28:
                    return 2, message, node, head
            wire, field = key & 7, key >> 3
            if field == 0:
                return 4, message, node, head
        elif kind >= 5:
            wire = 0
        if wire == 0 or wire == 2:  # noqa: PLR1714
            number, shift = 0, 0
            while True:
                if at >= end:
                    if depth == 0:
                        return 0, message, node, head
                    return 3, message, node, head
                byte = int(data[at])
                at += 1
                if shift == 63:
                    if byte > 1:
                        return 2, message, node, head
                    if byte == 1:  # two's complement, in plain Python and compiled
                        number = number - 4611686018427387904 - 4611686018427387904
                    break
                number += (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
        elif wire == 1 or wire == 5:  # noqa: PLR1714
            number = absent + 2 + 4 * at + (2 if wire == 1 else 1 if field == 23 else 0)
            at += 8 if wire == 1 else 4
            if at > end:
                return 3, message, node, head
        else:
            return 4, message, node, head
        if kind == 5:
            dependencies[used] = number
            used += 1
            continue
        if kind == 6:
            if extra < 62 and number != 0:
                value += 1 << extra
            extra += 1
            continue
        if wire == 2:
            if depth == 0:
                if number == 0 and not first:
                    return 5, message, node, head
                if number < 0 or number > 67108864:
                    return 6, message, node, head
                if number > end - at:
                    return 0, message, node, head
                depth, end = 1, at + number
                kind = 1 if first else 2
                first = False
                kinds[1], ends[1] = kind, end
                if kind == 1:
                    at = end
                    continue
                for k in range(19):
                    rows[node, k] = absent
                rows[node, 0] = 0
                rows[node, 1] = 0
                rows[node, 2] = 0
                rows[node, 4] = 0
                continue
            if number < 0 or number > end - at:
                return 3, message, node, head
            enter = 0
            if kind == 2:
                if field == 11:
                    return 7, message, node, head
                if field == 10:
                    enter, name, value_kind = 3, 0, 0
                elif field == 4 or field == 5:  # noqa: PLR1714
                    enter = 5
                elif field == 2:
                    rows[node, 3], rows[node, 4] = at, number
            elif kind == 3:
                if field == 1:
                    name = number
                    for i in range(number):
                        name = (name * 1000003 + int(data[at + i])) & 17592186044415
                elif field == 29 or field == 31:  # noqa: PLR1714
                    value, extra, value_kind = at, number, 3
                elif field == 28:
                    enter, value, extra, value_kind = 4, 0, 0, 4
                elif field > 2:
                    value_kind = 5
            elif kind == 4 and field == 1:
                enter = 6
            if enter > 0:
                depth += 1
                kind, end = enter, at + number
                kinds[depth], ends[depth] = kind, end
            else:
                at += number
            continue
        if kind == 2:
            if wire == 0:
                if field == 4 or field == 5:  # noqa: PLR1714
                    dependencies[used] = number
                    used += 1
                elif field == 1:
                    rows[node, 0] = number
                elif field == 3:
                    rows[node, 1] = number
                elif field == 7:
                    rows[node, 2] = number
        elif kind == 3:
            value, extra = number, -1
            if field == 15 or field == 17:  # noqa: PLR1714
                value = (number >> 1) ^ -(number & 1)
                if number < 0:
                    value = ((number >> 1) & 9223372036854775807) ^ -(number & 1)
            value_kind = 2 if field == 3 else 1
            if field == 5:
                value_kind = 5
        elif kind == 4 and field == 1:
            if extra < 62 and number != 0:
                value += 1 << extra
            extra += 1


def _read_fixed(data: NDArray[np.uint8], rows: Ints) -> None:
    """Read the values of fixed width that `_scan` has left where they stand."""
    places = rows[:, Column.SECONDS]
    found = np.flatnonzero((places >= _FIXED) & (places < _FIXED_END))
    at = (places[found] - _FIXED) >> 2
    places[found] = data[at[:, None] + np.arange(8)].view("<i8")[:, 0]
    rest = rows[:, Column.IS_CPU_OP :]
    for row, column in zip(*np.nonzero((rest >= _FIXED) & (rest < _FIXED_END)), strict=True):
        if column + Column.IS_CPU_OP != Column.SECONDS:
            place, kind = divmod(int(rest[row, column]) - _FIXED, 4)
            rest[row, column] = np.frombuffer(data, _WIDTHS[kind], 1, place)[0]
