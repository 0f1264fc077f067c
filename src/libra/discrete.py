"""Whole parts: the best bandwidths where some come in lanes or from a list of choices, exactly.

With a variable z_dk of 0 or 1 for choice k of dimension d, bandwidth, cost and power are linear in
z, and so is 1 / B_d = sum_k z_dk / B_dk. The master problem of `libra.master` becomes a mixed-
integer linear program over the same cuts. Forms of several bandwidths, and bandwidths that are
free, enter by tangents of the convex 1 / (H . B) at points met before, s >= 2 / h - H . B / h^2
(outer approximation: Duran and Grossmann, Mathematical Programming 36, 1986).

Choices that the certificate of the bandwidths that could be split at will proves to be no better
than their neighbours' best are left out first: of a thousand lanes a few remain.

Each round solves the program, a lower bound for all choices not tried yet, and tries its choices:
times the workloads (new cuts and tangents), and optimises the bandwidths that are free beside them.
It stops when no untried choices can be better than the best tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.certificate import certified_floors
from libra.feasibility import leave_some
from libra.linear import LinearAnswer, solve_linear
from libra.parts import Parts
from libra.program import Goal, Rows
from libra.search import Optimum, Search, minimise
from libra.timing import Terms

__all__ = ["minimise_discrete", "reach"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Block = tuple[Floats, Floats, Floats]
"""Rows with their lower and upper limits."""

_AIM = 1e-7
_MOST_TURNS = 1000
_MOST_ROUNDED = 64
_GB = 1e9
_SLACK = 1e-9
"""Part by which an exact choice may miss a limit: rounding."""


def reach(search: Search, goal: Goal) -> Optimum:
    """Reach a goal: with whole parts where the search has some, see `libra.search.minimise`."""
    if search.parts is None:
        return minimise(search, goal)
    return minimise_discrete(search, goal, search.parts)


def minimise_discrete(search: Search, goal: Goal, parts: Parts) -> Optimum:
    """Best choices, and best free bandwidths beside them, with the proven bound.

    The multipliers of the optimum are None: whole parts have no marginal price.
    """
    relaxed = minimise(search, goal)
    best = replace(_round(search, goal, parts, relaxed), bound=relaxed.bound)
    parts = _promising(search, goal, parts, relaxed, best.value)
    tried: list[Ints] = []
    free = relaxed.bandwidth if np.isfinite(relaxed.value) else search.scale
    largest = np.array([np.flatnonzero(parts.owner == d)[-1] for d in parts.dimensions])
    # The first tangents' point sets the sizes that the program is scaled by.
    tangents = [np.where(parts.fixed, parts.columns[largest].sum(axis=0), free)]
    proven = np.inf
    while best.gap > _AIM and len(tried) < _MOST_TURNS:
        search.rounds += 1
        master = _solve_choices(search, goal, parts, tangents, tried)
        rest = master.bound if master.feasible else np.inf
        best = replace(best, bound=max(best.bound, min(rest, proven)))
        if best.gap <= _AIM or not master.feasible:
            break
        chosen = parts.pick(master.x)
        tried.append(chosen)
        found = _try_choices(search, goal, parts, chosen)
        proven = min(proven, found.bound)
        if found.value < best.value:
            best = replace(best, bandwidth=found.bandwidth, value=found.value)
        if np.isfinite(found.bandwidth).all():
            tangents.append(found.bandwidth)
    return best


def _round(search: Search, goal: Goal, parts: Parts, relaxed: Optimum) -> Optimum:
    """Best of the choices next to the bandwidths that could be split at will."""
    best = Optimum(search.scale, np.inf, -np.inf)
    if not np.isfinite(relaxed.value):
        return best
    near = []
    for d in parts.dimensions:
        mine = np.flatnonzero(parts.owner == d)
        offered = parts.columns[mine].sum(axis=1)
        wanted = float(relaxed.bandwidth[(parts.columns[mine] > 0).any(axis=0)].sum())
        above = int(np.searchsorted(offered, wanted * (1 - 1e-9)))
        near.append(mine[sorted({max(above - 1, 0), min(above, len(mine) - 1)})])
    for chosen in itertools.islice(itertools.product(*near), _MOST_ROUNDED):
        found = _try_choices(search, goal, parts, np.array(chosen))
        if found.value < best.value:
            best = found
    return best


def _promising(search: Search, goal: Goal, parts: Parts, relaxed: Optimum, value: float) -> Parts:
    """Parts without the choices that are proven to be no better than a known value."""
    if relaxed.multipliers is None or not np.isfinite(value):
        return parts
    cuts = search.cuts[: len(relaxed.multipliers.cuts)]  # more may have been found since
    program, columns = search.program, parts.columns
    beyond = parts.rows.T - columns @ program.rows.matrix.T
    of = np.arange(program.columns) if program.owner is None else program.owner
    decided = parts.owner[:, None] == of
    floors = certified_floors(program, cuts, goal, relaxed.multipliers, columns, decided, beyond)
    floors += goal.spend * parts.cost - columns @ goal.price * (goal.spend > 0)
    kept = np.flatnonzero(floors <= value + _SLACK * abs(value))
    if len(np.unique(parts.owner[kept])) < len(parts.dimensions):
        return parts  # none is better than the known one, which rounding put just above itself
    return replace(
        parts,
        owner=parts.owner[kept],
        columns=columns[kept],
        cost=parts.cost[kept],
        rows=parts.rows[:, kept],
    )


def _try_choices(search: Search, goal: Goal, parts: Parts, chosen: Ints) -> Optimum:
    """Best that some choices allow; infinite value and bound: they break a limit."""
    given = parts.columns[chosen].sum(axis=0)
    rows, sides = search.program.rows, parts.rows[:, chosen].sum(axis=1)
    cost = goal.spend * float(parts.cost[chosen].sum())
    if not parts.fixed.all():
        found = _fill_free(search, goal, parts, given, sides)
        beyond = cost - float(goal.price @ np.where(parts.fixed, given, 0.0))
        return replace(
            found, value=found.value + beyond, bound=found.bound + beyond, multipliers=None
        )
    excess = sides - rows.bound
    excess[: rows.equal] = np.abs(excess[: rows.equal])
    size = np.abs(parts.rows[:, chosen]).sum(axis=1) + np.abs(rows.bound)
    times = search.step_times(given)[0] if goal.timed else goal.weights
    if (excess > _SLACK * size).any() or (goal.timed and not goal.admits(times)):
        return Optimum(given, np.inf, np.inf)
    value = cost + goal.value(0 * given, times)
    return Optimum(given, value, value)


def _fill_free(search: Search, goal: Goal, parts: Parts, given: Floats, sides: Floats) -> Optimum:
    """Best free bandwidths beside the choices' columns, which their rows' sides may exceed."""
    program, scale = search.program, search.scale
    rows, at = program.rows, np.flatnonzero(parts.fixed)
    beyond = sides - rows.matrix @ np.where(parts.fixed, given, 0.0)
    pinned = Rows(
        np.vstack([np.eye(len(given))[at], rows.matrix]),
        np.concatenate([given[at], rows.bound - beyond]),
        rows.equal + len(at),
        np.concatenate([np.full(len(at), -1), rows.source]),
        np.concatenate([np.ones(len(at)), rows.factor]),
    )
    search.program = replace(program, rows=pinned)
    search.scale = np.where(parts.fixed, np.maximum(given, 1e-9 * given.max()), scale)
    found = minimise(search, goal)
    if np.isfinite(found.value):
        found = replace(found, bandwidth=np.where(parts.fixed, given, found.bandwidth))
    else:
        bound = np.inf if _is_impossible(search, goal) else found.bound
        found = replace(found, bandwidth=given, bound=bound)
    search.program, search.scale = program, scale
    return found


def _is_impossible(search: Search, goal: Goal) -> bool:
    """Whether it is proven that no bandwidths meet a search's rows and its goal's time limits.

    Bandwidths of which one that a step time needs is 0 count as none.
    """
    if not leave_some(search.program.rows, _needed(search, goal)):
        return True
    limited = goal.limited
    if not len(limited):
        return False
    ratios = np.zeros((len(limited), len(goal.limits)))
    ratios[np.arange(len(limited)), limited] = 1 / goal.limits[limited]
    unlimited = np.full_like(goal.limits, np.inf)
    least = Goal(0 * goal.price, 0 * goal.weights, unlimited, ratios)
    return minimise(search, least).bound > 1 + _SLACK


def _needed(search: Search, goal: Goal) -> NDArray[np.bool_]:
    """Which columns are of a dimension without which a step time that matters is infinite."""
    matters = (goal.weights > 0) | np.isfinite(goal.limits)
    if goal.ratios is not None:
        matters |= (goal.ratios > 0).any(axis=0)
    program, used = search.program, np.zeros(search.program.columns, dtype=np.bool_)
    for timing, counts in zip(program.timings, matters, strict=True):
        if counts:
            needed = timing.step_traffic > 0
            used |= needed if program.owner is None else needed[program.owner]
    return used


@dataclass(frozen=True)
class _Layout:
    """Where the variables of the program stand, and what they are scaled by.

    z, columns [GB/s], s_f times `reach_f`, tau and theta over `time`, the largest sum over `unit`.
    """

    columns: int
    forms: int
    collectives: int
    workloads: int
    top: int
    time: float
    unit: float
    reach: Floats

    @property
    def width(self) -> int:
        """Number of variables."""
        return self.top + 1


def _layout(search: Search, goal: Goal, parts: Parts, at: Floats) -> _Layout:
    terms, choices = search.program.terms, len(parts.owner)
    time, value = 1.0, float(goal.price @ at)
    if goal.timed:
        times = search.step_times(at)[0]
        time = float(times[np.isfinite(times)].max(initial=0.0)) or 1.0
        value = goal.value(at, np.minimum(times, 1e3 * time))
    starts = np.cumsum(
        [choices, search.program.columns, len(terms.forms), terms.collectives, len(goal.weights)]
    ).tolist()
    reach_ = np.maximum(terms.forms @ at, 1e-300)
    columns, forms, collectives, workloads, top = starts
    return _Layout(columns, forms, collectives, workloads, top, time, abs(value) or 1.0, reach_)


def _solve_choices(
    search: Search, goal: Goal, parts: Parts, tangents: Sequence[Floats], tried: Sequence[Ints]
) -> LinearAnswer:
    """Solve the mixed-integer program over all choices that were not tried."""
    at = _layout(search, goal, parts, tangents[0])
    blocks = [_choice_rows(at, parts, tried), _limit_rows(at, search, parts)]
    if goal.timed:
        blocks += [
            _reach_rows(at, search.program.terms, parts, tangents),
            _time_rows(at, search, goal),
        ]
    matrix, lower, upper = (np.concatenate(part) for part in zip(*blocks, strict=True))
    size = np.abs(matrix).max(axis=1)
    size[size == 0] = 1.0  # e.g. a step of a price that no choice reaches
    cost, free = np.zeros(at.width), np.flatnonzero(~parts.fixed)
    cost[: at.columns] = goal.spend * parts.cost / at.unit
    cost[at.columns + free] = goal.price[free] * _GB / at.unit
    cost[at.workloads : at.top] = goal.weights * (at.time / at.unit)
    cost[at.top] = 1.0 if goal.ratios is not None else 0.0
    whole = np.arange(at.width) < at.columns
    answer = solve_linear(
        cost, matrix / size[:, None], lower / size, upper / size, whole=whole, gap=1e-8
    )
    return replace(answer, bound=answer.bound * at.unit)


def _choice_rows(at: _Layout, parts: Parts, tried: Sequence[Ints]) -> _Block:
    """One choice for each dimension; not all of those tried together; columns of the choices."""
    fixed, dimensions = np.flatnonzero(parts.fixed), parts.dimensions
    one = np.zeros((len(dimensions), at.width))
    one[:, : at.columns] = parts.owner == dimensions[:, None]
    not_again = np.zeros((len(tried), at.width))
    for row, chosen in zip(not_again, tried, strict=True):
        row[chosen] = 1.0
    filled = np.zeros((len(fixed), at.width))
    filled[:, : at.columns] = parts.columns[:, fixed].T / _GB
    filled[np.arange(len(fixed)), at.columns + fixed] = -1.0
    ones, zeros = np.ones(len(one)), np.zeros(len(filled))
    most = np.full(len(tried), len(dimensions) - 1.0)
    return (
        np.concatenate([one, not_again, filled]),
        np.concatenate([ones, np.full(len(tried), -np.inf), zeros]),
        np.concatenate([ones, most, zeros]),
    )


def _limit_rows(at: _Layout, search: Search, parts: Parts) -> _Block:
    """Constraints, a rounding error loose."""
    rows, free = search.program.rows, np.flatnonzero(~parts.fixed)
    matrix = np.zeros((len(rows.bound), at.width))
    matrix[:, : at.columns] = parts.rows
    matrix[:, at.columns + free] = rows.matrix[:, free] * _GB
    give = _SLACK * np.abs(rows.bound)
    lower = np.full(len(rows.bound), -np.inf)
    lower[: rows.equal] = rows.bound[: rows.equal] - give[: rows.equal]
    return matrix, lower, rows.bound + give


def _reach_rows(at: _Layout, terms: Terms, parts: Parts, tangents: Sequence[Floats]) -> _Block:
    """s_f: exact where a form is of one discrete dimension, else above its tangents."""
    rows, lower, upper = [], [], []
    fixed = np.array([parts.fixed[form > 0].all() for form in terms.forms], dtype=np.bool_)
    for f, form in enumerate(terms.forms):
        reached = parts.columns @ form
        owners = np.unique(parts.owner[reached > 0])
        if fixed[f] and len(owners) == 1:
            row = np.zeros(at.width)
            mine = parts.owner == owners[0]
            row[: at.columns][mine] = -at.reach[f] / reached[mine]
            row[at.forms + f] = 1.0
            rows.append(row)
            lower.append(0.0)
            upper.append(0.0)
            continue
        for h in {float(form @ point) for point in tangents} - {0.0}:
            row = np.zeros(at.width)
            row[at.columns : at.forms] = form * (at.reach[f] / h) * (_GB / h)
            row[at.forms + f] = 1.0
            rows.append(row)
            lower.append(2 * at.reach[f] / h)
            upper.append(np.inf)
    return np.array(rows).reshape(-1, at.width), np.array(lower), np.array(upper)


def _time_rows(at: _Layout, search: Search, goal: Goal) -> _Block:
    """Pieces, cuts, time limits and the largest sum."""
    program, terms = search.program, search.program.terms
    pieces = np.zeros((len(terms.alpha), at.width))
    pieces[:, at.forms : at.collectives] = -terms.coefficient / (at.reach * at.time)
    pieces[np.arange(len(pieces)), at.collectives + terms.owner] = 1.0
    cuts = np.zeros((len(search.cuts), at.width))
    for row, cut in zip(cuts, search.cuts, strict=True):
        first = at.collectives + program.first[cut.workload]
        row[first : first + len(cut.counts)] = -cut.counts
        row[at.workloads + cut.workload] = 1.0
    limited = goal.limited
    limits = np.zeros((len(limited), at.width))
    limits[np.arange(len(limited)), at.workloads + limited] = -1.0
    ratios = np.zeros((0, len(goal.weights))) if goal.ratios is None else goal.ratios
    groups = np.zeros((len(ratios), at.width))
    groups[:, at.workloads : at.top] = -ratios * (at.time / at.unit)
    groups[:, at.top] = 1.0
    matrix = np.concatenate([pieces, cuts, limits, groups])
    lower = np.concatenate(
        [
            terms.alpha / at.time,
            np.array([cut.fixed for cut in search.cuts]) / at.time,
            -goal.limits[limited] * (1 + _SLACK) / at.time,
            np.zeros(len(ratios)),
        ]
    )
    return matrix, lower, np.full(len(lower), np.inf)
