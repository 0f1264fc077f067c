"""Fit what matrix products reach of an accelerator's peak to measured times.

The factors e_c, m_half, n_half, k_half (and, if asked for, the kernel overhead t_0) of
`libra.workload.compute` are those with the least absolute deviations of the logarithm of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError
from libra.fitting import Residuals, fit_parameters, residuals_of
from libra.workload.compute import (
    Accelerator,
    KindEfficiency,
    Operator,
    OperatorKind,
    operator_times,
    tabulate_operators,
)

__all__ = ["FittedMatmul", "fit_matmul"]

Floats = NDArray[np.float64]

_START = (-0.3, 4.0, 4.0, 4.0, -14.0)
"""Logarithms of e_c, the halves and t_0 [s] to begin with."""

_NO_HALF, _NO_OVERHEAD = 1.0, 1e-8
"""A half below one row, or an overhead below 10 ns, cannot be told from none."""


@dataclass(frozen=True)
class FittedMatmul:
    """What matrix products reach.

    Attributes
    ----------
    efficiency : KindEfficiency
        Without a source.
    kernel_overhead : float
        [s]; the accelerator's own if it was not fitted.
    residuals : Residuals
        Of the times.
    """

    efficiency: KindEfficiency
    kernel_overhead: float
    residuals: Residuals


def fit_matmul(
    operators: Sequence[Operator],
    times: Sequence[float],
    accelerator: Accelerator,
    *,
    overhead: bool = False,
) -> FittedMatmul:
    """Fit the efficiency of matrix products.

    Parameters
    ----------
    operators : sequence of Operator
        Measured products, with m, n and k.
    times : sequence of float
        What they took [s].
    accelerator : Accelerator
        Its peaks, memory bandwidth and memory efficiency are kept.
    overhead : bool
        Fit the kernel overhead, too: only small products tell it from the halves.

    Raises
    ------
    FieldError
        ``operators``: fewer than two more than unknowns, or one that is no matrix product.
    """
    unknowns = 5 if overhead else 4
    if len(operators) < unknowns + 2:
        raise FieldError(
            "operators",
            f"{unknowns} unknowns need at least {unknowns + 2} measurements, got {len(operators)}. "
            "Add some.",
        )
    for operator in operators:
        if operator.kind is not OperatorKind.MATMUL or not operator.m * operator.n * operator.k:
            raise FieldError(
                "operators",
                f"must be matrix products with m, n and k, got {operator.kind.value} "
                f"{operator.m} x {operator.n} x {operator.k}. Leave it out.",
            )
    table, measured = tabulate_operators(operators), np.log(np.asarray(times, dtype=float))

    def described(x: Floats) -> Accelerator:
        compute, m, n, k = np.exp(np.clip(x[:4], -20, 20))
        own = accelerator.efficiency[OperatorKind.MATMUL]
        fitted = replace(own, compute=min(compute, 1.0), half_m=m, half_n=n, half_k=k, source="")
        start = float(np.exp(min(x[4], 20.0))) if overhead else accelerator.kernel_overhead
        efficiency = dict(accelerator.efficiency) | {OperatorKind.MATMUL: fitted}
        return replace(accelerator, efficiency=efficiency, kernel_overhead=start)

    x = fit_parameters(
        lambda x: np.log(operator_times(table, described(x))) - measured,
        np.array(_START[:unknowns]),
    )
    result = _rounded(described(x))
    return FittedMatmul(
        result.efficiency[OperatorKind.MATMUL],
        result.kernel_overhead,
        residuals_of(operator_times(table, result), np.exp(measured)),
    )


def _rounded(accelerator: Accelerator) -> Accelerator:
    """The same to the digits that mean something."""
    fitted = accelerator.efficiency[OperatorKind.MATMUL]

    def side(value: float) -> float:
        return float(f"{value:.3g}") if value >= _NO_HALF else 0.0

    fitted = replace(
        fitted,
        compute=float(f"{fitted.compute:.3g}"),
        half_m=side(fitted.half_m),
        half_n=side(fitted.half_n),
        half_k=side(fitted.half_k),
    )
    overhead = accelerator.kernel_overhead
    return replace(
        accelerator,
        efficiency=dict(accelerator.efficiency) | {OperatorKind.MATMUL: fitted},
        kernel_overhead=float(f"{overhead:.3g}") if overhead >= _NO_OVERHEAD else 0.0,
    )
