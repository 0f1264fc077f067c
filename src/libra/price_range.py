"""Ranges of prices within which an answer stays the best, or nearly so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.cost import PriceList, curve_steps, part_counts
from libra.design import Design, Objective
from libra.errors import FieldError
from libra.optimize import Memory, optimize_design
from libra.result import Result
from libra.units import MONEY

__all__ = ["PriceRange", "price_ranges"]

Floats = NDArray[np.float64]

FARTHEST = 100.0
"""Factor by which prices are followed up and down."""
_STEPS = 30
_EQUAL = 1e-5


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
        If the tolerance is negative or not finite, or the design has scenarios.
    """
    design = result.design
    if not 0 <= tolerance < np.inf:
        raise FieldError(
            "tolerance", f"must be finite and at least 0, got {tolerance!r}. Write e.g. 0.01."
        )
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
        if dimension.choices is not None and dimension.choices[0].price is not None:
            continue  # Its parts carry their own prices.
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
    """Factor farthest from 1 towards `way` at which the result stays good.

    The objective of given bandwidths is linear in a price's factor. Where others are better, the
    factor at which they draw level with the result is the next to try; from there on towards `way`
    they are better all along.
    """
    factor = _admitted(result, part, way)
    for _ in range(_STEPS):
        best = optimize_design(_repriced(result.design, part, factor), memory)
        mine, other = _line(result, part), _line(best, part, 1 / factor)
        margin = 1 + tolerance
        if sum(mine * [1, factor]) <= margin * (1 + _EQUAL) * sum(other * [1, factor]):
            return factor
        slope = mine[1] - margin * other[1]
        level = (margin * other[0] - mine[0]) / slope if slope else 1.0
        inside = min(1.0, factor) <= level <= max(1.0, factor)
        factor = level if inside and level != factor else float(np.sqrt(factor))
    return 1.0


def _admitted(result: Result, part: str, way: float) -> float:
    """Factor farthest from 1 towards `way` at which the result meets the constraints."""

    def meets(factor: float) -> bool:
        design = _repriced(result.design, part, factor)
        return all(
            design.row_slack(row, result.bandwidth) >= -1e-6 * abs(row.bound)
            for row in design.constraints
        )

    if meets(way):
        return way
    good, bad = 0.0, float(np.log(way))
    for _ in range(40):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if meets(float(np.exp(middle))) else (good, middle)
    return float(np.exp(good))


def _line(result: Result, part: str, unit: float = 1.0) -> Floats:
    """Constant and slope of a result's objective in a price's factor.

    `unit` is the factor 1 in terms of the result's own price.
    """
    if result.design.objective not in (Objective.COST, Objective.TIME_COST):
        return np.array([result.objective_value, 0.0])
    design, more = result.design, _repriced(result.design, part, 2.0)
    timed = result.design.objective is Objective.TIME_COST
    weight = result.step_time if timed else 1.0
    cost, dearer = (
        d.pricing.cost(result.bandwidth) + (d.fixed_cost if timed else 0.0) for d in (design, more)
    )
    share = dearer - cost
    return np.array([weight * (cost - share), weight * share * unit])


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
    other = replace(design, prices=moved)
    rows = tuple(
        replace(row, coefficients=row.multiple * other.pricing.price) if row.kind is MONEY else row
        for row in design.constraints
    )
    return replace(other, constraints=rows)
