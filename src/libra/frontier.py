"""The time-cost frontier: the least step time at each cost of the network.

Every point is an optimum with its proven bound; all share one program, of which only the cost limit
changes, and one pool of cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.design import Design, Objective, best_schedules, time_design
from libra.errors import FieldError, SolverError
from libra.feasibility import check_bounded
from libra.optimize import find_targets, optimize_design
from libra.program import Goal, build_program
from libra.search import Search, minimise
from libra.units import GB_PER_S, MONEY

__all__ = ["FrontierPoint", "time_cost_frontier"]

Floats = NDArray[np.float64]

_PROMISE = 1e-6


@dataclass(frozen=True, eq=False)
class FrontierPoint:
    """The fastest network of a cost.

    Attributes
    ----------
    network_cost : float
        Limit on the cost, which the bandwidths use up [USD].
    step_time, bound : float
        Weighted step time and its proven lower bound [s].
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    """

    network_cost: float
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
            "network_cost_usd": self.network_cost,
            "step_time_s": self.step_time,
            "bound_s": self.bound,
            "gap": self.gap,
            "bandwidth_GBps": (self.bandwidth / GB_PER_S).tolist(),
        }


def time_cost_frontier(design: Design, points: int = 20) -> tuple[FrontierPoint, ...]:
    """Least step time at evenly spaced costs, from the cheapest network to the fastest.

    Parameters
    ----------
    design : Design
        Its objective does not matter; its constraints and time limits hold at every point.
    points : int
        How many, at least 2. The cheapest network that the constraints allow may never finish a
        step, so the first point lies one step of the grid above its cost.

    Returns
    -------
    tuple of FrontierPoint
        By rising cost. The last is the fastest network that the constraints allow.

    Raises
    ------
    FieldError
        For fewer than 2 points.
    InfeasibleError, UnboundedError, SolverError
        As `libra.optimize.optimize_design`.
    """
    if points < 2:
        raise FieldError("points", f"a frontier has at least 2 points, got {points}. Ask for more.")
    fastest = optimize_design(replace(design, objective=Objective.TIME))
    price = design.bandwidth_prices
    targets = find_targets(design)
    ceiling = LinearConstraint("cost", price, "<=", fastest.network_cost, MONEY, multiple=1.0)
    timings = time_design(design, best_schedules(design, fastest.bandwidth))
    weights = np.array([w.weight for w in design.workloads])
    rows = [*design.rows, *design.column_rows, ceiling]
    program = build_program(timings, weights, rows, design.pricing.owner)
    check_bounded(program, design.network, design.rows, 0 * price)
    search = Search(program, limits=targets.limits)
    cheapest = minimise(search, Goal(price, 0 * weights, targets.limits))
    least = max(cheapest.bound, 0.0)
    row = int(np.flatnonzero(program.rows.source == len(rows) - 1)[0])
    goal = Goal(0 * price, weights, targets.limits)
    found = []
    for k in range(points, 0, -1):
        cost = least + (fastest.network_cost - least) * k / points
        bound = program.rows.bound.copy()
        bound[row] = cost * program.rows.factor[row]
        search.program = replace(program, rows=replace(program.rows, bound=bound))
        optimum = minimise(search, goal)
        if optimum.gap > _PROMISE:
            raise SolverError(
                f"at a cost of {cost:.6g} USD the gap is {optimum.gap:.1e}. Please report it."
            )
        found.append(
            FrontierPoint(cost, optimum.value, optimum.bound, program.join(optimum.bandwidth))
        )
    return tuple(reversed(found))
