"""The optimum against another solver and random search."""

import numpy as np
import pytest
from helpers import (
    PROMISE,
    optimum,
    random_design,
    slow_objective,
    slow_time,
    traffic,
    violation,
)
from scipy.optimize import minimize

from libra.design import Objective


def slsqp(d, start):
    """Local optimum by SLSQP: variables B, each collective's time and each task's end."""
    scale, width = start.mean(), len(start)
    unit = slow_time(d, d.workloads[0].graph, start)
    parts, at = [], width
    for w in d.workloads:
        g = w.graph
        parts.append((w, traffic(d, g) / scale / unit, at, at + len(g.collectives)))
        at += len(g.collectives) + g.tasks
    rows = [r for r in d.rows if r.relation != "=="]
    signs = np.array([1.0 if r.relation == ">=" else -1.0 for r in rows])
    norms = np.array([np.abs(r.coefficients).max() * scale for r in rows])
    equal = [r for r in d.rows if r.relation == "=="]

    def unequal(x):
        b, out = x[:width], []
        out.append(signs * np.array([r.coefficients @ b * scale - r.bound for r in rows]) / norms)
        for w, t, tau_at, end_at in parts:
            g = w.graph
            tau, end = x[tau_at:end_at], x[end_at : end_at + g.tasks]
            out.append((tau[:, None] * b - t)[t > 0])
            duration = g.fixed / unit
            np.add.at(duration, g.count_task, g.count_value * tau[g.count_index])
            task = np.repeat(np.arange(g.tasks), np.diff(g.predecessor_start))
            out += [end - duration, end[task] - end[g.predecessor] - duration[task]]
            out.append(x[end_at + g.tasks - 1] - end)  # the last task ends last
        return np.concatenate(out)

    def equalities(x):
        b = x[:width] * scale
        return np.array(
            [(r.coefficients @ b - r.bound) / np.abs(r.coefficients).max() / scale for r in equal]
        )

    def goal(x):
        time = sum(w.weight * x[end_at + w.graph.tasks - 1] for w, _, _, end_at in parts)
        cost = d.fixed_cost + d.bandwidth_prices @ x[:width] * scale
        return time * (cost / reference if d.objective is Objective.TIME_COST else 1.0)

    reference = d.fixed_cost + d.bandwidth_prices @ start
    x0 = np.ones(at)
    x0[:width] = start / scale
    for _, t, tau_at, end_at in parts:
        x0[tau_at:end_at] = (t / x0[:width]).max(axis=1)
    constraints = [{"type": "ineq", "fun": unequal}]
    constraints += [{"type": "eq", "fun": equalities}] if equal else []
    with np.errstate(all="ignore"):
        found = minimize(
            goal,
            x0,
            method="SLSQP",
            bounds=[(1e-6, None)] * at,
            constraints=constraints,
            options={"maxiter": 300, "ftol": 1e-12},
        )
    return found.x[:width] * scale


def best_of_slsqp(d, start, rng, starts=3):
    """Best feasible value of some runs; infinite if none ends feasible."""
    values = [np.inf]
    for _ in range(starts):
        b = slsqp(d, start * np.exp(rng.normal(size=len(start)) * 0.3))
        if np.isfinite(b).all() and (b > 0).all() and violation(d, b) < 1e-8:
            values.append(slow_objective(d, b))
    return min(values)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("objective", ["time", "time-cost"])
@pytest.mark.parametrize("shape", ["chain", "overlap", "two workloads"])
def test_slsqp_finds_nothing_better(shape, objective):
    reached = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        d, inside = random_design(
            rng,
            int(rng.integers(2, 5)),
            is_chain=shape != "overlap",
            workloads=2 if shape == "two workloads" else 1,
            objective=objective,
        )
        best = optimum(d).objective_value
        other = best_of_slsqp(d, inside, rng)
        assert other >= best * (1 - PROMISE[d.objective]), seed
        reached.append(other <= best * (1 + 1e-4))
    assert np.mean(reached) >= 0.6, "the other solver is too weak to say anything"


@pytest.mark.parametrize("seed", range(10))
def test_random_search_finds_no_better_time_cost(seed):
    """Rays through the optimum and random feasible bandwidths, in 2 to 4 dimensions."""
    rng = np.random.default_rng(seed)
    d, inside = random_design(rng, 2 + seed % 3, is_chain=seed % 2 == 0, objective="time-cost")
    best = optimum(d)
    equal = [row.coefficients for row in d.rows if row.relation == "=="]
    for k in range(300):
        toward = inside * np.exp(rng.normal(size=len(inside)) * 10 ** rng.uniform(-4, 0))
        if equal and k % 2:
            toward = (
                toward
                + np.linalg.lstsq(
                    np.array(equal), np.array(equal) @ (inside - toward), rcond=1e-12
                )[0]
            )
        share = rng.uniform(0, 1) ** 3
        b = (1 - share) * best.bandwidth + share * toward
        if (b > 0).all() and violation(d, b) < 1e-12:
            assert slow_objective(d, b) >= best.objective_value * (1 - 1e-5)
    assert slow_objective(d, inside) >= best.objective_value * (1 - 1e-5)
