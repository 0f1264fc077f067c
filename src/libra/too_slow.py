"""Why time limits cannot be met: the constraints that conflict, and the best possible.

The largest ratio of step time to limit is convex, and its least value says whether limits can hold
together with linear constraints: it is at most 1 if and only if they can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.discrete import reach
from libra.errors import Conflict, InfeasibleError
from libra.parts import build_parts
from libra.pricing import Pricing
from libra.program import Goal, Program, build_program
from libra.search import Search, first_guess
from libra.time_limits import TimeLimit
from libra.units import BANDWIDTH, format_time

__all__ = ["explain_too_slow"]

Floats = NDArray[np.float64]

_UNLIMITED = 1e6
"""Times the expected bandwidth that stand for as much as one likes."""
_ROOM = 1e-8
_ABOVE = 2e-6
"""Part by which a proposed limit is above the best possible, so that a solver finds its way."""


def explain_too_slow(
    program: Program,
    constraints: Sequence[LinearConstraint],
    limits: Sequence[TimeLimit],
    workloads: Sequence[str],
    seconds: Floats,
    pricing: Pricing,
) -> InfeasibleError | None:
    """Error that names a smallest conflict with time limits and one way out; None if there is none.

    Parameters
    ----------
    program : Program
        Of the workloads under the constraints, which can hold together.
    constraints : sequence of LinearConstraint
    limits : sequence of TimeLimit
    workloads : sequence of str
        Their names, in the order of the program.
    seconds : ndarray, shape (limits,)
        The limits in seconds.
    pricing : Pricing
        Which bandwidths can be had.
    """
    rows: list[LinearConstraint] = list(constraints)
    kept = list(range(len(limits)))

    def slowest(which: Sequence[int], under: Sequence[LinearConstraint]) -> float:
        return _least_ratio(
            program, under, [limits[k] for k in which], workloads, seconds[which], pricing
        )

    if slowest(kept, rows) <= 1 + _ROOM:
        return None
    for k in list(kept):
        rest = [other for other in kept if other != k]
        if rest and slowest(rest, rows) > 1 + _ROOM:
            kept = rest
    for row in list(rows):
        fewer = [other for other in rows if other is not row]
        if slowest(kept, fewer) > 1 + _ROOM:
            rows = fewer
    way_out = _way_out(limits[kept[0]], kept, slowest(kept, list(constraints)), seconds)
    conflict = [Conflict(limits[k].text, limits[k].line, limits[k].file) for k in kept]
    conflict += [Conflict(row.text, row.line, row.file) for row in rows]
    conflict[0] = Conflict(conflict[0].constraint, conflict[0].line, conflict[0].file, way_out)
    several = len(conflict) > 1
    few = "these constraints cannot hold together:" if several else "no network is this fast:"
    return InfeasibleError(f"infeasible: {few}", conflict)


def _way_out(first: TimeLimit, kept: Sequence[int], ratio: float, seconds: Floats) -> str:
    """Least that the limits must give way, all by the same factor."""
    if len(kept) > 1:
        return f"loosen these time limits by {ratio - 1:.3g} of each ({100 * (ratio - 1):.4g} %)."
    if first.relative:
        return f"write 'slowdown({first.workload}) <= {first.bound * ratio * (1 + _ABOVE):.9g}'."
    best = seconds[kept[0]] * ratio * (1 + _ABOVE)
    return (
        f"write 'time({first.workload}) <= {best * 1e3:.9g} ms' "
        f"(the best possible is {format_time(best)})."
    )


def _least_ratio(
    program: Program,
    constraints: Sequence[LinearConstraint],
    limits: Sequence[TimeLimit],
    workloads: Sequence[str],
    seconds: Floats,
    pricing: Pricing,
) -> float:
    """Least value of the largest ratio of step time to limit under constraints."""
    largest = _UNLIMITED * float(first_guess(program).max())
    ceilings = [
        LinearConstraint(f"dim{d + 1}", row, "<=", largest, BANDWIDTH)
        for d, row in enumerate(np.eye(program.columns))
    ]
    rows = [*constraints, *ceilings]
    capped = build_program(program.timings, program.weights, rows, program.owner)
    bounds = np.full(len(workloads), np.inf)
    for limit, second in zip(limits, seconds, strict=True):
        at = workloads.index(limit.workload)
        bounds[at] = min(bounds[at], second)
    free = np.zeros(len(workloads))
    ratios = np.diag(1 / bounds)[np.isfinite(bounds)]
    goal = Goal(np.zeros(program.columns), free, free + np.inf, ratios)
    parts = build_parts(pricing, rows, capped.rows)
    return reach(Search(capped, parts=parts), goal).value
