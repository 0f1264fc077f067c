"""The convex program through cvxpy: what a modeller would write down, solved by Clarabel.

Bandwidths are shares x of the total, times are in units of that at equal shares. cvxpy turns
``inv_pos(x)`` into cones. Time x cost is not convex; but its least value lies on the trade-off
curve of time and cost, each point of which is a convex program, and a search over the cost finds it
(with no proof: the product along the curve may have valleys between the costs that are tried).
"""

from __future__ import annotations

import time

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array

from others.problems import Kind
from others.step import Answer, Step

__all__ = ["solve", "solve_layers"]

Floats = NDArray[np.float64]

_GRID = 20
"""Costs of the network that are tried first, from the least to that of the fastest network."""


def solve(step: Step, limit: float) -> Answer:
    """Optimum with equal collectives merged."""
    if step.kind is Kind.GRAPH:
        return _least_time(*_graph_program(step), step, limit)
    return _solve_chain(step, *step.merged(), limit)


def solve_layers(step: Step, limit: float) -> Answer:
    """Optimum with the collectives of every layer."""
    return _solve_chain(step, *step.layers(), limit)


def _solve_chain(step: Step, traffic: Floats, counts: Floats, limit: float) -> Answer:
    share, duration, rules = _chain_program(step, traffic, counts)
    if not step.product:
        return _least_time(share, duration, rules, step, limit)
    return _search_cost(share, duration, rules, step, limit)


def _chain_program(
    step: Step, traffic: Floats, counts: Floats
) -> tuple[cp.Variable, cp.Expression, list[cp.Constraint]]:
    """Shares, step time and constraints: a variable for each collective and dimension."""
    number, dimensions = traffic.shape
    scale = step.path(step.equal).time
    load = traffic / (step.total * scale)
    share = cp.Variable(dimensions)
    sent = cp.Variable((number, dimensions))
    duration = cp.Variable(number)
    slow = np.ones((number, 1)) @ cp.reshape(cp.inv_pos(share), (1, dimensions), order="C")
    rules = [
        sent >= cp.multiply(load, slow),
        cp.reshape(duration, (number, 1), order="C") @ np.ones((1, dimensions)) >= sent,
        cp.sum(share) == 1,
    ]
    return share, step.graph.total_fixed / scale + counts @ duration, rules


def _graph_program(step: Step) -> tuple[cp.Variable, cp.Expression, list[cp.Constraint]]:
    """Shares, step time and constraints: a variable for the start of each task, too."""
    graph, (number, dimensions) = step.graph, step.traffic.shape
    scale = step.path(step.equal).time
    share, duration = cp.Variable(dimensions), cp.Variable(number)
    start, end = cp.Variable(graph.tasks, nonneg=True), cp.Variable()
    load = step.traffic / (step.total * scale)
    slow = np.ones((number, 1)) @ cp.reshape(cp.inv_pos(share), (1, dimensions), order="C")
    runs = csr_array(
        (graph.count_value, (graph.count_task, graph.count_index)), (graph.tasks, number)
    )
    stop = start + graph.fixed / scale + runs @ duration
    later = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
    rules = [
        cp.reshape(duration, (number, 1), order="C") @ np.ones((1, dimensions))
        >= cp.multiply(load, slow),
        start[later] >= stop[graph.predecessor],
        end >= stop,
        cp.sum(share) == 1,
    ]
    return share, end, rules


def _least_time(
    share: cp.Variable,
    duration: cp.Expression,
    rules: list[cp.Constraint],
    step: Step,
    limit: float,
) -> Answer:
    program = cp.Problem(cp.Minimize(duration), rules)
    program.solve(solver=cp.CLARABEL, time_limit=limit)
    if share.value is None:
        return Answer("failed", remark=f"Clarabel says {program.status}")
    done = program.status == cp.OPTIMAL
    return Answer(
        "solved" if done else "time limit",
        np.maximum(share.value, 0) * step.total,
        proven=done,
        remark="" if done else f"Clarabel says {program.status}",
    )


def _search_cost(
    share: cp.Variable,
    duration: cp.Expression,
    rules: list[cp.Constraint],
    step: Step,
    limit: float,
) -> Answer:
    """Least product along the trade-off curve: a grid of costs, then Brent's method at its best.

    Beyond the cost of the fastest network nothing is gained.
    """
    price = step.price / step.price.min()
    most = cp.Parameter(nonneg=True)
    program = cp.Problem(cp.Minimize(duration), [*rules, price @ share <= most])
    began, best = time.perf_counter(), (np.inf, step.equal)

    def product(cost: float) -> float:
        nonlocal best
        if time.perf_counter() - began > limit:
            raise TimeoutError
        most.value = cost
        program.solve(solver=cp.CLARABEL)
        if share.value is None:
            return np.inf
        here = step.feasible(np.maximum(share.value, 0) * step.total)
        value = np.inf if here is None else step.value(here)
        if here is not None and value < best[0]:
            best = (value, here)
        return float(value)

    try:
        product(float(price.max()))
        fastest = float(price @ share.value)
        grid = np.linspace(1.0, fastest, _GRID + 1)[1:]
        at = int(np.argmin([product(cost) for cost in grid]))
        around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
        minimize_scalar(product, bounds=around, method="bounded", options={"xatol": 1e-6})
    except TimeoutError:
        return Answer("time limit", best[1])
    return Answer("solved", best[1])
