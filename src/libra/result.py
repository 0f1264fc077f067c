"""Results: what the optimiser found, or what given bandwidths achieve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from libra.bill import BillItem, bill_of_materials
from libra.breakdown import Gain, WorkloadResult, bandwidth_gains, workload_result
from libra.design import Design, Objective, Schedules, best_schedules, time_design
from libra.robust import ScenarioResult
from libra.shadow import ShadowPrice
from libra.timing import Path, StepTiming, critical_path
from libra.units import GB_PER_S

if TYPE_CHECKING:
    import polars

    from libra.price_range import PriceRange
    from libra.simulate import Simulation

__all__ = [
    "Result",
    "Solver",
    "make_result",
]

Floats = NDArray[np.float64]


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
    paths : tuple of Path
        Critical path of each workload's step.
    continuous_objective : float or None
        Where bandwidths come in lanes or parts: the best objective if they did not, at prices that
        no parts undercut.
    scenarios : tuple of ScenarioResult
        What the bandwidths achieve in each scenario; empty: the design has none.
    simulations : tuple of Simulation or None
        Of each workload's step, where it was asked for, see `libra.evaluate.simulate_result`.
    price_ranges : tuple of PriceRange or None
        How far prices may move, where it was asked for, see `libra.price_range`.
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
    shadow_prices: tuple[ShadowPrice, ...]
    design: Design
    solver: Solver | None
    schedules: Schedules
    timings: tuple[StepTiming, ...] = field(repr=False)
    paths: tuple[Path, ...] = field(repr=False)
    continuous_objective: float | None = None
    slowdowns: tuple[float, ...] | None = None
    scenarios: tuple[ScenarioResult, ...] = ()
    simulations: tuple[Simulation, ...] | None = None
    price_ranges: tuple[PriceRange, ...] | None = None

    @property
    def bound_time(self) -> float | None:
        """Proven lower bound of the step time [s]; None unless the objective is time."""
        plain = self.design.objective is Objective.TIME and not self.design.scenarios
        return self.objective_bound if plain else None

    @cached_property
    def workloads(self) -> tuple[WorkloadResult, ...]:
        """Where the time of each workload's step goes."""
        return tuple(
            workload_result(w.name, timing, path, self.bandwidth, self.design, chosen)
            for w, timing, path, chosen in zip(
                self.design.workloads, self.timings, self.paths, self.schedules, strict=True
            )
        )

    @property
    def baseline(self) -> Floats:
        """Bandwidths that the speed-up is over: the design's own, or the total shared equally."""
        if self.design.baseline is not None:
            return np.array(self.design.baseline)
        count = len(self.bandwidth)
        return np.full(count, self.bandwidth.sum() / count)

    @cached_property
    def speedup(self) -> float:
        """Step time of the baseline, with schedules of its own, over that of the result."""
        if not self.step_time > 0:
            return 1.0
        nominal = replace(self.design, scenarios=()) if self.scenarios else self.design
        schedules = best_schedules(nominal, self.baseline)
        same = schedules == self.schedules
        timings = self.timings if same else time_design(nominal, schedules)
        return _weighted_time(nominal, timings, self.baseline) / self.step_time

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
            "scenarios": [s.to_dict() for s in self.scenarios],
            "price_ranges": None
            if self.price_ranges is None
            else [r.to_dict() for r in self.price_ranges],
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
        from libra.notebook import result_html

        return result_html(self)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


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
        paths=tuple(paths),
        continuous_objective=continuous,
        slowdowns=slowdowns,
        schedule_bound=schedule_bound,
        shadow_prices=shadow,
        design=design,
        solver=solver,
    )


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
