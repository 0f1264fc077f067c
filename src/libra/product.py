"""Time x cost: the global optimum of a product by the convex trade-off of its factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers, shared_out, supporting_sum
from libra.design import Design
from libra.discrete import reach
from libra.errors import InputError, Problem, UnboundedError
from libra.feasibility import check_bounded
from libra.program import Goal, weighted
from libra.search import MOST_ROUNDS, Optimum, Search, first_guess, minimise, safe_scale

__all__ = ["minimise_product"]

Floats = NDArray[np.float64]

_PRODUCT_AIM = 5e-7


def minimise_product(design: Design, search: Search) -> Optimum:
    """Least ``T(B) (C0 + C(B))``, globally, by its convex trade-off curve.

    T*(c), the least time at network cost c, is convex. Minimising T + mu C for a multiplier mu
    gives a point of the curve and, by its proven bound phi, a line below it: T*(c) >= phi - mu c.
    Below the envelope of such lines the product (C0 + c) T is piecewise concave in c, so that its
    least value lies at a kink of the envelope or at an end, and bounds the optimum. The next mu is
    T / (C0 + c) at that kink, the slope at which a product has a stationary point.
    """
    program, fixed = search.program, design.mean_fixed_cost
    pricing = design.mean_pricing
    cost = pricing.price
    check_bounded(program, design.network, design.rows, cost)
    limits = search.limits
    cheapest = reach(search, Goal(cost, 0 * program.weights, limits, spend=1.0))
    search.scale = first_guess(program)
    least = max(cheapest.bound, 0.0)
    floor = _least_time(search, design)
    best = Optimum(search.scale, np.inf, -np.inf)
    if not np.isfinite(cheapest.value):
        return best
    if least + fixed <= 0:
        message = (
            "bandwidths that cost nothing meet the constraints, so time x cost has no optimum, got "
            "'time-cost'. Add a constraint that keeps some of what has a price, or the price of "
            "an NPU (prices: npu)."
        )
        raise InputError(Problem(message, "objective"))
    lines = [(floor, 0.0)]
    times = search.step_times(search.scale)[0]
    mu = weighted(program.weights, times) / (fixed + max(float(cost @ search.scale), least))
    tried: set[float] = set()
    while mu not in tried and search.rounds < MOST_ROUNDS:
        tried.add(mu)
        point = reach(search, Goal(mu * cost, program.weights, limits, spend=mu))
        if not (np.isfinite(point.value) and np.isfinite(point.bound)):
            break
        lines.append((point.bound, mu))
        spent = fixed + pricing.cost(program.join(point.bandwidth))
        value = (point.value - mu * (spent - fixed)) * spent
        if value < best.value:
            best = replace(best, bandwidth=point.bandwidth, value=value)
        bound, at, height = _product_bound(lines, fixed, least, best.value)
        if point.multipliers is not None:
            bound = max(bound, _scaling_bound(search, point.multipliers, cost, fixed, least))
        best = replace(best, bound=max(best.bound, bound))
        if best.gap <= _PRODUCT_AIM:
            break
        mu = _next_multiplier(lines, at, height, fixed, least)
    if search.parts is not None:
        return best
    return _with_product_multipliers(search, best, fixed, cost)


def _least_time(search: Search, design: Design) -> float:
    """Weighted step time at the largest bandwidths that the rows allow, which no cost beats [s].

    Raises
    ------
    UnboundedError
        If it is 0: then time x cost falls for ever as bandwidths grow.
    """
    program = search.program
    largest = np.minimum(program.rows.largest, 1e40)
    floor = weighted(program.weights, search.step_times(largest)[0])
    now = weighted(program.weights, search.step_times(search.scale)[0])
    if floor < 1e-18 * now:
        raise UnboundedError(
            "unbounded: the workloads compute nothing and nothing limits their bandwidths, so that "
            "time x cost falls for ever as they grow. Add a limit, e.g. 'total <= 1000 GB/s'."
        )
    return floor


def _scaling_bound(
    search: Search, multipliers: Multipliers, cost: Floats, fixed: float, least: float
) -> float:
    """Lower bound of the product from the cost alone, good where time falls as 1 / cost.

    From T >= a + sum_f A_f / (H_f . B) follows T*(c) >= a + K^2 / c with K = sum_f sqrt(A_f u_f)
    for u >= 0 with sum_f u_f H_f <= price (Cauchy-Schwarz), and (C0 + c) (a + K^2 / c) is convex.
    """
    cuts = search.cuts[: len(multipliers.cuts)]  # the search may have found more since
    a, load = supporting_sum(search.program, cuts, search.program.weights, multipliers)
    k = float(np.sqrt(load * shared_out(cost, search.program.terms.forms, load)).sum())
    c = max(least, k * np.sqrt(fixed / a)) if a > 0 and fixed > 0 else least
    return (fixed + c) * (a + k * k / c) if c > 0 else -np.inf


def _with_product_multipliers(search: Search, best: Optimum, fixed: float, cost: Floats) -> Optimum:
    """Optimum with the multipliers of the product.

    By the product rule they are C0 + C times those of T + mu C at mu = T / (C0 + C), of which the
    optimum of the product is an optimum, too.
    """
    if not np.isfinite(best.value):
        return best
    spent = fixed + float(cost @ best.bandwidth)
    search.scale = safe_scale(best.bandwidth)
    point = minimise(
        search, Goal(best.value / spent**2 * cost, search.program.weights, search.limits)
    )
    if point.multipliers is None:
        return best
    found = point.multipliers
    scaled = replace(found, rows=found.rows * spent, limits=found.limits * spent)
    return replace(best, multipliers=scaled)


def _product_bound(
    lines: list[tuple[float, float]], fixed: float, least: float, value: float
) -> tuple[float, float, float]:
    """Least product below the envelope of lines ``height - mu c``, for costs c from `least`.

    Returns the bound, and the cost and envelope height where it is attained. Costs so large that
    the flat line alone exceeds the known value need no look.
    """
    heights = np.array([line[0] for line in lines])
    slopes = np.array([line[1] for line in lines])
    i, j = np.triu_indices(len(lines), 1)
    crossing = slopes[i] != slopes[j]
    kinks = (heights[i] - heights[j])[crossing] / (slopes[i] - slopes[j])[crossing]
    costs = np.concatenate([[least], kinks[kinks > least]])
    if heights[0] > 0:
        costs = np.append(costs, max(value / heights[0] - fixed, least))
    envelope = (heights - np.outer(costs, slopes)).max(axis=1)
    products = (fixed + costs) * envelope
    k = int(products.argmin())
    return float(products[k]), float(costs[k]), float(envelope[k])


def _next_multiplier(
    lines: list[tuple[float, float]], at: float, height: float, fixed: float, least: float
) -> float:
    """Slope for the next line: that of a product at the kink, between those of its two lines."""
    active = [mu for h, mu in lines if abs(h - mu * at - height) <= 1e-9 * abs(height)]
    low, high = min(active), max(active)
    mu = height / (fixed + at)
    if at <= least and low == high:
        return max(mu, 8 * high)
    if low < mu < high:
        return mu
    return float(np.sqrt(max(low, high * 1e-3) * high)) if low < high else mu
