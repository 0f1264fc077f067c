"""Bandwidths of a solver made to meet the constraints to rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libra.program import Rows

__all__ = ["polish"]

Floats = NDArray[np.float64]

_ROUNDS = 8
TOLERANCE = 1e-13
_ENOUGH = 1e-10


def polish(rows: Rows, bandwidth: Floats, multipliers: Floats) -> Floats:
    """Nearest bandwidths, in relative terms, that meet all rows to rounding.

    A solver's answer violates rows by its own tolerance, or stays away from them by as much. It is
    projected with weights B_d^2 onto the equalities, the rows that bind (slack within 1e-6 and
    small against the multiplier), and the violated ones; rows that the step violates join.

    Parameters
    ----------
    rows : Rows
        Constraints.
    bandwidth : ndarray, shape (dimensions,)
        Nearly feasible [bytes/s].
    multipliers : ndarray, shape (rows,)
        Of the rows, in an objective of order 1 for bandwidths of this size.

    Returns
    -------
    ndarray, shape (dimensions,)
        Not negative; NaN if the rows cannot be met from here.
    """
    b = np.maximum(bandwidth, 0.0)
    if not len(rows.bound):
        return b
    size = np.maximum(np.abs(rows.matrix) @ b, np.abs(rows.bound))
    size[size == 0] = 1.0
    equal = np.arange(len(size)) < rows.equal
    slack = (rows.bound - rows.matrix @ b) / size
    binding = equal | ((slack < 1e-6) & (multipliers * size > slack))
    # Rows that seem to bind may contradict each other where many meet; then only those that must.
    for wanted in (binding, equal):
        found = _project(rows, b, size, wanted)
        if found is not None:
            return found
    return np.full_like(b, np.nan)


def _project(rows: Rows, b: Floats, size: Floats, wanted: NDArray[np.bool_]) -> Floats | None:
    """Project onto the wanted rows and those found violated; None if that does not end."""
    active = wanted.copy()
    for _ in range(_ROUNDS):
        excess = (rows.matrix @ b - rows.bound) / size
        broken = np.where(wanted, np.abs(excess), excess) > TOLERANCE
        if not broken.any():
            return b
        active |= broken
        chosen = rows.matrix[active] * b / size[active, None]
        step = _least_step(chosen, -excess[active])
        b = np.maximum(b * (1 + step), 0.0)
    excess = (rows.matrix @ b - rows.bound) / size
    excess[: rows.equal] = np.abs(excess[: rows.equal])
    return b if (excess <= _ENOUGH).all() else None


def _least_step(matrix: Floats, wanted: Floats) -> Floats:
    """Smallest step x that brings ``matrix . x`` closest to what is wanted."""
    if len(matrix) == 1 and matrix.any():  # in a twentieth of the time
        along: Floats = matrix[0] * (wanted[0] / (matrix[0] @ matrix[0]))
        return along
    return np.linalg.lstsq(matrix, wanted, rcond=1e-12)[0].astype(np.float64)
