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

The bound is not read off the solver. Multipliers lambda of the cuts, mu of the pieces and y of the
rows, made consistent by scaling, give for all bandwidths that meet the rows

    objective >= c + sum_f a_f / (H_f . B) + g . B - y . b,    g = price + A' y,
              >= c + sum_f 2 sqrt(a_f u_f) - y . b             for u >= 0 with sum_f u_f H_f <= g,

by the inequality of the arithmetic and geometric mean. It is evaluated in plain arithmetic and
holds whatever the solver's accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.timing import StepTiming, Terms, merge_terms

__all__ = ["Cut", "MasterSolution", "Program", "Rows", "build_program", "build_rows", "solve_master"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints as ``matrix . B <= bound``, of which the first `equal` hold with equality.

    Attributes
    ----------
    matrix : ndarray, shape (rows, dimensions)
        Each divided by its largest coefficient [1].
    bound : ndarray, shape (rows,)
        [bytes/s]
    equal : int
        Number of equalities.
    source : ndarray of int, shape (rows,)
        Which constraint each row is from.
    factor : ndarray, shape (rows,)
        Row = factor x constraint; negative where a ``>=`` was turned round.
    """

    matrix: Floats
    bound: Floats
    equal: int
    source: Ints
    factor: Floats

    @cached_property
    def largest(self) -> Floats:
        """Upper limit of each bandwidth that a single row implies; infinite where none does."""
        one_sided = (self.matrix >= 0).all(axis=1)
        matrix, bound = self.matrix[one_sided], np.maximum(self.bound[one_sided], 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            limits = np.where(matrix > 0, bound[:, None] / matrix, np.inf)
        result: Floats = limits.min(axis=0, initial=np.inf)
        return result


def build_rows(constraints: Sequence[LinearConstraint], dimensions: int) -> Rows:
    """Rows of constraints on so many bandwidths, equalities first."""
    order = sorted(range(len(constraints)), key=lambda k: constraints[k].relation != "==")
    matrix, bounds, factors = [], [], []
    for k in order:
        row = constraints[k]
        sign = -1.0 if row.relation == ">=" else 1.0
        factor = sign / float(np.abs(row.coefficients).max())
        matrix.append(row.coefficients * factor)
        bounds.append(row.bound * factor)
        factors.append(factor)
    return Rows(
        np.array(matrix, dtype=np.float64).reshape(len(order), dimensions),
        np.array(bounds, dtype=np.float64),
        sum(c.relation == "==" for c in constraints),
        np.array(order, dtype=np.int64),
        np.array(factors, dtype=np.float64),
    )


@dataclass(frozen=True, eq=False)
class Program:
    """What does not change between solves.

    Attributes
    ----------
    timings : tuple of StepTiming
        One a workload.
    weights : ndarray, shape (workloads,)
        Weight of each workload's step time in the objective.
    terms : Terms
        Collectives of all workloads side by side.
    first : ndarray of int, shape (workloads + 1,)
        First collective of each workload.
    rows : Rows
        Constraints.
    """

    timings: tuple[StepTiming, ...]
    weights: Floats
    terms: Terms
    first: Ints
    rows: Rows

    @property
    def dimensions(self) -> int:
        """Number of dimensions."""
        return self.terms.forms.shape[1]

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Which dimensions carry traffic of some workload."""
        traffic = sum((t.step_traffic for t in self.timings), np.zeros(self.dimensions))
        result: NDArray[np.bool_] = traffic > 0
        return result


def build_program(
    timings: Sequence[StepTiming], weights: Floats, constraints: Sequence[LinearConstraint]
) -> Program:
    """Program of some workloads under constraints."""
    terms = merge_terms([t.terms for t in timings], timings[0].traffic.shape[1])
    first = np.cumsum([0, *(t.terms.collectives for t in timings)])
    rows = build_rows(constraints, terms.forms.shape[1])
    return Program(tuple(timings), weights, terms, first, rows)


@dataclass(frozen=True, eq=False)
class Cut:
    """``T_workload(B) >= fixed + counts . tau(B)`` for all B, from a path through its graph."""

    workload: int
    fixed: float
    counts: Floats


@dataclass(frozen=True, eq=False)
class MasterSolution:
    """Answer of one master problem.

    Attributes
    ----------
    bandwidth : ndarray, shape (dimensions,)
        Optimal for the cuts, within the solver's accuracy [bytes/s].
    bound : float
        Proven lower bound of the objective for all bandwidths that meet the constraints.
    multipliers : ndarray, shape (rows,)
        y: how fast the objective would fall if a row's bound rose [objective per unit of bound].
    status : str
        What the solver said.
    """

    bandwidth: Floats
    bound: float
    multipliers: Floats
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


def _csc(dense: Floats) -> CscMatrix:
    columns, rows = np.nonzero(dense.T)
    starts = np.searchsorted(columns, np.arange(dense.shape[1] + 1))
    return CscMatrix(dense.T[columns, rows], rows, starts, (dense.shape[0], dense.shape[1]))


def solve_master(
    program: Program, cuts: Sequence[Cut], price: Floats, weights: Floats, scale: Floats
) -> MasterSolution:
    """Solve the master problem.

    Parameters
    ----------
    program : Program
        Collectives and rows.
    cuts : sequence of Cut
        At least one for each workload with a positive weight.
    price : ndarray, shape (dimensions,)
        Linear price of the bandwidths in the objective.
    weights : ndarray, shape (workloads,)
        Weight of each workload's step time; all 0 for a linear program in B alone.
    scale : ndarray, shape (dimensions,)
        Bandwidths S near the expected optimum [bytes/s], > 0.

    Returns
    -------
    MasterSolution
        Its bandwidth is NaN when the solver found none.
    """
    import clarabel

    layout = _layout(program, cuts, price, weights, scale)
    cones = [
        clarabel.ZeroConeT(program.rows.equal),
        clarabel.NonnegativeConeT(layout.nonnegative),
        *[clarabel.SecondOrderConeT(3)] * layout.cones,
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False
    size = layout.matrix.shape[1]
    nothing = CscMatrix(
        np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(size + 1, dtype=np.int64), (size, size)
    )
    solver = clarabel.DefaultSolver(
        nothing, layout.cost, _csc(layout.matrix), layout.bound, cones, settings
    )
    solution = solver.solve()
    x, z = np.array(solution.x), np.array(solution.z)
    dimensions = program.dimensions
    bandwidth = x[:dimensions] * scale
    multipliers = z * layout.unscale
    rows = len(program.rows.bound)
    y = multipliers[:rows].copy()
    y[program.rows.equal :] = np.maximum(y[program.rows.equal :], 0)
    if not np.isfinite(z).all():
        return MasterSolution(np.full(dimensions, np.nan), -np.inf, y, str(solution.status))
    start = rows + dimensions
    pieces = np.maximum(multipliers[start : start + layout.pieces], 0)
    path = np.maximum(multipliers[start + layout.pieces :][: len(cuts)], 0)
    bound = certified_bound(program, cuts, price, weights, y, pieces, path)
    return MasterSolution(bandwidth, bound, y, str(solution.status))


@dataclass(frozen=True, eq=False)
class _Layout:
    """Clarabel's data: minimise cost . x with bound - matrix x in the cones."""

    cost: Floats
    matrix: Floats
    bound: Floats
    nonnegative: int
    cones: int
    pieces: int
    unscale: Floats


def _layout(
    program: Program, cuts: Sequence[Cut], price: Floats, weights: Floats, scale: Floats
) -> _Layout:
    """Rows in order: equalities, inequalities, B >= 0, pieces, cuts, cones.

    Columns: b = B/S, s_f (H_f . S), tau_j / tau_0, theta_w / tau_0, with tau_0 the objective's
    size at S. A row of the original problem is the row here over `unscale`.
    """
    terms, rows = program.terms, program.rows
    timed = bool(weights.any())
    dimensions = program.dimensions
    forms, collectives = (len(terms.forms), terms.collectives) if timed else (0, 0)
    workloads = len(weights) if timed else 0
    pieces = len(terms.alpha) if timed else 0
    used = list(cuts) if timed else []
    reach = terms.forms @ scale
    unit = _objective_size(program, used, price, weights, scale)
    columns = dimensions + forms + collectives + workloads
    limits = len(rows.bound)
    height = limits + dimensions + pieces + len(used) + 3 * forms
    matrix, bound, unscale = np.zeros((height, columns)), np.zeros(height), np.ones(height)

    scaled = rows.matrix * scale
    norm = np.maximum(np.abs(scaled).max(axis=1, initial=0.0), np.abs(rows.bound))
    norm[norm == 0] = 1.0
    matrix[:limits, :dimensions] = scaled / norm[:, None]
    bound[:limits] = rows.bound / norm
    unscale[:limits] = unit / norm
    at = limits
    matrix[at : at + dimensions, :dimensions] = -np.eye(dimensions)
    at += dimensions
    s_at, tau_at, theta_at = dimensions, dimensions + forms, dimensions + forms + collectives
    if timed:
        matrix[at : at + pieces, s_at:tau_at] = terms.coefficient / reach / unit
        owner = np.repeat(np.arange(collectives), np.diff(terms.start))
        matrix[at + np.arange(pieces), tau_at + owner] = -1.0
        bound[at : at + pieces] = -terms.alpha / unit
        at += pieces
        for cut in used:
            first = tau_at + program.first[cut.workload]
            matrix[at, first : first + len(cut.counts)] = cut.counts
            matrix[at, theta_at + cut.workload] = -1.0
            bound[at] = -cut.fixed / unit
            at += 1
        v = terms.forms * scale / reach[:, None]
        for f in range(forms):
            matrix[at, :dimensions], matrix[at, s_at + f] = -v[f], -1.0
            matrix[at + 1, :dimensions], matrix[at + 1, s_at + f] = v[f], -1.0
            bound[at + 2] = 2.0
            at += 3
    cost = np.zeros(columns)
    cost[:dimensions] = price * scale / unit
    cost[theta_at:] = weights[:workloads]
    return _Layout(cost, matrix, bound, height - rows.equal - 3 * forms, forms, pieces, unscale)


def _objective_size(
    program: Program, cuts: Sequence[Cut], price: Floats, weights: Floats, scale: Floats
) -> float:
    tau = program.terms.times(scale)
    size = float(price @ scale)
    for cut in cuts:
        at = program.first[cut.workload]
        size = max(size, cut.fixed + float(cut.counts @ tau[at : at + len(cut.counts)]))
    return size if size > 0 and np.isfinite(size) else 1.0


def certified_bound(
    program: Program, cuts: Sequence[Cut], price: Floats, weights: Floats,
    y: Floats, pieces: Floats, path: Floats,
) -> float:  # fmt: skip
    """Lower bound of the objective that the multipliers prove; minus infinity if they prove none.

    Parameters
    ----------
    program, cuts, price, weights
        As for `solve_master`.
    y : ndarray, shape (rows,)
        Multipliers of the rows, >= 0 but for equalities.
    pieces : ndarray, shape (pieces,)
        Multipliers mu of the pieces, >= 0; only their ratios within a collective matter.
    path : ndarray, shape (cuts,)
        Multipliers lambda of the cuts, >= 0; only their ratios within a workload matter.

    Returns
    -------
    float
        The bound at the head of this module.
    """
    terms, rows = program.terms, program.rows
    y = _without_free_rows(rows, price, y)
    constant = -float(y @ rows.bound)
    load = np.zeros(len(terms.forms))
    gradient = price + rows.matrix.T @ y
    if weights.any():
        counts = np.zeros(terms.collectives)
        owner = np.array([cut.workload for cut in cuts])
        for w, weight in enumerate(weights):
            mine = np.flatnonzero(owner == w)
            share = _shares(path[mine], weight)
            for k, part in zip(mine, share, strict=True):
                cut = cuts[k]
                constant += part * cut.fixed
                counts[program.first[w] : program.first[w + 1]] += part * cut.counts
        weight_of = np.zeros(len(terms.alpha))
        for j in np.flatnonzero(counts > 0):
            span = slice(terms.start[j], terms.start[j + 1])
            weight_of[span] = _shares(pieces[span], counts[j])
        constant += float(weight_of @ terms.alpha)
        load = weight_of @ terms.coefficient
    u = _within(gradient, terms.forms, load)
    constant += float(2 * np.sqrt(load * u).sum())
    rest = gradient - u @ terms.forms
    negative = rest < 0
    if negative.any():
        constant += float(rest[negative] @ rows.largest[negative])
    return constant


def _without_free_rows(rows: Rows, price: Floats, y: Floats) -> Floats:
    """Multipliers without those that would pay for bandwidth that no row limits.

    At the optimum they are 0; an interior-point solver leaves a trace, which would prove nothing.
    """
    free = (price + rows.matrix.T @ y < 0) & np.isinf(rows.largest)
    paying = (rows.matrix[:, free] * y[:, None] < 0).any(axis=1)
    return np.where(paying, 0.0, y)


def _shares(multipliers: Floats, total: float) -> Floats:
    """Multipliers scaled to a sum, equal shares where all are 0."""
    size = multipliers.sum()
    if size <= 0:
        return np.full(len(multipliers), total / max(len(multipliers), 1))
    return multipliers * (total / size)


def _within(gradient: Floats, forms: Floats, load: Floats) -> Floats:
    """u >= 0 with sum_f u_f H_f <= g, as good as can be had in closed form.

    Each dimension's g_d is shared among the forms that use it in proportion to their loads' square
    roots; a form takes the least that its dimensions grant. Exact where H is the identity.
    """
    room = np.maximum(gradient, 0)
    root = np.sqrt(load)
    claims = forms * root[:, None]
    total = claims.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        granted = np.where(forms > 0, room * root[:, None] / total, np.inf)
    u = granted.min(axis=1)
    return np.where((load > 0) & np.isfinite(u), u, 0.0)
