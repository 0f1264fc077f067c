"""SCIP, an open solver of non-convex programs, on the reference implementation's program.

That program has a variable for each bandwidth and its reciprocal, bound by their product being 1,
one for the time of each collective in each dimension and one for the largest of these, and for
time-cost the product of step time and cost in the objective (github astra-sim/libra,
``src/model/model.py``). Here bandwidths are shares of the total, times in units of that at equal
shares, and the shares are bounded by what an answer better than equal shares needs, all of which
helps the solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyscipopt import Expr, Model, quicksum

from others.problems import Kind
from others.step import Answer, Step

__all__ = ["GAP", "solve", "solve_layers"]

Floats = NDArray[np.float64]

GAP = {False: 1e-6, True: 1e-5}
"""Relative gap asked for, for the time and for time x cost: what libra promises."""


def solve(step: Step, limit: float) -> Answer:
    """Optimum with equal collectives merged."""
    return _solve(step, *step.merged(), limit)


def solve_layers(step: Step, limit: float) -> Answer:
    """Optimum with the collectives of every layer."""
    return _solve(step, *step.layers(), limit)


def _solve(step: Step, traffic: Floats, counts: Floats, limit: float) -> Answer:
    model = Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    model.setParam("limits/gap", GAP[step.product])
    scale = step.path(step.equal).time
    share, slow = _lanes(model, step) if step.kind is Kind.LANES else _free(model, step)
    model.addCons(quicksum(share) == 1)
    durations = [_duration(model, load, slow) for load in traffic / (step.total * scale)]
    if step.kind is Kind.GRAPH:
        end = _start_times(model, step, durations, scale)
    else:
        end = step.graph.total_fixed / scale + quicksum(
            n * d for n, d in zip(counts.tolist(), durations, strict=True)
        )
    unit = scale
    if step.product:
        unit *= step.cost(step.equal)
        price = step.price * (step.total / step.cost(step.equal))
        cost = quicksum(p * x for p, x in zip(price.tolist(), share, strict=True))
        duration, product = model.addVar(lb=0), model.addVar(lb=0)
        model.addCons(duration >= end)
        model.addCons(product >= duration * cost)
        model.setObjective(product)
    else:
        model.setObjective(end)
    model.optimize()
    return _answer(model, step, share, unit)


def _free(model: Model, step: Step) -> tuple[list[Expr], list[Expr]]:
    """Shares and their reciprocals."""
    shares, slow = [], []
    for least in step.least_share.tolist():
        x = model.addVar(lb=least, ub=1.0)
        r = model.addVar(lb=1.0, ub=1 / least)
        model.addCons(x * r == 1)
        shares.append(x)
        slow.append(r)
    return shares, slow


def _lanes(model: Model, step: Step) -> tuple[list[Expr], list[Expr]]:
    """Shares and their reciprocals, both linear in which lanes are taken."""
    shares, slow = [], []
    for lane in step.lanes:
        taken = [model.addVar(vtype="B") for _ in lane]
        model.addCons(quicksum(taken) == 1)
        each = (lane / step.total).tolist()
        shares.append(quicksum(b * z for b, z in zip(each, taken, strict=True)))
        slow.append(quicksum(z / b for b, z in zip(each, taken, strict=True)))
    return shares, slow


def _duration(model: Model, load: Floats, slow: list[Expr]) -> Expr:
    """Time of a collective: the largest of its times in the dimensions."""
    duration = model.addVar(lb=0)
    for amount, reciprocal in zip(load.tolist(), slow, strict=True):
        if amount > 0:
            sent = model.addVar(lb=0)
            model.addCons(sent == amount * reciprocal)
            model.addCons(duration >= sent)
    return duration


def _start_times(model: Model, step: Step, durations: list[Expr], scale: float) -> Expr:
    """End of a graph whose tasks each have a variable for their end."""
    graph = step.graph
    ends: list[Expr] = []
    last = model.addVar(lb=0)
    for i in range(graph.tasks):
        span = slice(graph.count_start[i], graph.count_start[i + 1])
        takes = float(graph.fixed[i]) / scale + quicksum(
            float(n) * durations[j]
            for n, j in zip(graph.count_value[span], graph.count_index[span], strict=True)
        )
        end = model.addVar(lb=0)
        model.addCons(end >= takes)
        for p in graph.predecessor[graph.predecessor_start[i] : graph.predecessor_start[i + 1]]:
            model.addCons(end >= ends[int(p)] + takes)
        model.addCons(last >= end)
        ends.append(end)
    return last


def _answer(model: Model, step: Step, share: list[Expr], unit: float) -> Answer:
    status = model.getStatus()
    proven = status in ("optimal", "gaplimit")
    bound = float(model.getDualbound()) * unit
    bound_or_none = bound if np.isfinite(bound) and abs(bound) < 1e19 * unit else None
    if model.getNSols() == 0:
        word = "time limit" if status == "timelimit" else "failed"
        return Answer(word, bound=bound_or_none, remark=f"SCIP says {status}, no answer found")
    found = np.array([model.getVal(x) for x in share]) * step.total
    return Answer(
        "solved" if proven else "time limit",
        found,
        bound_or_none,
        proven,
        remark="" if proven else f"gap {model.getGap():.1e} left",
    )
