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
_SOME = 1e-6
_ROOM = 1e-3
"""Parts of the largest choice that free dimensions with traffic need, and that a way out leaves."""


def explain_no_choice(
    parts: Parts, rows: Rows, constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]
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
    used : ndarray of bool, shape (columns,)
        Those of dimensions that carry traffic and so need some bandwidth.
    """
    kept = list(range(len(rows.bound)))
    starving = used & ~parts.fixed
    if _extreme(parts, rows, kept, None, starving).feasible:
        return None
    for k in list(kept):
        rest = [other for other in kept if other != k]
        if not _extreme(parts, rows, rest, None, starving).feasible:
            kept = rest
    items, helped = [], False
    for k in kept:
        row = constraints[rows.source[k]]
        way_out = "" if helped else _way_out(parts, rows, k, row, starving)
        helped = helped or bool(way_out)
        items.append(Conflict(row.text, row.line, row.file, way_out))
    few = "these constraints" if len(items) > 1 else "this constraint"
    beside = " while every dimension with traffic has some bandwidth" if starving.any() else ""
    return InfeasibleError(f"infeasible: no lanes or parts on offer meet {few}{beside}:", items)


def _way_out(
    parts: Parts, rows: Rows, k: int, row: LinearConstraint, starving: NDArray[np.bool_]
) -> str:
    """Nearest right side of a row that some choices reach with all other rows; empty: none."""
    others = [other for other in range(len(rows.bound)) if other != k]
    reached = []
    for sign in (1.0,) if k >= rows.equal else (1.0, -1.0):
        side = np.concatenate([parts.rows[k], rows.matrix[k] * ~parts.fixed])
        cost, beyond = sign * side, (k, sign)
        answer = _extreme(parts, rows, others, cost, starving, _ROOM, beyond)
        if not answer.feasible:
            answer = _extreme(parts, rows, others, cost, starving, _SOME, beyond)
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
    starving: NDArray[np.bool_],
    share: float = _SOME,
    beyond: tuple[int, float] | None = None,
) -> LinearAnswer:
    """Least cost over choices and free columns under some rows, or any if there is no cost.

    Dimensions with `starving` columns get at least a `share` of the largest choice.
    `beyond` is a row, with a sign, whose signed left side must be at least its signed bound.
    """
    choices, columns = len(parts.owner), len(parts.fixed)
    dimensions = parts.dimensions
    one = np.hstack([parts.owner == dimensions[:, None], np.zeros((len(dimensions), columns))])
    sides = np.hstack([parts.rows, rows.matrix * ~parts.fixed])
    give = _SLACK * np.abs(rows.bound)
    lower = np.where(np.arange(len(give)) < rows.equal, rows.bound - give, -np.inf)
    floors = np.zeros((0, choices + columns))
    owner = parts.pricing.owner
    for d in np.unique(owner[starving]):
        floors = np.vstack([floors, np.concatenate([np.zeros(choices), owner == d])])
    least = share * float(parts.columns.sum(axis=1).max())
    matrix = np.vstack([one, sides[kept], floors])
    low = np.concatenate([np.ones(len(one)), lower[kept], np.full(len(floors), least)])
    high = np.concatenate(
        [np.ones(len(one)), (rows.bound + give)[kept], np.full(len(floors), np.inf)]
    )
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
