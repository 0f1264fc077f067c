"""A second opinion on step times: a discrete simulation of every chunk of every collective.

Each dimension of an NPU is a server that serves chunks first come, first served. The equal chunks
of a collective visit the dimensions in order: an all-reduce is a reduce-scatter in all dimensions
but the last, an all-reduce there, and an all-gather back. In a dimension a chunk is a row of
messages

    endpoint delay + (hops x latency + bytes / speed),    and one endpoint delay at the end,

on a ring e - 1 messages of 1/e of its data (twice that for an all-reduce), in a fully connected
block one (or two) over all links at once, on a switch log2 e messages of 1/2, 1/4, … of its data,
for an all-to-all e - 1 messages of 1/e. None of it uses the formulas of `libra.pieces`, so that
agreement means something. These are the rules of ASTRA-sim's analytical network (Won et al.,
"ASTRA-sim2.0", ISPASS 2023), whose results it reproduces; see the accuracy page.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from libra.collectives import (
    AllToAll,
    Collective,
    CollectiveKind,
    CollectiveModel,
    dimension_efficiency,
    reachable_fraction,
    size_efficiency,
)
from libra.errors import FieldError
from libra.jit import faster
from libra.network import Dimension, Network, Topology
from libra.queues import links_of
from libra.workload.graph import StepGraph

__all__ = ["Messages", "Simulation", "Stage", "message_rows", "simulate_graph", "stages_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Link = tuple[int, int]

_MOST_CHUNK_VISITS = 50_000_000


class Messages(StrEnum):
    """How a chunk is cut into messages in one dimension."""

    RING = "ring"
    DIRECT = "direct"
    HALVING_DOUBLING = "halving-doubling"
    PAIRWISE = "pairwise"


@dataclass(frozen=True)
class Stage:
    """One visit of a chunk to a dimension: which links it occupies and for how long [s]."""

    link: Link
    time: float


@dataclass(frozen=True, eq=False)
class Simulation:
    """What was simulated.

    Attributes
    ----------
    time : float
        When the last task ended [s].
    start, end : ndarray, shape (tasks,)
        Of each task [s].
    chunk_task, chunk_link : ndarray of int, shape (visits,)
        Which task and link each visit of a chunk belongs to.
    chunk_start, chunk_end : ndarray, shape (visits,)
        When it was served [s].
    links : tuple
        (dimension, lane) of each link index.
    """

    time: float
    start: Floats
    end: Floats
    chunk_task: Ints
    chunk_link: Ints
    chunk_start: Floats
    chunk_end: Floats
    links: tuple[Link, ...]


def message_rows(
    how: Messages, kind: CollectiveKind, data: float, members: int
) -> list[tuple[int, float]]:
    """Messages, one after the other, of a chunk in one dimension: (hops, bytes).

    Parameters
    ----------
    how : Messages
    kind : CollectiveKind
        What the dimension does; all-reduces are twice a reduce-scatter.
    data : float
        Bytes before a reduce-scatter, after an all-gather, of the buffer otherwise.
    members : int
        Members of the group along the dimension.
    """
    ways = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    part = data / members
    match how:
        case Messages.RING if kind is CollectiveKind.ALL_TO_ALL:
            return [(1, part)] * (members * (members - 1) // 2)
        case Messages.RING:
            return [(1, part)] * (ways * (members - 1))
        case Messages.DIRECT:
            return [(1, part)] * ways
        case Messages.PAIRWISE:
            return [(min(k, members - k), part) for k in range(1, members)]
        case Messages.HALVING_DOUBLING:
            steps = (members - 1).bit_length()
            halves = [data / 2 ** (k + 1) for k in range(steps - 1)]
            return [(1, size) for size in (*halves, data - part - sum(halves))] * ways


def row_time(
    rows: Sequence[tuple[int, float]], speed: float, hop: float, endpoint: float, tick: float
) -> float:
    """Time of messages one after the other [s].

    Parameters
    ----------
    rows : sequence of (int, float)
        Hops and bytes of each message.
    speed : float
        [bytes/s]
    hop : float
        Latency of a hop [s].
    endpoint : float
        Delay of an NPU for each message, and once more at the end [s].
    tick : float
        Messages take whole ticks, rounded down [s]; 0: any time.
    """
    total = endpoint
    for hops, size in rows:
        time = hops * hop + size / speed
        total += endpoint + (math.floor(time / tick + 1e-9) * tick if tick else time)
    return total


def stages_of(
    collective: Collective,
    network: Network,
    model: CollectiveModel,
    bandwidth: Floats,
    chunks: int,
    tick: float = 0.0,
) -> tuple[Stage, ...]:
    """Visits of one chunk of a collective, in order.

    Parameters
    ----------
    collective : Collective
    network : Network
    model : CollectiveModel
        Latencies, efficiencies, all-to-all messages; ``compat: libra`` gives a group a dimension's
        whole bandwidth.
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    chunks : int
        Number of chunks.
    tick : float
        See `row_time`.
    """
    lanes = dict(links_of(collective, network))
    data = collective.size / chunks
    kind, extents = collective.kind, collective.group.extents
    used = list(lanes)
    visits: list[tuple[int, CollectiveKind, float]] = []
    if kind in (CollectiveKind.ALL_TO_ALL, CollectiveKind.POINT_TO_POINT):
        visits = [(d, kind, data) for d in used]
    else:
        sizes = []
        for d in used:
            sizes.append(data)
            data /= extents[d]
        up = [(d, CollectiveKind.REDUCE_SCATTER, s) for d, s in zip(used, sizes, strict=True)]
        down = [(d, CollectiveKind.ALL_GATHER, s) for d, _, s in reversed(up)]
        if kind is CollectiveKind.REDUCE_SCATTER:
            visits = up
        elif kind is CollectiveKind.ALL_GATHER:
            visits = down
        else:
            visits = [*up[:-1], (used[-1], kind, sizes[-1]), *down[1:]]
    return tuple(
        Stage(
            (d, lanes[d]),
            _visit_time(
                collective, network.dimensions[d], d, what, size, float(bandwidth[d]), model, tick
            ),
        )
        for d, what, size in visits
    )


def _visit_time(
    collective: Collective,
    dimension: Dimension,
    d: int,
    kind: CollectiveKind,
    data: float,
    bandwidth: float,
    model: CollectiveModel,
    tick: float,
) -> float:
    """Time of one chunk in one dimension [s]."""
    extent, stride = collective.group.extents[d], collective.group.strides[d]
    published = model.compat is not None
    reached = dimension_efficiency(collective, dimension, d) * size_efficiency(collective, model)
    nominal = bandwidth * reached
    how = _messages_in(dimension, kind, model)
    if kind is CollectiveKind.POINT_TO_POINT:
        rows, speed = [(1, data)], nominal / _links_shared(dimension, stride)
    elif dimension.in_network and collective.kind is CollectiveKind.ALL_REDUCE:
        rows, speed = _reducing_switch(kind, data, extent), nominal
    elif (
        kind is CollectiveKind.ALL_TO_ALL and dimension.topology is Topology.RING and not published
    ):
        rows, speed = _ring_exchange(dimension, extent, stride, data, nominal, how)
    else:
        rows = _generic_rows(how, kind, data, extent)
        speed = nominal * reachable_fraction(dimension, extent, stride)
        speed /= extent - 1 if how is Messages.DIRECT else 1
    if published:
        return row_time([(0, size) for _, size in rows], bandwidth, 0.0, 0.0, tick)
    hops = {Topology.RING: stride, Topology.SWITCH: 2 * dimension.switch_tiers}
    hop = dimension.latency * hops.get(dimension.topology, 1)
    return row_time(rows, speed, hop, model.endpoint_delay, tick)


def _generic_rows(
    how: Messages, kind: CollectiveKind, data: float, extent: int
) -> list[tuple[int, float]]:
    """Messages over one hop each; of a broadcast, parts that flow on through all members."""
    rows = message_rows(how, kind, data, extent)
    if kind is CollectiveKind.BROADCAST:
        parts = extent - 1 if how is Messages.DIRECT else len(rows)
        return [(1, data / parts)] * len(rows)
    return [(1, size) for _, size in rows]


def _reducing_switch(kind: CollectiveKind, data: float, extent: int) -> list[tuple[int, float]]:
    """One message up: all data to be reduced, or the own part to be multicast."""
    return [(1, data / extent if kind is CollectiveKind.ALL_GATHER else data)]


def _ring_exchange(
    dimension: Dimension, extent: int, stride: int, data: float, nominal: float, how: Messages
) -> tuple[list[tuple[int, float]], float]:
    """All-to-all on a ring: neighbours' flows share the links that a message crosses.

    On a closed ring both directions work at once; on a line one of them is the bottleneck.
    """
    closed = extent * stride == dimension.size
    hops = [min(k, extent - k) if closed else k for k in range(1, extent)]
    part = data / extent
    if not closed:
        # The middle of a line carries extent^2 / 4 parts, as evenly as the distances allow.
        weight = (extent * extent // 4) / sum(hops)
        rows = [(h, 2 * weight * h * stride * part) for h in hops]
    else:
        rows = [(h, h * stride * part) for h in hops]
    if how is Messages.DIRECT:
        rows = [(max(hops), sum(size for _, size in rows))]
    return rows, nominal


def _links_shared(dimension: Dimension, stride: int) -> int:
    """Links, or flows on one, that a neighbour-to-neighbour message has 1 of."""
    return {
        Topology.RING: 2 * stride,
        Topology.FULLY_CONNECTED: dimension.size - 1,
        Topology.SWITCH: 1,
    }[dimension.topology]


def _messages_in(dimension: Dimension, kind: CollectiveKind, model: CollectiveModel) -> Messages:
    if kind is CollectiveKind.ALL_TO_ALL:
        direct = model.all_to_all is AllToAll.DIRECT or (
            model.all_to_all is None
            and model.compat is None
            and dimension.topology is Topology.FULLY_CONNECTED
        )
        return Messages.DIRECT if direct else Messages.PAIRWISE
    return {
        Topology.RING: Messages.RING,
        Topology.FULLY_CONNECTED: Messages.DIRECT if model.compat is None else Messages.RING,
        Topology.SWITCH: Messages.HALVING_DOUBLING,
    }[dimension.topology]


def simulate_graph(
    graph: StepGraph, stages: Sequence[Sequence[Stage]], chunks: Sequence[int]
) -> Simulation:
    """Simulate a step.

    Parameters
    ----------
    graph : StepGraph
        What the program waits for, without queues: the simulation has its own.
    stages : sequence of sequence of Stage, one a distinct collective
        Visits of one of its chunks.
    chunks : sequence of int, one a distinct collective
        Number of chunks.

    Raises
    ------
    FieldError
        If a collective runs a broken number of times, or there are too many chunks to simulate.
    """
    if len(graph.count_value) and (graph.count_value != np.round(graph.count_value)).any():
        raise FieldError(
            "count_value", "only whole counts can be simulated, got others. Mend them."
        )
    places = np.zeros(graph.tasks, dtype=np.int64) if graph.places is None else graph.places
    names = sorted({stage.link for visits in stages for stage in visits})
    lane = {name: k for k, name in enumerate(names)}
    start = np.cumsum([0, *(len(v) for v in stages)])
    visit_link = np.array([lane[s.link] for v in stages for s in v], dtype=np.int64)
    visit_time = np.array([s.time for v in stages for s in v])
    per = np.array(chunks, dtype=np.int64)
    visits = int((graph.total_counts * np.diff(start) * per).sum()) if len(per) else 0
    if visits > _MOST_CHUNK_VISITS:
        raise FieldError(
            "chunks",
            f"{visits:,} visits of chunks are too many to simulate, got more than "
            f"{_MOST_CHUNK_VISITS:,}. Use fewer chunks.",
        )
    followers, follower_start = _followers(graph)
    run = faster(_run, 20 * visits + graph.tasks)
    waiting = np.diff(graph.predecessor_start)
    begin, end, log_task, log_link, log_start, log_end = run(
        graph.fixed,
        graph.count_start,
        graph.count_index,
        graph.count_value.astype(np.int64),
        follower_start,
        followers,
        waiting.copy(),
        places,
        start,
        visit_link,
        visit_time,
        per,
        len(names),
        int(places.max()) + 1,
        visits,
    )
    order = tuple(names)
    return Simulation(float(end.max()), begin, end, log_task, log_link, log_start, log_end, order)


def _followers(graph: StepGraph) -> tuple[Ints, Ints]:
    """Tasks that wait for each task, as rows of one array."""
    task = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
    order = np.argsort(graph.predecessor, kind="stable")
    counts = np.bincount(graph.predecessor, minlength=graph.tasks)
    return task[order], np.concatenate([[0], np.cumsum(counts)])


def _run(  # noqa: PLR0912, PLR0915 (one loop over arrays: what the compiler can take)
    fixed: Floats,
    count_start: Ints,
    count_index: Ints,
    count_value: Ints,
    follower_start: Ints,
    followers: Ints,
    waiting: Ints,
    places: Ints,
    start: Ints,
    visit_link: Ints,
    visit_time: Floats,
    chunks: Ints,
    lanes: int,
    nodes: int,
    visits: int,
) -> tuple[Floats, Floats, Ints, Ints, Floats, Floats]:
    """Event loop. A chunk in flight has a number; queues are linked lists of such numbers.

    Events are (time, order, kind, number): kind 0, a task's compute has ended; 1, a visit of a
    chunk has. Each event may finish a task's current work, append chunks to queues, and leave
    links (`look`) that may have something to serve.
    """
    tasks, most = len(fixed), max(1, visits)
    begin, end = np.zeros(tasks), np.zeros(tasks)
    entry = count_start[:-1].copy()
    repeat, left = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    chunk_task, chunk_visit = np.zeros(most, np.int64), np.zeros(most, np.int64)
    following = np.full(most, -1)
    head, tail = np.full(lanes * nodes + 1, -1), np.full(lanes * nodes + 1, -1)
    busy = np.zeros(lanes * nodes + 1, np.bool_)
    log_task, log_link = np.zeros(visits, np.int64), np.zeros(visits, np.int64)
    log_start, log_end = np.zeros(visits), np.zeros(visits)
    logged = used = order = 0
    events = [(0.0, 0, 0, 0)]
    events.pop()
    for i in range(tasks):
        if waiting[i] == 0:
            order += 1
            heapq.heappush(events, (fixed[i], order, 0, i))
    look = np.zeros(2, np.int64)
    while len(events) > 0:
        now, _, kind, number = heapq.heappop(events)
        ready, looks, first, last = -1, 0, 0, 0
        if kind == 0:
            ready = number
        else:
            task, visit = chunk_task[number], chunk_visit[number]
            link = visit_link[visit] * nodes + places[task]
            busy[link] = False
            if visit + 1 < start[count_index[entry[task]] + 1]:
                chunk_visit[number] = visit + 1
                first, last = number, number + 1
                look[0] = visit_link[visit + 1] * nodes + places[task]
                looks = 1
            else:
                left[task] -= 1
                if left[task] == 0:
                    ready = task
                    repeat[task] += 1
                    if repeat[task] == count_value[entry[task]]:
                        entry[task] += 1
                        repeat[task] = 0
            if looks == 0 or look[0] != link:
                look[looks] = link
                looks += 1
        if ready >= 0 and entry[ready] < count_start[ready + 1]:
            j = count_index[entry[ready]]
            left[ready] = chunks[j]
            first, last = used, used + chunks[j]
            chunk_task[first:last], chunk_visit[first:last] = ready, start[j]
            used = last
            target = visit_link[start[j]] * nodes + places[ready]
            if looks == 1 and look[0] != target:
                look[1] = look[0]
                looks = 2
            looks = max(looks, 1)
            look[0] = target
        elif ready >= 0:
            end[ready] = now
            for f in range(follower_start[ready], follower_start[ready + 1]):
                other = followers[f]
                waiting[other] -= 1
                if waiting[other] == 0:
                    begin[other] = now
                    order += 1
                    heapq.heappush(events, (now + fixed[other], order, 0, other))
        for chunk in range(first, last):
            following[chunk] = -1
            if tail[look[0]] >= 0:
                following[tail[look[0]]] = chunk
            else:
                head[look[0]] = chunk
            tail[look[0]] = chunk
        for k in range(looks):
            link = look[k]
            served = head[link]
            if not busy[link] and served >= 0:
                head[link] = following[served]
                if head[link] < 0:
                    tail[link] = -1
                busy[link] = True
                done = now + visit_time[chunk_visit[served]]
                log_task[logged], log_start[logged], log_end[logged] = chunk_task[served], now, done
                log_link[logged] = visit_link[chunk_visit[served]]
                logged += 1
                order += 1
                heapq.heappush(events, (done, order, 1, served))
    return begin, end, log_task[:logged], log_link[:logged], log_start[:logged], log_end[:logged]
