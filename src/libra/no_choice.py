"""Why no choices of whole parts meet the constraints: a smallest conflict and one way out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.errors import Conflict, InfeasibleError
from libra.linear import LinearAnswer, solve_linear
from libra.parts import Parts
from libra.program import Rows

__all__ = ["explain_no_choice"]

Floats = NDArray[np.float64]

_GB = 1e9
_SLACK = 1e-9


def explain_no_choice(
    parts: Parts, rows: Rows, constraints: Sequence[LinearConstraint]
) -> InfeasibleError | None:
    """Error that names a smallest set of constraints that no choices meet; None if some do.

    Parameters
    ----------
    parts : Parts
    rows : Rows
        Of the constraints.
    constraints : sequence of LinearConstraint
        Those that a user wrote come first; a row without a line is kept out of the conflict unless
        it is needed.
    """
    kept = list(range(len(rows.bound)))
    if _extreme(parts, rows, kept, None).feasible:
        return None
    for k in list(kept):
        rest = [other for other in kept if other != k]
        if not _extreme(parts, rows, rest, None).feasible:
            kept = rest
    items, helped = [], False
    for k in kept:
        row = constraints[rows.source[k]]
        way_out = "" if helped else _way_out(parts, rows, k, row)
        helped = helped or bool(way_out)
        items.append(Conflict(row.text, row.line, row.file, way_out))
    few = "these constraints" if len(items) > 1 else "this constraint"
    return InfeasibleError(f"infeasible: no lanes or parts on offer meet {few}:", items)


def _way_out(parts: Parts, rows: Rows, k: int, row: LinearConstraint) -> str:
    """Nearest right side of a row that some choices reach with all other rows; empty: none."""
    others = [other for other in range(len(rows.bound)) if other != k]
    reached = []
    for sign in (1.0,) if k >= rows.equal else (1.0, -1.0):
        side = np.concatenate([parts.rows[k], rows.matrix[k] * ~parts.fixed])
        answer = _extreme(parts, rows, others, sign * side, beyond=(k, sign))
        if answer.feasible:
            reached.append(sign * answer.bound / rows.factor[k] / row.unit[1])
    if not reached:
        return ""
    bound = row.bound / row.unit[1]
    nearest = min(reached, key=lambda value: abs(value - bound))
    left = row.text.partition(row.relation)[0].strip()
    return f"write '{left} {row.relation} {nearest:.9g} {row.unit[0]}'."


def _extreme(
    parts: Parts,
    rows: Rows,
    kept: Sequence[int],
    cost: Floats | None,
    beyond: tuple[int, float] | None = None,
) -> LinearAnswer:
    """Least cost over choices and free columns under some rows, or any if there is no cost.

    `beyond` is a row, with a sign, whose signed left side must be at least its signed bound.
    """
    choices, columns = len(parts.owner), len(parts.fixed)
    dimensions = parts.dimensions
    one = np.hstack([parts.owner == dimensions[:, None], np.zeros((len(dimensions), columns))])
    sides = np.hstack([parts.rows, rows.matrix * ~parts.fixed])
    give = _SLACK * np.abs(rows.bound)
    lower = np.where(np.arange(len(give)) < rows.equal, rows.bound - give, -np.inf)
    matrix = np.vstack([one, sides[kept]])
    low = np.concatenate([np.ones(len(one)), lower[kept]])
    high = np.concatenate([np.ones(len(one)), (rows.bound + give)[kept]])
    if beyond is not None:
        k, sign = beyond
        matrix = np.vstack([matrix, sign * sides[k]])
        low = np.append(low, sign * rows.bound[k])
        high = np.append(high, np.inf)
    scale = np.concatenate([np.ones(choices), np.full(columns, _GB)])
    matrix = matrix * scale
    size = np.abs(matrix).max(axis=1)
    size[size == 0] = 1.0
    price = np.zeros(choices + columns) if cost is None else cost * scale
    unit = float(np.abs(price).max()) or 1.0
    answer = solve_linear(
        price / unit,
        matrix / size[:, None],
        low / size,
        high / size,
        whole=np.arange(choices + columns) < choices,
    )
    return LinearAnswer(answer.feasible, answer.x, answer.bound * unit)
