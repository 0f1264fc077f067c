"""A problem in plain numbers: what every way is given, and how its answer is judged.

The bytes of a collective in each dimension are computed here once more, by the formulas of the
reference implementation (github astra-sim/libra, ``src/model/model.py``): with P the product of the
group's extents e in the dimensions further in, an all-reduce of m bytes sends 2 m (e - 1) / (e P),
a reduce-scatter or all-gather half of that, an all-to-all m (e - 1) / e. m is the full buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind, Compatibility
from libra.design import Design, Objective
from libra.load import load_design
from libra.timing import Path as CriticalPath
from libra.timing import StepTiming, Terms, critical_path
from libra.workload.graph import StepGraph
from others.problems import Kind, Problem
from registry.frozen import folder_fingerprint, graph_fingerprint
from registry.graphs import graph_design, is_graph, make_graph
from registry.inputs import write_design

__all__ = ["Answer", "Step", "collective_bytes", "load_step"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """What a way found.

    Attributes
    ----------
    status : str
        ``solved``, ``time limit`` or ``failed``.
    bandwidth : ndarray, shape (dimensions,), or None
        [bytes/s]
    bound : float or None
        What it proves that nothing can beat, in the objective's unit.
    proven : bool
        It claims to have proven its answer the best, within its tolerance.
    reached : float or None
        Time until it was at `Step.target` [s], where it knows.
    remark : str
    """

    status: str
    bandwidth: Floats | None = None
    bound: float | None = None
    proven: bool = False
    reached: float | None = None
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Step:
    """A problem in numbers.

    Attributes
    ----------
    kind : Kind
    design : Design
    graph : StepGraph
    traffic : ndarray, shape (collectives, dimensions)
        Bytes of each distinct collective in each dimension.
    total : float
        Bandwidth to spread over the dimensions [bytes/s].
    price : ndarray, shape (dimensions,)
        [USD per byte/s]
    product : bool
        Time x cost is minimised, not the time.
    lanes : tuple of ndarray
        Bandwidths that each dimension may have [bytes/s]; empty: any.
    target : float
        Objective at which a way has arrived.
    fingerprint : str
        Of the input, see `registry.frozen`.
    """

    kind: Kind
    design: Design
    graph: StepGraph
    traffic: Floats
    total: float
    price: Floats
    product: bool
    lanes: tuple[Floats, ...] = ()
    target: float = -np.inf
    fingerprint: str = ""

    @cached_property
    def timing(self) -> StepTiming:
        """Step time of the graph by `traffic`: each collective as slow as its slowest dimension."""
        count, dimensions = self.traffic.shape
        coefficient = np.vstack([np.diag(row) for row in self.traffic])
        start = np.arange(count + 1) * dimensions
        terms = Terms(np.zeros(len(coefficient)), coefficient, np.eye(dimensions), start)
        return StepTiming(self.graph, terms, self.traffic)

    def path(self, bandwidth: Floats) -> CriticalPath:
        """Step time and its critical path."""
        return critical_path(self.timing, bandwidth)

    def cost(self, bandwidth: Floats) -> float:
        """Cost of the network [USD]."""
        return float(self.price @ bandwidth)

    def value(self, bandwidth: Floats) -> float:
        """Objective."""
        time = self.path(bandwidth).time
        return time * self.cost(bandwidth) if self.product else time

    def slope(self, bandwidth: Floats) -> tuple[float, Floats]:
        """Objective and a subgradient of it (where it is not convex, of its linearisation)."""
        path = self.path(bandwidth)
        each = self.traffic / bandwidth
        slowest = each.argmax(axis=1)
        sent = np.zeros_like(self.traffic)
        rows = np.arange(len(slowest))
        sent[rows, slowest] = path.counts * self.traffic[rows, slowest]
        gradient = -sent.sum(axis=0) / bandwidth**2
        if not self.product:
            return path.time, gradient
        cost = self.cost(bandwidth)
        return path.time * cost, gradient * cost + path.time * self.price

    @property
    def equal(self) -> Floats:
        """The total shared equally."""
        return np.full(len(self.price), self.total / len(self.price))

    @cached_property
    def least_share(self) -> Floats:
        """Shares of the total that no answer better than the equal split can go below.

        A path through the graph takes its fixed time and, for each dimension, at least its bytes
        there over the dimension's bandwidth.
        """
        path = self.path(self.equal)
        time = path.time
        if self.product:
            time *= self.cost(self.equal) / (self.total * float(self.price.min()))
        share: Floats = (path.counts @ self.traffic) / self.total / (time - path.fixed)
        return share * (1 - 1e-9)

    def merged(self) -> tuple[Floats, Floats]:
        """Bytes of each distinct collective and dimension, and how often it counts.

        In a chain all its runs are one of as many bytes; in a graph each run is in its task.
        """
        if self.kind is Kind.GRAPH:
            return self.traffic, np.ones(len(self.traffic))
        counts = self.graph.total_counts
        return self.traffic * counts[:, None], np.ones_like(counts)

    def layers(self) -> tuple[Floats, Floats]:
        """Bytes of every collective of the step for itself, and how often it runs."""
        index = self.graph.count_index
        return self.traffic[index], self.graph.count_value

    def feasible(self, bandwidth: Floats) -> Floats | None:
        """An answer that meets the limits exactly: scaled to the total, or its nearest lanes.

        None: it is far from any.
        """
        if not (np.isfinite(bandwidth).all() and (bandwidth >= 0).all() and bandwidth.any()):
            return None
        if abs(bandwidth.sum() / self.total - 1) > 1e-4:
            return None
        if not self.lanes:
            scaled: Floats = bandwidth * (self.total / bandwidth.sum())
            return scaled
        nearest = np.array(
            [lane[np.abs(lane - b).argmin()] for lane, b in zip(self.lanes, bandwidth, strict=True)]
        )
        return nearest if abs(nearest.sum() / self.total - 1) < 1e-9 else None


_TIMES = {
    CollectiveKind.ALL_REDUCE: 2.0,
    CollectiveKind.REDUCE_SCATTER: 1.0,
    CollectiveKind.ALL_GATHER: 1.0,
}


def collective_bytes(collective: Collective) -> Floats:
    """Bytes that a collective sends in each dimension, see the head of this module."""
    found, inside = [], 1
    for extent in collective.group.extents:
        part = (extent - 1) / extent
        if collective.kind is CollectiveKind.ALL_TO_ALL:
            found.append(collective.size * part)
        else:
            found.append(_TIMES[collective.kind] * collective.size * part / inside)
        inside *= extent
    return np.array(found)


def load_step(problem: Problem, target: float | None = None) -> Step:
    """Problem in numbers.

    Parameters
    ----------
    problem : Problem
    target : float or None
        See `Step`.
    """
    if is_graph(problem.input):
        made = make_graph(problem.input)
        fingerprint = graph_fingerprint(made)
        design = graph_design(made, Compatibility.LIBRA)
    else:
        with TemporaryDirectory() as folder:
            path = write_design(problem.input, Path(folder))
            fingerprint = folder_fingerprint(path.parent)
            design = load_design(path)
    design = replace(design, objective=Objective(problem.objective))
    graph = design.workloads[0].graph
    return Step(
        problem.kind,
        design,
        graph,
        np.array([collective_bytes(c) for c in graph.collectives]),
        design.constraints[0].bound,
        design.bandwidth_prices,
        problem.objective == "time-cost",
        _lanes(design) if problem.kind is Kind.LANES else (),
        -np.inf if target is None else target,
        fingerprint,
    )


def _lanes(design: Design) -> tuple[Floats, ...]:
    """Bandwidths that each dimension may have."""
    tables: Sequence[object] = design.pricing.tables
    found = []
    for table in tables:
        bandwidth = getattr(table, "bandwidth", None)
        assert bandwidth is not None, "every dimension comes in lanes"
        found.append(np.asarray(bandwidth, dtype=np.float64))
    return tuple(found)
