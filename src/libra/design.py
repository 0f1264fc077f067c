"""The whole problem: network, workloads, prices, constraints and what to optimise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm, CollectiveModel
from libra.constraints import LinearConstraint, bound_constraints
from libra.cost import PriceList, bandwidth_prices
from libra.errors import FieldError
from libra.network import Network
from libra.pieces import Schedule, best_schedule
from libra.placement import Group
from libra.time_limits import TimeLimit
from libra.timing import StepTiming, build_timing
from libra.workload.graph import StepGraph
from libra.workload.schedule import TrainingLoop

__all__ = ["Design", "Objective", "Schedules", "Workload", "best_schedules", "time_design"]


class Objective(StrEnum):
    """What to make as small as possible."""

    TIME = "time"
    TIME_COST = "time-cost"
    COST = "cost"
    WORST_TIME = "worst-time"


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
    """

    name: str
    graph: StepGraph
    weight: float = 1.0
    groups: Mapping[str, Group] = field(default_factory=dict)
    source: str = ""
    npu_places: NDArray[np.int64] | None = None

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", Objective(self.objective))
        check_names([w.name for w in self.workloads])
        check_baseline(self.baseline, self.network)
        check_algorithm(self.collectives, self.network)
        check_shrinking(self.objective, self.fixed_cost, self.rows, self.time_limits)

    @cached_property
    def bandwidth_prices(self) -> NDArray[np.float64]:
        """Price of bandwidth in each dimension for the whole network [USD per byte/s]."""
        return bandwidth_prices(self.network, self.prices)

    @property
    def fixed_cost(self) -> float:
        """Cost that does not depend on bandwidths, C0: that of the NPUs [USD]."""
        return self.network.npus * self.prices.npu

    @cached_property
    def rows(self) -> tuple[LinearConstraint, ...]:
        """All constraints: those written, then the dimensions' own limits."""
        return self.constraints + bound_constraints(self.network)


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
) -> None:
    """Refuse ``time-cost`` and ``cost`` where zero bandwidth meets all constraints for nothing.

    Raises
    ------
    FieldError
        Names the objective.
    """
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
"""Schedule of each distinct collective of each workload."""


def time_design(design: Design, schedules: Schedules | None = None) -> tuple[StepTiming, ...]:
    """Time models of a design's workloads.

    Parameters
    ----------
    design : Design
    schedules : Schedules or None
        None: what no schedules that the collective model allows can beat.
    """
    return tuple(
        build_timing(w.graph, design.network, design.collectives, chosen)
        for w, chosen in zip(
            design.workloads, schedules or [None] * len(design.workloads), strict=True
        )
    )


def best_schedules(design: Design, bandwidth: NDArray[np.float64]) -> Schedules:
    """Schedules of those the collective model allows that are fastest at given bandwidths."""
    return tuple(
        tuple(
            best_schedule(c, design.network, design.collectives, bandwidth)
            for c in w.graph.collectives
        )
        for w in design.workloads
    )
