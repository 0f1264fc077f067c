"""Builders of small designs, and slow second ways to time them."""

import dataclasses
import itertools

import numpy as np
import pytest

from libra.collectives import (
    Collective,
    CollectiveKind,
    CollectiveModel,
    Compatibility,
    Contention,
    dimension_bytes,
)
from libra.constraints import parse_constraint
from libra.cost import PartPrices, PriceList
from libra.design import Design, Objective, Workload
from libra.evaluate import evaluate_design
from libra.network import Dimension, Network, parse_shape
from libra.optimize import optimize_design
from libra.placement import Group
from libra.pricing import build_pricing
from libra.workload.graph import StepGraph, chain_graph

GB = 1e9
PROMISE = {Objective.TIME: 1e-6, Objective.TIME_COST: 1e-5}
"""Relative gap that each objective promises."""
KINDS = tuple(CollectiveKind)
TIERS = "abcdefgh"


NO_QUEUES = CollectiveModel(contention=Contention.NONE)
"""Collectives of a graph made by hand do not wait for each other."""


def network(shape, tiers=TIERS, **fields):
    """Network of a shape, its dimensions called a, b, c, …; fields: lists, one value each."""
    return Network(
        tuple(
            Dimension(topology, size, tiers[d], **{k: v[d] for k, v in fields.items()})
            for d, (topology, size) in enumerate(parse_shape(shape))
        )
    )


def collective(kind, size, extents, strides=None):
    return Collective(
        CollectiveKind(kind),
        float(size),
        Group("g", tuple(extents), tuple(strides or [1] * len(extents))),
    )


def price_list(usd, npu=0.0):
    """Price list of the tiers a, b, … [USD/(GB/s) of an NPU's bandwidth]."""
    tiers = {TIERS[d]: PartPrices(p / GB, 0.0, 0.0) for d, p in enumerate(usd)}
    return PriceList(tiers, npu)


def graph(fixed, collectives, counts, predecessors):
    """Graph of lists: counts {collective: times} and predecessors of each task."""

    def starts(rows):
        return np.cumsum([0, *map(len, rows)])

    def flat(rows, kind):
        return np.array([x for row in rows for x in row], dtype=kind)

    return StepGraph(
        np.array(fixed, dtype=float),
        tuple(collectives),
        starts(counts),
        flat([row.keys() for row in counts], np.int64),
        flat([row.values() for row in counts], float),
        starts(predecessors),
        flat(predecessors, np.int64),
    )


def chain(*collectives, compute=0.0):
    """Chain of the collectives, each after equal parts of the compute [s]."""
    n = len(collectives)
    return chain_graph([compute / n] * n, collectives)


def design(net, graphs, constraints=(), usd=None, npu=0.0, weights=None, **fields):
    """Design of graphs, constraints as text and prices [USD/(GB/s)]."""
    graphs = graphs if isinstance(graphs, list | tuple) else [graphs]
    weights = weights or [1.0] * len(graphs)
    prices = price_list([1.0] * len(net.sizes) if usd is None else usd, npu)
    pricing = build_pricing(net, prices, fields.get("power"))
    rows = [
        parse_constraint(
            text,
            net,
            pricing.price,
            power=pricing.power if pricing.knows_power else None,
            owner=pricing.owner,
        )
        for text in constraints
    ]
    workloads = [
        Workload(f"w{k}", g, weight)
        for k, (g, weight) in enumerate(zip(graphs, weights, strict=True))
    ]
    fields["objective"] = Objective(fields.get("objective", "time"))
    fields.setdefault("collectives", NO_QUEUES)
    return Design(net, tuple(workloads), prices, tuple(rows), **fields)


def traffic(d, graph_):
    """Bytes over fraction, shape (collectives, dimensions)."""
    rows = [dimension_bytes(c, d.network, d.collectives) for c in graph_.collectives]
    return np.array(rows).reshape(-1, len(d.network.sizes))


def slow_time(d, graph_, bandwidth):
    """Step time, from the definitions alone: task by task, dimension by dimension."""
    tau = [
        max((t / b for t, b in zip(row, bandwidth, strict=True) if t > 0), default=0.0)
        for row in traffic(d, graph_)
    ]
    end = []
    for i in range(graph_.tasks):
        span = range(graph_.count_start[i], graph_.count_start[i + 1])
        duration = graph_.fixed[i] + sum(
            graph_.count_value[k] * tau[graph_.count_index[k]] for k in span
        )
        before = graph_.predecessor[graph_.predecessor_start[i] : graph_.predecessor_start[i + 1]]
        end.append(duration + max((end[p] for p in before), default=0.0))
    return max(end)


def slow_objective(d, bandwidth):
    """Objective at given bandwidths, from the definitions alone."""
    time = sum(w.weight * slow_time(d, w.graph, bandwidth) for w in d.workloads)
    if d.objective is Objective.TIME:
        return time
    return time * (d.fixed_cost + float(d.bandwidth_prices @ bandwidth))


def violation(d, bandwidth):
    """Largest violation of a constraint, relative to the size of its terms."""
    worst = max(0.0, -min(bandwidth) / max(bandwidth))
    for row in d.rows:
        size = max(float(np.abs(row.coefficients) @ bandwidth), abs(row.bound))
        worst = max(worst, -row.slack(np.asarray(bandwidth)) / size)
    return worst


def divisors(n):
    return [k for k in range(1, n + 1) if n % k == 0]


def random_network(rng, dims):
    blocks = [
        f"{rng.choice(['RI', 'FC', 'SW'])}({rng.choice([2, 3, 4, 6, 8])})" for _ in range(dims)
    ]
    return network("_".join(blocks))


def random_collective(rng, net):
    """Any kind, on a random sub-grid of more than one NPU."""
    while True:
        extents = [int(rng.choice(divisors(n))) for n in net.sizes]
        if max(extents) > 1:
            break
    strides = [int(rng.choice(divisors(n // e))) for n, e in zip(net.sizes, extents, strict=True)]
    return collective(rng.choice(KINDS), 10 ** rng.uniform(6, 9), extents, strides)


def random_graph(rng, net, tasks, collectives, *, is_chain=False):
    """Random DAG of tasks that carry up to two collectives each."""
    kinds = [random_collective(rng, net) for _ in range(collectives)]
    counts = []
    for _ in range(tasks):
        chosen = rng.choice(collectives, min(int(rng.integers(0, 3)), collectives), replace=False)
        counts.append({int(j): float(rng.choice([1, 2, 0.5])) for j in chosen})
    counts[0] = dict.fromkeys(range(collectives), 1.0)
    before = [[i - 1] if i else [] for i in range(tasks)]
    if not is_chain:
        before = [
            [int(p) for p in range(i) if p >= i - 4 and rng.random() < 0.5] for i in range(tasks)
        ]
    return graph(rng.exponential(1e-2, tasks), kinds, counts, before)


def random_constraints(rng, net):
    """Constraints that random bandwidths meet, some with equality; and those bandwidths."""
    names = net.names
    b = np.exp(rng.uniform(np.log(5), np.log(400), len(names)))
    rows = [f"total {rng.choice(['<=', '=='])} {b.sum():.17g} GB/s"]
    for _ in range(int(rng.integers(0, 4))):
        k = rng.normal(size=len(names)).round(2)
        side = " + ".join(f"{x} * {name}" for x, name in zip(k, names, strict=True))
        relation = rng.choice(["<=", ">=", "=="], p=[0.45, 0.45, 0.1])
        room = 0 if relation == "==" else rng.exponential(20) * (1 if relation == "<=" else -1)
        rows.append(f"{side} {relation} {k @ b + room:.17g} GB/s")
    d = int(rng.integers(len(names)))
    rows.append(f"{names[d]} >= {b[d] * rng.uniform(0.1, 1):.17g} GB/s")
    d = int(rng.integers(len(names)))
    rows.append(f"{names[d]} <= {b[d] * rng.uniform(1, 2):.17g} GB/s")
    return rows, b * GB


def random_design(rng, dims, *, is_chain=True, workloads=1, **fields):
    """Feasible random design, and bandwidths that meet its constraints."""
    net = random_network(rng, dims)
    rows, inside = random_constraints(rng, net)
    graphs = [
        random_graph(rng, net, int(rng.integers(3, 8)), int(rng.integers(2, 5)), is_chain=is_chain)
        for _ in range(workloads)
    ]
    weights = [float(rng.uniform(0.5, 2)) for _ in graphs]
    usd = rng.uniform(1, 20, dims).round(2)
    model = dataclasses.replace(
        NO_QUEUES, compat=Compatibility.LIBRA if rng.random() < 0.3 else None
    )
    return design(net, graphs, rows, usd, weights=weights, collectives=model, **fields), inside


def grid(total, dims, points):
    """Bandwidths that sum to a total, on a fine grid, shape (n, dims)."""
    steps = np.arange(1, points)
    parts = itertools.product(*[steps] * (dims - 1)) if dims > 2 else ((s,) for s in steps)
    inner = np.array([p for p in parts if sum(p) < points], dtype=float)
    return np.column_stack([inner, points - inner.sum(axis=1)]) * (total / points)


def optimum(d):
    """Optimise and check what every answer promises."""
    result = optimize_design(d)
    value = slow_objective(d, result.bandwidth)
    assert result.status == "optimal"
    assert violation(d, result.bandwidth) <= 1e-9
    assert result.objective_value == pytest.approx(value, rel=1e-9)
    assert evaluate_design(d, result.bandwidth).objective_value == pytest.approx(value, rel=1e-12)
    assert 0 <= result.gap <= PROMISE[d.objective]
    assert result.objective_bound <= value * (1 + 1e-12)
    assert all(p.met for p in result.shadow_prices)
    return result


def with_row(d, k, change):
    """Design with the bound of one written constraint changed by so much."""
    row = dataclasses.replace(d.constraints[k], bound=d.constraints[k].bound + change)
    rows = (*d.constraints[:k], row, *d.constraints[k + 1 :])
    return dataclasses.replace(d, constraints=rows)


def value(d):
    return optimize_design(d).objective_value


def some_design(seed, objective="time", **fields):
    rng = np.random.default_rng(seed)
    dims, is_chain = int(rng.integers(2, 5)), bool(rng.integers(2))
    return rng, *random_design(rng, dims, is_chain=is_chain, objective=objective, **fields)
