r"""Bounds that no bandwidths of a candidate can beat, in far less time than a solve.

A training step is at least as long as any path through its graph: with fixed time c and collectives
n_j on it, T(B) >= c + sum_j n_j tau_j(B). The path is taken from the job on a reference network; it
exists on every network, where only the collectives' groups lie elsewhere.

1. *Cut bound.* With N_j members, a collective of m_j bytes sends at least m_j f_j through all
   dimensions together, so tau_j >= m_j f_j / sum_d B_d, whatever the algorithm and the network.
2. *Dimension bound*, for multi-rail collectives on a given network: tau_j >= t_jd / B_d for each
   dimension d that it loads with t_jd bytes, hence tau_j >= sum_d w_jd t_jd / B_d for any weights
   w_j that sum to 1, and T(B) >= c + sum_d a_d / B_d with a_d = sum_j n_j w_jd t_jd. With
   w_jd ~ t_jd it is exact for a single collective.
3. *Path bound.* Several paths together, with all their collectives on the given network, are a
   small graph whose optimum is solved with its certificate, as a design is.

What the objective makes of the first two, by the inequality of Cauchy and Schwarz, under a limit
r . B <= b:

    sum_d a_d / B_d >= (sum_d sqrt(a_d r_d))^2 / b,
    (C0 + p . B) (c + sum_d a_d / B_d) >= (sqrt(C0 c) + sum_d sqrt(p_d a_d))^2,
    p . B >= (sum_d sqrt(p_d a_d))^2 / (L - c)   where T <= L.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from libra.collectives import (
    Algorithm,
    Collective,
    CollectiveKind,
    CollectiveModel,
    Contention,
    dimension_bytes,
)
from libra.design import Design, Objective
from libra.explore.candidates import Job
from libra.network import Dimension, Network, Topology
from libra.placement import Group
from libra.queues import links_of, queue_users
from libra.timing import StepTiming, Terms, critical_path
from libra.units import BANDWIDTH, MONEY
from libra.workload.graph import GraphBuilder, StepGraph
from libra.workload.memory import MemoryPlan
from libra.workload.roles import place_roles
from libra.workload.transformer import build_step

__all__ = [
    "JobPath",
    "Limits",
    "cut_bound",
    "design_limits",
    "dimension_bound",
    "path_graph",
    "reference_paths",
    "sharing_of",
]

Floats = NDArray[np.float64]

_LEAST = {
    CollectiveKind.ALL_REDUCE: 2.0,
    CollectiveKind.REDUCE_SCATTER: 1.0,
    CollectiveKind.ALL_GATHER: 1.0,
    CollectiveKind.ALL_TO_ALL: 1.0,
}
"""f of a collective, over 1 - 1/N."""
_SLOWER = ((1.0, 1.0), (2.0, 2.0), (1.5, 4.0), (1.5, 15.0), (6.0, 2.0))
"""How many times as long collectives take for the paths: those of tp and cp, and the others."""


@dataclass(frozen=True, eq=False)
class JobPath:
    """A path through a job's step that every network has.

    Attributes
    ----------
    fixed : float
        Compute on it [s].
    collectives : tuple of (Collective, str, float)
        Those of known roles on it, on the reference network; their role; how often.
    """

    fixed: float
    collectives: tuple[tuple[Collective, str, float], ...]


@dataclass(frozen=True, eq=False)
class Limits:
    """What limits bandwidths and what they cost, from below.

    Attributes
    ----------
    rows : ndarray, shape (rows, dimensions)
        Of rows r . B <= b with r >= 0.
    bound : ndarray, shape (rows,)
        b.
    price : ndarray, shape (dimensions,)
        Least that a byte/s costs [USD].
    fixed_cost : float
        Of the NPUs [USD].
    weights, time_limits : ndarray, shape (workloads,)
        In the objective; largest step times [s], infinite: any.
    objective : Objective
    """

    rows: Floats
    bound: Floats
    price: Floats
    fixed_cost: float
    weights: Floats
    time_limits: Floats
    objective: Objective

    @property
    def most(self) -> float:
        """Largest sum of all bandwidths that some row allows; infinite: any."""
        full = (self.rows > 0).all(axis=1)
        if not full.any():
            return np.inf
        return float((self.bound[full] / self.rows[full].min(axis=1)).min())


def design_limits(design: Design) -> Limits:
    """Limits of a design."""
    pricing, network = design.pricing, design.network
    price = np.zeros(len(network.dimensions))
    for d, table in enumerate(pricing.tables):
        if table is not None and table.own:
            price[d] = float((table.cost / table.bandwidth).min())
        else:
            price[d] = pricing.price[int((pricing.owner == d).argmax())]
    rows, bound = [], []
    for row in design.rows:
        if row.kind is MONEY:
            coefficients = row.multiple * price
        elif row.kind is BANDWIDTH:
            first = [int((pricing.owner == d).argmax()) for d in range(len(price))]
            coefficients = row.coefficients[first]
        else:
            continue
        sign = -1.0 if row.relation == ">=" else 1.0
        if (sign * coefficients >= 0).all() and sign * row.bound > 0:
            rows.append(sign * coefficients)
            bound.append(sign * row.bound)
    limits = np.full(len(design.workloads), np.inf)
    names = [w.name for w in design.workloads]
    for limit in design.time_limits:
        if not limit.relative:
            at = names.index(limit.workload)
            limits[at] = min(limits[at], limit.bound)
    return Limits(
        np.array(rows).reshape(-1, len(price)),
        np.array(bound),
        price,
        design.fixed_cost,
        np.array([w.weight for w in design.workloads]),
        limits,
        design.objective,
    )


Sharing = frozenset[frozenset[str]]
"""Sets of roles whose groups use the same links somewhere."""


def sharing_of(groups: Mapping[str, Group], network: Network, model: CollectiveModel) -> Sharing:
    """Which roles' collectives queue for each other on a network."""
    if model.contention is Contention.NONE:
        return frozenset()
    users: dict[tuple[int, int], set[str]] = {}
    for role, group in groups.items():
        probe = Collective(CollectiveKind.ALL_GATHER, 1.0, group)
        for link in links_of(probe, network):
            users.setdefault(link, set()).add(role)
    return frozenset(frozenset(roles) for roles in users.values())


def reference_paths(
    job: Job, sharing: Sharing, most: float, in_network: bool
) -> tuple[JobPath, ...]:
    """Paths of a job's step that every network has on which roles share links in the same way.

    The paths are critical if collectives take the times of the cut bound for a sum of bandwidths
    `most`, or some times as long.
    """
    graph, groups = reference_step(job)
    role_of = {group: role for role, group in reversed(list(groups.items()))}
    known = [
        role_of.get(c.group, "") if c.kind is not CollectiveKind.POINT_TO_POINT else ""
        for c in graph.collectives
    ]
    same = {frozenset(r for r, g in groups.items() if g == groups[role]) for role in groups}
    merged = [
        [j for j, role in enumerate(known) if role and any(role in s and s & roles for s in same)]
        for roles in sharing
    ]
    graph = queue_users(graph, merged)
    times = np.array([least_collective_time(c, most, in_network) for c in graph.collectives])
    inner = np.array([role in ("tp", "cp") for role in known])
    found: dict[tuple[float, bytes], JobPath] = {}
    for first, second in _SLOWER:
        tau = times * np.where(inner, first, second)
        terms = Terms(tau, np.zeros((len(tau), 1)), np.ones((1, 1)), np.arange(len(tau) + 1))
        path = critical_path(StepTiming(graph, terms, np.zeros((len(tau), 1))), np.ones(1))
        counted = tuple(
            (c, role, float(n))
            for c, role, n in zip(graph.collectives, known, path.counts, strict=True)
            if n > 0 and role
        )
        found[path.fixed, path.counts.tobytes()] = JobPath(path.fixed, counted)
    return tuple(found.values())


@lru_cache(maxsize=4)
def reference_step(job: Job) -> tuple[StepGraph, dict[str, Group]]:
    """A job's step, and its groups, on a network with a dimension for each role."""
    assert job.plan is not None
    assert job.entry is not None
    assert job.model is not None
    assert job.accelerator is not None
    order = job.entry.parallel.order
    network = role_network(job.plan.memory, order)
    groups = place_roles(network, job.plan.memory, order)
    return build_step(job.model, job.plan, job.accelerator, groups, network.sizes).graph, groups


def path_graph(paths: Sequence[JobPath], groups: Mapping[str, Group]) -> StepGraph:
    """Graph that ends when the longest of some paths has ended, on a network with these groups."""
    builder = GraphBuilder()
    for k, path in enumerate(paths):
        counts = [(Collective(c.kind, c.size, groups[role]), n) for c, role, n in path.collectives]
        builder.add(f"path {k}", path.fixed, counts, [])
    return builder.build()


def role_network(plan: MemoryPlan, order: Sequence[str]) -> Network:
    """Network with a dimension for each role that has members, innermost first."""
    degrees = {"tp": plan.activations.tp, "cp": plan.activations.cp, "pp": plan.pp, "dp": plan.dp}
    sizes = [degrees[role] for role in order if degrees[role] > 1] or [2]
    return Network(tuple(Dimension(Topology.SWITCH, n, "reference") for n in sizes))


def least_collective_time(collective: Collective, most: float, in_network: bool) -> float:
    """Time that a collective takes at least if all bandwidths sum to `most` [s]."""
    factor = _LEAST.get(collective.kind, 0.0)
    if in_network:  # A switch that reduces halves what an all-reduce sends.
        factor = min(factor, 1.0)
    return collective.size * factor * (1 - 1 / collective.group.size) / most


def cut_bound(paths: Sequence[JobPath], limits: Limits, in_network: bool) -> float:
    """Objective that no network can beat with these jobs, by the cut bound.

    The prices of the limits are to be the least of all networks, and so are their rows the widest.
    """
    loads = [
        sum(n * least_collective_time(c, 1.0, in_network) for c, _, n in path.collectives)
        for path in paths
    ]
    most = limits.most
    cheapest = np.array([limits.price.min(initial=np.inf)])
    rows = np.ones((1, 1)) if np.isfinite(most) else np.zeros((0, 1))
    one = replace(limits, rows=rows, bound=np.full(len(rows), most), price=cheapest)
    return _objective_bound(paths, [np.array([load]) for load in loads], one)


def dimension_bound(
    paths: Sequence[JobPath],
    groups: Sequence[Mapping[str, Group]],
    network: Network,
    model: CollectiveModel,
    limits: Limits,
) -> float:
    """Objective that no bandwidths of a network can beat with these jobs, by its dimensions."""
    loads = []
    for path, placed in zip(paths, groups, strict=True):
        load = np.zeros(len(network.dimensions))
        if model.algorithm is Algorithm.MULTI_RAIL:
            for collective, role, n in path.collectives:
                moved = Collective(collective.kind, collective.size, placed[role])
                traffic = dimension_bytes(moved, network, model)
                load += n * traffic * traffic / max(float(traffic.sum()), 1e-300)
        loads.append(load)
    return _objective_bound(paths, loads, limits)


def _objective_bound(paths: Sequence[JobPath], loads: Sequence[Floats], limits: Limits) -> float:
    """Objective that follows from T_k >= fixed_k + sum_d load_kd / B_d."""
    fixed = np.array([path.fixed for path in paths])
    if limits.objective is Objective.COST:
        least = 0.0
        for c, load, limit in zip(fixed, loads, limits.time_limits, strict=True):
            if np.isfinite(limit):
                spent = float(np.sqrt(limits.price * load).sum() ** 2)
                least = max(least, spent / (limit - c) if limit > c else np.inf)
        return least
    c = float(limits.weights @ fixed)
    load = np.sum([w * x for w, x in zip(limits.weights, loads, strict=True)], axis=0)
    time = c
    if len(limits.bound):
        sums = np.sqrt(limits.rows * load).sum(axis=1)
        time = c + float((sums * sums / limits.bound).max())
    if limits.objective is Objective.TIME:
        return time
    both = (limits.fixed_cost * c) ** 0.5 + float(np.sqrt(limits.price * load).sum())
    return float(max(both**2, limits.fixed_cost * time))
