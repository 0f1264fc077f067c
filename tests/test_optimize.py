"""The optimum against closed forms, fine grids and another solver."""

import json

import numpy as np
import pytest
from helpers import (
    GB,
    PROMISE,
    chain,
    collective,
    design,
    graph,
    grid,
    network,
    optimum,
    random_graph,
    random_network,
    traffic,
)

from libra.design import Objective
from libra.load import load_design
from libra.optimize import optimize_design

# --- closed forms ------------------------------------------------------------------------------

NET3 = network("RI(4)_FC(8)_SW(16)")


def apart(*sizes, kind="all-reduce"):
    """One collective in each dimension, none shared."""
    extents = np.where(np.eye(3, dtype=bool), NET3.sizes, 1)
    return [collective(kind, m, e.tolist()) for m, e in zip(sizes, extents, strict=True)]


def test_dimensions_apart_share_a_total_by_the_square_roots_of_their_bytes():
    d = design(NET3, chain(*apart(4e9, 1e9, 2.5e8), compute=0.5), ["total <= 300 GB/s"])
    root = np.sqrt(traffic(d, d.workloads[0].graph).sum(axis=0))
    result = optimum(d)
    assert result.bandwidth == pytest.approx(300 * GB * root / root.sum(), rel=1e-4)
    assert result.step_time == pytest.approx(0.5 + root.sum() ** 2 / (300 * GB), rel=1e-7)
    price = -(root.sum() ** 2) / (300 * GB) ** 2 * GB
    assert result.shadow_prices[0].value == pytest.approx(price, rel=1e-3)


def test_dimensions_apart_share_a_budget_by_root_bytes_over_price():
    usd = np.array([2.0, 5.0, 40.0])
    d = design(NET3, chain(*apart(4e9, 1e9, 2.5e8)), ["cost <= 1e6 USD"], usd)
    a, c = traffic(d, d.workloads[0].graph).sum(axis=0), usd / GB * NET3.npus
    result = optimum(d)
    assert result.bandwidth == pytest.approx(1e6 * np.sqrt(a / c) / np.sqrt(a * c).sum(), rel=1e-4)
    assert result.step_time == pytest.approx(np.sqrt(a * c).sum() ** 2 / 1e6, rel=1e-7)


def test_one_collective_wants_bandwidth_proportional_to_its_bytes():
    d = design(NET3, chain(collective("all-reduce", 1e9, (4, 8, 16))), ["total == 500 GB/s"])
    a = traffic(d, d.workloads[0].graph)[0]
    result = optimum(d)
    assert result.bandwidth == pytest.approx(500 * GB * a / a.sum(), rel=1e-6)
    assert result.step_time == pytest.approx(a.sum() / (500 * GB), rel=1e-7)
    (w,) = result.workloads
    assert w.collectives[0].limited_by == ("a", "b", "c")


@pytest.mark.parametrize("limit", ["c <= 3 GB/s", "c == 3 GB/s"])
def test_a_limit_that_binds(limit):
    d = design(NET3, chain(collective("all-reduce", 1e9, (4, 8, 16))), ["total <= 500 GB/s", limit])
    a = traffic(d, d.workloads[0].graph)[0]
    assert optimum(d).step_time == pytest.approx(
        max(a[2] / (3 * GB), a.sum() / (500 * GB)), rel=1e-7
    )


def test_own_limits_of_dimensions_hold():
    net = network("RI(4)_SW(8)", min_bandwidth=[None, 40e9], max_bandwidth=[30e9, None])
    d = design(net, chain(collective("all-reduce", 1e9, (4, 8))), ["total <= 100 GB/s"])
    result = optimum(d)
    assert result.step_time == pytest.approx(1.5e9 / 30e9, rel=1e-7)
    assert [p.constraint for p in result.shadow_prices] == [
        "total <= 100 GB/s",
        "a <= 30 GB/s",
        "b >= 40 GB/s",
    ]


def test_time_cost_of_one_dimension():
    """(f + a/B)(C0 + p B) is least at B = sqrt(a C0 / (f p))."""
    net = network("SW(8)")
    fixed, npu, usd = 0.3, 1000.0, 20.0
    d = design(
        net,
        chain(collective("all-gather", 8e9, (8,)), compute=fixed),
        [],
        [usd],
        npu,
        objective="time-cost",
    )
    a, p, c0 = 7e9, usd / GB * 8, npu * 8
    result = optimum(d)
    assert result.bandwidth[0] == pytest.approx(np.sqrt(a * c0 / (fixed * p)), rel=2e-2)
    best = (np.sqrt(fixed * c0) + np.sqrt(a * p)) ** 2
    assert result.objective_value == pytest.approx(best, rel=1e-6)
    assert result.network_cost == pytest.approx(p * result.bandwidth[0], rel=1e-12)


def test_time_cost_of_almost_pure_communication():
    """Compute and NPUs next to free: the best total is the largest allowed."""
    item = collective("all-reduce", 1e9, (4, 8, 16))
    d = design(
        NET3,
        chain(item, compute=1e-7),
        ["total <= 10000 GB/s"],
        [2.0, 5.0, 40.0],
        npu=1.0,
        objective="time-cost",
    )
    optimum(d)


def test_overlap_hides_the_lesser_branch():
    """Two branches, each a collective of its own dimension: the optimum makes them equal."""
    net = network("SW(2)_SW(2)")
    items = collective("all-gather", 6e9, (2, 1)), collective("all-gather", 2e9, (1, 2))
    found = graph([0.0, 0.5, 0.0], items, [{0: 1}, {1: 1}, {}], [[], [], [0, 1]])
    d = design(net, found, ["total <= 10 GB/s"])
    t = max(np.roots([10, -10 / 2 - 3 - 1, 3 / 2]))  # 3/t + 1/(t - 1/2) = 10
    result = optimum(d)
    assert result.step_time == pytest.approx(t, rel=1e-6)
    assert result.bandwidth / GB == pytest.approx([3 / t, 1 / (t - 0.5)], rel=1e-4)


def test_a_hidden_collective_asks_for_nothing():
    net = network("SW(2)_SW(2)")
    items = collective("all-gather", 2e9, (2, 1)), collective("all-gather", 2e9, (1, 2))
    found = graph([0.0, 1.0, 0.0], items, [{0: 1}, {}, {1: 1}], [[], [], []])
    d = design(net, found, ["total <= 10 GB/s", "b >= 4 GB/s"])
    result = optimum(d)
    assert result.step_time == 1.0
    assert result.workloads[0].compute == 1.0


# --- fine grids --------------------------------------------------------------------------------


def on_grid(d, total, points):
    """Least objective on a fine grid of bandwidths with a total, for chains."""
    b = grid(total * GB, len(d.network.sizes), points)
    time = np.zeros(len(b))
    for w in d.workloads:
        t, counts = traffic(d, w.graph), w.graph.total_counts
        tau = np.array([(row / b).max(axis=1) for row in t])
        time += w.weight * (w.graph.total_fixed + counts @ tau)
    if d.objective is Objective.TIME_COST:
        time = time * (d.fixed_cost + b @ d.bandwidth_prices)
    return float(time.min())


@pytest.mark.parametrize("objective", ["time", "time-cost"])
@pytest.mark.parametrize(("dims", "points"), [(2, 20_000), (3, 500)])
@pytest.mark.parametrize("seed", range(4))
def test_no_point_of_a_fine_grid_is_better(dims, points, objective, seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, dims)
    graphs = [random_graph(rng, net, 6, 3, is_chain=True) for _ in range(2)]
    d = design(
        net,
        graphs,
        ["total == 100 GB/s"],
        rng.uniform(1, 30, dims),
        npu=seed * 10.0,
        objective=objective,
    )
    found, best = on_grid(d, 100, points), optimum(d).objective_value
    assert best * (1 - PROMISE[d.objective]) <= found <= best * (1 + 2e-2)


# --- size --------------------------------------------------------------------------------------


def layers(net, rng):
    tp, dp = (
        collective("all-reduce", 8e8, (4, 2, 1)),
        collective("all-reduce", 2e8, (1, 4, 16), (1, 2, 1)),
    )
    return [tp, tp, dp], rng.uniform(1e-3, 2e-3, 3)


@pytest.mark.parametrize("objective", ["time", "time-cost"])
def test_a_long_workload_solves_like_its_merged_one(objective):
    """96 layers whose 288 collectives are not known to be equal."""
    items, compute = layers(NET3, np.random.default_rng(0))
    n = 96
    merged = graph(
        np.tile(compute, n),
        items,
        [{k: 1.0} for k in range(3)] * n,
        [[i - 1] if i else [] for i in range(3 * n)],
    )
    apart_ = graph(
        np.tile(compute, n),
        items * n,
        [{k: 1.0} for k in range(3 * n)],
        [[i - 1] if i else [] for i in range(3 * n)],
    )
    first, second = (
        optimum(design(NET3, g, ["total <= 400 GB/s", "total >= 100 GB/s"], objective=objective))
        for g in (merged, apart_)
    )
    assert second.objective_value == pytest.approx(
        first.objective_value, rel=PROMISE[Objective(objective)]
    )


@pytest.mark.parametrize("objective", ["time", "time-cost"])
@pytest.mark.parametrize("is_chain", [True, False])
def test_eight_workloads_at_once(is_chain, objective):
    rng = np.random.default_rng(7)
    net = random_network(rng, 4)
    graphs = [random_graph(rng, net, 30, 6, is_chain=is_chain) for _ in range(8)]
    d = design(
        net,
        graphs,
        ["total == 500 GB/s"],
        weights=list(rng.uniform(0.1, 3, 8)),
        objective=objective,
    )
    optimum(d)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_overlapped_graph(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, 3)
    optimum(design(net, random_graph(rng, net, 2000, 12), ["total <= 300 GB/s"]))


def test_a_short_collective_that_runs_thousands_of_times(tmp_path):
    """Two paths that differ in one of 5,000 collectives: their own times are nothing to the step's."""
    entry = {
        "model": "gpt-3-175b", "accelerator": "b200", "precision": "bf16", "recomputation": "full",
        "parallel": {"tp": 16, "pp": 4, "dp": 4, "sequence_parallel": True, "zero": 1,
                     "order": ["dp", "cp", "tp", "pp"]},
        "batch": {"global": 256, "micro": 2, "sequence": 2048},
    }  # fmt: skip
    tiers = [("fully-connected", 8, "package"), ("switch", 4, "node"), ("switch", 8, "pod")]
    dimensions = [{"topology": t, "size": n, "tier": tier} for t, n, tier in tiers]
    data = {"network": dimensions, "workloads": [entry], "constraints": ["total <= 500 GB/s"]}
    (tmp_path / "design.yaml").write_text(json.dumps(data))
    result = optimize_design(load_design(tmp_path / "design.yaml"))
    assert result.gap <= PROMISE[Objective.TIME]
