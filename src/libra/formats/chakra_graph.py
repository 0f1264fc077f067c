"""Chakra traces → a `StepGraph`, with the queues of ASTRA-sim.

An NPU runs one computation, one communication and one operation of its host at a time
(`libra.workload.list_schedule`); receives wait for the sender and occupy nothing. The order in
which operations queue is that of an infinitely fast network, where the lowest id goes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective
from libra.errors import InputError, Problem
from libra.formats.chakra import NodeType, Trace
from libra.formats.chakra_groups import CollectiveTable, Members, is_communication
from libra.formats.chakra_match import Matched, match_traces
from libra.formats.chakra_options import TraceOptions
from libra.formats.chakra_wire import ABSENT, Column
from libra.network import Network
from libra.units import format_time
from libra.workload.graph import StepGraph, predecessor_rows
from libra.workload.list_schedule import list_schedule, lowest_first

__all__ = ["PlacedTrace", "node_seconds", "trace_graph"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RESOURCES = 3
"""Host, computation, communication."""
_LONG_STEP = 600.0
"""Computation of a step beyond which a note asks about the unit of durations [s]."""


@dataclass(frozen=True, eq=False)
class PlacedTrace:
    """A step graph with who runs what.

    Attributes
    ----------
    graph : StepGraph
    npu_places : ndarray of int, shape (npus,), or None
        Place of each NPU in the graph; None: all run the same.
    """

    graph: StepGraph
    npu_places: Ints | None


def node_seconds(trace: Trace, options: TraceOptions) -> Floats:
    """Time of each node that does not communicate, shape (nodes,) [s].

    libra's own exact time, else the duration in the unit that the options say, else by roofline
    ``max(operations / peak, bytes / memory)``.

    Raises
    ------
    InputError
        If a node has operations or bytes but no duration, and the options no roofline.
    """
    times = trace.durations * options.durations.seconds
    exact = ~np.isnan(trace.seconds)
    times = np.where(exact, trace.seconds, times)
    computes = np.isin(trace.types, (NodeType.COMPUTE, NodeType.MEMORY_LOAD, NodeType.MEMORY_STORE))
    operations, size = trace.column(Column.NUM_OPS), trace.column(Column.TENSOR_SIZE)
    operations, size = (np.where(c == ABSENT, 0, c) for c in (operations, size))
    operations = np.where(trace.types == NodeType.COMPUTE, operations, 0)
    bad = np.flatnonzero((operations < 0) | (size < 0))
    if len(bad):
        at = int(bad[0])
        trace.fail(
            f"{trace.describe(at)}: num_ops and tensor_size are not negative, got "
            f"{operations[at]} and {size[at]}. Correct them."
        )
    memory = trace.types != NodeType.COMPUTE
    undated = computes & ~exact & (trace.durations == 0) & (operations > 0)
    undated |= computes & ~exact & (trace.durations == 0) & memory & (size > 0)
    if undated.any():
        if options.peak is None or options.memory is None:
            at = int(np.flatnonzero(undated)[0])
            trace.fail(
                f"{trace.describe(at)}: has operations (num_ops) or bytes (tensor_size) but no "
                f"duration, as {int(undated.sum()):,} nodes, got 0 us. Say how fast an NPU is: "
                "chakra: {peak: 300 TFLOP/s, memory: 2 TB/s}, with your accelerator's figures."
            )
        roofline = np.maximum(operations / options.peak, size / options.memory)
        times = np.where(undated, roofline, times)
    result: Floats = np.where(is_communication(trace), 0.0, times)
    return result


def trace_graph(
    traces: Sequence[Trace],
    network: Network,
    options: TraceOptions,
    comm_groups: Mapping[str, Members] | None,
) -> PlacedTrace:
    """Step graph of the traces of a workload.

    Parameters
    ----------
    traces : sequence of Trace
        One for each NPU in order of their ids, or one that stands for all.
    network : Network
    options : TraceOptions
        Unit of durations, roofline.
    comm_groups : mapping of str to tuple of int, or None
        Members of each process group.

    Raises
    ------
    InputError
        If the traces do not fit the network or each other.
    """
    if len(traces) not in (1, network.npus):
        raise InputError(
            Problem(
                f"needs one trace for each NPU of {network.shape}, {network.npus}, or one for all, "
                f"got {len(traces)}. Correct the network's shape or the file names.",
                file=traces[0].file,
            )
        )
    table = CollectiveTable()
    matched = match_traces(traces, network, comm_groups, table)
    quotient = _Quotient(matched, options)
    graph = quotient.graph(table, _notes(matched, options, quotient))
    several = len(matched.traces) > 1
    return PlacedTrace(graph, matched.class_of if several else None)


def _notes(matched: Matched, options: TraceOptions, quotient: _Quotient) -> tuple[str, ...]:
    """What a user should know about how the graph was made."""
    notes = [
        f"{len(where)} of its collectives send nothing, the first in {where[0]}: {reason}"
        for reason, where in matched.silent.items()
    ]
    longest = float(np.bincount(quotient.place, quotient.seconds).max())
    if longest > _LONG_STEP:
        notes.append(
            f"its computations take {format_time(longest)} a step. If a converter wrote "
            "nanoseconds where the schema has microseconds, say chakra: {durations: ns}"
        )
    return tuple(notes)


class _Quotient:
    """Nodes of one NPU of each class, numbered class after class."""

    def __init__(self, matched: Matched, options: TraceOptions) -> None:
        self.matched = matched
        traces = matched.traces
        self.offset = np.cumsum([0, *(t.nodes for t in traces)])
        self.nodes = int(self.offset[-1])
        self.place = np.repeat(np.arange(len(traces)), [t.nodes for t in traces])
        self.seconds = np.concatenate([node_seconds(t, options) for t in traces])
        self.collective = np.concatenate(matched.collective)
        kinds = np.concatenate([_resource(t) for t in traces])
        self.resource = np.where(kinds < 0, -1, kinds + RESOURCES * self.place)
        later, earlier = [], []
        for c, trace in enumerate(traces):
            owner = np.repeat(np.arange(trace.nodes), np.diff(trace.dependency_start))
            later.append(owner + self.offset[c])
            earlier.append(trace.dependencies + self.offset[c])
        if matched.received:
            pairs = np.array(matched.received, dtype=np.int64)
            earlier.append(self.offset[pairs[:, 0]] + pairs[:, 1])
            later.append(self.offset[pairs[:, 2]] + pairs[:, 3])
        self.later, self.earlier = np.concatenate(later), np.concatenate(earlier)
        self.meet = self.joined()

    def joined(self) -> Ints:
        """Number of the collective of several classes that each node is part of, else -1."""
        meet = np.full(self.nodes, -1, dtype=np.int64)
        for number, members in enumerate(self.matched.meets):
            index = [int(self.offset[c]) + p for c, p in members]
            for old in {int(meet[i]) for i in index if meet[i] >= 0}:
                meet[meet == old] = number
            meet[index] = number
        return meet

    def order(self) -> Ints:
        """Nodes in the order in which they start on an infinitely fast network.

        Raises
        ------
        InputError
            If nodes wait for each other.
        """
        start, predecessor = predecessor_rows(self.later, self.earlier, self.nodes)
        if len(self.matched.traces) == 1 and not self.matched.meets:
            order = lowest_first(start, predecessor)
        else:
            durations = np.where(self.collective >= 0, 0.0, self.seconds).tolist()
            order = list_schedule(
                durations, self.resource.tolist(), start, predecessor, self.meet.tolist()
            ).order
        if len(order) < self.nodes:
            self.refuse_cycle(order)
        return order

    def refuse_cycle(self, order: Ints) -> None:
        """Refuse nodes that wait for each other, naming some of them."""
        left = np.ones(self.nodes, dtype=np.bool_)
        left[order] = False
        waits = {
            int(a): int(b)
            for a, b in zip(self.later, self.earlier, strict=True)
            if left[a] and left[b]
        }
        at = next(iter(waits), int(np.flatnonzero(left)[0]))
        path: dict[int, None] = {}
        while at in waits and at not in path:
            path[at] = None
            at = waits[at]
        circle = [*path][[*path].index(at) :] if at in path else [at]
        names = [self.describe(i) for i in circle[:4]]
        shown = " waits for ".join([*names, "…" if len(circle) > 4 else names[0]])
        trace = self.matched.traces[int(self.place[circle[0]])]
        trace.fail(
            f"nodes wait for each other, so that none can start, got {shown}"
            f"{'' if at in path else ', which never starts'}. Remove one of the dependencies."
        )

    def describe(self, index: int) -> str:
        """What messages call a node."""
        c = int(self.place[index])
        return self.matched.traces[c].describe(index - int(self.offset[c]))

    def graph(self, table: CollectiveTable, notes: Sequence[str]) -> StepGraph:
        """Step graph: nodes, and a task before each collective of several classes."""
        order = self.order()
        meets = int(self.meet.max()) + 1
        tasks = self.nodes + meets
        rank = np.empty(tasks, dtype=np.int64)
        rank[order] = 2 * np.arange(self.nodes) + 1
        entry = np.where(self.meet >= 0, self.nodes + self.meet, np.arange(self.nodes))
        joined = np.flatnonzero(self.meet >= 0)
        rank[self.nodes :] = 2 * self.nodes
        np.minimum.at(rank, entry[joined], rank[joined] - 1)
        later, earlier = self.queued(order)
        later = np.concatenate([entry[self.later], entry[later], joined])
        earlier = np.concatenate([self.earlier, earlier, entry[joined]])
        by_rank = np.argsort(rank, kind="stable")
        position = np.empty(tasks, dtype=np.int64)
        position[by_rank] = np.arange(tasks)
        start, predecessor = predecessor_rows(position[later], position[earlier], tasks)
        nodes = by_rank < self.nodes
        source = np.minimum(by_rank, self.nodes - 1)
        used = np.where(nodes, self.collective[source], -1)
        several = len(self.matched.traces) > 1
        kinds, index = _by_first_use(used[used >= 0], tuple(table.index))
        return StepGraph(
            fixed=np.where(nodes, self.seconds[source], 0.0),
            collectives=kinds,
            count_start=np.concatenate([[0], np.cumsum(used >= 0)]),
            count_index=index,
            count_value=np.ones(int((used >= 0).sum())),
            predecessor_start=start,
            predecessor=predecessor,
            places=np.where(nodes, self.place[source], 0) if several else None,
            labels=self.labels(by_rank),
            note=tuple(notes),
        )

    def queued(self, order: Ints) -> tuple[Ints, Ints]:
        """Pairs of operations that follow each other on a resource."""
        busy = order[self.resource[order] >= 0]
        by_resource = busy[np.argsort(self.resource[busy], kind="stable")]
        same = np.diff(self.resource[by_resource]) == 0
        return by_resource[1:][same], by_resource[:-1][same]

    def labels(self, by_rank: Ints) -> tuple[str, ...]:
        """Names of the tasks."""
        traces = self.matched.traces
        if len(traces) == 1 and (np.diff(by_rank) == 1).all():
            return traces[0].names
        names = [name for trace in traces for name in trace.names]
        names += ["collective begins"] * (len(by_rank) - self.nodes)
        return tuple(names[k] for k in by_rank.tolist())


def _by_first_use(
    index: Ints, collectives: tuple[Collective, ...]
) -> tuple[tuple[Collective, ...], Ints]:
    """Collectives in order of their first use, and the index of each use among them."""
    first = np.full(len(collectives), len(index), dtype=np.int64)
    np.minimum.at(first, index, np.arange(len(index)))
    order = np.argsort(first, kind="stable")[: int((first < len(index)).sum())]
    rank = np.zeros(len(collectives), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(collectives[k] for k in order.tolist()), rank[index]


def _resource(trace: Trace) -> Ints:
    """Resource of each node: 0 host, 1 computation, 2 communication; -1 none."""
    result = np.full(trace.nodes, -1, dtype=np.int64)
    result[trace.types == NodeType.COMPUTE] = 1
    communicates = (
        NodeType.SEND,
        NodeType.COLLECTIVE,
        NodeType.MEMORY_LOAD,
        NodeType.MEMORY_STORE,
    )
    result[np.isin(trace.types, communicates)] = 2
    on_host = trace.column(Column.IS_CPU_OP) == 1
    result[on_host & (trace.types >= NodeType.MEMORY_LOAD) & ~is_communication(trace)] = 0
    return result
