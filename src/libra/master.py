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
from libra.program import Cut, Program

__all__ = ["MasterSolution", "solve_master"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MasterSolution:
    """Answer of one master problem, within the solver's accuracy.

    Attributes
    ----------
    bandwidth : ndarray, shape (dimensions,)
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
    """
    import clarabel

    layout = _layout(program, cuts, price, weights, scale)
    shapes = [
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
        nothing, layout.cost, _csc(layout.matrix), layout.bound, shapes, settings
    )
    solution = solver.solve()
    x, z = np.array(solution.x), np.array(solution.z) * layout.unscale
    dimensions, rows = program.dimensions, len(program.rows.bound)
    status = str(solution.status)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return MasterSolution(np.full(dimensions, np.nan), np.nan, None, status)
    y = z[:rows].copy()
    y[program.rows.equal :] = np.maximum(y[program.rows.equal :], 0)
    at = rows + dimensions
    cones = z[len(z) - 3 * layout.cones :].reshape(-1, 3)
    reach = np.zeros(len(program.terms.forms))
    reach[: layout.cones] = np.maximum(cones[:, 0] - cones[:, 1], 0)
    multipliers = Multipliers(
        rows=y,
        pieces=np.maximum(z[at : at + layout.pieces], 0),
        cuts=np.maximum(z[at + layout.pieces :][: len(cuts)], 0),
        forms=reach,
    )
    objective = float(layout.cost @ x) * layout.unit
    return MasterSolution(x[:dimensions] * scale, objective, multipliers, status)


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
    unit: float


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
            unscale[at : at + 3] = unit / reach[f]
            at += 3
    cost = np.zeros(columns)
    cost[:dimensions] = price * scale / unit
    cost[theta_at:] = weights[:workloads]
    return _Layout(
        cost, matrix, bound, height - rows.equal - 3 * forms, forms, pieces, unscale, unit
    )


def _objective_size(
    program: Program, cuts: Sequence[Cut], price: Floats, weights: Floats, scale: Floats
) -> float:
    tau = program.terms.times(scale)
    size = float(price @ scale)
    for cut in cuts:
        at = program.first[cut.workload]
        size = max(size, cut.fixed + float(cut.counts @ tau[at : at + len(cut.counts)]))
    return size if size > 0 and np.isfinite(size) else 1.0
