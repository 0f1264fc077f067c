"""The optimiser: from a design to the best bandwidths and their proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm
from libra.constraints import LinearConstraint
from libra.design import Design, Objective, Schedules, Workload, best_schedules, time_design
from libra.discrete import reach
from libra.errors import SolverError
from libra.feasibility import check_bounded, explain_infeasible, implied_equalities
from libra.no_choice import explain_no_choice
from libra.parts import build_parts
from libra.pieces import Schedule
from libra.product import minimise_product
from libra.program import Goal, build_program
from libra.result import Result, Solver, limit_prices, make_result, shadow_prices
from libra.search import Optimum, Search
from libra.timing import StepTiming
from libra.too_slow import explain_too_slow

__all__ = ["GAP", "Targets", "best_alone", "find_targets", "optimize_design"]

Floats = NDArray[np.float64]

GAP = 1e-6
"""Relative gap between objective and proven bound at which the optimiser stops."""

_MOST_TURNS = 12


def optimize_design(design: Design) -> Result:
    """Find the bandwidths that minimise a design's objective, with proof.

    Parameters
    ----------
    design : Design
        The problem.

    Returns
    -------
    Result
        With ``status`` ``optimal`` and a relative gap of at most `GAP` (time) or 1e-5 (time-cost).

    Raises
    ------
    InfeasibleError
        If no bandwidths meet the constraints; names a smallest conflicting set.
    UnboundedError
        If nothing limits a bandwidth that the workloads use.
    SolverError
        If the gap was not reached.

    Notes
    -----
    ``time`` minimises the weighted sum of step times. ``time-cost`` minimises it times the cost of
    the network (and of the NPUs, where they have a price), see `libra.product`. ``cost`` minimises
    the cost of the network within time limits, ``worst-time`` the largest slowdown against each
    workload's own best under the linear constraints. All keep to the time limits.

    Where the collective model leaves schedules open (numbers of chunks under latency, the orders
    of balanced chunks), see `_settle_schedules`; bound and gap are then those for the schedules
    chosen, and `Result.schedule_bound` is what no schedules can beat.
    """
    start = time.perf_counter()
    targets = find_targets(design)
    answer = _settle_schedules(design, targets, _solve(design, targets, None))
    optimum, search = answer.optimum, answer.search
    bandwidth = design.pricing.join(optimum.bandwidth)
    return make_result(
        design,
        answer.schedules,
        bandwidth,
        timings=answer.search.program.timings,
        status="optimal",
        objective=optimum.value,
        bound=optimum.bound,
        schedule_bound=answer.schedule_bound,
        continuous=_continuous(design, targets, answer) if design.discrete else None,
        references=targets.references,
        shadow=shadow_prices(design, bandwidth, search.program.rows, optimum.multipliers)
        + limit_prices(
            design,
            targets.seconds,
            search.step_times(optimum.bandwidth)[0],
            optimum.multipliers,
        ),
        solver=Solver(search.rounds, len(search.cuts), time.perf_counter() - start),
    )


@dataclass(frozen=True, eq=False)
class Targets:
    """Time limits in seconds, and the best step time of each workload alone where it is needed.

    Attributes
    ----------
    seconds : ndarray, shape (time limits,)
    limits : ndarray, shape (workloads,)
        Largest step time allowed [s]; infinite: any.
    references : ndarray, shape (workloads,), or None
        Each workload's own best under the linear constraints [s].
    """

    seconds: Floats
    limits: Floats
    references: Floats | None


def find_targets(design: Design) -> Targets:
    """Time limits in seconds; solves each workload alone where a slowdown needs it."""
    names = [w.name for w in design.workloads]
    limits = np.full(len(names), np.inf)
    references: Floats | None = None
    if design.objective is Objective.WORST_TIME or any(x.relative for x in design.time_limits):
        references = np.array([best_alone(design, w) for w in design.workloads])
    seconds = np.zeros(len(design.time_limits))
    for k, limit in enumerate(design.time_limits):
        at = names.index(limit.workload)
        seconds[k] = limit.bound
        if limit.relative and references is not None:
            seconds[k] *= references[at]
        limits[at] = min(limits[at], seconds[k])
    return Targets(seconds, limits, references)


def best_alone(design: Design, workload: Workload) -> float:
    """Least step time that a workload could have alone under the linear constraints [s]."""
    alone = replace(
        design, workloads=(workload,), objective=Objective.TIME, time_limits=(), baseline=None
    )
    return optimize_design(alone).workloads[0].step_time


@dataclass(frozen=True, eq=False)
class _Answer:
    """Optimum for given schedules, and the bound for any schedules if it is another."""

    optimum: Optimum
    search: Search
    schedules: Schedules
    schedule_bound: float | None = None


def _solve(design: Design, targets: Targets, schedules: Schedules | None) -> _Answer:
    """Optimum of a design for given schedules of its collectives; None: for the best of all.

    Constraints that meet in a point or an edge leave the cone program no interior, which its
    solver needs. Where it fails, those that hold with equality anyway are found and it tries again.
    """
    timings = time_design(design, schedules)
    promise = _PROMISE[design.objective]
    all_rows = design.rows + design.column_rows
    search = _search(design, targets, timings, all_rows)
    optimum = _OBJECTIVES[design.objective](design, search, targets)
    if optimum.gap > promise:
        used = search.program.used
        if error := explain_infeasible(all_rows, used):
            raise error
        parts = search.parts
        if parts is not None and (error := explain_no_choice(parts, search.program.rows, all_rows)):
            raise error
        names = [w.name for w in design.workloads]
        if design.time_limits and (
            error := explain_too_slow(
                search.program,
                all_rows,
                design.time_limits,
                names,
                targets.seconds,
                design.pricing,
            )
        ):
            raise error
        rows, rounds = implied_equalities(all_rows, len(used)), search.rounds
        search = _search(design, targets, timings, rows, rounds)
        optimum = _OBJECTIVES[design.objective](design, search, targets)
    if optimum.gap > promise:
        raise SolverError(
            f"stopped after {search.rounds} rounds at a relative gap of {optimum.gap:.1e}. "
            "Please report the design."
        )
    return _Answer(optimum, search, schedules or ())


def _continuous(design: Design, targets: Targets, answer: _Answer) -> float | None:
    """Best objective if bandwidths did not come in parts; None if it was not found."""
    search = replace(answer.search, parts=None, rounds=0)
    optimum = _OBJECTIVES[design.objective](design, search, targets)
    return optimum.value if optimum.gap <= _PROMISE[design.objective] else None


def _search(
    design: Design,
    targets: Targets,
    timings: Sequence[StepTiming],
    rows: Sequence[LinearConstraint],
    rounds: int = 0,
) -> Search:
    """Search for a design's optimum under given rows."""
    weights = np.array([w.weight for w in design.workloads])
    program = build_program(timings, weights, rows, design.pricing.owner)
    parts = build_parts(design.pricing, rows, program.rows)
    return Search(program, limits=targets.limits, parts=parts, rounds=rounds)


def _settle_schedules(design: Design, targets: Targets, relaxed: _Answer) -> _Answer:
    """Best schedules together with the bandwidths, by turns.

    The step time is not convex in both. The answer for what no schedules can beat bounds all of
    them, and is the answer if some schedules attain it. Otherwise, from its bandwidths on, the
    schedules that are best at the last bandwidths and the bandwidths that are best for those
    schedules follow each other until the schedules repeat. The best answer met is kept.
    """
    schedules = best_schedules(design, design.pricing.join(relaxed.optimum.bandwidth))
    if _attained(design, relaxed, schedules):
        return replace(relaxed, schedules=schedules)
    best: _Answer | None = None
    seen: set[Schedules] = set()
    rounds = relaxed.search.rounds
    while schedules not in seen and len(seen) < _MOST_TURNS:
        seen.add(schedules)
        answer = _solve(design, targets, schedules)
        rounds += answer.search.rounds
        if best is None or answer.optimum.value < best.optimum.value:
            best = answer
        schedules = best_schedules(design, design.pricing.join(answer.optimum.bandwidth))
    assert best is not None
    best.search.rounds = rounds
    return replace(best, schedule_bound=relaxed.optimum.bound)


def _attained(design: Design, relaxed: _Answer, schedules: Schedules) -> bool:
    """Whether each collective of a relaxed answer takes as long with the schedules."""
    model, bandwidth = design.collectives, design.pricing.join(relaxed.optimum.bandwidth)
    only = Schedule(model.chunks, model.algorithm)
    fixed = model.algorithm is not Algorithm.BALANCED or model.chunks is None
    if fixed and all(chosen == only for part in schedules for chosen in part):
        return True
    for timing, exact in zip(
        relaxed.search.program.timings, time_design(design, schedules), strict=True
    ):
        bound, time = timing.terms.times(bandwidth), exact.terms.times(bandwidth)
        if (time > bound * (1 + 1e-9)).any():
            return False
    return True


def minimise_time(design: Design, search: Search, targets: Targets) -> Optimum:
    """Least weighted sum of step times."""
    free = np.zeros(search.program.columns)
    check_bounded(search.program, design.network, design.rows, free)
    return reach(search, Goal(free, search.program.weights, search.limits))


def minimise_cost(design: Design, search: Search, targets: Targets) -> Optimum:
    """Least cost of the network within the time limits."""
    price = design.bandwidth_prices
    check_bounded(search.program, design.network, design.rows, price)
    return reach(search, Goal(price, 0 * search.program.weights, search.limits, spend=1.0))


def minimise_time_cost(design: Design, search: Search, targets: Targets) -> Optimum:
    """Least weighted sum of step times, times the cost of network and NPUs."""
    return minimise_product(design, search)


def minimise_worst_time(design: Design, search: Search, targets: Targets) -> Optimum:
    """Least value of the largest slowdown against each workload's own best."""
    free = np.zeros(search.program.columns)
    check_bounded(search.program, design.network, design.rows, free)
    assert targets.references is not None
    ratios = np.diag(1 / targets.references)
    goal = Goal(free, 0 * search.program.weights, search.limits, ratios)
    return reach(search, goal)


_OBJECTIVES: dict[Objective, Callable[[Design, Search, Targets], Optimum]] = {
    Objective.TIME: minimise_time,
    Objective.TIME_COST: minimise_time_cost,
    Objective.COST: minimise_cost,
    Objective.WORST_TIME: minimise_worst_time,
}
_PROMISE = {
    Objective.TIME: GAP,
    Objective.TIME_COST: 1e-5,
    Objective.COST: GAP,
    Objective.WORST_TIME: GAP,
}
