"""Linear and mixed-integer linear programs, solved by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.errors import SolverError

__all__ = ["LinearAnswer", "solve_linear"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class LinearAnswer:
    """Answer of a program.

    Attributes
    ----------
    feasible : bool
        Whether there is an optimum; if not, the solver has proven that there is none.
    x : ndarray, shape (variables,)
        It, within the solver's tolerance.
    bound : float
        Least objective that any x can have; minus infinity if none is known.
    """

    feasible: bool
    x: Floats
    bound: float


def solve_linear(
    cost: Floats,
    matrix: Floats,
    lower: Floats,
    upper: Floats,
    *,
    least: Floats | None = None,
    whole: NDArray[np.bool_] | None = None,
    gap: float = 1e-9,
) -> LinearAnswer:
    """Minimise ``cost . x`` subject to ``lower <= matrix x <= upper`` and ``x >= least``.

    Parameters
    ----------
    cost : ndarray, shape (variables,)
    matrix : ndarray, shape (rows, variables)
    lower, upper : ndarray, shape (rows,)
        Infinite: no limit.
    least : ndarray, shape (variables,), or None
        Minus infinity: no limit; None: zeros.
    whole : ndarray of bool, shape (variables,), or None
        Variables that are 0 or 1; None: none is.
    gap : float
        Relative distance of objective and bound at which a mixed-integer program is solved.

    Raises
    ------
    SolverError
        If the solver ends with neither an optimum nor the proof that there is none.
    """
    import highspy

    class Silent(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802
            """Enable none: that would print a banner on stdout before any option is set."""

    solver = Silent()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        solver.setOptionValue(name, TOLERANCE)
    solver.setOptionValue("mip_feasibility_tolerance", TOLERANCE)
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("mip_abs_gap", gap * 1e-3)
    count = len(cost)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, len(matrix)
    program.col_cost_ = np.asarray(cost, dtype=np.float64)
    program.col_lower_ = np.zeros(count) if least is None else least
    most = np.full(count, highspy.kHighsInf)
    if whole is not None:
        most[whole] = 1.0
    program.col_upper_ = most
    program.row_lower_, program.row_upper_ = lower, upper
    rows, columns = np.nonzero(matrix)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.searchsorted(rows, np.arange(len(matrix) + 1)).astype(np.int32)
    program.a_matrix_.index_ = columns.astype(np.int32)
    program.a_matrix_.value_ = matrix[rows, columns]
    if whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        program.integrality_ = [kinds[int(w)] for w in whole]
    solver.passModel(program)
    solver.run()
    status, ends = solver.getModelStatus(), highspy.HighsModelStatus
    x = np.array(solver.getSolution().col_value)
    if status in (ends.kInfeasible, ends.kUnbounded, ends.kUnboundedOrInfeasible):
        return LinearAnswer(False, x, -np.inf)
    if status != ends.kOptimal:
        said = solver.modelStatusToString(status)
        raise SolverError(f"the linear solver stopped: {said}. Please report the design.")
    bound = float(cost @ x) if whole is None else float(solver.getInfo().mip_dual_bound)
    return LinearAnswer(True, x, bound)
