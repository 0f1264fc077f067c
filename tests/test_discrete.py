"""Lanes and lists of parts: the exact optimum, against trying every combination."""

import dataclasses
import itertools

import numpy as np
import pytest
from helpers import GB, chain, collective, design, network, random_collective, random_graph
from numpy.random import default_rng

from libra.choices import Choice
from libra.collectives import Algorithm, CollectiveModel, Contention
from libra.cost import PartPrices, PriceList
from libra.design import time_design
from libra.errors import InfeasibleError, SolverError
from libra.evaluate import evaluate_design
from libra.explain import explain_result
from libra.network import Dimension, Network
from libra.optimize import best_alone, optimize_design
from libra.search import Optimum, minimise
from libra.time_limits import TimeLimit
from libra.timing import critical_path


def enumerate_best(d):
    """Least objective over all choices that meet the constraints, and its bandwidths."""
    best, at = np.inf, None
    timings = time_design(d)
    references = None
    if d.objective == "worst-time":
        references = [best_alone(d, w) for w in d.workloads]
    for chosen in itertools.product(*(x.choices for x in d.network.dimensions)):
        b = np.array([c.bandwidth for c in chosen])
        if any(d.row_slack(row, b) < -1e-9 * abs(row.bound) for row in d.rows):
            continue
        times = [critical_path(t, b).time for t in timings]
        if any(
            times[[w.name for w in d.workloads].index(x.workload)] > x.bound * (1 + 1e-9)
            for x in d.time_limits
        ):
            continue
        total = sum(w.weight * t for w, t in zip(d.workloads, times, strict=True))
        cost = 0.0
        for k, c in enumerate(chosen):
            if c.price is not None:
                cost += d.network.npus * c.price
            else:
                cost += d.pricing.price[list(d.pricing.owner).index(k)] * c.bandwidth
        value = {
            "time": total,
            "time-cost": total * (d.fixed_cost + cost),
            "cost": cost,
            "worst-time": max(t / r for t, r in zip(times, references or times, strict=True)),
        }[d.objective.value]
        if value < best:
            best, at = value, b
    return best, at


def random_design(rng):
    """Small design whose dimensions all come in lanes or parts."""
    shape = ["RI(4)_SW(8)", "RI(2)_FC(4)_SW(4)", "SW(16)", "FC(4)_SW(4)_SW(4)"][rng.integers(4)]
    plain = network(shape)
    dimensions = []
    for d in plain.dimensions:
        if rng.random() < 0.5:
            extra = {
                "lane": float(rng.integers(1, 6)) * 10 * GB,
                "max_lanes": int(rng.integers(1, 7)),
            }
        else:
            sizes = sorted(rng.choice(np.arange(1, 40), int(rng.integers(1, 7)), replace=False))
            priced = rng.random() < 0.6
            usd = np.cumsum(rng.integers(1, 50, len(sizes)))
            extra = {
                "bandwidth_choices": tuple(
                    Choice(float(b) * 10 * GB, float(p) if priced else None)
                    for b, p in zip(sizes, usd, strict=True)
                )
            }
        dimensions.append(Dimension(d.topology, d.size, d.tier, **extra))
    net = Network(tuple(dimensions))
    model = CollectiveModel(
        contention=Contention.NONE,
        algorithm=list(Algorithm)[rng.integers(3)] if rng.random() < 0.4 else Algorithm.MULTI_RAIL,
        chunks=int(rng.integers(1, 9)) if rng.random() < 0.3 else None,
    )
    graphs = [random_graph(rng, net, 5, 3) for _ in range(int(rng.integers(1, 3)))]
    sizes = len(net.sizes)
    usd = rng.integers(1, 30, sizes).astype(float)
    objective = ["time", "time-cost", "worst-time"][rng.integers(3)]
    bounds = [(x.choices[0].bandwidth, x.choices[-1].bandwidth) for x in net.dimensions]
    low, high = (sum(b[k] for b in bounds) / GB for k in (0, 1))
    rows = []
    if rng.random() < 0.8:
        rows.append(f"total <= {rng.uniform(low, high):.3f} GB/s")
    return design(
        net,
        graphs,
        rows,
        usd,
        npu=float(rng.integers(0, 100)),
        weights=[float(rng.integers(1, 4)) for _ in graphs],
        objective=objective,
        collectives=model,
    )


@pytest.mark.parametrize("seed", range(200))
def test_equals_enumeration(seed):
    d = random_design(default_rng(seed))
    expected, _ = enumerate_best(d)
    result = optimize_design(d)
    if result.schedule_bound is None:
        assert result.objective_value == pytest.approx(expected, rel=2e-6)
    assert result.gap <= 1e-5
    for bandwidth, dimension in zip(result.bandwidth, d.network.dimensions, strict=True):
        assert bandwidth in [c.bandwidth for c in dimension.choices]
    assert all(p.met for p in result.shadow_prices)


def lanes(shape, lane, most, **fields):
    """Network whose dimensions all have up to `most` lanes of `lane` GB/s."""
    n = len(shape.split("_"))
    return network(shape, lane=[lane * GB] * n, max_lanes=[most] * n, **fields)


@pytest.mark.parametrize("seed", range(60))
def test_cheapest_choices_in_time(seed):
    rng = default_rng(1000 + seed)
    net = lanes("RI(4)_SW(4)_SW(4)", 10.0, 6)
    graphs = [random_graph(rng, net, 5, 3) for _ in range(2)]
    free = design(net, graphs, usd=[3.0, 5.0, 11.0])
    fastest = enumerate_best(free)[0]
    limits = tuple(
        TimeLimit(f"time(w{k})", f"w{k}", False, fastest * rng.uniform(0.5, 2)) for k in range(2)
    )
    d = design(net, graphs, usd=[3.0, 5.0, 11.0], objective="cost", time_limits=limits)
    expected, _ = enumerate_best(d)
    if np.isinf(expected):
        with pytest.raises(InfeasibleError, match=r"time\(w"):
            optimize_design(d)
    else:
        assert optimize_design(d).objective_value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_lanes_beside_free_bandwidths(seed):
    """The best over all lane counts of the best free bandwidths, each solved as its own design."""
    rng = default_rng(2000 + seed)
    objective = ["time", "time-cost"][seed % 2]
    free = network("RI(4)_SW(4)_SW(4)")
    model = CollectiveModel(
        contention=Contention.NONE, algorithm=[Algorithm.MULTI_RAIL, Algorithm.IDEAL][seed % 3 == 0]
    )
    graph = random_graph(rng, free, 6, 3)

    def build(net, rows):
        return design(
            net, graph, rows, [3.0, 5.0, 9.0], npu=20.0, objective=objective, collectives=model
        )

    rows = ["total <= 120 GB/s", "cost <= 40000 USD"]
    first = Dimension(free.dimensions[0].topology, 4, "a", lane=10 * GB, max_lanes=5)
    found = optimize_design(build(Network((first, *free.dimensions[1:])), rows))
    singles = [
        optimize_design(build(free, [*rows, f"a == {10 * k} GB/s"])).objective_value
        for k in range(1, 6)
    ]
    assert found.objective_value == pytest.approx(min(singles), rel=1e-5)
    assert found.bandwidth[0] / (10 * GB) == pytest.approx(round(found.bandwidth[0] / (10 * GB)))


def one_dimension_in_lanes(rows):
    free = network("RI(4)_SW(4)_SW(4)")
    first = Dimension(free.dimensions[0].topology, 4, "a", lane=10 * GB, max_lanes=5)
    graph = chain(collective("all-reduce", 2e9, (4, 4, 4)), compute=0.1)
    return design(Network((first, *free.dimensions[1:])), graph, rows, [3.0, 5.0, 9.0])


def test_a_failed_search_beside_some_lanes_is_not_taken_for_none(monkeypatch):
    """A solver that gives up must end in its own error, not in the best of the other lanes."""

    def gives_up(search, goal, **settings):
        pinned = search.program.rows.equal
        found = minimise(search, goal, **settings)
        return Optimum(found.bandwidth, np.inf, -np.inf) if pinned else found

    monkeypatch.setattr("libra.discrete.minimise", gives_up)
    with pytest.raises(SolverError, match="relative gap of inf"):
        optimize_design(one_dimension_in_lanes(["total <= 120 GB/s"]))


def test_lanes_that_leave_nothing_for_the_others_are_none():
    rows = ["total <= 20 GB/s", "total >= 10 GB/s"]
    found = optimize_design(one_dimension_in_lanes(rows))
    assert found.bandwidth[0] == 10 * GB


def test_bound_is_never_above_any_choices():
    rng = default_rng(5)
    for seed in range(20):
        d = random_design(default_rng(3000 + seed))
        result = optimize_design(d)
        timings = time_design(d, result.schedules)
        for _ in range(30):
            b = np.array(
                [rng.choice([c.bandwidth for c in x.choices]) for x in d.network.dimensions]
            )
            if d.objective.value != "time" or any(
                d.row_slack(row, b) < -1e-9 * abs(row.bound) for row in d.rows
            ):
                continue
            total = sum(
                w.weight * critical_path(t, b).time
                for w, t in zip(d.workloads, timings, strict=True)
            )
            assert total >= result.objective_bound * (1 - 1e-9)


def test_no_choices_meet_a_total():
    net = lanes("RI(4)_SW(8)", 25.0, 4)
    d = design(net, chain(random_collective(default_rng(1), net)), ["total <= 40 GB/s"])
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(d)
    assert [c.constraint for c in caught.value.conflict] == ["total <= 40 GB/s"] or len(
        caught.value.conflict
    ) == 3
    assert "write 'total <= 50 GB/s'" in str(caught.value)


def test_no_choices_meet_an_equality():
    net = lanes("RI(4)_SW(8)", 25.0, 4)
    d = design(net, chain(random_collective(default_rng(1), net)), ["total == 110 GB/s"])
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(d)
    assert [c.constraint for c in caught.value.conflict] == ["total == 110 GB/s"]
    assert "no lanes or parts on offer" in str(caught.value)
    assert "write 'total == 100 GB/s'" in str(caught.value)


@pytest.mark.parametrize(
    ("free", "rows", "way_out"),
    [
        (False, ["total <= 100 GB/s", "b >= 80 GB/s"], "total <= 125 GB/s"),
        (False, ["total == 100 GB/s", "b >= 90 GB/s"], "total == 125 GB/s"),
        # A dimension whose bandwidth is free must be left some.
        (True, ["total <= 100 GB/s", "b >= 80 GB/s"], "total <= 100.1 GB/s"),
        (True, ["total == 100 GB/s", "b >= 90 GB/s"], "total == 100.1 GB/s"),
        (True, ["total <= 100 GB/s", "b >= 80 GB/s", "a >= 10 GB/s"], "total <= 110 GB/s"),
    ],
)
def test_the_way_out_of_whole_parts_leads_out(free, rows, way_out):
    lane, most = [25 * GB, 25 * GB], [4, 4]
    if free:
        lane[0] = most[0] = None
    net = network("RI(4)_SW(8)", lane=lane, max_lanes=most)
    graphs = chain(collective("all-reduce", 1e9, (4, 8)))
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(design(net, graphs, rows))
    assert [c.constraint for c in caught.value.conflict] == rows[:2]
    assert f"write '{way_out}'" in str(caught.value)
    assert optimize_design(design(net, graphs, [way_out, *rows[1:]])).gap <= 1e-6


def test_a_step_of_a_price_that_no_choice_reaches():
    net = lanes("RI(4)_SW(8)", 10.0, 4)
    steps = ((100 * GB, 1 / GB), (np.inf, 2 / GB))
    parts = PartPrices(steps, steps, steps)
    d = design(net, chain(collective("all-reduce", 1e9, (4, 8))))
    d = dataclasses.replace(d, prices=PriceList({"a": parts, "b": parts}))
    most = evaluate_design(d, [40 * GB, 40 * GB]).step_time
    assert optimize_design(d).step_time == pytest.approx(most, rel=1e-9)


def test_given_bandwidths_between_lanes_are_said_to_be():
    d = one_dimension_in_lanes(["total <= 120 GB/s"])
    said = explain_result(evaluate_design(d, [33 * GB, 7 * GB, 5 * GB]))
    text = "cannot be built with 33 GB/s: its lanes and parts come next to it at 30 and 40 GB/s."
    assert [line for line in said if "built" in line] == [f"{d.network.names[0]} {text}"]
    assert not [x for x in explain_result(evaluate_design(d, [30 * GB, 7e9, 5e9])) if "built" in x]
