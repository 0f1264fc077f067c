"""Chakra execution traces (MLCommons), read: protobuf stream, gzip of it, or JSON.

Times in the file are whole **microseconds**. A public converter writes nanoseconds into the same
field: `read_trace` cannot know, so the design says (``chakra: {durations: ns}``).
"""

from __future__ import annotations

import gzip
import stat
import zlib
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from libra.errors import InputError, Problem, shown
from libra.files import keep_file
from libra.formats.chakra_metadata import VERSIONS, read_metadata
from libra.formats.chakra_wire import (
    ABSENT,
    MISTYPED,
    MOST_MESSAGE,
    ROWS,
    Column,
    Fault,
    scan_block,
)

__all__ = ["NodeType", "Trace", "build_trace", "read_trace"]

Ints = NDArray[np.int64]

BLOCK = 1 << 22
"""Bytes read at a time."""
MOST_NODES = 10_000_000
"""Nodes of the largest trace that is read."""
MOST_UNPACKED = 1 << 36
"""Bytes that a compressed trace may unpack to."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class NodeType(IntEnum):
    """What a node does, as the file numbers it."""

    INVALID = 0
    METADATA = 1
    MEMORY_LOAD = 2
    MEMORY_STORE = 3
    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


@dataclass(frozen=True, eq=False)
class Trace:
    """Nodes of one NPU's trace, sorted by id, as columns.

    Attributes
    ----------
    ids, types : ndarray of int, shape (nodes,)
        Id and `NodeType` of each node.
    durations : ndarray of int, shape (nodes,)
        As the file has them, whole microseconds by the schema.
    seconds : ndarray, shape (nodes,)
        Time to the last digit where libra wrote it, else nan [s].
    columns : ndarray of int, shape (nodes, columns)
        Attributes by `Column`; `ABSENT` where a node does not say.
    group : ndarray of int, shape (nodes,)
        Index into `groups`; -1: the node names none.
    groups : tuple of str
        Names of the process groups.
    dependency_start : ndarray of int, shape (nodes + 1,)
        Node i waits for ``dependencies[dependency_start[i]:dependency_start[i + 1]]``.
    dependencies : ndarray of int
        Positions of nodes, data and control dependencies alike.
    names : tuple of str
        What the file calls each node.
    file : str
        Where it was read from.
    """

    ids: Ints
    types: Ints
    durations: Ints
    seconds: NDArray[np.float64]
    columns: Ints
    group: Ints
    groups: tuple[str, ...]
    dependency_start: Ints
    dependencies: Ints
    names: tuple[str, ...]
    file: str = ""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    def column(self, column: Column) -> Ints:
        """Values of an attribute, shape (nodes,)."""
        result: Ints = self.columns[:, column - Column.IS_CPU_OP]
        return result

    def describe(self, position: int) -> str:
        """What messages call a node."""
        return f"node {self.ids[position]} {shown(self.names[position])}"

    def fail(self, message: str) -> NoReturn:
        """Refuse the trace.

        Raises
        ------
        InputError
        """
        raise InputError(Problem(message, file=self.file))


def read_trace(path: Path) -> Trace:
    """Read an execution trace of one NPU.

    Parameters
    ----------
    path : Path
        Protobuf stream (``.et``), gzip of one, or JSON; recognised by content.

    Returns
    -------
    Trace

    Raises
    ------
    InputError
        If the file cannot be read, is empty, cut off or damaged, is of another schema version, or
        its graph has a cycle.
    """
    name = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            _fail(name, f"is no regular file, got {name[-80:]!r}. Name a file.")
        keep_file(status)
        with path.open("rb") as file:
            start = file.read(64)
            file.seek(0)
            if not start:
                _fail(name, "the trace is empty, got 0 bytes. Is it the right file?")
            if start[:2] == b"\x1f\x8b":
                with gzip.open(file) as unpacked:
                    return _read_unpacked(unpacked, name)
            return _read_unpacked(file, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        _fail(name, f"the compressed data is damaged or cut off, got {error}. Write it again.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _fail(name, f"cannot be read ({reason}), got {name[-80:]!r}. Check the name.")


def _fail(file: str, message: str) -> NoReturn:
    raise InputError(Problem(message, file=file))


def _read_unpacked(file: _Readable, name: str) -> Trace:
    start = file.read(64)
    if start.lstrip()[:1] in (b"{", b"["):
        from libra.formats.chakra_json import MOST_JSON, read_json_trace

        data = start + file.read(MOST_JSON)
        if len(data) > MOST_JSON:
            _fail(name, f"a JSON trace holds at most {MOST_JSON / 1e6:g} MB, got more. Use .et.")
        return read_json_trace(data, name)
    return _Blocks(name).read(start, file)


@dataclass(frozen=True)
class _Part:
    """Nodes of one pass over a block."""

    rows: Ints
    dependencies: Ints
    names: list[str]


class _Blocks:
    """Reads a stream block by block, so that memory follows the nodes and not the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[_Part] = []
        self.groups: dict[str, int] = {}
        self.nodes = 0
        self.read_before = 0
        self.first = True

    def read(self, start: bytes, file: _Readable) -> Trace:
        """Trace of a whole stream."""
        rest = start
        rows = np.empty((ROWS, len(Column)), dtype=np.int64)
        while True:
            block = file.read(max(BLOCK, len(rest)))
            data = rest + block
            if self.read_before + len(data) > MOST_UNPACKED:
                _fail(self.name, f"unpacks to more than {MOST_UNPACKED / 1e9:g} GB. Split it.")
            dependencies = np.empty(len(data), dtype=np.int64)
            used = self.scan(data, rows, dependencies)
            rest = data[used:]
            self.read_before += used
            if not block:
                break
            if len(rest) > MOST_MESSAGE + 16:
                self.stop(Fault.HUGE, len(rest), 0)
        if rest:
            _fail(
                self.name,
                f"is cut off: its last message is not whole, got {len(rest)} bytes of it at byte "
                f"{self.read_before:,}. Write the trace again.",
            )
        return self.finish()

    def scan(self, data: bytes, rows: Ints, dependencies: Ints) -> int:
        """Read the whole messages of a block; return how many bytes they take."""
        at = 0
        if self.first:
            at = read_metadata(data, self.name)
            if at < 0:
                return 0
            self.first = False
        while at < len(data):
            fault, end, nodes, where = scan_block(data, at, False, rows, dependencies)
            if fault not in (Fault.NONE, Fault.FULL):
                self.stop(fault, self.read_before + where, self.nodes + nodes)
            self.keep(data, rows[:nodes], dependencies)
            at = end
            if fault is Fault.NONE:
                break
        return at

    def keep(self, data: bytes, rows: Ints, dependencies: Ints) -> None:
        """Keep the nodes of a pass, with texts in place of where they stand."""
        rows = rows.copy()
        self.nodes += len(rows)
        if self.nodes > MOST_NODES:
            _fail(self.name, f"holds more than {MOST_NODES:,} nodes. Give one step of one NPU.")
        names = _texts(data, rows[:, Column.NAME_AT], rows[:, Column.NAME_LENGTH])
        at, length = rows[:, Column.GROUP_AT], rows[:, Column.GROUP_LENGTH]
        for k in np.flatnonzero(at != ABSENT):
            if length[k] == MISTYPED:
                at[k] = MISTYPED
                continue
            where = int(at[k])
            text = (
                str(where)
                if length[k] < 0
                else data[where : where + int(length[k])].decode("utf-8", "replace")
            )
            at[k] = self.groups.setdefault(text, len(self.groups))
        length[:] = ABSENT
        used = int(rows[-1, Column.DEPENDENCIES]) if len(rows) else 0
        self.parts.append(_Part(rows, dependencies[:used].copy(), names))

    def stop(self, fault: Fault, where: int, node: int) -> NoReturn:
        """Refuse a damaged stream."""
        what = {
            Fault.VARINT: "a number of more than 64 bits",
            Fault.LENGTH: "a field that reaches beyond its message",
            Fault.WIRE_TYPE: "an unknown kind of field",
            Fault.EMPTY: "an empty message",
            Fault.HUGE: f"a message of more than {MOST_MESSAGE / 2**20:g} MiB",
        }
        if fault is Fault.OLD:
            _fail(
                self.name,
                "is of a schema before 0.0.4, whose fields have other numbers, got attributes in "
                f"field 11 at byte {where:,}. Convert it to one of {VERSIONS}.",
            )
        _fail(
            self.name,
            f"is damaged or no Chakra trace, got {what[fault]} at byte {where:,}, in message "
            f"{node + 2:,}. Write it again.",
        )

    def finish(self) -> Trace:
        """Trace of all nodes kept."""
        if not self.nodes:
            _fail(self.name, "the trace holds no nodes, got only metadata. Is it the right file?")
        rows = np.concatenate([p.rows for p in self.parts])
        counts = [np.diff(p.rows[:, Column.DEPENDENCIES], prepend=np.int64(0)) for p in self.parts]
        dependencies = np.concatenate([p.dependencies for p in self.parts])
        names = [name for p in self.parts for name in p.names]
        self.parts = []
        return build_trace(
            rows, np.concatenate(counts), dependencies, names, tuple(self.groups), self.name
        )


def _texts(data: bytes, at: Ints, length: Ints) -> list[str]:
    """Texts of a block, given where they stand."""
    spans = list(zip(at.tolist(), (at + length).tolist(), strict=True))
    # Where all are ASCII, as nearly always, slices of one text are the quickest way.
    text = data.decode("latin-1")
    found = [text[a:b] for a, b in spans]
    if "".join(found).isascii():
        return found
    return [data[a:b].decode("utf-8", "replace") for a, b in spans]


def build_trace(
    rows: Ints,
    counts: Ints,
    dependencies: Ints,
    names: list[str],
    groups: tuple[str, ...],
    file: str,
) -> Trace:
    """Trace of raw columns: sorted by id, dependencies as positions, each value in its range.

    Parameters
    ----------
    rows : ndarray of int, shape (nodes, columns)
        By `Column`; GROUP_AT is an index into `groups` or `ABSENT`.
    counts : ndarray of int, shape (nodes,)
        Dependencies of each node.
    dependencies : ndarray of int
        Ids, of all nodes one after the other.
    names : list of str
    groups : tuple of str
    file : str

    Raises
    ------
    InputError
    """
    ids, types = rows[:, Column.ID], rows[:, Column.TYPE]
    trace = Trace(
        ids=ids,
        types=types,
        durations=rows[:, Column.DURATION],
        seconds=np.where(
            rows[:, Column.SECONDS] == ABSENT,
            np.nan,
            np.ascontiguousarray(rows[:, Column.SECONDS]).view(np.float64),
        ),
        columns=rows[:, Column.IS_CPU_OP :],
        group=np.where(rows[:, Column.GROUP_AT] == ABSENT, -1, rows[:, Column.GROUP_AT]),
        groups=groups,
        dependency_start=np.concatenate([[0], np.cumsum(counts)]),
        dependencies=dependencies,
        names=tuple(names),
        file=file,
    )
    _check_values(trace)
    _check_sizes(trace)
    return _by_id(trace)


def _check_values(trace: Trace) -> None:
    """Refuse values outside their ranges."""
    bad = np.flatnonzero((trace.types < 0) | (trace.types > max(NodeType)))
    if len(bad):
        kind = trace.types[bad[0]]
        trace.fail(f"{trace.describe(bad[0])}: unknown node type, got {kind}. Use 0 to 7.")
    bad = np.flatnonzero(trace.durations < 0)
    if len(bad):
        trace.fail(
            f"{trace.describe(bad[0])}: the duration is out of range, got "
            f"{int(trace.durations[bad[0]]) % 2**64}. Correct it."
        )
    wrong = trace.columns == MISTYPED
    if wrong.any():
        position, column = (int(w[0]) for w in np.nonzero(wrong))
        name = Column(column + Column.IS_CPU_OP).name.lower().replace("group_at", "pg_name")
        trace.fail(
            f"{trace.describe(position)}: {name} is of another type than its name says, got a "
            "value that is no number or text of it. Correct it."
        )
    bad = np.flatnonzero(~np.isnan(trace.seconds) & ~(trace.seconds >= 0))
    if len(bad) or np.isinf(trace.seconds).any():
        at = int(bad[0] if len(bad) else np.flatnonzero(np.isinf(trace.seconds))[0])
        trace.fail(
            f"{trace.describe(at)}: a time is finite and not negative, got {trace.seconds[at]}. "
            "Mend it."
        )


def _check_sizes(trace: Trace) -> None:
    """Refuse communications that do not say how much they send."""
    sends = np.isin(trace.types, (NodeType.SEND, NodeType.RECEIVE, NodeType.COLLECTIVE))
    sends &= trace.column(Column.IS_CPU_OP) != 1
    sends &= trace.column(Column.COMM_TYPE) != 9  # a barrier
    size = trace.column(Column.COMM_SIZE)
    bad = np.flatnonzero(sends & (size < 0))
    if len(bad):
        got = "nothing" if size[bad[0]] == ABSENT else str(size[bad[0]])
        trace.fail(
            f"{trace.describe(bad[0])}: a communication needs comm_size, the bytes it sends, got "
            f"{got} ({len(bad):,} such nodes). A recorded trace gets communicator sizes when it is "
            "linked with the device trace and converted; else add them."
        )


def _by_id(trace: Trace) -> Trace:
    """Trace sorted by id, with positions in place of the dependencies' ids."""
    ids, counts = trace.ids, np.diff(trace.dependency_start)
    if (np.diff(ids) > 0).all():
        order = None
        sorted_ids = ids
    else:
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        twice = np.flatnonzero(np.diff(sorted_ids) == 0)
        if len(twice):
            at = int(order[twice[0] + 1])
            trace.fail(f"two nodes have one id, got {trace.describe(at)}. Give each its own.")
    position = np.searchsorted(sorted_ids, trace.dependencies)
    position = np.minimum(position, len(ids) - 1)
    lost = np.flatnonzero(sorted_ids[position] != trace.dependencies)
    if len(lost):
        owner = int(np.searchsorted(trace.dependency_start, lost[0], side="right")) - 1
        trace.fail(
            f"{trace.describe(owner)} waits for a node that is not in the trace, got id "
            f"{trace.dependencies[lost[0]]}. Add it, or drop the dependency."
        )
    if order is None:
        return replace(trace, dependencies=position)
    starts = trace.dependency_start[:-1][order]
    counts = counts[order]
    begin = np.concatenate([[0], np.cumsum(counts)])
    gather = np.repeat(starts - begin[:-1], counts) + np.arange(begin[-1])
    names = [trace.names[k] for k in order.tolist()]
    return replace(
        trace,
        ids=sorted_ids,
        types=trace.types[order],
        durations=trace.durations[order],
        seconds=trace.seconds[order],
        columns=trace.columns[order],
        group=trace.group[order],
        dependency_start=begin,
        dependencies=position[gather],
        names=tuple(names),
    )
