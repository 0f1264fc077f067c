"""Traces of several NPUs: who meets whom, and which NPUs are alike.

The k-th send of an NPU to another with a tag meets the k-th receive of that NPU, tag and sender;
the k-th collective of a group meets the k-th of every other member. NPUs whose traces are the same
and whose partners are alike need one copy of the graph: they do everything at the same time.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind
from libra.errors import InputError, Problem
from libra.formats.chakra import NodeType, Trace
from libra.formats.chakra_groups import (
    CollectiveTable,
    Members,
    Placed,
    is_communication,
    pair_of,
    place_collectives,
)
from libra.formats.chakra_wire import ABSENT, Column
from libra.network import Network

__all__ = ["Matched", "match_traces"]

Ints = NDArray[np.int64]
Partner = tuple[int, int]
"""NPU and position of a node."""


@dataclass(eq=False)
class Meeting:
    """A group's collectives: positions of its nodes in each member's trace, in program order."""

    name: str
    size: int
    positions: dict[int, Ints] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Matched:
    """What all NPUs do, one copy of those that are alike.

    Attributes
    ----------
    traces : tuple of Trace, one a class
    collective : tuple of ndarray of int, one a class
        Index of each node's collective; -1: none.
    class_of : ndarray of int, shape (npus,)
        Class of each NPU.
    received : tuple of (int, int, int, int)
        Class and position of a send, class and position of its receive.
    meets : tuple of tuple of (int, int)
        Classes and positions of nodes, of several classes, that are one collective.
    silent : mapping of str to list of str
        Collectives that send nothing, by the reason.
    """

    traces: tuple[Trace, ...]
    collective: tuple[Ints, ...]
    class_of: Ints
    received: tuple[tuple[int, int, int, int], ...]
    meets: tuple[tuple[Partner, ...], ...]
    silent: Mapping[str, list[str]]


def match_traces(
    traces: Sequence[Trace],
    network: Network,
    comm_groups: Mapping[str, Members] | None,
    table: CollectiveTable,
) -> Matched:
    """Match the communications of traces.

    Parameters
    ----------
    traces : sequence of Trace
        One for each NPU in order of their ids, or one that stands for all.
    network : Network
    comm_groups : mapping of str to tuple of int, or None
        Members of each process group.
    table : CollectiveTable
        Gets the distinct collectives.

    Raises
    ------
    InputError
        If a send or receive has no partner, or members of a group run different collectives.
    """
    placed_of: dict[int, Placed] = {}
    silent: dict[str, list[str]] = {}
    for trace in traces:
        if id(trace.columns) in placed_of:  # the same file's content under another name
            continue
        found = place_collectives(trace, network, comm_groups, table)
        placed_of[id(trace.columns)] = found
        for reason, positions in found.silent.items():
            silent.setdefault(reason, []).extend(trace.describe(k) for k in positions)
    placed = [placed_of[id(trace.columns)] for trace in traces]
    if len(traces) == 1:
        _refuse_messages(traces[0])
        return Matched(
            tuple(traces),
            (placed[0].collective,),
            np.zeros(network.npus, dtype=np.int64),
            (),
            (),
            silent,
        )
    return _Matching(traces, placed, network, table).matched(silent)


def _refuse_messages(trace: Trace) -> None:
    """Refuse point-to-point messages where one trace stands for all NPUs."""
    messages = np.isin(trace.types, (NodeType.SEND, NodeType.RECEIVE)) & is_communication(trace)
    if messages.any():
        at = int(np.flatnonzero(messages)[0])
        sends = trace.types[at] == NodeType.SEND
        other = trace.column(Column.COMM_DST if sends else Column.COMM_SRC)[at]
        word = "sends to" if sends else "receives from"
        trace.fail(
            f"{trace.describe(at)} {word} another NPU, whose trace is not given, got NPU {other}. "
            "Give one file for each NPU: trace: NAME.*.et."
        )


class _Matching:
    """Matches messages and collectives of one trace an NPU, then finds which NPUs are alike."""

    def __init__(
        self,
        traces: Sequence[Trace],
        placed: Sequence[Placed],
        network: Network,
        table: CollectiveTable,
    ) -> None:
        self.traces, self.placed, self.network, self.table = traces, placed, network, table
        self.npus = len(traces)
        self.partner: list[dict[int, Partner]] = [{} for _ in traces]
        self.pair: list[dict[int, int]] = [{} for _ in traces]
        self.meetings: dict[tuple[object, ...], Meeting] = {}
        self.joined: list[list[tuple[object, ...]]] = [[] for _ in traces]

    def matched(self, silent: Mapping[str, list[str]]) -> Matched:
        """Everything matched."""
        self.match_messages()
        self.find_meetings()
        for meeting in self.meetings.values():
            self.check_meeting(meeting)
        class_of = self.classes()
        heads = np.unique(class_of, return_index=True)[1].tolist()
        received = tuple(
            (int(class_of[p]), at, c, position)
            for c, r in enumerate(heads)
            for position, (p, at) in sorted(self.partner[r].items())
            if self.traces[r].types[position] == NodeType.RECEIVE
        )
        return Matched(
            tuple(self.traces[r] for r in heads),
            tuple(self.collectives(r) for r in heads),
            class_of,
            received,
            self.meets(class_of, heads),
            silent,
        )

    def collectives(self, npu: int) -> Ints:
        """Collective of each node of an NPU, messages included."""
        result = self.placed[npu].collective.copy()
        for position, index in self.pair[npu].items():
            result[position] = index
        return result

    # --- messages ------------------------------------------------------------------------------

    def match_messages(self) -> None:
        """Pair sends with receives."""
        sends: dict[tuple[int, int, int], list[Partner]] = defaultdict(list)
        receives: dict[tuple[int, int, int], list[Partner]] = defaultdict(list)
        for npu, trace in enumerate(self.traces):
            talks = is_communication(trace)
            for position in np.flatnonzero((trace.types == NodeType.SEND) & talks).tolist():
                sends[self.ends(npu, position, sends=True)].append((npu, position))
            for position in np.flatnonzero((trace.types == NodeType.RECEIVE) & talks).tolist():
                receives[self.ends(npu, position, sends=False)].append((npu, position))
        for key in sorted(sends.keys() | receives.keys()):
            given, taken = sends.get(key, []), receives.get(key, [])
            if len(given) != len(taken):
                self.unmatched(key, given, taken)
            for one, other in zip(given, taken, strict=True):
                self.pair_up(one, other)

    def ends(self, npu: int, position: int, *, sends: bool) -> tuple[int, int, int]:
        """Sender, receiver and tag of a message."""
        trace = self.traces[npu]
        source, target, tag = (
            int(trace.column(c)[position])
            for c in (Column.COMM_SRC, Column.COMM_DST, Column.COMM_TAG)
        )
        own, other = (source, target) if sends else (target, source)
        name, own_name = ("comm_dst", "comm_src") if sends else ("comm_src", "comm_dst")
        if own not in (ABSENT, npu):
            trace.fail(
                f"{trace.describe(position)}: {own_name} is another NPU than the file's, {npu}, "
                f"got {own}. Correct it, or the order of the files."
            )
        if not 0 <= other < self.npus:
            got = "nothing" if other == ABSENT else other
            trace.fail(
                f"{trace.describe(position)}: {name} is an NPU from 0 to {self.npus - 1}, got "
                f"{got}. Correct it."
            )
        tag = 0 if tag == ABSENT else tag
        return (npu, other, tag) if sends else (other, npu, tag)

    def unmatched(
        self, key: tuple[int, int, int], given: list[Partner], taken: list[Partner]
    ) -> None:
        """Refuse a send or receive that nobody answers."""
        source, target, tag = key
        more, what = (given, "send") if len(given) > len(taken) else (taken, "receive")
        npu, position = more[min(len(given), len(taken))]
        trace = self.traces[npu]
        other = f"NPU {target} receives" if what == "send" else f"NPU {source} sends"
        trace.fail(
            f"{trace.describe(position)}: unmatched {what} from NPU {source} to NPU {target} with "
            f"tag {tag}, {other} {min(len(given), len(taken))} such, got {len(more)}. Add its "
            "partner, or correct the tag."
        )

    def pair_up(self, send: Partner, receive: Partner) -> None:
        """Keep a matched message."""
        sizes = [int(self.traces[n].column(Column.COMM_SIZE)[p]) for n, p in (send, receive)]
        trace = self.traces[send[0]]
        if sizes[0] != sizes[1]:
            trace.fail(
                f"{trace.describe(send[1])} and {self.traces[receive[0]].describe(receive[1])} of "
                f"NPU {receive[0]} are one message of different sizes, got {sizes[0]} and "
                f"{sizes[1]} bytes. Correct one."
            )
        self.partner[send[0]][send[1]] = receive
        self.partner[receive[0]][receive[1]] = send
        if sizes[0] > 0 and send[0] != receive[0]:
            group = pair_of(send[0], receive[0], self.network)
            kind = CollectiveKind.POINT_TO_POINT
            self.pair[send[0]][send[1]] = self.table.add(Collective(kind, float(sizes[0]), group))

    # --- collectives ---------------------------------------------------------------------------

    def find_meetings(self) -> None:
        """Positions of each group's collectives in each member's trace."""
        cache: dict[int, list[Ints]] = {}
        for npu, (trace, placed) in enumerate(zip(self.traces, self.placed, strict=True)):
            if id(placed) not in cache:
                cache[id(placed)] = [
                    np.flatnonzero(placed.meeting == k) for k in range(len(placed.meetings))
                ]
            for who, positions in zip(placed.meetings, cache[id(placed)], strict=True):
                key, size = self.meeting_key(npu, who)
                if isinstance(who, tuple) and npu not in who:
                    trace.fail(
                        f"{trace.describe(positions[0])}: NPU {npu} is no member of its process "
                        f"group, got {list(who[:8])}. Correct the comm groups or the file names."
                    )
                meeting = self.meetings.setdefault(key, Meeting(str(who), size))
                meeting.positions[npu] = positions
                self.joined[npu].append(key)

    def meeting_key(self, npu: int, who: Members | int) -> tuple[tuple[object, ...], int]:
        """Which group an NPU joins, and how large it is."""
        if isinstance(who, tuple):
            return ("members", *who), len(who)
        base, rest, unit, size = 0, npu, 1, 1
        for d, n in enumerate(self.network.sizes):
            rest, at = divmod(rest, n)
            if who >> d & 1:
                size *= n
            else:
                base += unit * at
            unit *= n
        return ("dimensions", who, base), size

    def check_meeting(self, meeting: Meeting) -> None:
        """Refuse members of a group that run different collectives."""
        first = min(meeting.positions)
        trace, expected = self.traces[first], meeting.positions[first]
        if len(meeting.positions) != meeting.size:
            trace.fail(
                f"{trace.describe(expected[0])}: not all NPUs of its group run it, got "
                f"{len(meeting.positions)} of {meeting.size}. Give all NPUs' traces."
            )
        kinds = self.placed[first].collective[expected]
        seen = {(id(self.placed[first]), expected.tobytes())}
        for npu, positions in meeting.positions.items():
            mark = (id(self.placed[npu]), positions.tobytes())
            if mark in seen:
                continue
            seen.add(mark)
            found = self.placed[npu].collective[positions]
            if len(found) != len(kinds) or (found != kinds).any():
                k = next(
                    (k for k, (a, b) in enumerate(zip(kinds, found, strict=False)) if a != b),
                    min(len(kinds), len(found)),
                )
                names = [
                    self.traces[n].describe(at[k]) if k < len(at) else "nothing"
                    for n, at in ((first, expected), (npu, positions))
                ]
                raise InputError(
                    Problem(
                        f"collective {k + 1} of a group is not the same on all its NPUs, got "
                        f"{names[0]} on NPU {first} and {names[1]} on NPU {npu}. Correct one.",
                        file=trace.file,
                    )
                )

    # --- which NPUs are alike ------------------------------------------------------------------

    def classes(self) -> Ints:
        """Coarsest classes of NPUs that do the same with partners of the same classes."""
        texts: list[object] = [self.signature(npu) for npu in range(self.npus)]
        class_of = _numbered(texts)
        while True:
            summary = {key: self.summary(m, class_of) for key, m in self.meetings.items()}
            texts = [
                (
                    int(class_of[npu]),
                    tuple(
                        (int(class_of[p]), at) for _, (p, at) in sorted(self.partner[npu].items())
                    ),
                    tuple(summary[key] for key in self.joined[npu]),
                )
                for npu in range(self.npus)
            ]
            finer = _numbered(texts)
            if finer.max() == class_of.max():
                return finer
            class_of = finer

    def signature(self, npu: int) -> bytes:
        """What an NPU does, whoever its partners are."""
        trace, placed = self.traces[npu], self.placed[npu]
        digest = hashlib.blake2b(digest_size=16)
        for column in (
            trace.types,
            trace.durations,
            trace.seconds,
            trace.columns[:, 0],
            trace.column(Column.NUM_OPS),
            trace.column(Column.TENSOR_SIZE),
            trace.dependency_start,
            trace.dependencies,
            placed.meeting,
            self.collectives(npu),
        ):
            digest.update(np.ascontiguousarray(column).tobytes())
            digest.update(b"|")
        return digest.digest()

    def summary(self, meeting: Meeting, class_of: Ints) -> tuple[tuple[int, bytes], ...]:
        """Classes and positions of a group's members, each once."""
        return tuple(
            sorted({(int(class_of[n]), p.tobytes()) for n, p in meeting.positions.items()})
        )

    def meets(self, class_of: Ints, heads: list[int]) -> tuple[tuple[Partner, ...], ...]:
        """Nodes of several classes that are one collective."""
        found: dict[tuple[Partner, ...], None] = {}
        for npu in heads:
            for key in self.joined[npu]:
                summary = self.summary(self.meetings[key], class_of)
                if len(summary) > 1:
                    rows = [
                        [(c, int(p)) for p in np.frombuffer(at, dtype=np.int64)]
                        for c, at in summary
                    ]
                    found |= dict.fromkeys(zip(*rows, strict=True))
        return tuple(found)


def _numbered(texts: Sequence[object]) -> Ints:
    """Number of each value in order of first use."""
    index: dict[object, int] = {}
    return np.array([index.setdefault(t, len(index)) for t in texts], dtype=np.int64)
