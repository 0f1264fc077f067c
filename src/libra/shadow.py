"""Shadow prices: what a constraint at a result is worth, and how much room it leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers
from libra.design import Design, Objective, Robustness
from libra.program import Rows
from libra.units import BANDWIDTH

__all__ = ["ShadowPrice", "limit_prices", "objective_unit", "shadow_prices"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ShadowPrice:
    """A constraint at the result.

    Attributes
    ----------
    constraint : str
        As written.
    slack : float
        Room left; negative: violated.
    slack_unit : str
        GB/s, USD, s, or x for a slowdown.
    value : float or None
        Change of the objective per unit by which the right side rises; None for an evaluation.
    unit : str
        Unit of the value.
    met : bool
        Whether it holds within 1e-9 of its size.
    """

    constraint: str
    slack: float
    slack_unit: str
    value: float | None
    unit: str
    met: bool


_OBJECTIVE_UNITS = {
    Objective.TIME: "s",
    Objective.TIME_COST: "s*USD",
    Objective.COST: "USD",
    Objective.WORST_TIME: "1",
}


def objective_unit(design: Design) -> str:
    """Unit of a design's objective."""
    regret = design.scenarios and design.robustness is Robustness.REGRET
    if regret and design.objective is Objective.TIME:
        return "1"
    return _OBJECTIVE_UNITS[design.objective]


_LOOSE = 1e-6
"""Slack from which on a row limits nothing: what multiplier a solver leaves it is noise."""


def shadow_prices(
    design: Design, bandwidth: Floats, rows: Rows | None, multipliers: Multipliers | None
) -> tuple[ShadowPrice, ...]:
    """Slack of each stated constraint, and the change of the objective per unit of its right side.

    A row's multiplier y is the rate at which the objective falls as the row's bound rises; the row
    is `factor` times the constraint, so the rate per unit of the right side is -y factor.
    """
    value_of: dict[int, float] = {}
    if rows is not None and multipliers is not None:
        value_of = {
            int(k): float(-y * f)
            for k, y, f in zip(rows.source, multipliers.rows, rows.factor, strict=True)
        }
    found, columns = [], design.pricing.split(bandwidth)
    for k, row in enumerate(design.stated_rows):
        name, unit = row.unit
        value, slack = value_of.get(k), design.row_slack(row, bandwidth)
        size = max(float(np.abs(row.coefficients) @ columns), abs(row.bound))
        if value is not None and slack > _LOOSE * size:
            value = 0.0
        per = f"({name})" if row.kind is BANDWIDTH else name
        found.append(
            ShadowPrice(
                row.text,
                slack / unit,
                name,
                None if value is None else value * unit,
                f"{objective_unit(design)}/{per}",
                slack >= -1e-9 * size,
            )
        )
    return tuple(found)


def limit_prices(
    design: Design, seconds: Floats, times: Floats, multipliers: Multipliers | None
) -> tuple[ShadowPrice, ...]:
    """Slack of each time limit, and the change of the objective per second or per unit of slowdown.

    Parameters
    ----------
    design : Design
    seconds : ndarray, shape (time limits,)
        The limits, scenario by scenario [s].
    times : ndarray, shape (jobs,)
        Step time of each workload, in each scenario [s].
    multipliers : Multipliers or None
        None: of an evaluation.
    """
    found, limits = [], design.job_limits
    for (at, limit), second in zip(limits, seconds.tolist(), strict=True):
        unit = second / limit.held if limit.relative else 1.0
        slack, value = second - float(times[at]), None
        if multipliers is not None:
            # Of several limits on one workload only the tightest has a price.
            tightest = all(
                second <= other
                for (job, _), other in zip(limits, seconds, strict=True)
                if job == at
            )
            value = -float(multipliers.limits[at]) * unit if tightest else 0.0
        per = "1" if limit.relative else "s"
        found.append(
            ShadowPrice(
                limit.text,
                slack / unit,
                "x" if limit.relative else "s",
                value,
                f"{objective_unit(design)}/{per}",
                slack >= -1e-9 * second,
            )
        )
    return tuple(found)
