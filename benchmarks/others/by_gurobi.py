"""Gurobi, which the reference implementation uses, on its program, see `others.by_scip`.

The package comes with a licence for small models only; larger ones it refuses, which is a row, too.
Largest times are its ``max_`` constraints, as there.
"""

from __future__ import annotations

import gurobipy as gp
import numpy as np
from gurobipy import GRB
from numpy.typing import NDArray

from others.problems import Kind
from others.step import Answer, Step

__all__ = ["solve", "solve_layers"]

Floats = NDArray[np.float64]

_GAP = {False: 1e-6, True: 1e-5}


def solve(step: Step, limit: float) -> Answer:
    """Optimum with equal collectives merged."""
    return _solve(step, *step.merged(), limit)


def solve_layers(step: Step, limit: float) -> Answer:
    """Optimum with the collectives of every layer."""
    return _solve(step, *step.layers(), limit)


def _solve(step: Step, traffic: Floats, counts: Floats, limit: float) -> Answer:
    with gp.Env(params={"OutputFlag": 0}) as env, gp.Model(env=env) as model:
        model.Params.TimeLimit = limit
        model.Params.MIPGap = _GAP[step.product]
        scale = step.path(step.equal).time
        share, slow = _lanes(model, step) if step.kind is Kind.LANES else _free(model, step)
        model.addConstr(gp.quicksum(share) == 1)
        durations = [_duration(model, load, slow) for load in traffic / (step.total * scale)]
        if step.kind is Kind.GRAPH:
            end = _start_times(model, step, durations, scale)
        else:
            end = step.graph.total_fixed / scale + gp.quicksum(
                n * d for n, d in zip(counts.tolist(), durations, strict=True)
            )
        unit = scale
        if step.product:
            unit *= step.cost(step.equal)
            price = step.price * (step.total / step.cost(step.equal))
            cost = gp.quicksum(p * x for p, x in zip(price.tolist(), share, strict=True))
            end = end * cost
        model.setObjective(end, GRB.MINIMIZE)
        try:
            model.optimize()
        except gp.GurobiError as error:
            return Answer("failed", remark=str(error))
        return _answer(model, step, share, unit)


def _free(model: gp.Model, step: Step) -> tuple[list[gp.Var], list[gp.Var]]:
    """Shares and their reciprocals."""
    shares, slow = [], []
    for least in step.least_share.tolist():
        x = model.addVar(lb=least, ub=1.0)
        r = model.addVar(lb=1.0, ub=1 / least)
        model.addConstr(x * r == 1)
        shares.append(x)
        slow.append(r)
    return shares, slow


def _lanes(model: gp.Model, step: Step) -> tuple[list[gp.LinExpr], list[gp.LinExpr]]:
    """Shares and their reciprocals, both linear in which lanes are taken."""
    shares, slow = [], []
    for lane in step.lanes:
        taken = [model.addVar(vtype=GRB.BINARY) for _ in lane]
        model.addConstr(gp.quicksum(taken) == 1)
        each = (lane / step.total).tolist()
        shares.append(gp.quicksum(b * z for b, z in zip(each, taken, strict=True)))
        slow.append(gp.quicksum(z / b for b, z in zip(each, taken, strict=True)))
    return shares, slow


def _duration(model: gp.Model, load: Floats, slow: list[gp.Var]) -> gp.Var:
    """Time of a collective: the largest of its times in the dimensions."""
    times = []
    for amount, reciprocal in zip(load.tolist(), slow, strict=True):
        if amount > 0:
            sent = model.addVar()
            model.addConstr(sent == amount * reciprocal)
            times.append(sent)
    duration = model.addVar()
    model.addConstr(duration == gp.max_(times))
    return duration


def _start_times(model: gp.Model, step: Step, durations: list[gp.Var], scale: float) -> gp.Var:
    """End of a graph whose tasks each have a variable for their end."""
    graph = step.graph
    ends: list[gp.Var] = []
    last = model.addVar()
    for i in range(graph.tasks):
        span = slice(graph.count_start[i], graph.count_start[i + 1])
        takes = float(graph.fixed[i]) / scale + gp.quicksum(
            float(n) * durations[j]
            for n, j in zip(graph.count_value[span], graph.count_index[span], strict=True)
        )
        end = model.addVar()
        model.addConstr(end >= takes)
        for p in graph.predecessor[graph.predecessor_start[i] : graph.predecessor_start[i + 1]]:
            model.addConstr(end >= ends[int(p)] + takes)
        model.addConstr(last >= end)
        ends.append(end)
    return last


def _answer(
    model: gp.Model, step: Step, share: list[gp.Var] | list[gp.LinExpr], unit: float
) -> Answer:
    if model.SolCount == 0:
        word = "time limit" if model.Status == GRB.TIME_LIMIT else "failed"
        return Answer(word, remark=f"Gurobi says status {model.Status}, no answer found")
    found = [x.X if isinstance(x, gp.Var) else x.getValue() for x in share]
    proven = model.Status == GRB.OPTIMAL
    return Answer(
        "solved" if proven else "time limit",
        np.array(found) * step.total,
        float(model.ObjBound) * unit,
        proven,
        remark="" if proven else f"gap {model.MIPGap:.1e} left",
    )
