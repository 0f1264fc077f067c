"""Results: what the optimiser found, or what given bandwidths achieve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from libra.bill import BillItem, bill_of_materials
from libra.breakdown import Gain, WorkloadResult, bandwidth_gains, workload_result
from libra.certificate import Multipliers
from libra.design import Design, Objective, Schedules, best_schedules, time_design
from libra.program import Rows
from libra.timing import StepTiming, critical_path
from libra.units import BANDWIDTH, GB_PER_S

if TYPE_CHECKING:
    import polars

    from libra.simulate import Simulation

__all__ = [
    "Result",
    "ShadowPrice",
    "Solver",
    "limit_prices",
    "make_result",
    "shadow_prices",
]

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


@dataclass(frozen=True)
class Solver:
    """What the optimiser took: master problems solved, cuts found, seconds."""

    iterations: int
    cuts: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Result:
    """Bandwidths with what they achieve; printed, it is a table.

    Attributes
    ----------
    status : str
        ``optimal``, or ``evaluated`` for given bandwidths.
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    step_time : float
        Weighted sum over the workloads [s].
    bound_time : float or None
        Proven lower bound of the step time, for the objective ``time`` [s].
    network_cost : float
        Energy included where it has a price, NPUs not [USD].
    network_power : float or None
        [W]; None: the design has no power figures.
    objective_value, objective_bound : float
        In the objective's unit: s, s*USD, USD, or 1 for a slowdown. The bound is None for an
        evaluation.
    gap : float or None
        (value - bound) / value.
    schedule_bound : float or None
        Where schedules were chosen: what no schedules can beat, in the objective's unit.
    speedup : float
        Step time of the baseline over that of the result.
    baseline : ndarray, shape (dimensions,)
        What the speed-up compares with [bytes/s].
    workloads : tuple of WorkloadResult
    shadow_prices : tuple of ShadowPrice
        One a constraint.
    design : Design
        What was asked.
    solver : Solver or None
    schedules : Schedules
        How each distinct collective of each workload runs.
    slowdowns : tuple of float or None
        Step time of each workload over its own best under the linear constraints; None: not needed.
    timings : tuple of StepTiming
        Time models of the workloads with the schedules.
    continuous_objective : float or None
        Where bandwidths come in lanes or parts: the best objective if they did not, at prices that
        no parts undercut.
    simulations : tuple of Simulation or None
        Of each workload's step, where it was asked for, see `libra.evaluate.simulate_result`.
    """

    status: str
    bandwidth: Floats
    step_time: float
    network_cost: float
    network_power: float | None
    objective_value: float
    objective_bound: float | None
    gap: float | None
    schedule_bound: float | None
    speedup: float
    baseline: Floats
    workloads: tuple[WorkloadResult, ...]
    shadow_prices: tuple[ShadowPrice, ...]
    design: Design
    solver: Solver | None
    schedules: Schedules
    timings: tuple[StepTiming, ...] = field(repr=False)
    continuous_objective: float | None = None
    slowdowns: tuple[float, ...] | None = None
    simulations: tuple[Simulation, ...] | None = None

    @property
    def bound_time(self) -> float | None:
        """Proven lower bound of the step time [s]; None unless the objective is time."""
        return self.objective_bound if self.design.objective is Objective.TIME else None

    @property
    def energy_cost(self) -> float:
        """Part of the network's cost that pays for its energy [USD]."""
        return self.design.pricing.energy_per_watt * (self.network_power or 0.0)

    @cached_property
    def bill(self) -> tuple[BillItem, ...]:
        """Bill of materials of the network."""
        return bill_of_materials(self.design, self.bandwidth)

    @cached_property
    def gains(self) -> tuple[Gain, ...]:
        """What more bandwidth in each dimension alone would bring."""
        return bandwidth_gains(self.design, self.timings, self.bandwidth, self.step_time)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --json``."""
        solver = self.solver
        return {
            "status": self.status,
            "objective": self.design.objective.value,
            "network": self.design.network.shape,
            "dimensions": list(self.design.network.names),
            "bandwidth_GBps": [b / GB_PER_S for b in self.bandwidth.tolist()],
            "step_time_s": self.step_time,
            "bound_s": self.bound_time,
            "gap": self.gap,
            "schedule_bound": self.schedule_bound,
            "objective_value": self.objective_value,
            "objective_bound": self.objective_bound,
            "network_cost_usd": self.network_cost,
            "energy_cost_usd": self.energy_cost,
            "network_power_w": self.network_power,
            "continuous_objective": self.continuous_objective,
            "speedup_vs_baseline": self.speedup,
            "baseline_GBps": [b / GB_PER_S for b in self.baseline.tolist()],
            "workloads": self._workload_dicts(),
            "shadow_prices": [
                {
                    "constraint": p.constraint,
                    "slack": p.slack,
                    "slack_unit": p.slack_unit,
                    "value": p.value,
                    "unit": p.unit,
                    "met": p.met,
                }
                for p in self.shadow_prices
            ],
            "gains": [gain.to_dict() for gain in self.gains],
            "bill_of_materials": [item.to_dict() for item in self.bill],
            "solver": None
            if solver is None
            else {
                "iterations": solver.iterations,
                "cuts": solver.cuts,
                "seconds": solver.seconds,
            },
            "warnings": list(self.design.warnings),
        }

    def _workload_dicts(self) -> list[dict[str, Any]]:
        found = [w.to_dict() for w in self.workloads]
        for data, simulation in zip(found, self.simulations or (), strict=False):
            data["simulated_s"] = simulation.time
        for data, slowdown in zip(found, self.slowdowns or (), strict=False):
            data["slowdown"] = slowdown
        return found

    def to_json(self, *, with_design: bool = False) -> str:
        """One JSON object; `with_design` adds the design's settings and where they were read from.

        Infinite times (a used dimension without bandwidth) become null.
        """
        data = self.to_dict()
        if with_design:
            data["design"] = {"file": self.design.file, "settings": self.design.settings}
        return json.dumps(_finite(data), indent=1, ensure_ascii=False, allow_nan=False)

    def to_frame(self) -> polars.DataFrame:
        """One row a dimension: its bandwidth and each workload's busy time in it."""
        import polars

        columns: dict[str, Sequence[Any]] = {
            "dimension": list(self.design.network.names),
            "block": [f"{d.topology.code}({d.size})" for d in self.design.network.dimensions],
            "tier": [d.tier for d in self.design.network.dimensions],
            "bandwidth_GBps": (self.bandwidth / GB_PER_S).tolist(),
            "cost_usd": self.design.pricing.costs(self.bandwidth).tolist(),
        }
        for w in self.workloads:
            columns[f"busy_s {w.name}"] = list(w.busy)
        return polars.DataFrame(columns)

    def __str__(self) -> str:
        from libra.screen import render, result_table

        return render(result_table(self))

    def _repr_html_(self) -> str:
        html: str = self.to_frame()._repr_html_()
        return html


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


_OBJECTIVE_UNITS = {
    Objective.TIME: "s",
    Objective.TIME_COST: "s*USD",
    Objective.COST: "USD",
    Objective.WORST_TIME: "1",
}


_LOOSE = 1e-6
"""Slack from which on a row limits nothing: what multiplier a solver leaves it is noise."""


def shadow_prices(
    design: Design, bandwidth: Floats, rows: Rows | None, multipliers: Multipliers | None
) -> tuple[ShadowPrice, ...]:
    """Slack of each linear constraint, and the change of the objective per unit of its right side.

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
    for k, row in enumerate(design.rows):
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
                f"{_OBJECTIVE_UNITS[design.objective]}/{per}",
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
        The limits [s].
    times : ndarray, shape (workloads,)
        Step times [s].
    multipliers : Multipliers or None
        None: of an evaluation.
    """
    names = [w.name for w in design.workloads]
    found = []
    for limit, second in zip(design.time_limits, seconds.tolist(), strict=True):
        at = names.index(limit.workload)
        unit = second / limit.bound if limit.relative else 1.0
        slack, value = second - float(times[at]), None
        if multipliers is not None:
            # Of several limits on one workload only the tightest has a price.
            tightest = all(
                second <= other
                for x, other in zip(design.time_limits, seconds, strict=True)
                if x.workload == limit.workload
            )
            value = -float(multipliers.limits[at]) * unit if tightest else 0.0
        per = "1" if limit.relative else "s"
        found.append(
            ShadowPrice(
                limit.text,
                slack / unit,
                "x" if limit.relative else "s",
                value,
                f"{_OBJECTIVE_UNITS[design.objective]}/{per}",
                slack >= -1e-9 * second,
            )
        )
    return tuple(found)


def make_result(
    design: Design,
    schedules: Schedules,
    bandwidth: Floats,
    *,
    timings: Sequence[StepTiming] | None = None,
    status: str,
    objective: float | None = None,
    bound: float | None = None,
    schedule_bound: float | None = None,
    continuous: float | None = None,
    references: Floats | None = None,
    shadow: tuple[ShadowPrice, ...],
    solver: Solver | None = None,
) -> Result:
    """Result of a design at given bandwidths and schedules of its collectives.

    `timings` are those of the schedules, if they are known already.
    """
    if timings is None:
        timings = time_design(design, schedules)
    cost = design.pricing.cost(bandwidth)
    paths = [critical_path(timing, bandwidth) for timing in timings]
    step_time = sum(w.weight * p.time for w, p in zip(design.workloads, paths, strict=True))
    slowdowns = (
        None
        if references is None
        else tuple(p.time / float(r) for p, r in zip(paths, references, strict=True))
    )
    if objective is None:
        objective = _reached(design, step_time, cost, slowdowns)
    baseline = _baseline(design, bandwidth)
    others = best_schedules(design, baseline)
    at_baseline = timings if others == schedules else time_design(design, others)
    equal = _weighted_time(design, at_baseline, baseline)
    gap = None
    if bound is not None:
        gap = (objective - bound) / objective if objective > 0 else 0.0
    return Result(
        status=status,
        bandwidth=bandwidth,
        step_time=step_time,
        network_cost=cost,
        network_power=design.pricing.network_power(bandwidth),
        objective_value=objective,
        objective_bound=bound,
        gap=gap,
        schedules=schedules,
        timings=tuple(timings),
        continuous_objective=continuous,
        slowdowns=slowdowns,
        schedule_bound=schedule_bound,
        speedup=equal / step_time if step_time > 0 else 1.0,
        baseline=baseline,
        workloads=tuple(
            workload_result(w.name, timing, path, bandwidth, design.network.names, chosen)
            for w, timing, path, chosen in zip(
                design.workloads, timings, paths, schedules, strict=True
            )
        ),
        shadow_prices=shadow,
        design=design,
        solver=solver,
    )


def _baseline(design: Design, bandwidth: Floats) -> Floats:
    """Bandwidths that the speed-up is over: the design's own, or the total shared equally."""
    if design.baseline is None:
        return np.full(len(bandwidth), bandwidth.sum() / len(bandwidth))
    return np.array(design.baseline)


def _reached(
    design: Design, step_time: float, cost: float, slowdowns: tuple[float, ...] | None
) -> float:
    """Value of the design's objective; NaN if it needs slowdowns that are not known."""
    match design.objective:
        case Objective.TIME:
            return step_time
        case Objective.TIME_COST:
            return step_time * (design.fixed_cost + cost)
        case Objective.COST:
            return cost
        case Objective.WORST_TIME:
            return np.nan if slowdowns is None else max(slowdowns)


def _weighted_time(design: Design, timings: Sequence[StepTiming], bandwidth: Floats) -> float:
    return sum(
        w.weight * critical_path(timing, bandwidth).time
        for w, timing in zip(design.workloads, timings, strict=True)
    )
