"""The time-cost frontier: each point against a solve of its own, and its shape."""

import json

import numpy as np
import pytest
from helpers import GB, chain, collective, design, network

import libra.search
from libra.constraints import LinearConstraint
from libra.errors import FieldError, InfeasibleError
from libra.frontier import time_cost_frontier
from libra.optimize import optimize_design
from libra.screen import render
from libra.tables import frontier_csv, frontier_table
from libra.time_limits import parse_time_limit
from libra.units import MONEY

NET = network("RI(4)_FC(8)_SW(16)")
LOAD = chain(
    collective("all-reduce", 2e9, (4, 8, 1)), collective("all-reduce", 1e9, (1, 1, 16)), compute=0.2
)
USD = [2.0, 4.0, 50.0]


def problem(rows=("total <= 500 GB/s",), **fields):
    return design(NET, LOAD, list(rows), USD, **fields)


def test_each_point_is_the_optimum_under_its_cost():
    d = problem()
    points = time_cost_frontier(d, 8)
    assert len(points) == 8
    for point in points:
        row = LinearConstraint("cost", d.bandwidth_prices, "<=", point.limit, MONEY)
        alone = problem()
        alone = optimize_design(
            type(alone)(alone.network, alone.workloads, alone.prices, (*alone.constraints, row))
        )
        assert point.step_time == pytest.approx(alone.step_time, rel=1e-6)
        assert point.bound <= point.step_time
        assert point.gap <= 1e-6
        assert d.bandwidth_prices @ point.bandwidth <= point.network_cost * (1 + 1e-9)


def test_it_falls_and_is_convex_and_ends_at_the_fastest():
    d = problem()
    points = time_cost_frontier(d, 25)
    times = np.array([p.step_time for p in points])
    costs = np.array([p.limit for p in points])
    assert (np.diff(costs) > 0).all()
    assert (np.diff(times) <= 1e-9).all()
    slopes = np.diff(times) / np.diff(costs)
    assert (np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1])).all()
    fastest = optimize_design(d)
    assert times[-1] == pytest.approx(fastest.step_time, rel=1e-6)
    assert costs[-1] == pytest.approx(fastest.network_cost, rel=1e-9)


def test_time_limits_hold_at_every_point():
    limit = parse_time_limit("time(w0) <= 500 ms", ["w0"])
    points = time_cost_frontier(problem(time_limits=(limit,)), 5)
    assert all(p.step_time <= 0.5 * (1 + 1e-9) for p in points)
    assert points[0].step_time > points[-1].step_time


def test_each_point_has_rounds_of_its_own(monkeypatch):
    """However many points share a search, none is left without rounds."""
    monkeypatch.setattr(libra.search, "MOST_ROUNDS", 40)
    points = time_cost_frontier(problem(), 60)
    assert len(points) == 60
    assert all(p.gap <= 1e-6 for p in points)


def test_what_has_no_frontier():
    with pytest.raises(FieldError, match="from 2 to 100,000 points, got 1"):
        time_cost_frontier(problem(), 1)
    with pytest.raises(InfeasibleError):
        time_cost_frontier(problem(["total <= 5 GB/s", "dim1 >= 6 GB/s"]))
    with pytest.raises(FieldError, match="needs a cost that varies, got figures that are all 0"):
        time_cost_frontier(design(NET, LOAD, ["total <= 500 GB/s"], usd=[0.0] * 3))


def test_as_table_csv_and_json():
    points = time_cost_frontier(problem(), 3)
    text = frontier_csv(NET.names, points).splitlines()
    assert text[0].startswith("network_cost_usd,step_time_s,bound_s,")
    assert [float(row.split(",")[1]) for row in text[1:]] == [p.step_time for p in points]
    assert len(render(frontier_table(NET.names, points)).splitlines()) >= 5
    (first, *_) = json.loads(json.dumps([p.to_dict() for p in points]))
    assert first["bandwidth_GBps"] == pytest.approx((points[0].bandwidth / GB).tolist())
