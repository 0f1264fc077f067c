"""Step time T(B) of a graph for any bandwidths, its critical path and where the time goes.

T(B) is the longest path through the graph with task times f_i + sum_j count_ij tau_j(B). tau_j is
evaluated once per distinct collective, never per task; one evaluation is one pass over the graph.
The path it finds gives a cut that holds for all bandwidths: T(B) >= c + sum_j n_j tau_j(B), with c
and n_j the fixed time and the collective counts along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from libra.collectives import CollectiveModel, dimension_bytes
from libra.jit import faster
from libra.network import Network
from libra.pieces import Schedule, collective_pieces
from libra.queues import add_queues
from libra.workload.graph import StepGraph, sum_by_index

__all__ = [
    "Path",
    "StepTiming",
    "Terms",
    "build_timing",
    "critical_path",
    "merge_terms",
    "task_ends",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Terms:
    """Times of some collectives as pieces over shared linear forms of the bandwidths.

    ``tau_j(B) = max_p alpha_p + sum_f coefficient_pf / (forms_f . B)`` over the pieces p with
    ``start[j] <= p < start[j + 1]``.

    Attributes
    ----------
    alpha : ndarray, shape (pieces,)
        [s]
    coefficient : ndarray, shape (pieces, forms)
        [bytes]
    forms : ndarray, shape (forms, dimensions)
        [1]
    start : ndarray of int, shape (collectives + 1,)
        First piece of each collective.
    """

    alpha: Floats
    coefficient: Floats
    forms: Floats
    start: Ints

    @property
    def collectives(self) -> int:
        """Number of collectives."""
        return len(self.start) - 1

    @cached_property
    def owner(self) -> Ints:
        """Collective of each piece, shape (pieces,)."""
        return np.repeat(np.arange(self.collectives), self.pieces)

    @cached_property
    def pieces(self) -> Ints:
        """Number of pieces of each collective, shape (collectives,)."""
        return np.diff(self.start)

    def piece_times(self, bandwidth: Floats) -> Floats:
        """Time of each piece [s], shape (pieces,); infinite where a needed bandwidth is 0."""
        reach = self.forms @ bandwidth
        if reach.all():
            return self.alpha + self.coefficient @ (1 / reach)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(self.coefficient > 0, self.coefficient / reach, 0.0)
        result: Floats = self.alpha + terms.sum(axis=1)
        return result

    def times(self, bandwidth: Floats) -> Floats:
        """Time of each collective [s], shape (collectives,)."""
        if self.collectives == 0:
            return np.zeros(0)
        result: Floats = np.maximum.reduceat(self.piece_times(bandwidth), self.start[:-1])
        return result


@dataclass(frozen=True, eq=False)
class StepTiming:
    """A step graph with what is needed to time it on a network.

    Attributes
    ----------
    graph : StepGraph
        Tasks.
    terms : Terms
        Times of the graph's distinct collectives.
    traffic : ndarray, shape (collectives, dimensions)
        Bytes of each distinct collective in each dimension, over the fraction it reaches, with
        chunks in the fixed order [bytes].
    """

    graph: StepGraph
    terms: Terms
    traffic: Floats

    @property
    def place_counts(self) -> Floats:
        """How often each NPU that differs (pipeline stage) runs each distinct collective in a step.

        Shape (places, collectives).
        """
        graph = self.graph
        if graph.places is None:
            return graph.total_counts[None, :]
        collectives = len(graph.collectives)
        key = graph.places[graph.count_task] * collectives + graph.count_index
        size = (int(graph.places.max()) + 1) * collectives
        return sum_by_index(key, graph.count_value, size).reshape(-1, collectives)

    @cached_property
    def step_traffic(self) -> Floats:
        """Bytes that a step costs each dimension of an NPU, shape (dimensions,) [bytes].

        Chunks in the fixed order. Of NPUs that differ (pipeline stages) the largest.
        """
        most: Floats = (self.place_counts @ self.traffic).max(axis=0)
        return most


@dataclass(frozen=True, eq=False)
class Path:
    """Longest path: ``time = fixed + counts . tau(B)`` at the bandwidths it was found for.

    Attributes
    ----------
    time : float
        Step time [s].
    fixed : float
        Compute on the path, c [s].
    counts : ndarray, shape (collectives,)
        How often each distinct collective is on the path, n.
    """

    time: float
    fixed: float
    counts: Floats


def build_timing(
    graph: StepGraph,
    network: Network,
    model: CollectiveModel,
    schedules: Sequence[Schedule] | None = None,
) -> StepTiming:
    """Time model of a graph on a network: queues, pieces and traffic of its collectives.

    Parameters
    ----------
    graph : StepGraph
        What the program waits for.
    network : Network
    model : CollectiveModel
    schedules : sequence of Schedule, one a distinct collective, or None
        None: what no schedules that the model allows can beat.
    """
    dimensions = len(network.dimensions)
    traffic = np.array([dimension_bytes(c, network, model) for c in graph.collectives])
    chosen = schedules if schedules is not None else [None] * len(graph.collectives)
    pieces = [
        collective_pieces(c, network, model, schedule)
        for c, schedule in zip(graph.collectives, chosen, strict=True)
    ]
    terms = merge_terms(
        [Terms(p.alpha, p.coefficient, p.forms, np.array([0, len(p.alpha)])) for p in pieces],
        dimensions,
    )
    queued = add_queues(graph, network, model)
    return StepTiming(queued, terms, traffic.reshape(len(graph.collectives), dimensions))


def merge_terms(parts: Sequence[Terms], dimensions: int) -> Terms:
    """Terms of several collectives or workloads side by side, over the union of their forms."""
    index: dict[bytes, int] = {}
    where = [[index.setdefault(form.tobytes(), len(index)) for form in t.forms] for t in parts]
    coefficient = np.zeros((sum(len(t.alpha) for t in parts), len(index)))
    row, starts = 0, [np.zeros(1, dtype=np.int64)]
    for t, columns in zip(parts, where, strict=True):
        for k, column in enumerate(columns):  # a form may stand twice in one part
            coefficient[row : row + len(t.alpha), column] += t.coefficient[:, k]
        starts.append(t.start[1:] + row)
        row += len(t.alpha)
    forms = np.frombuffer(b"".join(index), dtype=np.float64).reshape(len(index), dimensions)
    alpha = np.concatenate([np.zeros(0), *(t.alpha for t in parts)])
    return Terms(alpha, coefficient, forms, np.concatenate(starts))


def critical_path(timing: StepTiming, bandwidth: Floats) -> Path:
    """Longest path of a step at given bandwidths.

    Parameters
    ----------
    timing : StepTiming
        The step on its network.
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]

    Returns
    -------
    Path
        Its time is infinite if a collective needs a dimension whose bandwidth is 0.
    """
    graph = timing.graph
    tau = timing.terms.times(bandwidth)
    if graph.is_chain:
        fixed, counts = graph.total_fixed, graph.total_counts
    else:
        fixed, counts = _longest_path(graph, tau)
    return Path(fixed + _weighted(counts, tau), fixed, counts)


def task_ends(timing: StepTiming, bandwidth: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Start and end of each task [s], each as early as it can, and whether it is critical.

    A task is critical if it is on the longest path that `critical_path` takes.
    """
    graph = timing.graph
    tau = timing.terms.times(bandwidth)
    entries = graph.count_value * tau[graph.count_index]
    duration = graph.fixed + sum_by_index(graph.count_task, entries, graph.tasks)
    end = np.empty(graph.tasks)
    faster(_walk, graph.tasks)(*graph.arrays, tau, end)
    critical = np.zeros(graph.tasks, dtype=np.bool_)
    at = int(end.argmax())
    while at >= 0:
        critical[at] = True
        before = graph.predecessor[graph.predecessor_start[at] : graph.predecessor_start[at + 1]]
        at = int(before[end[before].argmax()]) if len(before) else -1
    return end - duration, end, critical


def _weighted(counts: Floats, tau: Floats) -> float:
    used = counts > 0
    return float(counts[used] @ tau[used])


def _longest_path(graph: StepGraph, tau: Floats) -> tuple[float, Floats]:
    """Fixed time and collective counts along the longest path."""
    walk = faster(_walk, graph.tasks)
    if walk is _walk:  # plain Python is faster on lists
        fixed, counts = walk(*graph.lists, tau.tolist(), [0.0] * graph.tasks)
    else:
        fixed, counts = walk(*graph.arrays, tau, np.empty(graph.tasks))
    return float(fixed), counts


def _walk(
    fixed: Floats,
    count_start: Ints,
    count_index: Ints,
    count_value: Floats,
    start: Ints,
    predecessor: Ints,
    tau: Floats,
    end: Floats,
) -> tuple[float, Floats]:
    """One pass forward for the end of each task, one walk back along those that were waited for."""
    last, latest = 0, -1.0
    for i in range(len(fixed)):
        time = 0.0
        for k in range(start[i], start[i + 1]):
            ready = end[predecessor[k]]
            if ready > time:  # noqa: PLR1730 (max() takes three times as long)
                time = ready
        time += fixed[i]
        for k in range(count_start[i], count_start[i + 1]):
            time += count_value[k] * tau[count_index[k]]
        end[i] = time
        if time > latest:
            last, latest = i, time
    total = 0.0
    counts = np.zeros(len(tau))
    while last >= 0:
        total += fixed[last]
        for k in range(count_start[last], count_start[last + 1]):
            counts[count_index[k]] += count_value[k]
        awaited, latest = -1, -1.0
        for k in range(start[last], start[last + 1]):
            if end[predecessor[k]] > latest:
                awaited, latest = predecessor[k], end[predecessor[k]]
        last = awaited
    return total, counts
