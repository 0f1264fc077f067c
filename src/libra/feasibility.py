"""Why a design has no optimum: the constraints that conflict, or the bandwidth that nothing limits.

Small linear programs, solved by HiGHS, on the constraints alone. They run only when the optimiser
found no bandwidths, or when no single constraint limits a bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.errors import Conflict, InfeasibleError, UnboundedError
from libra.linear import TOLERANCE, LinearAnswer, solve_linear
from libra.network import Network
from libra.program import Program, Rows, build_rows
from libra.units import parse_number

__all__ = [
    "check_bounded",
    "explain_infeasible",
    "implied_equalities",
    "leave_some",
    "smallest_conflict",
]

Floats = NDArray[np.float64]

# Bandwidths in the linear programs are in GB/s, so that coefficients are of order 1.
_UNIT = 1e9


def _linear_minimum(cost: Floats, matrix: Floats, upper: Floats, equal: int) -> LinearAnswer:
    """Minimise cost . x subject to matrix x <= upper (the first `equal` with equality), x >= 0."""
    lower = np.full(len(upper), -np.inf)
    lower[:equal] = upper[:equal]
    return solve_linear(cost, matrix, lower, upper)


def _scaled(rows: Rows) -> tuple[Floats, Floats]:
    """Rows in GB/s, each divided by its largest entry."""
    matrix = rows.matrix * _UNIT
    norm = np.maximum(np.abs(matrix).max(axis=1, initial=0.0), np.abs(rows.bound))
    norm[norm == 0] = 1.0
    return matrix / norm[:, None], rows.bound / norm


def _feasible(constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]) -> bool:
    """Whether some bandwidths meet the constraints, see `leave_some`."""
    return leave_some(build_rows(constraints, len(used)), used)


def leave_some(rows: Rows, used: NDArray[np.bool_]) -> bool:
    """Whether some bandwidths meet rows and give every used column more than 0.

    Maximises t <= 1 GB/s with B_d >= t for every used column.
    """
    width = len(used)
    matrix, bound = _scaled(rows)
    floors = np.hstack([-np.eye(width)[used], np.ones((int(used.sum()), 1))])
    stacked = np.vstack(
        [
            np.hstack([matrix, np.zeros((len(matrix), 1))]),
            floors,
            np.eye(width + 1)[-1:],
        ]
    )
    upper = np.concatenate([bound, np.zeros(len(floors)), [1.0]])
    answer = _linear_minimum(-np.eye(width + 1)[-1], stacked, upper, rows.equal)
    return answer.feasible and bool(answer.x[-1] > 10 * TOLERANCE)


def smallest_conflict(
    constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]
) -> tuple[LinearConstraint, ...]:
    """A smallest set of constraints that cannot hold together, by a deletion filter.

    Each constraint is left out in turn and stays out if the rest still conflict; what remains
    conflicts, and any part of it does not.

    Parameters
    ----------
    constraints : sequence of LinearConstraint
        All of them.
    used : ndarray of bool, shape (columns,)
        Those of dimensions that carry traffic and so need some bandwidth.

    Returns
    -------
    tuple of LinearConstraint
        Empty if they do not conflict.
    """
    kept = list(constraints)
    if _feasible(kept, used):
        return ()
    for row in list(kept):
        rest = [other for other in kept if other is not row]
        if not _feasible(rest, used):
            kept = rest
    return tuple(kept)


def _way_out(
    row: LinearConstraint, constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]
) -> str:
    """How far one constraint must give way for all others to hold; empty if that is no help."""
    others = [c for c in constraints if c is not row]
    if not _feasible(others, used):
        return ""
    unit_name, unit = row.unit
    goal = row.coefficients * (_UNIT / unit)
    best = None
    for sign in (1.0, -1.0):
        if row.relation != ("<=" if sign < 0 else ">="):
            reached = _least_with_room(sign * goal, others, used)
            give = np.inf if reached is None else reached - sign * row.bound / unit
            if reached is not None and give > 0 and (best is None or give < best[0]):
                best = (give, sign * reached)
    if best is None:
        return f"give the dimensions that {row.text!r} starves more than 0 GB/s."
    left, _, right = row.text.partition(row.relation)
    number = parse_number(right)
    if number is not None and number[1] and not any(ch in number[1] for ch in "+-*"):
        return (
            f"write '{left.strip()} {row.relation} {_rounded(best[1], row.relation)} {unit_name}'."
        )
    return f"loosen {row.text!r} by {_rounded(best[0], '<=')} {unit_name}."


def _least_with_room(
    goal: Floats, constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]
) -> float | None:
    """Least goal . B [GB/s] over constraints that leaves used dimensions some bandwidth.

    The least itself may starve them; they are given a thousandth of the largest bandwidth there,
    or as much less as the constraints allow. None: there is no least.
    """
    rows = build_rows(constraints, len(used))
    matrix, bound = _scaled(rows)
    bare = _linear_minimum(goal, matrix, bound, rows.equal)
    if not bare.feasible:
        return None
    size = max(float(bare.x.max()), 1e-3)
    for share in (1e-3, 1e-5, 1e-7):
        floor = np.where(used, share * size, 0.0)
        above = _linear_minimum(goal, matrix, bound - matrix @ floor, rows.equal)
        if above.feasible:
            return float(goal @ (above.x + floor))
    return float(goal @ bare.x)


def implied_equalities(
    constraints: Sequence[LinearConstraint], dimensions: int
) -> tuple[LinearConstraint, ...]:
    """Constraints in which those that can only hold with equality say so.

    Such constraints, as ``total <= 10 GB/s`` beside ``a >= 4 GB/s`` and ``b >= 6 GB/s``, leave the
    cone program no interior. As many as are independent become equalities; the others follow from
    them and are loosened by 1e-8, so that rounding cannot make them contradict.
    """
    rows = build_rows(constraints, dimensions)
    matrix, bound = _scaled(rows)
    found = list(constraints)
    equal = list(range(rows.equal))
    for k in range(rows.equal, len(bound)):
        # Most room s <= 1 that row k can have: matrix_k . B + s <= bound_k.
        wide = np.vstack(
            [np.hstack([matrix, np.eye(len(bound))[:, [k]]]), np.eye(dimensions + 1)[-1:]]
        )
        answer = _linear_minimum(
            -np.eye(dimensions + 1)[-1], wide, np.append(bound, 1.0), rows.equal
        )
        if not answer.feasible or answer.x[-1] > 10 * TOLERANCE:
            continue
        at, row = int(rows.source[k]), constraints[int(rows.source[k])]
        if np.linalg.matrix_rank(matrix[[*equal, k]], tol=1e-9) > len(equal):
            equal.append(k)
            found[at] = replace(row, relation="==")
        else:
            size = float(np.abs(row.coefficients) @ answer.x[:-1]) * _UNIT + abs(row.bound)
            give = 1e-8 * size * (-1 if row.relation == ">=" else 1)
            found[at] = replace(row, bound=row.bound + give)
    return tuple(found)


def _rounded(value: float, relation: str) -> str:
    """Nine digits, rounded to the side that keeps the constraint possible."""
    text = f"{value:.9g}"
    if relation == "<=" and float(text) < value:
        text = f"{value * (1 + 1e-8):.9g}"
    if relation == ">=" and float(text) > value:
        text = f"{value * (1 - 1e-8):.9g}"
    return text


def explain_infeasible(
    constraints: Sequence[LinearConstraint], used: NDArray[np.bool_]
) -> InfeasibleError | None:
    """Error that names a smallest conflict and one way out; None if there is no conflict."""
    conflict = smallest_conflict(constraints, used)
    if not conflict:
        return None
    items, helped = [], False
    for row in conflict:
        way_out = "" if helped else _way_out(row, constraints, used)
        helped = helped or bool(way_out)
        items.append(Conflict(row.text, row.line, row.file, way_out))
    few = (
        "this constraint cannot hold"
        if len(items) == 1
        else "these constraints cannot hold together"
    )
    return InfeasibleError(
        f"infeasible: {few} while every dimension with traffic has some bandwidth:", items
    )


def check_bounded(
    program: Program, network: Network, constraints: Sequence[LinearConstraint], price: Floats
) -> None:
    """Refuse a program in which a used bandwidth can grow without limit and at no price.

    Raises
    ------
    UnboundedError
        Names the dimensions.
    """
    used, width = program.used, program.columns
    open_ended = used & np.isinf(program.rows.largest) & (price <= 0)
    if not open_ended.any():
        return
    matrix, _ = _scaled(program.rows)
    free = []
    for k in np.flatnonzero(open_ended):
        # A direction that every row allows for ever: r >= 0, A r <= 0, r_k >= 1, price . r = 0.
        direction = np.vstack([matrix, price / max(price.max(), 1.0), -np.eye(width)[k]])
        upper = np.concatenate([np.zeros(len(matrix) + 1), [-1.0]])
        if _linear_minimum(np.zeros(width), direction, upper, program.rows.equal).feasible:
            free.append(network.names[k if program.owner is None else program.owner[k]])
    if not free:
        return
    given = "; ".join(c.text for c in constraints) or "there are none"
    raise UnboundedError(
        f"unbounded: nothing limits {' and '.join(free)}, which carr"
        f"{'y' if len(free) > 1 else 'ies'} traffic, so more bandwidth is always better. Add e.g. "
        f"'{free[0]} <= 100 GB/s', 'total <= 1000 GB/s' or 'cost <= 10e6 USD'. "
        f"Constraints: {given}."
    )
