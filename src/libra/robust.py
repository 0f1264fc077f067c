"""What robust bandwidths achieve in each scenario, beside those of the nominal design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.design import Design, Objective, Robustness, best_schedules, time_design
from libra.timing import critical_path

__all__ = ["ScenarioResult", "robust_value", "scenario_results"]

Floats = NDArray[np.float64]

_ALLOWANCE = 1e-6
"""Part of a limit by which bandwidths on it may seem to be over it."""


@dataclass(frozen=True)
class ScenarioResult:
    """One scenario at a result's bandwidths.

    Attributes
    ----------
    name : str
    share : float
        Its weight, of a sum of 1.
    step_time : float
        Weighted step time [s].
    best : float or None
        Least that it could have alone under the linear constraints [s]; None: there is no least,
        since they limit no bandwidth.
    nominal : float
        Step time at the bandwidths that are best for the design without scenarios [s].
    nominal_allowed : bool
        Whether those bandwidths meet the scenario's linear constraints.
    """

    name: str
    share: float
    step_time: float
    best: float | None
    nominal: float
    nominal_allowed: bool = True

    @property
    def regret(self) -> float | None:
        """Step time over the best it could have; None where there is no best."""
        return None if self.best is None else self.step_time / self.best if self.best else 1.0

    @property
    def nominal_regret(self) -> float | None:
        """The same of the nominal bandwidths."""
        return None if self.best is None else self.nominal / self.best if self.best else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --json``."""
        return {
            "name": self.name,
            "share": self.share,
            "step_time_s": self.step_time,
            "best_s": self.best,
            "regret": self.regret,
            "nominal_step_time_s": self.nominal,
            "nominal_regret": self.nominal_regret,
            "nominal_allowed": self.nominal_allowed,
        }


def robust_value(design: Design, results: Sequence[ScenarioResult], cost: float) -> float:
    """Objective of a design with scenarios, from what they take and the mean cost [USD]."""
    expected = sum(r.share * r.step_time for r in results)
    if design.objective is Objective.COST:
        return cost
    if design.objective is Objective.TIME_COST:
        return expected * (design.mean_fixed_cost + cost)
    match design.robustness:
        case Robustness.WORST:
            return max(r.step_time for r in results)
        case Robustness.REGRET:
            return max(r.regret for r in results if r.regret is not None)
        case Robustness.EXPECTED:
            return expected


def scenario_results(
    design: Design, times: Floats, best: Floats, nominal: Floats
) -> tuple[ScenarioResult, ...]:
    """What a design's scenarios take.

    Parameters
    ----------
    design : Design
    times : ndarray, shape (jobs,)
        Step time of each workload in each scenario at the robust bandwidths [s].
    best : ndarray, shape (scenarios,)
        Each scenario's own best weighted step time [s]; NaN: there is none.
    nominal : ndarray, shape (dimensions,)
        Best bandwidths of the design without scenarios [bytes/s].
    """
    others = [
        critical_path(timing, nominal).time
        for timing in time_design(design, best_schedules(design, nominal))
    ]
    found, at = [], 0
    for scenario, least in zip(design.scenarios, best.tolist(), strict=True):
        weights = [w.weight for w in scenario.design.workloads]
        span = slice(at, at + len(weights))
        here, there = (
            sum(k * float(t) for k, t in zip(weights, part[span], strict=True))
            for part in (times, others)
        )
        known = None if np.isnan(least) else least
        allowed = all(
            scenario.design.row_slack(row, nominal) >= -_ALLOWANCE * abs(row.bound)
            for row in scenario.design.rows
        )
        found.append(ScenarioResult(scenario.name, scenario.share, here, known, there, allowed))
        at += len(weights)
    return tuple(found)
