"""Step time T(B) of a graph for any bandwidths, its critical path and where the time goes.

T(B) is the longest path through the graph with task times f_i + sum_j count_ij tau_j(B). tau_j is
evaluated once per distinct collective, never per task; one evaluation is one pass over the graph.
The path it finds gives a cut that holds for all bandwidths: T(B) >= c + sum_j n_j tau_j(B), with c
and n_j the fixed time and the collective counts along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from libra.collectives import CollectiveModel, collective_pieces, dimension_bytes
from libra.network import Network
from libra.workload.graph import StepGraph, sum_by_index

__all__ = ["Path", "StepTiming", "Terms", "build_timing", "critical_path", "merge_terms"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Above this many tasks the compiled pass repays the import of its compiler (about 0.5 s).
_COMPILE_ABOVE = 50_000


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
        Bytes of each distinct collective in each dimension, over the fraction it reaches [bytes].
    """

    graph: StepGraph
    terms: Terms
    traffic: Floats

    @property
    def step_traffic(self) -> Floats:
        """Bytes that a step costs each dimension, shape (dimensions,) [bytes]."""
        result: Floats = self.graph.total_counts @ self.traffic
        return result

    def busy(self, bandwidth: Floats) -> Floats:
        """Time each dimension is in use during a step, shape (dimensions,) [s]."""
        traffic = self.step_traffic
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(traffic > 0, traffic / bandwidth, 0.0)


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


def build_timing(graph: StepGraph, network: Network, model: CollectiveModel) -> StepTiming:
    """Pieces and traffic of a graph's distinct collectives on a network."""
    dimensions = len(network.dimensions)
    traffic = np.array([dimension_bytes(c, network, model) for c in graph.collectives])
    pieces = [collective_pieces(c, network, model) for c in graph.collectives]
    terms = merge_terms(
        [Terms(p.alpha, p.coefficient, p.forms, np.array([0, len(p.alpha)])) for p in pieces],
        dimensions,
    )
    return StepTiming(graph, terms, traffic.reshape(len(pieces), dimensions))


def merge_terms(parts: Sequence[Terms], dimensions: int) -> Terms:
    """Terms of several collectives or workloads side by side, over the union of their forms."""
    index: dict[bytes, int] = {}
    where = [[index.setdefault(form.tobytes(), len(index)) for form in t.forms] for t in parts]
    coefficient = np.zeros((sum(len(t.alpha) for t in parts), len(index)))
    row, starts = 0, [np.zeros(1, dtype=np.int64)]
    for t, columns in zip(parts, where, strict=True):
        coefficient[row : row + len(t.alpha), columns] = t.coefficient
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


def _weighted(counts: Floats, tau: Floats) -> float:
    used = counts > 0
    return float(counts[used] @ tau[used])


def _longest_path(graph: StepGraph, tau: Floats) -> tuple[float, Floats]:
    """Fixed time and collective counts along the longest path."""
    entries = graph.count_value * tau[graph.count_index]
    duration = graph.fixed + sum_by_index(graph.count_task, entries, graph.tasks)
    trace = _compiled_trace() if graph.tasks > _COMPILE_ABOVE else _trace
    on_path = trace(duration, graph.predecessor_start, graph.predecessor)
    per_task = on_path[graph.count_task]
    counts = sum_by_index(
        graph.count_index[per_task], graph.count_value[per_task], len(graph.collectives)
    )
    return float(graph.fixed[on_path].sum()), counts


def _trace(duration: Floats, start: Ints, predecessor: Ints) -> NDArray[np.bool_]:
    """Mark the tasks on the longest path; one pass forward, one walk back."""
    n = len(duration)
    end = np.zeros(n)
    best = np.full(n, -1)
    last = 0
    for i in range(n):
        ready = 0.0
        for k in range(start[i], start[i + 1]):
            p = predecessor[k]
            if end[p] > ready or best[i] < 0:
                ready = end[p]
                best[i] = p
        end[i] = ready + duration[i]
        if end[i] > end[last]:
            last = i
    on_path = np.zeros(n, dtype=np.bool_)
    while last >= 0:
        on_path[last] = True
        last = best[last]
    return on_path


@cache
def _compiled_trace() -> Callable[[Floats, Ints, Ints], NDArray[np.bool_]]:
    import numba

    return cast(Callable[[Floats, Ints, Ints], NDArray[np.bool_]], numba.njit(_trace))
