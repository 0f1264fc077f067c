"""Robust fits, and how far they are from what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Residuals", "fit_parameters", "residuals_of", "robust_least_squares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Residuals:
    """Relative errors (predicted - measured) / measured of a set.

    Attributes
    ----------
    count : int
        Measurements.
    median, mean, worst : float
        Of the absolute errors.
    bias : float
        Median of the signed errors.
    """

    count: int
    median: float
    mean: float
    worst: float
    bias: float

    def __str__(self) -> str:
        return (
            f"{self.count} measurements, error median {self.median:.1%}, mean {self.mean:.1%}, "
            f"worst {self.worst:.0%}, bias {self.bias:+.1%}"
        )


def residuals_of(predicted: ArrayLike, measured: ArrayLike) -> Residuals:
    """Residuals of predicted against measured times; at least one.

    Examples
    --------
    >>> print(residuals_of([1.1, 2.0, 3.0], [1.0, 2.0, 4.0]))
    3 measurements, error median 10.0%, mean 11.7%, worst 25%, bias +0.0%
    """
    error = np.asarray(predicted, dtype=float) / np.asarray(measured, dtype=float) - 1
    size = np.abs(error)
    return Residuals(
        len(error),
        float(np.median(size)),
        float(size.mean()),
        float(size.max()),
        float(np.median(error)),
    )


def robust_least_squares(matrix: Floats, target: Floats, *, scale: float = 0.02) -> Floats:
    """Solution of least absolute deviations, by iteratively reweighted least squares.

    Parameters
    ----------
    matrix : ndarray, shape (rows, unknowns)
    target : ndarray, shape (rows,)
    scale : float
        Deviations below it count as squares.

    Returns
    -------
    ndarray, shape (unknowns,)
        Where nothing else decides, the smallest (a ridge of 1e-9).
    """
    weight: Floats = np.ones(len(target))
    ridge = 1e-9 * np.eye(matrix.shape[1])
    result: Floats = np.zeros(matrix.shape[1])
    for _ in range(50):
        weighted = matrix * weight[:, None]
        solved = np.linalg.solve(matrix.T @ weighted + ridge, weighted.T @ target)
        result = np.asarray(solved, dtype=np.float64)
        weight = 1 / np.maximum(np.abs(matrix @ result - target), scale)
    return result


def fit_parameters(
    deviation: Callable[[Floats], Floats],
    start: Floats,
    *,
    scale: float = 0.02,
    rounds: int = 200,
    tolerance: float = 1e-10,
) -> Floats:
    """Parameters whose deviations have the least sum of absolute values.

    Damped Gauss-Newton steps on reweighted least squares, with derivatives by differences; a step
    that does not lower the sum is tried again with more damping.

    Parameters
    ----------
    deviation : callable
        Deviations, shape (rows,), of parameters, shape (unknowns,).
    start : ndarray, shape (unknowns,)
        Where to begin.
    scale : float
        Deviations below it count as squares.
    rounds : int
        Most steps.
    tolerance : float
        The fit ends when a step lowers the sum by less than that fraction of it.
    """

    def loss(d: Floats) -> float:
        size = np.abs(d)
        return float(np.where(size < scale, size**2 / (2 * scale), size - scale / 2).sum())

    x: Floats = np.asarray(start, dtype=float)
    here: Floats = deviation(x)
    damping = 1e-3
    for _ in range(rounds):
        slope = np.array(
            [(deviation(x + shift) - here) / 1e-5 for shift in 1e-5 * np.eye(len(x))]
        ).T
        weighted = slope / np.maximum(np.abs(here), scale)[:, None]
        normal = slope.T @ weighted
        normal += damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(len(x)))
        step: Floats = np.clip(np.linalg.solve(normal, -weighted.T @ here), -1, 1)
        there = deviation(x + step)
        if loss(there) < loss(here):
            done = loss(here) - loss(there) <= tolerance * loss(here)
            x, here = np.add(x, step), there
            damping = max(damping / 4, 1e-9)
            if done:
                break
        elif damping > 1e9:
            break
        else:
            damping *= 8
    return x
