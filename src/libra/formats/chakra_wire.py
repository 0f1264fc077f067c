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


def _names() -> tuple[NDArray[np.uint8], Ints]:
    """Names of the attributes as rows of bytes: length, then text; and their columns."""
    table = np.zeros((len(ATTRIBUTES), 1 + max(map(len, ATTRIBUTES))), dtype=np.uint8)
    for row, name in zip(table, ATTRIBUTES, strict=True):
        row[0] = len(name)
        row[1 : 1 + len(name)] = list(name.encode())
    return table, np.array(list(ATTRIBUTES.values()), dtype=np.int64)


_NAMES, _COLUMNS = _names()


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
    scan = faster(_scan, (len(data) - start) // 4)  # many bytes are only passed over
    plain = scan is _scan
    source = data if plain else np.frombuffer(data, dtype=np.uint8)
    names = [bytes(row) for row in _NAMES] if plain else _NAMES
    columns = _COLUMNS.tolist() if plain else _COLUMNS
    fault, at, nodes, where = scan(
        source, start, first, rows, dependencies, names, columns, ABSENT, MISTYPED
    )
    return Fault(fault), int(at), int(nodes), int(where)


def _scan(  # noqa: PLR0912, PLR0915 (one loop over bytes: what the compiler can take)
    data: NDArray[np.uint8],
    start: int,
    first: bool,
    rows: Ints,
    dependencies: Ints,
    names: NDArray[np.uint8],
    columns: Ints,
    absent: int,
    mistyped: int,
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
    name_at, name_length, value, value_at, value_kind, bits, count = 0, 0, 0, 0, 0, 0, 0
    while True:
        while depth > 0 and at == end:
            if kind == 3 and value_kind != 0:
                for k in range(len(columns)):
                    if names[k][0] != name_length:
                        continue
                    same = True
                    for i in range(name_length):
                        if names[k][1 + i] != data[name_at + i]:
                            same = False
                            break
                    if not same:
                        continue
                    column = columns[k]
                    if column == 15:  # pg_name: text, or a number
                        rows[node, 15] = value_at if value_kind == 3 else value
                        rows[node, 16] = value if value_kind == 3 else -1
                        if value_kind != 1 and value_kind != 3:  # noqa: PLR1714
                            rows[node, 16] = mistyped
                    elif column == 17:  # involved_dim
                        rows[node, 17] = bits if value_kind == 4 else mistyped
                        rows[node, 18] = count
                    elif column == 14:  # libra_seconds
                        rows[node, 14] = value if value_kind == 2 else mistyped
                    else:
                        rows[node, column] = value if value_kind == 1 else mistyped
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
            width = 8 if wire == 1 else 4
            if end - at < width:
                return 3, message, node, head
            number = 0
            for i in range(width - 1):
                number += int(data[at + i]) << (8 * i)
            last = int(data[at + width - 1])
            number += (last & 127) << (8 * width - 8)
            if last > 127:
                if width == 8:
                    number = number - 4611686018427387904 - 4611686018427387904
                elif kind == 3 and field != 23:  # all but sfixed32 are not signed here
                    number += 2147483648
                else:
                    number -= 2147483648
            at += width
        else:
            return 4, message, node, head
        if kind == 5:
            dependencies[used] = number
            used += 1
            continue
        if kind == 6:
            if count < 62 and number != 0:
                bits += 1 << count
            count += 1
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
                    enter, name_length, value_kind = 3, 0, 0
                elif field == 4 or field == 5:  # noqa: PLR1714
                    enter = 5
                elif field == 2:
                    rows[node, 3], rows[node, 4] = at, number
            elif kind == 3:
                if field == 1:
                    name_at, name_length = at, number
                elif field == 29 or field == 31:  # noqa: PLR1714
                    value_at, value, value_kind = at, number, 3
                elif field == 28:
                    enter, bits, count, value_kind = 4, 0, 0, 4
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
            value = number
            if field == 15 or field == 17:  # noqa: PLR1714
                value = (number >> 1) ^ -(number & 1)
                if number < 0:
                    value = ((number >> 1) & 9223372036854775807) ^ -(number & 1)
            value_kind = 2 if field == 3 else 1
            if field == 5:
                value_kind = 5
        elif kind == 4 and field == 1:
            if count < 62 and number != 0:
                bits += 1 << count
            count += 1
