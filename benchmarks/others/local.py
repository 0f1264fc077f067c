"""Local methods on the step time itself: they know a value and a subgradient, and prove nothing."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from others.step import Answer, Step

__all__ = ["descend", "descend_adam", "solve_slsqp"]

Floats = NDArray[np.float64]

STEPS = 10_000
_LEAST = 1e-6
"""Least share of the total, which keeps step times finite."""


class _Watch:
    """Best answer so far, and when the target was reached."""

    def __init__(self, step: Step, limit: float) -> None:
        self.step, self.limit = step, limit
        self.began = time.perf_counter()
        self.value, self.bandwidth = np.inf, step.equal
        self.reached: float | None = None

    def look(self, bandwidth: Floats, value: float) -> None:
        """Take note of bandwidths that meet the total."""
        if value < self.value:
            self.value, self.bandwidth = value, bandwidth
            if self.reached is None and value <= self.step.target:
                self.reached = time.perf_counter() - self.began

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() - self.began > self.limit

    def answer(self, remark: str = "") -> Answer:
        """What was found."""
        status = "time limit" if self.late else "solved"
        return Answer(status, self.bandwidth, reached=self.reached, remark=remark)


def solve_slsqp(step: Step, limit: float) -> Answer:
    """Sequential quadratic programming from equal shares."""
    from scipy.optimize import minimize

    watch, scale = _Watch(step, limit), step.value(step.equal)

    def value(share: Floats) -> tuple[float, Floats]:
        found, slope = step.slope(share * step.total)
        return found / scale, slope * (step.total / scale)

    def look(share: Floats) -> None:
        bandwidth = share * (step.total / share.sum())
        watch.look(bandwidth, step.value(bandwidth))
        if watch.late:
            raise StopIteration

    start = step.equal / step.total
    look(start)
    found = minimize(
        value,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(_LEAST, 1.0)] * len(start),
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like}],
        callback=look,
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return watch.answer("" if found.success else f"says: {found.message}")


def descend(step: Step, limit: float) -> Answer:
    """Subgradient descent with steps that shrink as 1 / sqrt(k), projected on the shares."""
    watch, share = _Watch(step, limit), step.equal / step.total
    for k in range(STEPS):
        bandwidth = share * step.total
        value, slope = step.slope(bandwidth)
        watch.look(bandwidth, value)
        if watch.late:
            break
        # Along the sum of the shares nothing can be gained.
        slope = slope - slope.mean()
        size = float(np.linalg.norm(slope)) or 1.0
        share = _on_simplex(share - slope * (0.1 / (size * np.sqrt(k + 1))))
    return watch.answer()


def _on_simplex(point: Floats) -> Floats:
    """Nearest shares of at least `_LEAST` that sum to 1 (Duchi et al., ICML 2008)."""
    free = 1 - _LEAST * len(point)
    moved = point - _LEAST
    down = np.sort(moved)[::-1]
    excess = np.cumsum(down) - free
    last = np.flatnonzero(down > excess / np.arange(1, len(point) + 1))[-1]
    nearest: Floats = np.maximum(moved - excess[last] / (last + 1), 0) + _LEAST
    return nearest


def descend_adam(step: Step, limit: float) -> Answer:
    """Adam (Kingma and Ba, ICLR 2015) on the logarithm of the objective, step size falling to 0."""
    watch, z = _Watch(step, limit), np.zeros(len(step.price))
    mean, square = np.zeros_like(z), np.zeros_like(z)
    for k in range(1, STEPS + 1):
        raw = np.exp(z - z.max())
        share = raw / raw.sum()
        bandwidth = share * step.total
        value, slope = step.slope(bandwidth)
        watch.look(bandwidth, value)
        if watch.late:
            break
        by_share = slope * (step.total / value)
        gradient = share * (by_share - float(share @ by_share))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        rate = 0.1 * (1 - k / (STEPS + 1))
        z = z - rate * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-12)
    return watch.answer()
