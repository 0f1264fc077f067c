"""Multipliers: finite differences of the optimum, and its optimality conditions."""

import numpy as np
import pytest
from helpers import chain, collective, design, network, slow_time, some_design, value, with_row
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.optimize import optimize_design

seeds = st.integers(0, 2**32 - 1)
objectives = st.sampled_from(["time", "time-cost"])

NET = network("RI(4)_FC(8)_SW(16)")
USD = [2.0, 5.0, 40.0]
LOAD = chain(
    collective("all-reduce", 4e9, (4, 1, 1)),
    collective("all-reduce", 1e9, (1, 8, 1)),
    collective("all-reduce", 3e8, (1, 1, 16)),
    collective("all-gather", 5e8, (4, 8, 16)),
    compute=0.3,
)
ROWS = {
    "total <=": ["total <= 300 GB/s"],
    "total ==": ["total == 300 GB/s"],
    "cost <=": ["cost <= 1e6 USD"],
    "cost ==": ["cost == 1e6 USD", "a <= 200 GB/s"],
    "floor": ["total <= 300 GB/s", "c >= 90 GB/s"],
    "ceiling": ["total <= 300 GB/s", "a <= 60 GB/s"],
    "reversed": ["300 GB/s >= total", "5 GB/s + 2 * c >= a + b"],
    "reversed equality": ["300 GB/s == total"],
    "ratio": ["total <= 300 GB/s", "a >= 3 * b + 10 GB/s", "c == 20 GB/s"],
    "total and cost": ["total <= 300 GB/s", "cost <= 1.5e6 USD"],
    "point": ["a == 150 GB/s", "b == 40 GB/s", "c == 30 GB/s"],
    "free": ["total <= 300 GB/s", "a >= 1 GB/s"],
}


CASES = [
    (name, objective, npu)
    for name in ROWS
    for objective, npu in (("time", 0.0), ("time-cost", 0.0), ("time-cost", 500.0))
]


@pytest.mark.parametrize(("name", "objective", "npu"), CASES)
def test_shadow_prices_are_finite_differences(name, objective, npu):
    rows = ROWS[name] + ["total >= 50 GB/s"] * (objective == "time-cost")
    d = design(NET, LOAD, rows, USD, npu, objective=objective)
    result = optimize_design(d)
    unit = result.objective_value
    for k, (row, price) in enumerate(zip(d.constraints, result.shadow_prices, strict=True)):
        size, (_, per) = abs(row.bound), row.unit
        h = 2e-3 * size
        slope = (value(with_row(d, k, h)) - value(with_row(d, k, -h))) / (2 * h) * per
        assert price.value == pytest.approx(slope, rel=1e-2, abs=2e-3 * unit / (size / per)), (
            row.text
        )
        assert price.unit == ("s" if objective == "time" else "s*USD") + (
            "/(GB/s)" if per > 1 else "/USD"
        )
        if row.relation != "==":
            assert price.value <= 0 if row.relation == "<=" else price.value >= 0


@settings(max_examples=40)
@given(seeds, objectives)
def test_optimality_conditions(seed, objective):
    """Feasible, bounded from below, and a row with room left has no price."""
    _, d, _ = some_design(seed, objective)
    result = optimize_design(d)
    assert result.objective_bound <= result.objective_value
    for row, price in zip(d.constraints, result.shadow_prices, strict=True):
        assert price.met
        size = float(np.abs(row.coefficients) @ result.bandwidth)
        worth = abs(price.value / row.unit[1]) * row.slack(result.bandwidth)
        assert worth <= 1e-4 * result.objective_value, row.text
        assert price.slack * row.unit[1] >= -1e-9 * size


@pytest.mark.parametrize("seed", range(10))
def test_multipliers_prove_the_optimum_to_first_order(seed):
    """Gradient of T at a smooth optimum = sum of multipliers x rows."""
    rng = np.random.default_rng(seed)
    items = [
        collective(
            "all-reduce",
            10 ** rng.uniform(8, 9.5),
            np.where(np.arange(3) == d, NET.sizes, 1).tolist(),
        )
        for d in range(3)
    ]
    d = design(NET, chain(*items), ["total <= 300 GB/s", "b >= 2 * c", "cost <= 4e6 USD"], USD)
    result = optimize_design(d)
    b = result.bandwidth
    gradient = []
    for k in range(3):
        step = np.eye(3)[k] * b[k] * 1e-4
        gradient.append(
            (
                slow_time(d, d.workloads[0].graph, b + step)
                - slow_time(d, d.workloads[0].graph, b - step)
            )
            / (2 * step[k])
        )
    expected = sum(
        p.value / r.unit[1] * r.coefficients
        for p, r in zip(result.shadow_prices, d.rows, strict=True)
    )
    assert expected * b == pytest.approx(gradient * b, rel=2e-3, abs=1e-4 * result.step_time)
