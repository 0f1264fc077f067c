"""Objectives ``cost`` and ``worst-time``, and time limits, against grids, scipy and their laws."""

import dataclasses

import numpy as np
import pytest
from helpers import GB, chain, collective, design, network, random_graph, random_network
from scipy.optimize import minimize

from libra.design import Objective
from libra.errors import FieldError, InfeasibleError, InputError
from libra.evaluate import evaluate_design
from libra.optimize import best_alone, optimize_design
from libra.time_limits import TimeLimit, parse_time_limit

NET = network("RI(4)_SW(8)")
ONE = chain(
    collective("all-reduce", 2e9, (4, 8)), collective("all-gather", 3e9, (1, 8)), compute=0.1
)
TWO = chain(collective("all-reduce", 8e9, (4, 1)), compute=0.05)
USD = [2.0, 50.0]


def limit(text, *names):
    return parse_time_limit(text, names or ("w0", "w1"))


def goal(objective, rows, limits=(), graphs=(ONE, TWO), usd=USD, **fields):
    found = tuple(limit(text) for text in limits)
    return design(NET, list(graphs), rows, usd, objective=objective, time_limits=found, **fields)


def grid(most, steps=1500):
    """All splits of a total in two dimensions."""
    share = np.linspace(0, 1, steps + 2)[1:-1]
    return np.stack([share * most, (1 - share) * most], axis=1)


def times(d, points):
    return np.array([[w.step_time for w in evaluate_design(d, b).workloads] for b in points])


def test_worst_time_equals_a_fine_grid():
    d = goal("worst-time", ["total <= 300 GB/s"])
    result = optimize_design(d)
    own = np.array([best_alone(d, w) for w in d.workloads])
    best = (times(d, grid(300 * GB, 600)) / own).max(axis=1).min()
    assert result.objective_value <= best * (1 + 1e-6)
    assert result.objective_value == pytest.approx(best, rel=1e-3)
    assert result.gap <= 1e-6
    assert max(result.slowdowns) == pytest.approx(result.objective_value, rel=1e-9)
    for w, slowdown in zip(result.workloads, result.slowdowns, strict=True):
        assert slowdown == pytest.approx(w.step_time / own[int(w.name[1])], rel=1e-9)


@pytest.mark.parametrize("factor", [1.01, 1.1, 2.0])
def test_cost_under_time_limits_equals_scipy(factor):
    base = optimize_design(goal("time", ["total <= 300 GB/s"]))
    targets = [w.step_time * factor for w in base.workloads]
    limits = [f"time(w{k}) <= {t:.12g} s" for k, t in enumerate(targets)]
    d = goal("cost", ["total <= 300 GB/s"], limits)
    result = optimize_design(d)
    assert result.gap <= 1e-6
    for w, target in zip(result.workloads, targets, strict=True):
        assert w.step_time <= target * (1 + 1e-9)
    assert result.objective_value == result.network_cost
    assert result.network_cost <= base.network_cost * (1 + 1e-9)
    price = d.bandwidth_prices * GB

    def late(b):
        return np.array(targets) - [w.step_time for w in evaluate_design(d, b * GB).workloads]

    for start in (base.bandwidth, result.bandwidth * 1.3):
        found = minimize(
            lambda b: b @ price / result.network_cost, start / GB, method="SLSQP",
            constraints=[{"type": "ineq", "fun": late}, {"type": "ineq", "fun": lambda b: 300 - b.sum()}],
            bounds=[(1e-3, None)] * 2, options={"maxiter": 300, "ftol": 1e-12},
        )  # fmt: skip
        if late(found.x).min() >= -1e-9:
            assert found.fun >= 1 - 1e-6


def test_limits_bind_time_and_time_cost_too():
    free = optimize_design(goal("time", ["total <= 300 GB/s"]))
    slow = free.workloads[1]
    text = f"time(w1) <= {slow.step_time * 0.97:.12g} s"
    for objective in ("time", "time-cost"):
        rows = ["total == 300 GB/s"]
        bound = optimize_design(goal(objective, rows, [text]))
        loose = optimize_design(goal(objective, rows))
        assert bound.workloads[1].step_time <= slow.step_time * 0.97 * (1 + 1e-9)
        assert bound.objective_value >= loose.objective_value * (1 - 1e-6)


def test_shadow_price_of_a_time_limit_is_a_finite_difference():
    def cost(seconds):
        limits = ["time(w0) <= 1 s", f"time(w1) <= {seconds:.12g} s"]
        return optimize_design(goal("cost", [], limits))

    result = cost(0.2)
    slope = (cost(0.2002).objective_value - cost(0.1998).objective_value) / 0.0004
    price = next(p for p in result.shadow_prices if p.constraint.startswith("time(w1)"))
    assert price.value == pytest.approx(slope, rel=1e-2)
    assert (price.unit, price.slack_unit) == ("USD/s", "s")
    assert price.slack == pytest.approx(0, abs=1e-7)


def test_slowdowns_are_relative_to_each_workload_s_own_best():
    d = goal("cost", ["total <= 300 GB/s"], ["slowdown(w0) <= 1.2", "slowdown(w1) <= 1.1"])
    result = optimize_design(d)
    assert result.slowdowns[0] <= 1.2 * (1 + 1e-9)
    assert result.slowdowns[1] <= 1.1 * (1 + 1e-9)
    same = [
        f"time(w0) <= {1.2 * best_alone(d, d.workloads[0]):.15g} s",
        f"time(w1) <= {1.1 * best_alone(d, d.workloads[1]):.15g} s",
    ]
    other = optimize_design(goal("cost", ["total <= 300 GB/s"], same))
    assert other.network_cost == pytest.approx(result.network_cost, rel=1e-6)


@pytest.mark.parametrize("objective", ["time", "cost", "worst-time", "time-cost"])
@pytest.mark.parametrize("seed", [5, 20, 36, 70, 71, 72])
def test_a_workload_kept_at_its_best_while_the_other_takes_what_is_left(objective, seed):
    """A limit leaves hardly an interior there; the best alone is a point that must not be beaten."""
    rng = np.random.default_rng(seed)
    network = random_network(rng, 3)
    graphs = [random_graph(rng, network, 5, 3) for _ in range(2)]
    rows = ["total <= 100 GB/s", *(f"dim{d + 1} >= 1 MB/s" for d in range(3))]

    def best(*limits, kept=graphs, objective=objective):
        held = tuple(limit(text, "w0", "w1") for text in limits)
        made = design(network, kept, rows, objective=objective, npu=100.0, time_limits=held)
        return optimize_design(made)

    tight, near, loose = (best(f"slowdown(w0) <= {x}") for x in (1, 1.0001, 1.01))
    assert tight.slowdowns[0] <= 1 + 1.0001e-5
    assert all(price.met for price in tight.shadow_prices)
    assert tight.objective_value >= near.objective_value * (1 - 2e-6)
    assert near.objective_value >= loose.objective_value * (1 - 2e-6)
    if objective == "time":
        alone = best(kept=graphs[:1]).bandwidth
        there = evaluate_design(tight.design, alone).step_time
        assert tight.step_time <= there * (1 + 1e-6)


def test_time_limits_at_the_best_possible_are_met_or_say_how_near_is_too_near():
    best = optimize_design(goal("time", ["total <= 100 GB/s"], graphs=[ONE])).step_time
    for part in (-1e-5, -1e-7, -1e-9, 0, 1e-9, 1e-7, 1e-6, 1e-5):
        seconds = best * (1 + part)
        held = goal("cost", ["total <= 100 GB/s"], [f"time(w0) <= {seconds:.15g} s"])
        try:
            result = optimize_design(held)
        except InfeasibleError as error:
            assert part < 1e-5
            advice = error.conflict[0].way_out.split("'")[1]
            result = optimize_design(goal("cost", ["total <= 100 GB/s"], [advice]))
            assert result.workloads[0].step_time <= best * (1 + 1.1e-5)
        else:
            assert result.workloads[0].step_time <= seconds * (1 + 1e-9)


def test_a_target_no_network_reaches():
    with pytest.raises(InfeasibleError, match="no network is this fast") as caught:
        optimize_design(goal("cost", ["total <= 300 GB/s"], ["time(w0) <= 90 ms"]))
    assert [c.constraint for c in caught.value.conflict] == ["time(w0) <= 90 ms"]
    assert "the best possible is" in caught.value.conflict[0].way_out


def test_a_target_below_compute_without_any_row():
    """The multipliers of such a solve grow beyond all numbers; no warning may come of it."""
    alone = chain(
        collective("all-reduce", 8e7, (4, 1)), collective("all-reduce", 5e8, (1, 8)), compute=9e-3
    )
    other = chain(
        collective("all-reduce", 3e8, (4, 1)), collective("all-reduce", 2e7, (1, 8)), compute=6e-3
    )
    for target in ("5 ms", "8999 us"):
        with pytest.raises(InfeasibleError, match="no network is this fast") as caught:
            optimize_design(goal("cost", [], [f"time(w0) <= {target}"], graphs=[alone, other]))
        best = float(caught.value.conflict[0].way_out.split("<= ")[1].split(" ms")[0])
        assert best == pytest.approx(9, rel=1e-4)


def test_a_target_that_the_rows_forbid_and_the_way_out():
    rows = ["total <= 10 GB/s", "dim1 <= 900 GB/s"]
    with pytest.raises(InfeasibleError, match="cannot hold together") as caught:
        optimize_design(goal("time", rows, ["time(w0) <= 300 ms"]))
    named = [c.constraint for c in caught.value.conflict]
    assert named == ["time(w0) <= 300 ms", "total <= 10 GB/s"]
    advice = caught.value.conflict[0].way_out
    better = advice.split("'")[1]
    result = optimize_design(goal("time", rows, [better]))
    best = optimize_design(goal("time", rows, graphs=[ONE])).step_time
    assert best < result.workloads[0].step_time <= best * (1 + 1.1e-5)


def test_contradictory_time_targets():
    base = [best_alone(goal("time", ["total <= 100 GB/s"]), w) for w in goal("time", []).workloads]
    limits = [f"time(w{k}) <= {t * 1.0001:.12g} s" for k, t in enumerate(base)]
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(goal("time", ["total <= 100 GB/s"], limits))
    assert [c.constraint for c in caught.value.conflict] == [*limits, "total <= 100 GB/s"]


@pytest.mark.parametrize("lane", [None, 25 * GB])
def test_a_network_that_never_ends_a_step_is_not_the_cheapest(lane):
    net = network("RI(4)_SW(8)", lane=[None, lane], max_lanes=[None, lane and 4])
    load = [chain(collective("all-reduce", 1e9, extents)) for extents in ((4, 8), (1, 8))]
    d = design(net, load, ["b >= 10 GB/s"], objective="cost")
    with pytest.raises(InputError, match="no least bandwidth or time limit for a"):
        optimize_design(d)
    some = (limit("time(w1) <= 900 ms"),)
    with pytest.raises(InputError, match="no least bandwidth or time limit for a"):
        optimize_design(dataclasses.replace(d, time_limits=some))
    some = (limit("time(w0) <= 900 ms"),)
    assert optimize_design(dataclasses.replace(d, time_limits=some)).step_time < 1.8


def test_cost_of_nothing_is_refused():
    with pytest.raises(FieldError, match="nothing keeps the network from costing nothing"):
        goal("cost", ["total <= 100 GB/s"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time(w0) >= 1 s", "a step time can be limited from above only, got '>='"),
        ("time(w0) < 1 s", "a step time can be limited from above only, got '<'"),
        ("time(zz) <= 1 s", "unknown workload, got 'zz'"),
        ("time(w0) <= 5", "a time needs a unit"),
        ("time(w0) <= 0 s", "a step takes more than no time"),
        ("slowdown(w0) <= 0.9", "a slowdown is a plain number of at least 1"),
        ("slowdown(w0) <= 1.1 s", "a slowdown is a plain number of at least 1"),
        ("time(w0) + time(w1) <= 1 s", "a step time stands alone on the left side"),
        ("time <= 1 s", "a step time stands alone on the left side"),
    ],
)
def test_what_is_no_time_limit(text, message):
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        limit(text)


def test_names_with_hyphens():
    assert limit("time(gpt-3) <= 900 ms", "gpt-3") == TimeLimit(
        "time(gpt-3) <= 900 ms", "gpt-3", False, 0.9
    )
    assert Objective("worst-time") is Objective.WORST_TIME
