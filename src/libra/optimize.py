"""The optimiser: from a design to the best bandwidths and their proof."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from libra.design import Chunks, Design, Objective, best_chunks_at, time_design
from libra.errors import SolverError
from libra.feasibility import check_bounded, explain_infeasible, implied_equalities
from libra.product import minimise_product
from libra.program import build_program
from libra.result import Result, Solver, make_result, shadow_prices
from libra.search import Optimum, Search, minimise

__all__ = ["GAP", "optimize_design"]

GAP = 1e-6
"""Relative gap between objective and proven bound at which the optimiser stops."""

_MOST_TURNS = 12


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
    the network (and of the NPUs, where they have a price), see `libra.product`.

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
        bound=optimum.bound,
        chunk_bound=answer.chunk_bound,
        shadow=shadow_prices(
            design,
            search.program.rows,
            optimum.bandwidth,
            None if optimum.multipliers is None else optimum.multipliers.rows,
        ),
        solver=Solver(search.rounds, len(search.cuts), time.perf_counter() - start),
    )


@dataclass(frozen=True, eq=False)
class _Answer:
    """Optimum for given numbers of chunks (None: the model's), and the bound for any numbers."""

    optimum: Optimum
    search: Search
    chunks: Chunks | None
    chunk_bound: float | None = None


def _solve(design: Design, chunks: Chunks | None) -> _Answer:
    """Optimum of a design whose collectives have given numbers of chunks.

    Constraints that meet in a point or an edge leave the cone program no interior, which its
    solver needs. Where it fails, those that hold with equality anyway are found and it tries again.
    """
    weights = np.array([w.weight for w in design.workloads])
    timings = time_design(design, chunks)
    promise = _PROMISE[design.objective]
    search = Search(build_program(timings, weights, design.rows))
    optimum = _OBJECTIVES[design.objective](design, search)
    if optimum.gap > promise:
        used = search.program.used
        if error := explain_infeasible(design.rows, used):
            raise error
        rows, rounds = implied_equalities(design.rows, len(used)), search.rounds
        search = Search(build_program(timings, weights, rows), rounds=rounds)
        optimum = _OBJECTIVES[design.objective](design, search)
    if optimum.gap > promise:
        raise SolverError(
            f"stopped after {search.rounds} rounds at a relative gap of {optimum.gap:.1e}. "
            "Please report the design."
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


def minimise_time(design: Design, search: Search) -> Optimum:
    """Least weighted sum of step times."""
    free = np.zeros(search.program.dimensions)
    check_bounded(search.program, design.network, design.rows, free)
    return minimise(search, free, search.program.weights)


_OBJECTIVES: dict[Objective, Callable[[Design, Search], Optimum]] = {
    Objective.TIME: minimise_time,
    Objective.TIME_COST: minimise_product,
}
_PROMISE = {Objective.TIME: GAP, Objective.TIME_COST: 1e-5}
