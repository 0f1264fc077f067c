"""Frontiers: the least step time at each cost, or each power, of the network.

Every point is an optimum with its proven bound; all share one program, of which only the limit on
the cost or power changes, and one pool of cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.design import Design, Objective, best_schedules, time_design
from libra.discrete import reach
from libra.errors import FieldError, SolverError
from libra.feasibility import check_bounded
from libra.objectives import search_design
from libra.optimize import find_targets, optimize_design
from libra.parts import build_parts
from libra.program import Goal
from libra.units import GB_PER_S, MONEY, POWER

__all__ = ["Against", "FrontierPoint", "time_cost_frontier", "time_frontier"]

Floats = NDArray[np.float64]

_PROMISE = 1e-6
MOST_POINTS = 100_000
"""Points of a frontier: more have costs that differ by less than their optima are proven."""


class Against(StrEnum):
    """What a frontier sets step times against."""

    COST = "cost"
    POWER = "power"


@dataclass(frozen=True, eq=False)
class FrontierPoint:
    """The fastest network of a cost or power.

    Attributes
    ----------
    limit : float
        On the cost [USD] or power [W].
    network_cost : float
        What the bandwidths cost [USD].
    network_power : float or None
        What they draw [W]; None: not known.
    step_time, bound : float
        Weighted step time and its proven lower bound [s].
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    """

    limit: float
    network_cost: float
    network_power: float | None
    step_time: float
    bound: float
    bandwidth: Floats

    @property
    def gap(self) -> float:
        """(step_time - bound) / step_time."""
        return (self.step_time - self.bound) / self.step_time if self.step_time else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra frontier --json``."""
        return {
            "limit": self.limit,
            "network_cost_usd": self.network_cost,
            "network_power_w": self.network_power,
            "step_time_s": self.step_time,
            "bound_s": self.bound,
            "gap": self.gap,
            "bandwidth_GBps": (self.bandwidth / GB_PER_S).tolist(),
        }


def time_cost_frontier(design: Design, points: int = 20) -> tuple[FrontierPoint, ...]:
    """Least step time at evenly spaced costs, see `time_frontier`."""
    return time_frontier(design, points, Against.COST)


def time_frontier(
    design: Design, points: int = 20, against: Against = Against.COST
) -> tuple[FrontierPoint, ...]:
    """Least step time at evenly spaced costs or powers, from the least network to the fastest.

    Parameters
    ----------
    design : Design
        Its objective does not matter; its constraints and time limits hold at every point.
    points : int
        How many, 2 to 100,000. The least network that the constraints allow may never finish a
        step, so the first point lies one step of the grid above it. Of lanes and parts, limits
        that none of them meets with the others are left out, as are points that repeat.
    against : Against
        Cost or power.

    Returns
    -------
    tuple of FrontierPoint
        By rising limit. The last is the fastest network that the constraints allow.

    Raises
    ------
    FieldError
        For another number of points, power that is not known, or scenarios.
    InfeasibleError, UnboundedError, SolverError
        As `libra.optimize.optimize_design`.
    """
    _require_frontier(design, points, against)
    fastest = optimize_design(replace(design, objective=Objective.TIME))
    pricing = design.pricing
    price, most = pricing.price, fastest.network_cost
    kind = MONEY
    if against is Against.POWER:
        price, most, kind = pricing.power, fastest.network_power or 0.0, POWER
    ceiling = LinearConstraint(against.value, price, "<=", most, kind, multiple=1.0)
    targets = find_targets(design)
    rows = [*design.rows, *design.column_rows, ceiling]
    timings = time_design(design, best_schedules(design, fastest.bandwidth))
    search = search_design(design, targets, timings, rows)
    program, parts, weights = search.program, search.parts, search.program.weights
    check_bounded(program, design.network, design.rows, 0 * price)
    search.parts = None
    least = max(reach(search, Goal(price, 0 * weights, targets.limits)).bound, 0.0)
    row = int(np.flatnonzero(program.rows.source == len(rows) - 1)[0])
    goal = Goal(0 * price, weights, targets.limits)
    found: list[FrontierPoint] = []
    for k in range(points, 0, -1):
        limit = least + (most - least) * k / points
        bound = program.rows.bound.copy()
        bound[row] = limit * program.rows.factor[row]
        search.program = replace(program, rows=replace(program.rows, bound=bound))
        if parts is not None:
            limited = [*rows[:-1], replace(ceiling, bound=limit)]
            search.parts = build_parts(pricing, limited, search.program.rows)
        search.rounds = 0  # Each point has as many as a solve of its own.
        optimum = reach(search, goal)
        if parts is not None and not np.isfinite(optimum.value):
            break
        if optimum.gap > _PROMISE:
            raise SolverError(
                f"at a {against.value} of {limit:.6g} the gap is {optimum.gap:.1e}. Please report."
            )
        b = program.join(optimum.bandwidth)
        if found and parts is not None and np.array_equal(found[-1].bandwidth, b):
            found.pop()
        cost, watts = pricing.cost(b), pricing.network_power(b)
        found.append(FrontierPoint(limit, cost, watts, optimum.value, optimum.bound, b))
    return tuple(reversed(found))


def _require_frontier(design: Design, points: int, against: Against) -> None:
    if not 2 <= points <= MOST_POINTS:
        raise FieldError(
            "points",
            f"a frontier has from 2 to {MOST_POINTS:,} points, got {points:,}. Correct it.",
        )
    if against is Against.POWER and not design.pricing.knows_power:
        raise FieldError(
            "power", "nothing says what the network draws, got no power:. Add power: default."
        )
    pricing = design.pricing
    if not (pricing.price if against is Against.COST else pricing.power).any():
        name = "prices" if against is Against.COST else "power"
        raise FieldError(
            name,
            f"a frontier needs a {against.value} that varies, got figures that are all 0. Give "
            "what counts a figure.",
        )
    if design.scenarios:
        raise FieldError(
            "scenarios", "a frontier is that of one scenario, got several. Remove scenarios:."
        )
