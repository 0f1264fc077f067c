"""Bandwidths that a person would choose without an optimiser, to compare a result with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.design import best_schedules, time_design
from libra.result import Result
from libra.timing import critical_path
from libra.units import GB_PER_S

__all__ = ["Baseline", "result_baselines"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Baseline:
    """Bandwidths to compare with.

    Attributes
    ----------
    name : str
        How they were chosen.
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    step_time : float
        Weighted sum over the workloads, each collective as fast as it can be there [s].
    network_cost : float
        [USD]
    meets : bool
        Whether they meet the design's linear constraints, within 1e-9.
    """

    name: str
    bandwidth: Floats
    step_time: float
    network_cost: float
    meets: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data; bandwidths in GB/s."""
        return {
            "name": self.name,
            "bandwidth_GBps": (self.bandwidth / GB_PER_S).tolist(),
            "step_time_s": self.step_time,
            "network_cost_usd": self.network_cost,
            "meets": self.meets,
        }


def result_baselines(result: Result) -> tuple[Baseline, ...]:
    """The result's total shared equally, shared by traffic, and the design's own baseline.

    Parameters
    ----------
    result : Result

    Returns
    -------
    tuple of Baseline
        Those that differ from each other.

    Notes
    -----
    By traffic, B_d is proportional to the bytes that a step costs dimension d, of workloads
    weighted as in the objective: every dimension would then be busy equally long. Scenarios are
    left out, as in `libra.result.Result.speedup`; parts on offer are, too.
    """
    total, count = float(result.bandwidth.sum()), len(result.bandwidth)
    traffic: Floats = sum(
        w.weight * t.step_traffic
        for w, t in zip(result.design.workloads, result.timings, strict=False)
    ) + np.zeros(count)
    named: list[tuple[str, Floats]] = [("shared equally", np.full(count, total / count))]
    if traffic.any():
        named.append(("shared by traffic", total * traffic / traffic.sum()))
    if result.design.baseline is not None:
        named.insert(0, ("the design's baseline", np.array(result.design.baseline)))
    found: list[Baseline] = []
    for name, bandwidth in named:
        if not any(np.allclose(bandwidth, other.bandwidth, rtol=1e-9) for other in found):
            found.append(_baseline(result, name, bandwidth))
    return tuple(found)


def _baseline(result: Result, name: str, bandwidth: Floats) -> Baseline:
    nominal = replace(result.design, scenarios=())
    timings = time_design(nominal, best_schedules(nominal, bandwidth))
    time = sum(
        w.weight * critical_path(t, bandwidth).time
        for w, t in zip(nominal.workloads, timings, strict=True)
    )
    size = float(bandwidth.sum())
    meets = all(
        nominal.row_slack(row, bandwidth) >= -1e-9 * max(abs(row.bound), size)
        for row in nominal.rows
    )
    return Baseline(name, bandwidth, time, nominal.pricing.cost(bandwidth), meets)
