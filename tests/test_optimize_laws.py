"""Laws of the optimum: symmetry, units, monotony, multipliers as finite differences."""

import dataclasses

import numpy as np
import pytest
from helpers import (
    GB,
    PROMISE,
    chain,
    collective,
    design,
    network,
    random_graph,
    random_network,
    slow_time,
    some_design,
    value,
    with_row,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.collectives import Collective
from libra.constraints import parse_constraint
from libra.design import Workload
from libra.evaluate import evaluate_design
from libra.optimize import optimize_design
from libra.workload.graph import StepGraph

seeds = st.integers(0, 2**32 - 1)
objectives = st.sampled_from(["time", "time-cost"])


def scaled_bytes(found, factor):
    items = [Collective(c.kind, c.size * factor, c.group) for c in found.collectives]
    return dataclasses.replace(found, collectives=tuple(items))


@settings(max_examples=25)
@given(seeds, objectives)
def test_permuting_dimensions_with_groups_of_their_own_permutes_the_answer(seed, objective):
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(2, 5))
    net = random_network(rng, dims)
    sizes, usd = 10 ** rng.uniform(7, 9, dims), rng.uniform(1, 20, dims)
    order = rng.permutation(dims)

    def build(order):
        blocks = [net.dimensions[d] for d in order]
        shape = "_".join(f"{b.topology.code}({b.size})" for b in blocks)
        items = [
            collective(
                "all-reduce", sizes[d], np.where(np.arange(dims) == at, blocks[at].size, 1).tolist()
            )
            for at, d in enumerate(order)
        ]
        d = design(
            network(shape),
            chain(*items, compute=0.1),
            ["total == 300 GB/s"],
            usd[order],
            50.0,
            objective=objective,
        )
        return optimize_design(d)

    first, second = build(np.arange(dims)), build(order)
    assert second.objective_value == pytest.approx(first.objective_value, rel=2e-5)
    assert second.bandwidth == pytest.approx(first.bandwidth[order], rel=3e-2)


@settings(max_examples=25)
@given(seeds, st.floats(-4, 4), objectives)
def test_a_change_of_units_changes_nothing(seed, exponent, objective):
    """All bytes and bandwidth limits times k: the same time, at k times the bandwidths."""
    _, d, _ = some_design(seed, objective)
    k = 10**exponent
    rows = tuple(dataclasses.replace(r, bound=r.bound * k) for r in d.constraints)
    loads = tuple(dataclasses.replace(w, graph=scaled_bytes(w.graph, k)) for w in d.workloads)
    first, second = (
        optimize_design(d),
        optimize_design(dataclasses.replace(d, constraints=rows, workloads=loads)),
    )
    assert second.step_time * second.network_cost / k == pytest.approx(
        first.step_time * first.network_cost, rel=1e-1
    )
    unit = k if objective == "time-cost" else 1.0
    assert second.objective_value / unit == pytest.approx(first.objective_value, rel=2e-5)


@settings(max_examples=25)
@given(seeds, st.floats(1e-3, 1e3), objectives)
def test_time_scales_with_compute_and_bytes(seed, k, objective):
    _, d, _ = some_design(seed, objective)

    def slower(w):
        found = dataclasses.replace(w.graph, fixed=w.graph.fixed * k)
        return dataclasses.replace(w, graph=scaled_bytes(found, k))

    second = dataclasses.replace(d, workloads=tuple(map(slower, d.workloads)))
    assert value(second) == pytest.approx(k * value(d), rel=2e-5)


@settings(max_examples=40)
@given(seeds, objectives)
def test_loosening_a_row_never_worsens(seed, objective):
    rng, d, _ = some_design(seed, objective)
    first = value(d)
    for k, row in enumerate(d.constraints):
        if row.relation == "==":
            continue
        room = abs(row.bound) * rng.uniform(0, 0.5) * (1 if row.relation == "<=" else -1)
        assert value(with_row(d, k, room)) <= first * (1 + PROMISE[d.objective])
        if k and objective == "time":  # without its total a design may be unbounded
            rest = dataclasses.replace(d, constraints=d.constraints[:k] + d.constraints[k + 1 :])
            assert value(rest) <= first * (1 + PROMISE[d.objective])


@settings(max_examples=25)
@given(seeds)
def test_doubling_the_total_of_pure_communication_halves_the_time(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(1, 5)))
    found = random_graph(rng, net, 6, 3)
    found = dataclasses.replace(found, fixed=np.zeros(6))
    once, twice = (value(design(net, found, [f"total <= {t} GB/s"])) for t in (150, 300))
    assert twice == pytest.approx(once / 2, rel=2e-6)


@settings(max_examples=25)
@given(seeds)
def test_the_best_time_is_convex_in_the_total(seed):
    _, d, inside = some_design(seed)
    d = dataclasses.replace(d, constraints=d.constraints[:1])
    total = inside.sum()
    d = dataclasses.replace(
        d, constraints=(dataclasses.replace(d.constraints[0], bound=total, relation="<="),)
    )
    low, mid, high = (value(with_row(d, 0, change * total)) for change in (0, 0.5, 1))
    assert low >= mid * (1 - 1e-6) >= high * (1 - 2e-6)
    assert mid <= (low + high) / 2 * (1 + 1e-6)


@settings(max_examples=15)
@given(seeds, objectives)
def test_weighted_workloads_equal_the_chain_of_both(seed, objective):
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(2, 5)))
    one, two = (random_graph(rng, net, 5, 3, is_chain=True) for _ in range(2))
    n = len(one.collectives)
    both = StepGraph(
        np.concatenate([2 * one.fixed, 3 * two.fixed]),
        one.collectives + two.collectives,
        np.concatenate([one.count_start, two.count_start[1:] + one.count_start[-1]]),
        np.concatenate([one.count_index, two.count_index + n]),
        np.concatenate([2 * one.count_value, 3 * two.count_value]),
        np.maximum(np.arange(11) - 1, 0),
        np.arange(9),
    )
    rows = ["total == 300 GB/s"]
    apart = design(net, [one, two], rows, weights=[2.0, 3.0], objective=objective)
    joined = design(net, both, rows, objective=objective)
    assert value(apart) == pytest.approx(value(joined), rel=2e-5)
    result = optimize_design(apart)
    times = [w.step_time for w in result.workloads]
    assert result.step_time == pytest.approx(2 * times[0] + 3 * times[1], rel=1e-12)


NET = network("RI(4)_FC(8)_SW(16)")
USD = [2.0, 5.0, 40.0]

# --- corners -----------------------------------------------------------------------------------


def test_an_unused_dimension_gets_no_more_than_it_must():
    d = design(
        NET, chain(collective("all-reduce", 1e9, (4, 1, 16))), ["total <= 100 GB/s", "b >= 2 GB/s"]
    )
    result = optimize_design(d)
    assert result.bandwidth[1] == pytest.approx(2 * GB, rel=1e-4)
    assert result.workloads[0].busy[1] == 0.0
    assert result.gap <= 1e-6


@pytest.mark.parametrize("objective", ["time", "time-cost"])
def test_a_workload_that_communicates_nothing(objective):
    d = design(NET, chain(None, None, compute=0.5), ["total == 100 GB/s"], USD, objective=objective)
    result = optimize_design(d)
    assert result.step_time == 0.5
    assert result.gap <= 1e-5
    if objective == "time-cost":  # all bandwidth where it is cheapest
        assert result.network_cost == pytest.approx(100 * 2.0 * NET.npus, rel=1e-5)


def test_a_silent_workload_beside_one_that_communicates():
    item = collective("all-reduce", 1e9, (4, 8, 16))
    alone = value(design(NET, chain(item), ["total == 100 GB/s"]))
    both = design(
        NET, [chain(None, compute=2.0), chain(item)], ["total == 100 GB/s"], weights=[0.5, 1]
    )
    assert value(both) == pytest.approx(1.0 + alone, rel=1e-6)


def test_the_baseline_is_equal_bandwidths_or_those_given():
    load = chain(collective("all-reduce", 1e9, (4, 8, 16)), compute=0.1)
    d = design(NET, load, ["total <= 300 GB/s"])
    result = optimize_design(d)
    equal = slow_time(d, load, [100 * GB] * 3)
    assert result.baseline == pytest.approx([100 * GB] * 3)
    assert result.speedup == pytest.approx(equal / result.step_time, rel=1e-9)
    given_ = dataclasses.replace(d, baseline=(200 * GB, 50 * GB, 50 * GB))
    expected = slow_time(d, load, given_.baseline) / result.step_time
    assert optimize_design(given_).speedup == pytest.approx(expected, rel=1e-6)
    assert evaluate_design(given_, given_.baseline).speedup == 1.0


def test_a_weight_of_nothing_is_refused():
    with pytest.raises(ValueError, match="finite and positive"):
        Workload("w", chain(None), 0.0)


def test_rows_of_very_different_sizes():
    """A bound in GB/s, one in USD and one in kB/s, on a dimension 1e6 times smaller."""
    load = chain(
        collective("all-reduce", 1e9, (4, 1, 1)), collective("all-reduce", 1e-3 * 1e3, (1, 1, 16))
    )
    d = design(NET, load, ["total <= 1000 GB/s", "cost <= 1e9 USD", "b >= 1 kB/s"], USD)
    result = optimize_design(d)
    assert result.gap <= 1e-6
    assert parse_constraint("b >= 1 kB/s", NET, None).slack(result.bandwidth) >= -1e-6
