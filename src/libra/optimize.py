"""The optimiser: cutting planes over critical paths, objectives, and the proof of the optimum.

Each round solves the master problem of `libra.master` (a lower bound), times the workloads at its
bandwidths (an upper bound and, from each critical path, a new cut), and stops when the two meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libra.design import Chunks, Design, Objective, best_chunks_at, time_design
from libra.errors import SolverError
from libra.feasibility import check_bounded, explain_infeasible
from libra.master import solve_master
from libra.polish import polish
from libra.program import Cut, Program, build_program
from libra.result import Result, Solver, make_result, shadow_prices
from libra.timing import critical_path

__all__ = ["GAP", "optimize_design"]

Floats = NDArray[np.float64]

GAP = 1e-6
"""Relative gap between objective and proven bound at which the optimiser stops."""

_AIM = 1e-7
_MOST_ROUNDS = 200
_MOST_TURNS = 12


@dataclass
class _Search:
    """State of one optimisation: the pool of cuts, which holds for any constraint and objective."""

    program: Program
    cuts: list[Cut] = field(default_factory=list)
    known: set[tuple[int, float, bytes]] = field(default_factory=set)
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0

    def step_times(self, bandwidth: Floats) -> tuple[Floats, bool]:
        """Step time of each workload [s] and whether a new cut was found."""
        times, new = [], False
        for w, timing in enumerate(self.program.timings):
            path = critical_path(timing, bandwidth)
            times.append(path.time)
            key = (w, path.fixed, path.counts.tobytes())
            if key not in self.known:
                self.known.add(key)
                self.cuts.append(Cut(w, path.fixed, path.counts))
                new = True
        return np.array(times), new


@dataclass(frozen=True, eq=False)
class _Optimum:
    """Least value of ``weights . T(B) + price . B`` that was found, and its proven bound."""

    bandwidth: Floats
    value: float
    bound: float
    multipliers: Floats


def optimize_design(design: Design) -> Result:
    """Find the bandwidths that minimise a design's objective, with proof.

    Parameters
    ----------
    design : Design
        The problem.

    Returns
    -------
    Result
        With ``status`` ``optimal`` and a relative gap of at most `GAP` (time) or 1e-5 (time-cost).

    Raises
    ------
    InfeasibleError
        If no bandwidths meet the constraints; names a smallest conflicting set.
    UnboundedError
        If nothing limits a bandwidth that the workloads use.
    SolverError
        If the gap was not reached.

    Notes
    -----
    ``time`` minimises the weighted sum of step times. ``time-cost`` minimises it times the cost of
    the network (and of the NPUs, where they have a price), see `_minimise_product`.

    Where latency makes the number of chunks matter and the design leaves it open, see
    `_settle_chunks`; bound and gap are then those for the numbers chosen, and `Result.chunk_bound`
    is what no numbers can beat.
    """
    start = time.perf_counter()
    answer = _solve(design, None)
    if any(
        n is not None for part in best_chunks_at(design, answer.optimum.bandwidth) for n in part
    ):
        answer = _settle_chunks(design, answer)
    optimum, search = answer.optimum, answer.search
    return make_result(
        design,
        answer.chunks,
        optimum.bandwidth,
        status="optimal",
        objective=optimum.value,
        bound=min(optimum.bound, optimum.value),
        chunk_bound=answer.chunk_bound,
        shadow=shadow_prices(design, search.program.rows, optimum.bandwidth, optimum.multipliers),
        solver=Solver(search.rounds, len(search.cuts), time.perf_counter() - start),
    )


@dataclass(frozen=True, eq=False)
class _Answer:
    """Optimum for given numbers of chunks (None: the model's), and the bound for any numbers."""

    optimum: _Optimum
    search: _Search
    chunks: Chunks | None
    chunk_bound: float | None = None


def _solve(design: Design, chunks: Chunks | None) -> _Answer:
    """Optimum of a design whose collectives have given numbers of chunks."""
    weights = np.array([w.weight for w in design.workloads])
    program = build_program(time_design(design, chunks), weights, design.rows)
    search = _Search(program)
    search.scale = _first_guess(program)
    search.step_times(search.scale)
    optimum = _OBJECTIVES[design.objective](design, search)
    if not np.isfinite(optimum.value):
        raise explain_infeasible(design.rows, program.used) or SolverError(
            "the solver found no bandwidths although the constraints allow some. Please report it."
        )
    if optimum.value - optimum.bound > _PROMISE[design.objective] * abs(optimum.value):
        raise SolverError(
            f"stopped after {search.rounds} rounds at a relative gap of "
            f"{(optimum.value - optimum.bound) / abs(optimum.value):.1e}. Please report the design."
        )
    return _Answer(optimum, search, chunks)


def _settle_chunks(design: Design, relaxed: _Answer) -> _Answer:
    """Best numbers of chunks together with the bandwidths, by turns.

    The step time is not convex in both. The answer without chunk fill, in which every collective
    takes its latency once, bounds all of them; from its bandwidths on, the numbers that are best at
    the last bandwidths and the bandwidths that are best for those numbers follow each other until
    the numbers repeat. The best answer met is kept.
    """
    best: _Answer | None = None
    seen: set[Chunks] = set()
    chunks = best_chunks_at(design, relaxed.optimum.bandwidth)
    while chunks not in seen and len(seen) < _MOST_TURNS:
        seen.add(chunks)
        answer = _solve(design, chunks)
        answer.search.rounds += relaxed.search.rounds if best is None else best.search.rounds
        if best is None or answer.optimum.value < best.optimum.value:
            best = replace(answer, chunk_bound=relaxed.optimum.bound)
        chunks = best_chunks_at(design, answer.optimum.bandwidth)
    assert best is not None
    return best


def _first_guess(program: Program) -> Floats:
    """Bandwidths of the right order of magnitude, to scale the first master problem by."""
    rows = program.rows
    size = np.abs(rows.matrix)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(
            (size > 0) & (rows.bound != 0)[:, None], np.abs(rows.bound)[:, None] / size, np.inf
        )
    guess = each.min(axis=0, initial=np.inf)
    known = guess[np.isfinite(guess)]
    guess[~np.isfinite(guess)] = np.median(known) if len(known) else 1e11
    result: Floats = guess / program.dimensions
    return result


def _minimise(search: _Search, price: Floats, weights: Floats, aim: float = _AIM) -> _Optimum:
    """Minimise ``weights . T(B) + price . B`` under the rows."""
    program = search.program
    best = _Optimum(search.scale, np.inf, -np.inf, np.zeros(len(program.rows.bound)))
    stalled = 0
    for _ in range(_MOST_ROUNDS):
        search.rounds += 1
        master = solve_master(program, search.cuts, price, weights, search.scale)
        bound, value, bandwidth, new = max(best.bound, master.bound), np.inf, best.bandwidth, False
        multipliers = master.multipliers if master.bound >= best.bound else best.multipliers
        if np.isfinite(master.bandwidth).all():
            size = max(abs(master.bound), np.finfo(float).tiny)
            bandwidth = polish(program.rows, master.bandwidth, master.multipliers / size)
            times, new = search.step_times(bandwidth)
            with np.errstate(invalid="ignore"):
                value = float(price @ bandwidth + np.where(weights > 0, weights * times, 0.0).sum())
        progress = value < best.value * (1 - 1e-12) or bound > best.bound + 1e-12 * abs(bound)
        if value > best.value:
            bandwidth, value = best.bandwidth, best.value
        best = _Optimum(bandwidth, value, bound, multipliers)
        if value - bound <= aim * abs(value):
            break
        stalled = 0 if progress or new else stalled + 1
        if stalled >= 3:
            break
        if np.isfinite(master.bandwidth).all():
            search.scale = _safe_scale(master.bandwidth)
    return best


def _safe_scale(bandwidth: Floats) -> Floats:
    """Scale for the next master problem: bandwidths kept away from 0."""
    return np.maximum(bandwidth, 1e-7 * max(float(bandwidth.max()), 1.0))


def _minimise_time(design: Design, search: _Search) -> _Optimum:
    """Least weighted sum of step times."""
    free = np.zeros(search.program.dimensions)
    check_bounded(search.program, design.network, design.rows, free)
    return _minimise(search, free, search.program.weights)


_PRODUCT_AIM = 5e-7


def _minimise_product(design: Design, search: _Search) -> _Optimum:
    """Least ``T(B) (C0 + C(B))``, globally, by its convex trade-off curve.

    T*(c), the least time at network cost c, is convex. Minimising T + mu C for a multiplier mu
    gives a point of the curve and, by its proven bound phi, a line below it: T*(c) >= phi - mu c.
    Below the envelope of such lines the product (C0 + c) T is piecewise concave in c, so that its
    least value lies at a kink of the envelope or at an end, and bounds the optimum. The next mu is
    T / (C0 + c) at that kink, the slope at which a product has a stationary point.
    """
    program, fixed = search.program, design.fixed_cost
    cost = design.bandwidth_prices
    cheapest = _minimise(search, cost, np.zeros(len(program.weights)))
    least_cost = max(cheapest.bound, 0.0)
    if least_cost + fixed <= 0:
        raise SolverError(
            "the network can cost nothing, so time x cost has no optimum. Add a constraint that "
            "keeps a bandwidth with a price above 0, or the price of an NPU (prices: npu)."
        )
    search.scale = _first_guess(program)
    floor = _minimise_unlimited(search)
    lines = [(floor, 0.0)]
    best = _Optimum(search.scale, np.inf, -np.inf, np.zeros(len(program.rows.bound)))
    times = search.step_times(search.scale)[0]
    mu = float(program.weights @ times) / (fixed + max(float(cost @ search.scale), least_cost))
    tried: set[float] = set()
    for _ in range(_MOST_ROUNDS):
        tried.add(mu)
        point = _minimise(search, mu * cost, program.weights)
        spent = fixed + float(cost @ point.bandwidth)
        value = (point.value - mu * (spent - fixed)) * spent
        lines.append((point.bound, mu))
        if value < best.value:
            best = _Optimum(point.bandwidth, value, best.bound, point.multipliers * spent)
        bound, at, height = _product_bound(lines, fixed, least_cost, best.value)
        best = _Optimum(best.bandwidth, best.value, bound, best.multipliers)
        if best.value - bound <= _PRODUCT_AIM * best.value:
            break
        mu = _next_multiplier(lines, at, height, fixed, least_cost)
        if mu in tried:
            break
    return best


def _minimise_unlimited(search: _Search) -> float:
    """Weighted step time when bandwidth is unlimited [s]: what no cost can go below."""
    unlimited = np.full(search.program.dimensions, 1e40)
    return float(search.program.weights @ search.step_times(unlimited)[0])


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


_OBJECTIVES: dict[Objective, Callable[[Design, _Search], _Optimum]] = {
    Objective.TIME: _minimise_time,
    Objective.TIME_COST: _minimise_product,
}
_PROMISE = {Objective.TIME: GAP, Objective.TIME_COST: 1e-5}
