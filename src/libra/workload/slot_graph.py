"""Slots of a pipeline → `StepGraph`: each kind of slot is written once and tiled as arrays.

A slot is a chain of segments. A segment may need weights that are gathered before it, and may start
a reduction of gradients that only the end of the step waits for; communication beside its
computation, or beside a part of it, ends with it. The last segment may send to the next stage.
After its last slot a stage waits for its reductions, updates its weights and gathers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, distinct
from libra.workload.graph import StepGraph
from libra.workload.slot_labels import SlotLabels
from libra.workload.slots import Slots

__all__ = ["Ahead", "Ending", "Segment", "SlotKind", "slot_graph"]

Ints = NDArray[np.int64]
Counts = tuple[tuple[Collective, float], ...]

PREVIOUS, FEED, EARLY = -1, -2, -3
"""Predecessors outside of a slot: the end of the slot before it on its stage, the result that it
needs, and the last but one segment of the slot before it."""


class Ahead(StrEnum):
    """When what a segment gathers may start.

    ``NOT``: after the segment before it. ``ONE``: a segment earlier, so that no more than two
    segments' weights are there. ``ALL``: at the beginning of the step.
    """

    NOT = "not"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True)
class Segment:
    """A part of a slot.

    Attributes
    ----------
    compute : float
        [s]
    blocking : tuple of (Collective, float)
        Communication between its computations, and how often.
    beside : tuple of (Collective, float)
        Communication that runs beside its computations.
    within : float
        Part of `compute` that runs beside `behind` alone [s].
    behind : tuple of (Collective, float)
        Communication that runs beside that part of its computations.
    gather : tuple of (Collective, float)
        What must be there before.
    reduce : tuple of (Collective, float)
        What starts afterwards and only the step's end waits for.
    ahead : Ahead
        When `gather` may start.
    """

    compute: float
    blocking: Counts = ()
    beside: Counts = ()
    within: float = 0.0
    behind: Counts = ()
    gather: Counts = ()
    reduce: Counts = ()
    ahead: Ahead = Ahead.ONE


@dataclass(frozen=True)
class SlotKind:
    """All slots that do the same work.

    Attributes
    ----------
    segments : tuple of Segment
        At least one, in order.
    send : Collective or None
        What the next stage waits for.
    send_blocks : bool
        The stage itself waits for it, too.
    """

    segments: tuple[Segment, ...]
    send: Collective | None = None
    send_blocks: bool = False


@dataclass(frozen=True)
class Ending:
    """What a stage does after its last slot, one after the other: name, compute, collectives."""

    steps: tuple[tuple[str, float, Counts], ...] = ()


@dataclass
class _Template:
    """Tasks of a kind of slot, predecessors by their index in it or outside of it.

    `labels` are each task's segment, and what it does beside the segment's computation.
    """

    labels: list[tuple[int, str]] = field(default_factory=list)
    fixed: list[float] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    awaited: list[int] = field(default_factory=list)
    end: int = 0
    early: int = 0
    result: int = 0

    def add(self, label: tuple[int, str], fixed: float, counts: Counts, after: list[int]) -> int:
        self.labels.append(label)
        self.fixed.append(fixed)
        self.counts.append(counts)
        self.after.append(after)
        return len(self.fixed) - 1


def _template(kind: SlotKind) -> _Template:
    """Tasks of a kind of slot, in the order in which they queue for links that they share.

    Where collectives run beside computations, those that block are tasks of their own behind them
    in the queue; in one task with the computation they would hold the links all its time.
    """
    made, segments = _Template(), kind.segments
    shared = any(s.beside or s.gather or s.reduce for s in segments)
    ends: list[int] = [EARLY, PREVIOUS]  # of the segments before

    def weights(k: int, start: dict[Ahead, list[int]]) -> list[int]:
        """Task that gathers the weights of a segment, if this is the time to issue it."""
        if k == len(segments) or not segments[k].gather or segments[k].ahead not in start:
            return []
        return [made.add((k, "weights"), 0.0, segments[k].gather, start[segments[k].ahead])]

    gathered = weights(0, {Ahead.NOT: [PREVIOUS], Ahead.ONE: [EARLY], Ahead.ALL: []})
    for k, segment in enumerate(segments):
        ready = [ends[-1], FEED, *gathered] if k == 0 else [ends[-1], *gathered]
        apart = segment.blocking if shared else ()
        together = () if shared else segment.blocking
        here = made.add((k, ""), segment.compute - segment.within, together, ready)
        beside = []
        if segment.beside:
            beside.append(made.add((k, "communication"), 0.0, segment.beside, ready))
        gathered = weights(k + 1, {Ahead.ONE: ends[-1:], Ahead.ALL: []})
        if apart:
            here = made.add((k, "blocking"), 0.0, apart, [here])
        if segment.behind:
            part = made.add((k, "rest"), segment.within, (), [here])
            behind = made.add((k, "exchange"), 0.0, segment.behind, [here])
            here = made.add((k, "joined"), 0.0, (), [part, behind])
        if beside:
            here = made.add((k, "end"), 0.0, (), [here, *beside])
        ends.append(here)
        if segment.reduce:
            made.awaited.append(made.add((k, "gradients"), 0.0, segment.reduce, [here]))
        gathered = gathered or weights(k + 1, {Ahead.NOT: [here]})
    made.end = made.result = ends[-1]
    made.early = ends[-2] if ends[-2] >= 0 else ends[-1]
    if kind.send is not None:
        last = len(kind.segments) - 1
        made.result = made.add((last, "send"), 0.0, ((kind.send, 1.0),), [made.end])
        if kind.send_blocks:
            made.end = made.result
    return made


def slot_graph(
    slots: Slots,
    kinds: Sequence[SlotKind],
    kind_of: Ints,
    endings: Sequence[Ending],
    names: Sequence[tuple[str, ...]],
    name_of: Ints,
    note: Sequence[str] = (),
) -> StepGraph:
    """Graph of a step.

    Parameters
    ----------
    slots : Slots
        In topological order.
    kinds : sequence of SlotKind
        Those that occur.
    kind_of : ndarray of int, shape (slots,)
        Kind of each slot.
    endings : sequence of Ending
        Of each stage.
    names : sequence of tuple of str
        What the segments of slots are called: slots of one kind differ in their layers.
    name_of : ndarray of int, shape (slots,)
        Which of these names each slot has.
    note : sequence of str
        What a user should know about how the graph was made.
    """
    templates = [_template(kind) for kind in kinds]
    flat = [entry for t in templates for counts in t.counts for entry in counts]
    tail = [entry for ending in endings for _, _, counts in ending.steps for entry in counts]
    collectives, index = distinct(c for c, _ in [*flat, *tail])
    length = np.array([len(t.fixed) for t in templates])
    base = np.concatenate([[0], np.cumsum(length)])
    count = length[kind_of]
    offset = np.concatenate([[0], np.cumsum(count)])
    slot = np.repeat(np.arange(len(kind_of)), count)
    row = base[kind_of[slot]] + np.arange(offset[-1]) - offset[slot]

    fixed = np.array([f for t in templates for f in t.fixed])[row]
    entries = np.array([len(c) for t in templates for c in t.counts], dtype=np.int64)
    where = _ragged(entries, row)
    count_index = index[: len(flat)][where]
    count_value = np.array([n for _, n in flat], dtype=np.float64)[where]
    numbers = entries[row]

    awaits = np.array([len(a) for t in templates for a in t.after], dtype=np.int64)
    raw = np.array([p for t in templates for after in t.after for p in after], dtype=np.int64)
    before = raw[_ragged(awaits, row)]
    owner = np.repeat(np.arange(len(row)), awaits[row])
    before = _resolve(before, slot[owner], slots, templates, kind_of, offset)
    kept = before >= 0
    predecessor, owner = before[kept], owner[kept]
    graph = StepGraph(
        fixed,
        collectives,
        np.concatenate([[0], np.cumsum(numbers)]),
        count_index,
        count_value,
        np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(row)))]),
        predecessor,
        slots.stage[slot],
        note=tuple(note),
    )
    flags = np.zeros(base[-1], dtype=np.bool_)
    for k, t in enumerate(templates):
        flags[base[k] + np.array(t.awaited, dtype=np.int64)] = True
    awaited = np.flatnonzero(flags[row])
    ends = np.array([t.end for t in templates])[kind_of] + offset[:-1]
    labels = SlotLabels(
        slots,
        slot,
        row,
        tuple(label for t in templates for label in t.labels),
        tuple(names),
        name_of,
        tuple(f"stage {s} {name}" for s, e in enumerate(endings) for name, _, _ in e.steps),
    )
    return _finish(graph, endings, ends[slots.last], awaited, index[len(flat) :], labels)


def _ragged(lengths: Ints, rows: Ints) -> Ints:
    """Indices of the entries of rows of a ragged array, row after row."""
    start = np.concatenate([[0], np.cumsum(lengths)])
    count = lengths[rows]
    shift = start[rows] - np.concatenate([[0], np.cumsum(count)[:-1]])
    result: Ints = np.arange(count.sum()) + np.repeat(shift, count)
    return result


def _resolve(
    before: Ints,
    slot: Ints,
    slots: Slots,
    templates: Sequence[_Template],
    kind_of: Ints,
    offset: Ints,
) -> Ints:
    """Tasks that predecessors stand for; -1: there is none."""
    result = before + offset[slot]
    ends = {
        PREVIOUS: (slots.previous, [t.end for t in templates]),
        EARLY: (slots.previous, [t.early for t in templates]),
        FEED: (slots.feed, [t.result for t in templates]),
    }
    for code, (source, within) in ends.items():
        task = np.array(within)[kind_of] + offset[:-1]
        chosen = before == code
        from_slot = source[slot[chosen]]
        result[chosen] = np.where(from_slot >= 0, task[from_slot], -1)
    return result


def _finish(
    graph: StepGraph,
    endings: Sequence[Ending],
    last: Ints,
    awaited: Ints,
    index: Ints,
    labels: SlotLabels,
) -> StepGraph:
    """Graph with the endings of the stages, which wait for their reductions."""
    assert graph.places is not None
    task, fixed, counts, after, places, values = graph.tasks, [], [], [], [], []
    for stage, ending in enumerate(endings):
        ready = [int(last[stage]), *awaited[graph.places[awaited] == stage].tolist()]
        for _, compute, collectives in ending.steps:
            fixed.append(compute)
            counts.append(len(collectives))
            values += [n for _, n in collectives]
            after.append(ready)
            places.append(stage)
            ready = [task]
            task += 1
    pre = [len(a) for a in after]
    return replace(
        graph,
        fixed=np.append(graph.fixed, fixed),
        count_start=np.append(graph.count_start, graph.count_start[-1] + np.cumsum(counts)).astype(
            np.int64
        ),
        count_index=np.append(graph.count_index, index),
        count_value=np.append(graph.count_value, values),
        predecessor_start=np.append(
            graph.predecessor_start, graph.predecessor_start[-1] + np.cumsum(pre)
        ).astype(np.int64),
        predecessor=np.append(graph.predecessor, [p for a in after for p in a]).astype(np.int64),
        places=np.append(graph.places, places).astype(np.int64),
        labels=labels,
    )
