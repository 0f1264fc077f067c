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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers
from libra.cone_layout import CscMatrix, Layout, build_layout
from libra.program import Cut, Goal, Program, same_array

__all__ = ["Master", "MasterSolution"]

Floats = NDArray[np.float64]


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


class Master:
    """Master problem of some cuts near some bandwidths, solved for one goal or bound after another.

    Prices, weights, time limits and row bounds stand in two vectors; the matrix and the pattern of
    its factors are made once. So a point of a frontier or a sweep takes half the time of the first.

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
    """

    def __init__(self, program: Program, cuts: Sequence[Cut], goal: Goal, scale: Floats) -> None:
        self._terms, self._rows = program.terms, program.rows
        self._cuts, self._goal, self._scale = tuple(cuts), goal, scale
        self._layout = build_layout(program, self._cuts, goal, scale)
        self._solver: Any = None

    def fits(self, program: Program, cuts: Sequence[Cut], goal: Goal, scale: Floats) -> bool:
        """Whether it serves another program, goal and scale: same matrix, similar sizes."""
        ratio, known = scale / self._scale, self._goal
        return bool(
            self._terms is program.terms
            and self._rows.like(program.rows)
            and self._cuts == tuple(cuts)
            and known.timed == goal.timed
            and np.array_equal(known.limited, goal.limited)
            and same_array(known.ratios, goal.ratios)
            and ratio.min() > 1 / _SIMILAR
            and ratio.max() < _SIMILAR
            and 1 / _SIMILAR < self._layout.size(goal, self._scale) < _SIMILAR
            and (np.abs(program.rows.bound) < _SIMILAR * self._layout.norm).all()
        )

    def solve(self, bound: Floats, goal: Goal, margin: float = 0.0) -> MasterSolution:
        """Solve the master problem.

        Parameters
        ----------
        bound : ndarray, shape (rows,)
            Of the program's rows [bytes/s].
        goal : Goal
            Objective and time limits.
        margin : float
            Part by which the time limits are tightened, so that rounding stays within them.

        Returns
        -------
        MasterSolution
        """
        layout = self._layout
        cost, sides = layout.cost(goal, self._scale), layout.sides(bound, goal, margin)
        if self._solver is None:
            self._solver = _new_solver(layout, cost, sides)
        else:
            self._solver.update(q=cost, b=sides)
        solution = self._solver.solve()
        x, z = np.array(solution.x), np.array(solution.z) * layout.unscale
        status = str(solution.status)
        if not (np.isfinite(x).all() and np.isfinite(z).all()):
            return MasterSolution(np.full(len(self._scale), np.nan), np.nan, None, status)
        objective = float(cost @ x) * layout.unit
        bandwidth = x[: len(self._scale)] * self._scale
        return MasterSolution(bandwidth, objective, layout.multipliers(z, goal.limited), status)


_SIMILAR = 4.0
"""Largest factor between sizes that are as good as each other to scale by."""


def _new_solver(layout: Layout, cost: Floats, sides: Floats) -> Any:
    """Clarabel's solver, ready to solve."""
    import clarabel

    shapes = [
        clarabel.ZeroConeT(layout.equal),
        clarabel.NonnegativeConeT(layout.at_cones - layout.equal),
        *[clarabel.SecondOrderConeT(3)] * ((len(sides) - layout.at_cones) // 3),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
    settings.tol_feas = 1e-10
    size = len(cost)
    nothing = CscMatrix(
        np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(size + 1, dtype=np.int64), (size, size)
    )
    return clarabel.DefaultSolver(nothing, cost, layout.matrix, sides, shapes, settings)
