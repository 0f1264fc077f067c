"""What given bandwidths achieve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libra.design import Design, best_schedules
from libra.errors import InputError
from libra.result import Result, make_result, shadow_prices

__all__ = ["evaluate_design"]


def evaluate_design(design: Design, bandwidth: Sequence[float]) -> Result:
    """Step time, cost and bottlenecks of a design at given bandwidths.

    Parameters
    ----------
    design : Design
        The problem; its constraints are reported, not enforced.
    bandwidth : sequence of float, shape (dimensions,)
        [bytes/s], not negative.

    Returns
    -------
    Result
        With ``status`` ``evaluated``; bound, gap and multipliers are None.

    Raises
    ------
    InputError
        If the number of bandwidths is not that of the dimensions, or one is negative or not finite.
    """
    given = np.array(bandwidth, dtype=np.float64)
    dimensions = len(design.network.dimensions)
    if given.shape != (dimensions,):
        raise InputError(
            f"bandwidth: needs one for each of the {dimensions} dimensions of "
            f"{design.network.shape}, got {given.size}. Give {dimensions}, innermost first."
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise InputError(
            f"bandwidth: must be finite and not negative, got {list(bandwidth)}. Correct it."
        )
    return make_result(
        design,
        best_schedules(design, given),
        given,
        status="evaluated",
        shadow=shadow_prices(design, None, given, None),
    )
