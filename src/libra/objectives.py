"""Objectives of a design as goals of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.design import Design, Objective, Robustness
from libra.discrete import reach
from libra.errors import InputError, Problem
from libra.feasibility import check_bounded
from libra.parts import build_parts
from libra.product import minimise_product
from libra.program import Goal, build_program
from libra.search import Optimum, Search
from libra.timing import StepTiming

__all__ = ["PROMISE", "Targets", "minimise_objective", "search_design"]

Floats = NDArray[np.float64]

GAP = 1e-6
"""Relative gap between objective and proven bound at which the optimiser stops."""

PROMISE = {
    Objective.TIME: GAP,
    Objective.TIME_COST: 1e-5,
    Objective.COST: GAP,
    Objective.WORST_TIME: GAP,
}
"""Largest relative gap of a result."""

_NOTHING = 1e-6
"""Part of the largest bandwidth that stands for none."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Time limits in seconds, and best step times where they are needed.

    Attributes
    ----------
    seconds : ndarray, shape (time limits,)
        Of the design, or scenario by scenario.
    limits : ndarray, shape (jobs,)
        Largest step time allowed [s]; infinite: any. A job is a workload in a scenario.
    references : ndarray, shape (jobs,), or None
        Each workload's own best under the linear constraints [s].
    best : ndarray, shape (scenarios,), or None
        Each scenario's own best weighted step time [s]; NaN: nothing limits its bandwidths.
    """

    seconds: Floats
    limits: Floats
    references: Floats | None
    best: Floats | None = None


def search_design(
    design: Design,
    targets: Targets,
    timings: Sequence[StepTiming],
    rows: Sequence[LinearConstraint],
    earlier: Search | None = None,
) -> Search:
    """Search for a design's optimum under given rows, from where one of the same timings ended."""
    weights = np.array([share * w.weight for share, case in design.cases for w in case.workloads])
    pricing = design.mean_pricing
    like = None if earlier is None else earlier.program
    program = build_program(timings, weights, rows, pricing.owner, like)
    parts = build_parts(pricing, rows, program.rows, design.row_pricing)
    if earlier is None:
        return Search(program, limits=targets.limits, parts=parts)
    return earlier.resumed(program, targets.limits, parts)


def minimise_objective(design: Design, search: Search, targets: Targets) -> Optimum:
    """Least value of a design's objective that a search finds, with its proven bound.

    ``time`` minimises the weighted sum of step times, over scenarios their mean, the largest, or
    the largest ratio to each scenario's own best. ``time-cost`` minimises it times the cost of the
    network (and of the NPUs, where they have a price), see `libra.product`. ``cost`` minimises the
    cost of the network within time limits, ``worst-time`` the largest slowdown against each
    workload's own best under the linear constraints. All keep to the time limits.
    """
    return _OBJECTIVES[design.objective](design, search, targets)


def _minimise_time(design: Design, search: Search, targets: Targets) -> Optimum:
    free = np.zeros(search.program.columns)
    check_bounded(search.program, design.network, design.rows, free)
    weights = search.program.weights
    if design.scenarios and design.robustness is not Robustness.EXPECTED:
        ratios = _scenario_ratios(design, targets)
        return reach(search, Goal(free, 0 * weights, search.limits, ratios))
    return reach(search, Goal(free, weights, search.limits))


def _scenario_ratios(design: Design, targets: Targets) -> Floats:
    """Weights of each scenario's workloads, over its own best for regret, (scenarios, jobs)."""
    counts = [len(case.workloads) for _, case in design.cases]
    ratios = np.zeros((len(counts), sum(counts)))
    at = 0
    for k, (_, case) in enumerate(design.cases):
        best = 1.0
        if design.robustness is Robustness.REGRET:
            assert targets.best is not None
            best = float(targets.best[k])
        ratios[k, at : at + counts[k]] = [w.weight / best for w in case.workloads]
        at += counts[k]
    return ratios


def _minimise_time_cost(design: Design, search: Search, targets: Targets) -> Optimum:
    return minimise_product(design, search)


def _minimise_cost(design: Design, search: Search, targets: Targets) -> Optimum:
    price = design.mean_pricing.price
    check_bounded(search.program, design.network, design.rows, price)
    optimum = reach(search, Goal(price, 0 * search.program.weights, search.limits, spend=1.0))
    if np.isfinite(optimum.value):
        _require_some_bandwidth(design, search, optimum.bandwidth)
    return optimum


def _require_some_bandwidth(design: Design, search: Search, columns: Floats) -> None:
    """Refuse a cheapest network that saves a dimension on which a workload without limit depends.

    Raises
    ------
    InputError
        Names the dimensions.
    """
    bandwidth = search.program.join(columns)
    timings = zip(search.program.timings, search.limits, strict=True)
    needed = [timing.step_traffic > 0 for timing, limit in timings if np.isinf(limit)]
    none = bandwidth <= _NOTHING * bandwidth.max()
    saved = none & np.any(needed, axis=0) if needed else none & False
    if saved.any():
        names = " and ".join(n for n, x in zip(design.network.names, saved, strict=True) if x)
        message = (
            "nothing keeps a dimension with traffic from costing nothing, got no least bandwidth "
            f"or time limit for {names}. Add a time limit (time(gpt-3) <= 900 ms, "
            "slowdown(gpt-3) <= 1.1) or a least bandwidth (pod >= 10 GB/s)."
        )
        raise InputError(Problem(message, "objective"))


def _minimise_worst_time(design: Design, search: Search, targets: Targets) -> Optimum:
    free = np.zeros(search.program.columns)
    check_bounded(search.program, design.network, design.rows, free)
    assert targets.references is not None
    ratios = np.diag(1 / targets.references)
    return reach(search, Goal(free, 0 * search.program.weights, search.limits, ratios))


_OBJECTIVES: dict[Objective, Callable[[Design, Search, Targets], Optimum]] = {
    Objective.TIME: _minimise_time,
    Objective.TIME_COST: _minimise_time_cost,
    Objective.COST: _minimise_cost,
    Objective.WORST_TIME: _minimise_worst_time,
}
