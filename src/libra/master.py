"""The cone program: the best bandwidths for a set of critical-path cuts, and its certificate.

With s_f = 1 / (H_f . B) for each linear form f, tau_j for each distinct collective and theta_w for
each workload, the master problem is

    minimise    sum_w weight_w theta_w + price . B
    subject to  theta_w >= c_k + n_k . tau        for each cut k of workload w
                tau_j   >= alpha_p + C_p . s      for each piece p of collective j
                s_f (H_f . B) >= 1                (a rotated second-order cone)
                A B <= b,  E B = e,  B >= 0.

It holds each collective's time exactly and leaves only the choice of paths to the cuts: a chain,
whose only path is known, is solved in one go. Clarabel solves it in bandwidths relative to given
ones (B_d = S_d b_d), without which small dimensions lose precision.

Its bound is not read off the solver but proved from the multipliers, see `libra.certificate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers
from libra.program import Cut, Goal, Program

__all__ = ["MasterSolution", "solve_master"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MasterSolution:
    """Answer of one master problem, within the solver's accuracy.

    Attributes
    ----------
    bandwidth : ndarray, shape (columns,)
        Optimal for the cuts; NaN where the solver found none [bytes/s].
    objective : float
        Of the master problem there.
    multipliers : Multipliers or None
        Those of the constraints; None where the solver found none.
    status : str
        What the solver said.
    """

    bandwidth: Floats
    objective: float
    multipliers: Multipliers | None
    status: str


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


def solve_master(
    program: Program, cuts: Sequence[Cut], goal: Goal, scale: Floats, margin: float = 0.0
) -> MasterSolution:
    """Solve the master problem.

    Parameters
    ----------
    program : Program
        Collectives and rows.
    cuts : sequence of Cut
        At least one for each workload whose time matters.
    goal : Goal
        Objective and time limits.
    scale : ndarray, shape (columns,)
        Bandwidths S near the expected optimum [bytes/s], > 0.
    margin : float
        Part by which the time limits are tightened, so that rounding stays within them.

    Returns
    -------
    MasterSolution
    """
    import clarabel

    layout = _layout(program, cuts, goal, scale, margin)
    shapes = [
        clarabel.ZeroConeT(program.rows.equal),
        clarabel.NonnegativeConeT(layout.nonnegative),
        *[clarabel.SecondOrderConeT(3)] * layout.cones,
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
    settings.tol_feas = 1e-10
    size = layout.matrix.shape[1]
    nothing = CscMatrix(
        np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(size + 1, dtype=np.int64), (size, size)
    )
    solver = clarabel.DefaultSolver(
        nothing, layout.cost, layout.matrix, layout.bound, shapes, settings
    )
    solution = solver.solve()
    x, z = np.array(solution.x), np.array(solution.z) * layout.unscale
    width, rows = program.columns, len(program.rows.bound)
    status = str(solution.status)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return MasterSolution(np.full(width, np.nan), np.nan, None, status)
    y = z[:rows].copy()
    y[program.rows.equal :] = np.maximum(y[program.rows.equal :], 0)
    at = rows + width + layout.pieces
    ends = at + len(cuts) * layout.timed
    workloads = len(goal.weights)
    cones = z[len(z) - 3 * layout.cones :].reshape(-1, 3)
    reach = np.zeros(len(program.terms.forms))
    reach[: layout.cones] = np.maximum(cones[:, 0] - cones[:, 1], 0)
    limits = np.zeros(workloads)
    limited = goal.limited
    limits[limited] = np.maximum(z[ends : ends + len(limited)], 0)
    groups = 0 if goal.ratios is None else len(goal.ratios)
    multipliers = Multipliers(
        rows=y,
        pieces=np.maximum(z[at - layout.pieces : at], 0),
        cuts=np.maximum(z[at:ends], 0),
        forms=reach,
        limits=limits,
        groups=np.maximum(z[ends + len(limited) :][:groups], 0),
    )
    objective = float(layout.cost @ x) * layout.unit
    return MasterSolution(x[:width] * scale, objective, multipliers, status)


@dataclass(frozen=True, eq=False)
class _Layout:
    """Clarabel's data: minimise cost . x with bound - matrix x in the cones.

    Rows in order: equalities, inequalities, B >= 0, pieces, cuts, time limits, groups, cones.
    Columns: b = B/S, s_f (H_f . S), n_j tau_j / t_w, theta_w / t_w, z / unit, with t_w the size of
    workload w's step time at S and n_j how often a cut counts collective j at most. A multiplier of
    the original problem is one here times `unscale`; the objective there is the one here times
    `unit`.
    """

    cost: Floats
    matrix: CscMatrix
    bound: Floats
    nonnegative: int
    cones: int
    pieces: int
    timed: bool
    unscale: Floats
    unit: float


def _layout(
    program: Program, cuts: Sequence[Cut], goal: Goal, scale: Floats, margin: float
) -> _Layout:
    terms, rows, timed = program.terms, program.rows, goal.timed
    times = _cut_times(program, cuts, len(goal.weights), scale) if timed else goal.weights
    t = np.array([_positive(time) for time in times])
    unit = _positive(goal.value(scale, times))
    bands, limits = program.columns, len(rows.bound)
    forms, collectives = (len(terms.forms), terms.collectives) if timed else (0, 0)
    workloads, pieces = (len(goal.weights), len(terms.alpha)) if timed else (0, 0)
    limited = goal.limited
    groups = 0 if goal.ratios is None else len(goal.ratios)
    worst = min(groups, 1)
    theta_at = bands + forms + collectives
    variables = theta_at + workloads + worst
    height = limits + bands + pieces + len(limited) + groups + 3 * forms
    height += len(cuts) if timed else 0
    matrix = _Entries(height, variables)
    bound, unscale = np.zeros(height), np.full(height, unit)
    every = np.arange(bands)

    scaled = rows.matrix * scale
    norm = np.maximum(np.abs(scaled).max(axis=1, initial=0.0), np.abs(rows.bound))
    norm[norm == 0] = 1.0
    matrix.put(np.arange(limits)[:, None], every, scaled / norm[:, None])
    bound[:limits] = rows.bound / norm
    unscale[:limits] = unit / norm
    at = limits
    matrix.put(at + every, every, -1.0)
    at += bands
    if timed:
        _fill_times(program, cuts, goal, scale, margin, (t, unit), at, (matrix, bound, unscale))
    cost = np.zeros(variables)
    cost[:bands] = goal.price * scale / unit
    cost[theta_at : theta_at + workloads] = (goal.weights * (t / unit))[:workloads]
    cost[variables - worst :] = 1.0
    return _Layout(
        cost,
        matrix.csc(),
        bound,
        height - rows.equal - 3 * forms,
        forms,
        pieces,
        timed,
        unscale,
        unit,
    )


def _fill_times(
    program: Program,
    cuts: Sequence[Cut],
    goal: Goal,
    scale: Floats,
    margin: float,
    sizes: tuple[Floats, float],
    at: int,
    into: tuple[_Entries, Floats, Floats],
) -> None:
    """Write the rows of pieces, cuts, time limits, groups and cones, from row `at` on.

    `sizes` are those of each workload's step time and of the objective.
    """
    (matrix, bound, unscale), terms, bands, (t, unit) = into, program.terms, program.columns, sizes
    forms, pieces, workloads = len(terms.forms), len(terms.alpha), len(goal.weights)
    s_at, tau_at = bands, bands + forms
    theta_at = tau_at + terms.collectives
    reach = terms.forms @ scale
    rows, of_form = at + np.arange(pieces), s_at + np.arange(forms)
    often = _most_counts(program, cuts)
    size = (np.repeat(t, np.diff(program.first)) / often)[terms.owner]
    matrix.put(rows[:, None], of_form, terms.coefficient / reach / size[:, None])
    matrix.put(rows, tau_at + terms.owner, -1.0)
    bound[rows], unscale[rows] = -terms.alpha / size, unit / size
    at += pieces
    for cut in cuts:
        mine = program.first[cut.workload] + np.arange(len(cut.counts))
        matrix.put(at, tau_at + mine, cut.counts / often[mine])
        matrix.put(at, theta_at + cut.workload, -1.0)
        bound[at], unscale[at] = -cut.fixed / t[cut.workload], unit / t[cut.workload]
        at += 1
    limited = goal.limited
    if len(limited):
        rows, size = at + np.arange(len(limited)), t[limited]
        matrix.put(rows, theta_at + limited, 1.0)
        bound[rows], unscale[rows] = goal.limits[limited] * (1 - margin) / size, unit / size
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
    bound[first_of + 2] = 2.0
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
