"""How the master problem lies in memory: the matrix, sides and costs that Clarabel takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers
from libra.program import Cut, Goal, Program

__all__ = ["CscMatrix", "Layout", "build_layout"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CscMatrix:
    """Compressed sparse columns, with the attributes by which Clarabel reads SciPy's matrices.

    SciPy's own class would do; importing it costs 0.4 s, more than all else that a solve needs.
    """

    data: Floats
    indices: Ints
    indptr: Ints
    shape: tuple[int, int]
    has_sorted_indices: bool = True
    has_canonical_format: bool = True

    def sort_indices(self) -> None:
        """Do nothing: they are sorted."""

    def sum_duplicates(self) -> None:
        """Do nothing: there are none."""


class _Entries:
    """Entries of a matrix, block by block; none may be put twice.

    A small one is held dense, which takes a third of the time of lists of entries.
    """

    def __init__(self, height: int, width: int) -> None:
        self.shape = (height, width)
        self._dense = np.zeros((width, height)) if height * width <= _DENSE else None
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []

    def put(self, rows: Ints | int, columns: Ints | int, values: Floats | float) -> None:
        """Put values, broadcast with their places, leaving zeros out."""
        if self._dense is not None:
            self._dense[columns, rows] = values
            return
        shape = np.broadcast_shapes(np.shape(rows), np.shape(columns), np.shape(values))
        zero = np.zeros(shape, dtype=np.int64)  # adding to it is a faster broadcast
        v = zero + values
        stays = v != 0
        self._rows.append((zero + rows)[stays])
        self._columns.append((zero + columns)[stays])
        self._values.append(v[stays])

    def csc(self) -> CscMatrix:
        """Compressed columns."""
        starts = np.arange(self.shape[1] + 1)
        if self._dense is not None:
            columns, rows = self._dense.nonzero()
            values = self._dense[columns, rows]
            return CscMatrix(values, rows, np.searchsorted(columns, starts), self.shape)
        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        order = np.lexsort((rows, columns))
        starts = np.searchsorted(columns[order], starts)
        return CscMatrix(np.concatenate(self._values)[order], rows[order], starts, self.shape)


_DENSE = 20_000


@dataclass(frozen=True, eq=False)
class Layout:
    """Clarabel's data: minimise cost . x with sides - matrix x in the cones.

    Rows in order: equalities, inequalities, B >= 0, pieces, cuts, time limits, groups, cones.
    Columns: b = B/S, s_f (H_f . S), n_j tau_j / t_w, theta_w / t_w, z / unit, with t_w the size of
    workload w's step time at S and n_j how often a cut counts collective j at most. A multiplier of
    the original problem is one here times `unscale`; the objective there is the one here times
    `unit`.

    Attributes
    ----------
    matrix : CscMatrix
    fixed : ndarray, shape (height,)
        Sides but for those of constraints and time limits.
    unscale : ndarray, shape (height,)
    unit : float
    times : ndarray, shape (workloads,)
        Sizes t of the step times [s].
    norm : ndarray, shape (constraints,)
        What each constraint is divided by.
    equal : int
        Number of equalities.
    at_pieces, at_cuts, at_limits, at_groups, at_cones : int
        First row of each kind.
    at_theta : int
        First column of the step times.
    forms : int
        Number of linear forms, also where no time matters.
    """

    matrix: CscMatrix
    fixed: Floats
    unscale: Floats
    unit: float
    times: Floats
    norm: Floats
    equal: int
    at_pieces: int
    at_cuts: int
    at_limits: int
    at_groups: int
    at_cones: int
    at_theta: int
    forms: int

    def size(self, goal: Goal, scale: Floats) -> float:
        """Another goal's objective at the scale, as a multiple of the unit."""
        return _positive(goal.value(scale, self.times)) / self.unit

    def cost(self, goal: Goal, scale: Floats) -> Floats:
        """Cost of a goal."""
        cost = np.zeros(self.matrix.shape[1])
        cost[: len(scale)] = goal.price * scale / self.unit
        if goal.timed:
            weights = goal.weights * (self.times / self.unit)
            cost[self.at_theta : self.at_theta + len(weights)] = weights
        if goal.ratios is not None:
            cost[-1] = 1.0
        return cost

    def sides(self, bound: Floats, goal: Goal, margin: float) -> Floats:
        """Right sides for row bounds and a goal's time limits."""
        sides = self.fixed.copy()
        sides[: len(self.norm)] = bound / self.norm
        if len(goal.limited):
            within = goal.limits[goal.limited] * (1 - margin) / self.times[goal.limited]
            sides[self.at_limits : self.at_groups] = within
        return sides

    def multipliers(self, z: Floats, limited: Ints) -> Multipliers:
        """Multipliers of the constraints, those of time limits for the limited workloads."""
        positive = np.maximum(z, 0.0)
        rows = positive[: len(self.norm)].copy()
        rows[: self.equal] = z[: self.equal]
        cones = z[self.at_cones :].reshape(-1, 3)
        reach = np.zeros(self.forms)
        reach[: len(cones)] = np.maximum(cones[:, 0] - cones[:, 1], 0)
        limits = np.zeros(len(self.times))
        limits[limited] = positive[self.at_limits : self.at_groups]
        return Multipliers(
            rows=rows,
            pieces=positive[self.at_pieces : self.at_cuts],
            cuts=positive[self.at_cuts : self.at_limits],
            forms=reach,
            limits=limits,
            groups=positive[self.at_groups : self.at_cones],
        )


def build_layout(program: Program, cuts: Sequence[Cut], goal: Goal, scale: Floats) -> Layout:
    """Layout of a master problem; of the goal matters which times it limits and how it adds up."""
    terms, rows, timed = program.terms, program.rows, goal.timed
    times = _cut_times(program, cuts, len(goal.weights), scale) if timed else goal.weights
    t = np.array([_positive(time) for time in times])
    unit = _positive(goal.value(scale, times))
    bands, limits = program.columns, len(rows.bound)
    groups = 0 if goal.ratios is None else len(goal.ratios)
    forms, collectives = (len(terms.forms), terms.collectives) if timed else (0, 0)
    workloads, pieces = (len(goal.weights), len(terms.alpha)) if timed else (0, 0)
    at_pieces = limits + bands
    at_cuts = at_pieces + pieces
    at_limits = at_cuts + (len(cuts) if timed else 0)
    at_groups = at_limits + len(goal.limited)
    at_cones = at_groups + groups
    height, at_theta = at_cones + 3 * forms, bands + forms + collectives
    matrix = _Entries(height, at_theta + workloads + min(groups, 1))
    fixed, unscale = np.zeros(height), np.full(height, unit)
    scaled, every = rows.matrix * scale, np.arange(bands)
    norm = np.maximum(np.abs(scaled).max(axis=1, initial=0.0), np.abs(rows.bound))
    norm[norm == 0] = 1.0
    matrix.put(np.arange(limits)[:, None], every, scaled / norm[:, None])
    unscale[:limits] = unit / norm
    matrix.put(limits + every, every, -1.0)
    if timed:
        _fill_times(program, cuts, goal, scale, (t, unit), at_pieces, (matrix, fixed, unscale))
    return Layout(
        matrix.csc(),
        fixed,
        unscale,
        unit,
        t,
        norm,
        rows.equal,
        at_pieces,
        at_cuts,
        at_limits,
        at_groups,
        at_cones,
        at_theta,
        len(terms.forms),
    )


def _fill_times(
    program: Program,
    cuts: Sequence[Cut],
    goal: Goal,
    scale: Floats,
    sizes: tuple[Floats, float],
    at: int,
    into: tuple[_Entries, Floats, Floats],
) -> None:
    """Write the rows of pieces, cuts, time limits, groups and cones, from row `at` on.

    `sizes` are those of each workload's step time and of the objective.
    """
    (matrix, fixed, unscale), terms, bands, (t, unit) = into, program.terms, program.columns, sizes
    forms, pieces, workloads = len(terms.forms), len(terms.alpha), len(goal.weights)
    s_at, tau_at = bands, bands + forms
    theta_at = tau_at + terms.collectives
    reach = terms.forms @ scale
    rows, of_form = at + np.arange(pieces), s_at + np.arange(forms)
    often = _most_counts(program, cuts)
    size = (np.repeat(t, np.diff(program.first)) / often)[terms.owner]
    matrix.put(rows[:, None], of_form, terms.coefficient / reach / size[:, None])
    matrix.put(rows, tau_at + terms.owner, -1.0)
    fixed[rows], unscale[rows] = -terms.alpha / size, unit / size
    at += pieces
    for cut in cuts:
        mine = program.first[cut.workload] + np.arange(len(cut.counts))
        matrix.put(at, tau_at + mine, cut.counts / often[mine])
        matrix.put(at, theta_at + cut.workload, -1.0)
        fixed[at], unscale[at] = -cut.fixed / t[cut.workload], unit / t[cut.workload]
        at += 1
    limited = goal.limited
    if len(limited):
        rows, size = at + np.arange(len(limited)), t[limited]
        matrix.put(rows, theta_at + limited, 1.0)
        unscale[rows] = unit / size
        at += len(limited)
    if goal.ratios is not None:
        each = at + np.arange(len(goal.ratios))
        matrix.put(each[:, None], theta_at + np.arange(workloads), goal.ratios * (t / unit))
        matrix.put(each, theta_at + workloads, -1.0)
        unscale[each] = 1.0
        at += len(goal.ratios)
    v = terms.forms * scale / reach[:, None]
    first_of, every = at + 3 * np.arange(forms), np.arange(bands)
    matrix.put(first_of[:, None], every, -v)
    matrix.put(first_of[:, None] + 1, every, v)
    matrix.put(first_of, of_form, -1.0)
    matrix.put(first_of + 1, of_form, -1.0)
    fixed[first_of + 2] = 2.0
    unscale[at:] = unit / np.repeat(reach, 3)


def _most_counts(program: Program, cuts: Sequence[Cut]) -> Floats:
    """How often some cut counts each collective at most, at least 1.

    A step may count a short collective thousands of times: as a part of the step time, its own time
    would be as small as the solver's tolerances allow.
    """
    most = np.ones(program.terms.collectives)
    for cut in cuts:
        at = program.first[cut.workload]
        span = slice(at, at + len(cut.counts))
        most[span] = np.maximum(most[span], cut.counts)
    return most


def _cut_times(program: Program, cuts: Sequence[Cut], workloads: int, scale: Floats) -> Floats:
    """Step times that the cuts imply at given bandwidths [s]."""
    tau = program.terms.times(scale)
    times = np.zeros(workloads)
    for cut in cuts:
        at = program.first[cut.workload]
        time = cut.fixed + float(cut.counts @ tau[at : at + len(cut.counts)])
        times[cut.workload] = max(times[cut.workload], time)
    return times


def _positive(size: float) -> float:
    """Size to scale by: itself, or 1 where it is no use."""
    return size if size > 0 and np.isfinite(size) else 1.0
