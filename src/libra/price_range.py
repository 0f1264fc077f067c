"""Ranges of prices within which an answer stays the best, or nearly so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from libra.cost import PriceList, curve_steps, part_counts
from libra.design import Design, Objective
from libra.errors import FieldError, InfeasibleError
from libra.optimize import Memory, optimize_design
from libra.result import Result
from libra.units import MONEY

__all__ = ["PriceRange", "price_ranges"]

FARTHEST = 100.0
"""Factor by which prices are followed up and down."""
_STEPS = 14


@dataclass(frozen=True)
class PriceRange:
    """How far the price of a part may move before another answer is better.

    Attributes
    ----------
    part : str
        ``tier.part``, or ``npu``.
    price : float
        In the design [USD per byte/s, or USD]; of a curve its first step.
    low, high : float
        Factors of the price between which the answer stays; 0 and infinity: as far as it was
        followed (a hundredth, a hundred times).
    """

    part: str
    price: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --price-ranges --json``."""
        return {
            "part": self.part,
            "price": self.price if self.part == "npu" else self.price * 1e9,
            "unit": "USD" if self.part == "npu" else "USD/(GB/s)",
            "low_factor": self.low,
            "high_factor": None if np.isinf(self.high) else self.high,
        }


def price_ranges(result: Result, tolerance: float = 0.01) -> tuple[PriceRange, ...]:
    """How far each price may move, alone, while the result's bandwidths stay good.

    They stay good while they meet the constraints and their objective is at most `tolerance` of it
    above the best that other bandwidths could reach at the moved price; each candidate price is
    solved anew, with shared cuts. With tolerance 0 it is the range in which whole parts stay
    optimal; free bandwidths move with any price that counts.

    Parameters
    ----------
    result : Result
        Optimal.
    tolerance : float
        Relative, at least 0.

    Raises
    ------
    FieldError
        If the tolerance is negative or the design has scenarios.
    """
    design = result.design
    if not tolerance >= 0:
        raise FieldError("tolerance", f"must be at least 0, got {tolerance!r}. Write e.g. 0.01.")
    if design.scenarios:
        raise FieldError(
            "scenarios", "price ranges are those of one scenario, got several. Remove scenarios:."
        )
    memory = Memory()
    found = []
    for part, price in _parts(design):
        if not _counts(design):
            found.append(PriceRange(part, price, 0.0, np.inf))
            continue
        ends = [_farthest(result, part, way, tolerance, memory) for way in (1 / FARTHEST, FARTHEST)]
        low = 0.0 if ends[0] <= 1 / FARTHEST else ends[0]
        found.append(PriceRange(part, price, low, np.inf if ends[1] >= FARTHEST else ends[1]))
    return tuple(found)


def _parts(design: Design) -> Iterator[tuple[str, float]]:
    """Prices that the network is built from."""
    seen = set()
    for dimension in design.network.dimensions:
        for part in part_counts(dimension, design.prices.direct_links):
            curve = getattr(design.prices.tiers[dimension.tier], part)
            name = f"{dimension.tier}.{part}"
            if curve is not None and name not in seen and curve_steps(curve)[-1][1] > 0:
                seen.add(name)
                yield name, curve_steps(curve)[0][1]
    if design.prices.npu:
        yield "npu", design.prices.npu


def _counts(design: Design) -> bool:
    """Whether prices have a say."""
    costly = design.objective in (Objective.COST, Objective.TIME_COST)
    return costly or any(row.kind is MONEY for row in design.constraints)


def _farthest(result: Result, part: str, way: float, tolerance: float, memory: Memory) -> float:
    """Factor farthest from 1 towards `way` at which the result stays good, by bisection."""
    if _stays(result, part, way, tolerance, memory):
        return way
    good, bad = 0.0, float(np.log(way))
    for _ in range(_STEPS):
        middle = (good + bad) / 2
        if _stays(result, part, float(np.exp(middle)), tolerance, memory):
            good = middle
        else:
            bad = middle
    return float(np.exp(good))


def _stays(result: Result, part: str, factor: float, tolerance: float, memory: Memory) -> bool:
    design = _repriced(result.design, part, factor)
    b = result.bandwidth
    for row in design.constraints:
        if design.row_slack(row, b) < -1e-6 * abs(row.bound):
            return False
    cost = design.pricing.cost(b)
    value = {
        Objective.COST: cost,
        Objective.TIME_COST: result.step_time * (design.fixed_cost + cost),
    }.get(design.objective, result.objective_value)
    try:
        best = optimize_design(design, memory).objective_value
    except InfeasibleError:
        return False
    return value <= best * (1 + tolerance + 1e-5)


def _repriced(design: Design, part: str, factor: float) -> Design:
    """Design with one price multiplied, and the constraints on cost that follow from it."""
    prices = design.prices
    if part == "npu":
        moved: PriceList = replace(prices, npu=prices.npu * factor)
    else:
        tier, name = part.split(".")
        curve = getattr(prices.tiers[tier], name)
        new = (
            tuple((limit, rate * factor) for limit, rate in curve)
            if isinstance(curve, tuple)
            else curve * factor
        )
        tiers = dict(prices.tiers) | {tier: replace(prices.tiers[tier], **{name: new})}
        moved = replace(prices, tiers=tiers)
    other = replace(design, prices=moved, constraints=())
    rows = tuple(
        replace(row, coefficients=row.multiple * other.pricing.price) if row.kind is MONEY else row
        for row in design.constraints
    )
    return replace(other, constraints=rows)
