"""The optimiser: from a design to the best bandwidths and their proof."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm
from libra.constraints import LinearConstraint
from libra.design import (
    Design,
    Objective,
    Schedules,
    Workload,
    best_schedules,
    time_design,
)
from libra.errors import InfeasibleError, SolverError, UnboundedError, shown
from libra.feasibility import explain_infeasible, implied_equalities
from libra.no_choice import explain_no_choice
from libra.objectives import PROMISE, Targets, minimise_objective, search_design
from libra.pieces import Schedule
from libra.result import Result, Solver, make_result
from libra.robust import scenario_results
from libra.search import Optimum, Search, safe_scale
from libra.shadow import limit_prices, shadow_prices
from libra.time_limits import NEAREST
from libra.timing import StepTiming
from libra.too_slow import ROOM, explain_too_slow

__all__ = ["Memory", "best_alone", "find_targets", "optimize_design"]

Floats = NDArray[np.float64]

_MOST_TURNS = 12


@dataclass(eq=False)
class _Known:
    """Some timings and the last search with them, whatever its constraints."""

    timings: tuple[StepTiming, ...]
    design: Design
    search: Search | None = None


@dataclass
class Memory:
    """What solves of similar designs share: time models, cuts and a point to start from.

    Cuts do not depend on constraints, prices or weights, so that a sweep of those reuses them all.
    """

    known: dict[Hashable, _Known] = field(default_factory=dict)

    def recall(self, design: Design, schedules: Schedules | None) -> _Known:
        """What is known of a design's timings with some schedules."""
        jobs = [
            (case.network, repr(case.collectives), id(w.graph))
            for _, case in design.cases
            for w in case.workloads
        ]
        key = (tuple(jobs), schedules)
        if key not in self.known:
            # The design is kept so that no other graph can take the place of one of its own.
            self.known[key] = _Known(time_design(design, schedules), design)
        return self.known[key]


def optimize_design(design: Design, memory: Memory | None = None) -> Result:
    """Find the bandwidths that minimise a design's objective, with proof.

    Parameters
    ----------
    design : Design
        The problem.
    memory : Memory or None
        What earlier solves of similar designs have found; gets what this one finds.

    Returns
    -------
    Result
        With ``status`` ``optimal`` and a relative gap of at most 1e-6, or 1e-5 for time-cost.

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
    See `libra.objectives` for the objectives and `libra.discrete` for lanes and parts.

    Where the collective model leaves schedules open (numbers of chunks under latency, the orders
    of balanced chunks), see `_settle_schedules`; bound and gap are then those for the schedules
    chosen, and `Result.schedule_bound` is what no schedules can beat.

    With scenarios the result is the nominal design's at the robust bandwidths; `Result.scenarios`
    says what they achieve in each scenario.
    """
    start = time.perf_counter()
    memory = Memory() if memory is None else memory
    targets = find_targets(design, memory)
    answer = _settle_schedules(design, targets, _solve(design, targets, None, memory), memory)
    optimum, search = answer.optimum, answer.search
    bandwidth = design.pricing.join(optimum.bandwidth)
    nominal = replace(design, scenarios=()) if design.scenarios else design
    times = np.zeros(0)
    if design.scenarios or design.time_limits:
        times = search.step_times(optimum.bandwidth)[0]
    result = make_result(
        nominal,
        best_schedules(nominal, bandwidth) if design.scenarios else answer.schedules,
        bandwidth,
        timings=None if design.scenarios else search.program.timings,
        status="optimal",
        objective=optimum.value,
        bound=optimum.bound,
        schedule_bound=answer.schedule_bound,
        continuous=_continuous(design, targets, search) if design.discrete else None,
        references=targets.references,
        shadow=shadow_prices(design, bandwidth, search.program.rows, optimum.multipliers)
        + limit_prices(design, targets.seconds, times, optimum.multipliers),
        solver=Solver(search.rounds, len(search.cuts), time.perf_counter() - start),
    )
    if not design.scenarios:
        return result
    assert targets.best is not None
    alone = optimize_design(nominal, memory)
    found = scenario_results(design, times, targets.best, alone.bandwidth)
    return replace(result, design=design, scenarios=found)


def find_targets(design: Design, memory: Memory | None = None) -> Targets:
    """Time limits in seconds; solves each workload and each scenario alone where that is needed."""
    if design.scenarios:
        each, best = [], []
        for scenario in design.scenarios:
            with _in_scenario(scenario.name):
                each.append(find_targets(scenario.design, memory))
                best.append(_least_time(scenario.design, memory))
        limits = np.concatenate([t.limits for t in each])
        seconds = np.concatenate([t.seconds for t in each])
        return Targets(seconds, limits, None, np.array(best))
    names = [w.name for w in design.workloads]
    limits = np.full(len(names), np.inf)
    references: Floats | None = None
    if design.objective is Objective.WORST_TIME or any(x.relative for x in design.time_limits):
        references = np.array([best_alone(design, w, memory) for w in design.workloads])
    seconds = np.zeros(len(design.time_limits))
    for k, limit in enumerate(design.time_limits):
        at = names.index(limit.workload)
        seconds[k] = limit.held
        if limit.relative and references is not None:
            seconds[k] *= references[at]
        limits[at] = min(limits[at], seconds[k])
    return Targets(seconds, limits, references)


@contextmanager
def _in_scenario(name: str) -> Iterator[None]:
    """Say which scenario has no optimum of its own."""
    try:
        yield
    except (InfeasibleError, UnboundedError) as error:
        what, _, rest = str(error).partition(":")
        message = f"{what} in scenario {shown(name)}:{rest}"
        if isinstance(error, InfeasibleError):
            message = message.partition("\n")[0]
            raise InfeasibleError(message, error.conflict) from None
        raise UnboundedError(message) from None


def _least_time(case: Design, memory: Memory | None) -> float:
    """Least weighted step time of a scenario alone [s]; NaN: nothing limits its bandwidths."""
    alone = replace(case, objective=Objective.TIME, time_limits=())
    try:
        return optimize_design(alone, memory).step_time
    except UnboundedError:
        if case.objective is Objective.TIME:
            raise
        return float("nan")  # The objective cost needs no limits on bandwidths.


def best_alone(design: Design, workload: Workload, memory: Memory | None = None) -> float:
    """Least step time that a workload could have alone under the linear constraints [s]."""
    alone = replace(
        design, workloads=(workload,), objective=Objective.TIME, time_limits=(), baseline=None
    )
    return optimize_design(alone, memory).workloads[0].step_time


@dataclass(frozen=True, eq=False)
class _Answer:
    """Optimum for given schedules, and the bound for any schedules if it is another."""

    optimum: Optimum
    search: Search
    schedules: Schedules
    schedule_bound: float | None = None


def _solve(
    design: Design, targets: Targets, schedules: Schedules | None, memory: Memory
) -> _Answer:
    """Optimum of a design for given schedules of its collectives; None: for the best of all.

    Constraints that meet in a point or an edge leave the cone program no interior, which its
    solver needs. Where it fails, those that hold with equality anyway are found and it tries again.
    """
    known = memory.recall(design, schedules)
    promise, rows = PROMISE[design.objective], design.all_rows
    search = search_design(design, targets, known.timings, rows, known.search)
    optimum = minimise_objective(design, search, targets)
    if optimum.gap > promise:
        _explain_failure(design, targets, search, rows)
        rows = implied_equalities(rows, search.program.columns)
        rounds = search.rounds
        search = search_design(design, targets, known.timings, rows)
        search.rounds = rounds
        optimum = minimise_objective(design, search, targets)
    if optimum.gap > promise:
        _explain_failure(design, targets, search, rows, room=-NEAREST)
        raise SolverError(
            f"stopped after {search.rounds} rounds at a relative gap of {optimum.gap:.1e}. "
            "Please report the design."
        )
    search.scale = safe_scale(optimum.bandwidth)
    known.search = search
    return _Answer(optimum, search, schedules or ())


def _explain_failure(
    design: Design,
    targets: Targets,
    search: Search,
    rows: tuple[LinearConstraint, ...],
    room: float = ROOM,
) -> None:
    """Raise the reason why a search found no optimum, if it is the design's fault.

    Time limits must be missed by the part `room` of them, see `explain_too_slow`.
    """
    used, error = search.program.used, None
    if search.parts is not None:  # What parts reach comes first: it says how far to give way.
        error = explain_no_choice(search.parts, search.program.rows, rows, used)
    if error is None:
        error = explain_infeasible(rows, used)
    if error is None and np.isfinite(targets.limits).any():
        error = explain_too_slow(search.program, rows, design, targets.seconds, room)
    if error is not None:
        raise error


def _continuous(design: Design, targets: Targets, search: Search) -> float | None:
    """Best objective if bandwidths did not come in parts; None if it was not found."""
    optimum = minimise_objective(design, replace(search, parts=None, rounds=0), targets)
    return optimum.value if optimum.gap <= PROMISE[design.objective] else None


def _settle_schedules(
    design: Design, targets: Targets, relaxed: _Answer, memory: Memory
) -> _Answer:
    """Best schedules together with the bandwidths, by turns.

    The step time is not convex in both. The answer for what no schedules can beat bounds all of
    them, and is the answer if some schedules attain it. Otherwise, from its bandwidths on, the
    schedules that are best at the last bandwidths and the bandwidths that are best for those
    schedules follow each other until the schedules repeat; balanced collectives once more from the
    fixed order of dimensions, which they may keep. The best answer met is kept.
    """
    schedules = best_schedules(design, design.pricing.join(relaxed.optimum.bandwidth))
    if _attained(design, relaxed, schedules):
        return replace(relaxed, schedules=schedules)
    best: _Answer | None = None
    seen: set[Schedules] = set()
    rounds = relaxed.search.rounds
    for start in (schedules, _fixed_order(design, relaxed)):
        schedules = start
        while schedules not in seen and len(seen) < _MOST_TURNS:
            seen.add(schedules)
            answer = _solve(design, targets, schedules, memory)
            rounds += answer.search.rounds
            if best is None or answer.optimum.value < best.optimum.value:
                best = answer
            schedules = best_schedules(design, design.pricing.join(answer.optimum.bandwidth))
    assert best is not None
    best.search.rounds = rounds
    return replace(best, schedule_bound=relaxed.optimum.bound)


def _fixed_order(design: Design, relaxed: _Answer) -> Schedules:
    """Best schedules at a relaxed answer's bandwidths that keep the fixed order of dimensions."""

    def fixed(case: Design) -> Design:
        model = case.collectives
        if model.algorithm is Algorithm.BALANCED:
            model = replace(model, algorithm=Algorithm.MULTI_RAIL)
        return replace(case, collectives=model)

    scenarios = tuple(replace(s, design=fixed(s.design)) for s in design.scenarios)
    plain = replace(fixed(design), scenarios=scenarios)
    return best_schedules(plain, design.pricing.join(relaxed.optimum.bandwidth))


def _attained(design: Design, relaxed: _Answer, schedules: Schedules) -> bool:
    """Whether each collective of a relaxed answer takes as long with the schedules."""
    models = [case.collectives for _, case in design.cases for _ in case.workloads]
    if all(
        (model.algorithm is not Algorithm.BALANCED or model.chunks is None)
        and all(chosen == Schedule(model.chunks, model.algorithm) for chosen in part)
        for model, part in zip(models, schedules, strict=True)
    ):
        return True
    bandwidth = design.pricing.join(relaxed.optimum.bandwidth)
    for timing, exact in zip(
        relaxed.search.program.timings, time_design(design, schedules), strict=True
    ):
        bound, time_ = timing.terms.times(bandwidth), exact.terms.times(bandwidth)
        if (time_ > bound * (1 + 1e-9)).any():
            return False
    return True
