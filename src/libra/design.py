"""The whole problem: network, workloads, prices, constraints and what to optimise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm, CollectiveModel
from libra.constraints import LinearConstraint, bound_constraints
from libra.cost import PowerList, PriceList
from libra.errors import FieldError
from libra.network import Network
from libra.pieces import Schedule, best_schedule
from libra.placement import Group
from libra.pricing import Pricing, build_pricing, mix_pricings
from libra.time_limits import TimeLimit
from libra.timing import StepTiming, build_timing
from libra.units import BANDWIDTH, MONEY
from libra.workload.graph import StepGraph
from libra.workload.schedule import TrainingLoop

if TYPE_CHECKING:
    from libra.workload.data_parallel import DataParallelStep
    from libra.workload.transformer import TransformerStep

__all__ = [
    "Design",
    "Objective",
    "Robustness",
    "Scenario",
    "Schedules",
    "Workload",
    "best_schedules",
    "time_design",
]


class Objective(StrEnum):
    """What to make as small as possible."""

    TIME = "time"
    TIME_COST = "time-cost"
    COST = "cost"
    WORST_TIME = "worst-time"


class Robustness(StrEnum):
    """What to make small where a design has scenarios.

    ``EXPECTED``: the mean of the scenarios' step times, by their weights. ``WORST``: the largest.
    ``REGRET``: the largest ratio of a scenario's step time to the best it could have alone.
    """

    EXPECTED = "expected"
    WORST = "worst"
    REGRET = "regret"


@dataclass(frozen=True, eq=False)
class Scenario:
    """One way that things may turn out.

    Attributes
    ----------
    name : str
    share : float
        Its weight; those of all scenarios sum to 1.
    design : Design
        The design as it is then; the same dimensions, lanes and parts.
    """

    name: str
    share: float
    design: Design


@dataclass(frozen=True, eq=False)
class Workload:
    """One training job.

    Attributes
    ----------
    name : str
        Its name, different from the others'.
    graph : StepGraph
        Its training step on one NPU.
    weight : float
        Its share in the objective, sum_w weight_w T_w, from 1e-9 to 1e9.
    groups : mapping of str to Group
        Which NPUs each role (tp, dp, …) joins.
    source : str
        Where it was read from.
    npu_places : ndarray of int, shape (npus,), or None
        Which of the graph's places each NPU is, where that is known.
    step : TransformerStep or DataParallelStep or None
        What the graph was made of, where that is a model.
    """

    name: str
    graph: StepGraph
    weight: float = 1.0
    groups: Mapping[str, Group] = field(default_factory=dict)
    source: str = ""
    npu_places: NDArray[np.int64] | None = None
    step: TransformerStep | DataParallelStep | None = None

    def __post_init__(self) -> None:
        check_weight(self.weight)


@dataclass(frozen=True, eq=False)
class Design:
    """A complete optimisation problem.

    Attributes
    ----------
    network : Network
        Dimensions, innermost first.
    workloads : tuple of Workload
        At least one.
    prices : PriceList
        Prices by tier.
    constraints : tuple of LinearConstraint
        As written; the limits of the dimensions are added by `rows`.
    objective : Objective
        What to minimise.
    collectives : CollectiveModel
        How collectives are timed.
    training_loop : TrainingLoop
        How the workloads' phases were ordered.
    baseline : tuple of float or None
        Bandwidths that the speed-up compares with [bytes/s]; None: the same total, spread equally.
    time_limits : tuple of TimeLimit
        Largest step times and slowdowns allowed.
    file : str
        Where it was read from.
    settings : mapping
        The design file as plain data, overrides applied.
    warnings : tuple of str
        What a user should know before trusting a result.
    power : PowerList or None
        Power by tier; None: not known.
    scenarios : tuple of Scenario
        Ways that things may turn out; none: as the design says.
    robustness : Robustness
        What to make small over the scenarios.
    """

    network: Network
    workloads: tuple[Workload, ...]
    prices: PriceList
    constraints: tuple[LinearConstraint, ...] = ()
    objective: Objective = Objective.TIME
    collectives: CollectiveModel = field(default_factory=CollectiveModel)
    training_loop: TrainingLoop = field(default_factory=TrainingLoop)
    baseline: tuple[float, ...] | None = None
    time_limits: tuple[TimeLimit, ...] = ()
    file: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    power: PowerList | None = None
    scenarios: tuple[Scenario, ...] = ()
    robustness: Robustness = Robustness.EXPECTED

    def __post_init__(self) -> None:
        object.__setattr__(self, "robustness", Robustness(self.robustness))
        object.__setattr__(self, "objective", Objective(self.objective))
        check_names([w.name for w in self.workloads])
        check_baseline(self.baseline, self.network)
        check_algorithm(self.collectives, self.network)
        check_shrinking(self.objective, self.fixed_cost, self.rows, self.time_limits, self.discrete)

    @property
    def cases(self) -> tuple[tuple[float, Design], ...]:
        """Share and design of each scenario; the design itself if it has none."""
        if not self.scenarios:
            return ((1.0, self),)
        return tuple((s.share, s.design) for s in self.scenarios)

    @cached_property
    def pricing(self) -> Pricing:
        """Cost and power as functions of the bandwidths."""
        return build_pricing(self.network, self.prices, self.power)

    @property
    def bandwidth_prices(self) -> NDArray[np.float64]:
        """Price of bandwidth in each column of `pricing` for the whole network [USD per byte/s]."""
        return self.pricing.price

    @property
    def fixed_cost(self) -> float:
        """Cost that does not depend on bandwidths, C0: that of the NPUs and their energy [USD]."""
        return fixed_cost(self.network, self.prices, self.power)

    @property
    def mean_fixed_cost(self) -> float:
        """The same, the mean over scenarios [USD]."""
        return sum(share * case.fixed_cost for share, case in self.cases)

    @property
    def discrete(self) -> bool:
        """Whether some bandwidths come in parts or lanes."""
        return any(table is not None for table in self.pricing.tables)

    @cached_property
    def rows(self) -> tuple[LinearConstraint, ...]:
        """All constraints: those written, then the dimensions' own limits."""
        return self.constraints + bound_constraints(self.network, self.pricing.owner)

    @cached_property
    def column_rows(self) -> tuple[LinearConstraint, ...]:
        """How much the columns of `pricing` hold, and what the choices reach from and to."""
        return column_rows(self.network, self.pricing)

    @cached_property
    def all_rows(self) -> tuple[LinearConstraint, ...]:
        """Rows of a program: `stated_rows` and `column_rows`."""
        return (*self.stated_rows, *self.column_rows)

    @cached_property
    def stated_rows(self) -> tuple[LinearConstraint, ...]:
        """What users wrote: `rows`, and those of scenarios that differ from them."""
        if not self.scenarios:
            return self.rows
        seen = {_row_key(row, self.pricing) for row in self.rows}
        others = []
        for k, scenario in enumerate(self.scenarios):
            for row in scenario.design.rows:
                key = _row_key(row, scenario.design.pricing)
                if key not in seen:
                    seen.add(key)
                    others.append(replace(row, text=f"{scenario.name}: {row.text}", scenario=k))
        return (*self.rows, *others)

    @property
    def job_limits(self) -> tuple[tuple[int, TimeLimit], ...]:
        """Time limits with the job that each is on, by scenario; a job is a workload in one."""
        found: list[tuple[int, TimeLimit]] = []
        first = 0
        for k, (_, case) in enumerate(self.cases):
            names = [w.name for w in case.workloads]
            prefix = f"{self.scenarios[k].name}: " if self.scenarios else ""
            for limit in case.time_limits:
                job = first + names.index(limit.workload)
                found.append((job, replace(limit, text=prefix + limit.text)))
            first += len(names)
        return tuple(found)

    @cached_property
    def mean_pricing(self) -> Pricing:
        """Pricing of the design, or the mean of its scenarios'."""
        if not self.scenarios:
            return self.pricing
        return mix_pricings([(share, case.pricing) for share, case in self.cases])

    def row_slack(self, row: LinearConstraint, bandwidth: NDArray[np.float64]) -> float:
        """Room that a constraint leaves at given bandwidths [bytes/s, USD or W]."""
        pricing = self.row_pricing(row)
        if row.kind is BANDWIDTH:
            return row.slack(pricing.split(bandwidth))
        amounts = pricing.costs if row.kind is MONEY else pricing.powers
        return row.slack(bandwidth, float(amounts(bandwidth).sum()))

    def row_pricing(self, row: LinearConstraint) -> Pricing:
        """Pricing that a constraint counts: that of its scenario, or of the design itself."""
        return self.pricing if row.scenario is None else self.scenarios[row.scenario].design.pricing


def _row_key(row: LinearConstraint, pricing: Pricing) -> tuple[bytes, ...]:
    """What tells a row from others: what it says, and what choices count in it."""
    tables = [t for t in pricing.tables if t is not None and row.kind is not BANDWIDTH]
    amounts = [(t.cost if row.kind is MONEY else t.power).tobytes() for t in tables]
    says = f"{row.relation} {row.bound!r}".encode()
    return row.coefficients.tobytes(), says, *amounts


def fixed_cost(network: Network, prices: PriceList, power: PowerList | None) -> float:
    """Cost of the NPUs and of the energy they use, C0 [USD]."""
    energy = 0.0
    if prices.energy is not None and power is not None:
        energy = prices.energy.per_watt * power.npu
    return network.npus * (prices.npu + energy)


def column_rows(network: Network, pricing: Pricing) -> tuple[LinearConstraint, ...]:
    """Rows that keep columns within their widths and bandwidths between the extreme choices."""
    rows = []
    for k, (d, width) in enumerate(zip(pricing.owner.tolist(), pricing.width, strict=True)):
        if np.isfinite(width):
            relation = "==" if pricing.full[k] else "<="
            text = f"{network.names[d]}: step {k + 1} {relation} {width / 1e9:g} GB/s"
            one = np.eye(len(pricing.owner))[k]
            rows.append(LinearConstraint(text, one, relation, float(width), BANDWIDTH))
    for d, table in enumerate(pricing.tables):
        if table is not None and not table.own:
            mine = (pricing.owner == d).astype(np.float64)
            for relation, value in ((">=", table.bandwidth[0]), ("<=", table.bandwidth[-1])):
                end = "smallest" if relation == ">=" else "largest"
                text = f"{network.names[d]} {relation} {value / 1e9:g} GB/s, the {end} choice"
                rows.append(LinearConstraint(text, mine, relation, float(value), BANDWIDTH))
    return tuple(rows)


def check_weight(weight: float) -> None:
    """Refuse a weight that would drop a workload or drown the others.

    Raises
    ------
    FieldError
        Names the weight.
    """
    if not 1e-9 <= weight <= 1e9:
        raise FieldError(
            "weight",
            f"a weight must be finite and positive, from 1e-9 to 1e9, got {weight!r}. "
            "Correct it, or drop the workload.",
        )


def check_names(names: Sequence[str | None]) -> None:
    """Refuse a design without workloads, or two of one name; None: the name is not known.

    Raises
    ------
    FieldError
        Names the later one of two.
    """
    if not names:
        raise FieldError("workloads", "a design needs at least one workload, got none. Add one.")
    for k, name in enumerate(names):
        if name is not None and name in names[:k]:
            raise FieldError(
                ("workloads", k, "name"),
                f"two workloads have one name, got {name!r}. Give each its own name:.",
            )


def check_baseline(baseline: Sequence[float] | None, network: Network) -> None:
    """Refuse a baseline that has not one bandwidth for each dimension.

    Raises
    ------
    FieldError
        Names the baseline.
    """
    dimensions = len(network.dimensions)
    if baseline is not None and len(baseline) != dimensions:
        raise FieldError(
            "baseline",
            f"needs one bandwidth for each of the {dimensions} dimensions, got "
            f"{len(baseline)}. Or write equal.",
        )


def check_algorithm(model: CollectiveModel, network: Network) -> None:
    """Refuse algorithms that reorder the dimensions where a switch reduces.

    Raises
    ------
    FieldError
        Names the algorithm.
    """
    if model.algorithm is not Algorithm.MULTI_RAIL and any(
        d.in_network for d in network.dimensions
    ):
        raise FieldError(
            ("collectives", "algorithm"),
            f"{model.algorithm.value} collectives are not defined for switches that reduce, got "
            "in_network: true. Use multi-rail, or remove in_network.",
        )


def check_shrinking(
    objective: Objective,
    fixed_cost: float,
    rows: Sequence[LinearConstraint],
    time_limits: Sequence[TimeLimit],
    discrete: bool = False,
) -> None:
    """Refuse ``time-cost`` and ``cost`` where zero bandwidth meets all constraints for nothing.

    Raises
    ------
    FieldError
        Names the objective.
    """
    if objective not in (Objective.COST, Objective.TIME_COST):
        return
    if discrete:  # The smallest choice is more than nothing; `libra.product` sees to the rest.
        return
    free = not time_limits and all(row.slack(np.zeros_like(row.coefficients)) >= 0 for row in rows)
    if objective is Objective.COST and free:
        raise FieldError(
            "objective",
            "nothing keeps the network from costing nothing, got 'cost'. Add a time limit "
            "(time(gpt-3) <= 900 ms, slowdown(gpt-3) <= 1.1) or a least bandwidth "
            "(pod >= 10 GB/s).",
        )
    if objective is Objective.TIME_COST and free and fixed_cost == 0:
        raise FieldError(
            "objective",
            "nothing stops all bandwidths from shrinking together, where time x cost is least but "
            "training never ends, got 'time-cost'. Add a total (total == 1000 GB/s), a least "
            "bandwidth (pod >= 10 GB/s) or the price of an NPU (prices: npu).",
        )


Schedules = tuple[tuple[Schedule, ...], ...]
"""Schedule of each distinct collective of each workload, scenario by scenario."""


def time_design(design: Design, schedules: Schedules | None = None) -> tuple[StepTiming, ...]:
    """Time models of a design's workloads, in each of its scenarios if it has some.

    Parameters
    ----------
    design : Design
    schedules : Schedules or None
        None: what no schedules that the collective model allows can beat.
    """
    jobs = [(case, w) for _, case in design.cases for w in case.workloads]
    return tuple(
        build_timing(w.graph, case.network, case.collectives, chosen)
        for (case, w), chosen in zip(jobs, schedules or [None] * len(jobs), strict=True)
    )


def best_schedules(design: Design, bandwidth: NDArray[np.float64]) -> Schedules:
    """Schedules of those the collective model allows that are fastest at given bandwidths."""
    return tuple(
        tuple(
            best_schedule(c, case.network, case.collectives, bandwidth) for c in w.graph.collectives
        )
        for _, case in design.cases
        for w in case.workloads
    )
