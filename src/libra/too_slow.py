"""Why time limits cannot be met: the constraints that conflict, and the best possible.

The largest ratio of step time to limit is convex, and its least value says whether limits can hold
together with linear constraints: it is at most 1 if and only if they can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.design import Design
from libra.discrete import reach
from libra.errors import Conflict, InfeasibleError
from libra.parts import build_parts
from libra.program import Goal, Program, build_program
from libra.search import Search, first_guess
from libra.time_limits import NEAREST, TimeLimit
from libra.units import BANDWIDTH, format_time

__all__ = ["ROOM", "explain_too_slow"]

Floats = NDArray[np.float64]

_UNLIMITED = 1e6
"""Times the expected bandwidth that stand for as much as one likes."""
ROOM = 1e-8
"""Part by which time limits are missed that cannot be held."""
_ABOVE = NEAREST
"""Part by which a proposed limit is above the best possible, so that a proof is found."""


def explain_too_slow(
    program: Program,
    constraints: Sequence[LinearConstraint],
    design: Design,
    seconds: Floats,
    room: float = ROOM,
) -> InfeasibleError | None:
    """Error that names a smallest conflict with time limits and one way out; None if there is none.

    Parameters
    ----------
    program : Program
        Of the workloads under the constraints, which can hold together.
    constraints : sequence of LinearConstraint
    design : Design
        Says which step times are limited, and which bandwidths can be had.
    seconds : ndarray, shape (limits,)
        The limits in seconds.
    room : float
        Part by which the best possible must miss them to say so; negative: limits so near to the
        best possible that nothing could be proved count as missed.
    """
    rows: list[LinearConstraint] = list(constraints)
    jobs, limits = zip(*design.job_limits, strict=True)
    kept = list(range(len(limits)))

    def slowest(which: Sequence[int], under: Sequence[LinearConstraint]) -> float:
        return _least_ratio(program, under, design, [jobs[k] for k in which], seconds[which])

    if slowest(kept, rows) <= 1 + room:
        return None
    for k in list(kept):
        rest = [other for other in kept if other != k]
        if rest and slowest(rest, rows) > 1 + room:
            kept = rest
    for row in list(rows):
        fewer = [other for other in rows if other is not row]
        if slowest(kept, fewer) > 1 + room:
            rows = fewer
    give_way = kept
    if len(kept) == 1:  # It gives way in all scenarios at once.
        written = limits[kept[0]].line, limits[kept[0]].workload, limits[kept[0]].bound
        give_way = [k for k, x in enumerate(limits) if (x.line, x.workload, x.bound) == written]
    ratio = slowest(give_way, list(constraints))
    way_out = _way_out([limits[k] for k in kept], seconds[kept[0]], ratio)
    conflict = [Conflict(limits[k].text, limits[k].line, limits[k].file) for k in kept]
    conflict += [Conflict(row.text, row.line, row.file) for row in rows]
    conflict[0] = Conflict(conflict[0].constraint, conflict[0].line, conflict[0].file, way_out)
    several = len(conflict) > 1
    if ratio <= 1:
        few = "these time limits leave too little room above the best possible for a proof:"
    else:
        few = "these constraints cannot hold together:" if several else "no network is this fast:"
    return InfeasibleError(f"infeasible: {few}", conflict)


def _way_out(kept: Sequence[TimeLimit], second: float, ratio: float) -> str:
    """Least that the limits, of which the first is `second`, must give way by one factor."""
    first, factor = kept[0], ratio * (1 + _ABOVE)
    if len(kept) > 1:
        return f"loosen these time limits by {factor - 1:.3g} of each ({100 * (factor - 1):.4g} %)."
    if first.relative:
        return f"write 'slowdown({first.workload}) <= {first.held * factor:.9g}'."
    best = second * factor
    return (
        f"write 'time({first.workload}) <= {best * 1e3:.9g} ms' "
        f"(the best possible is {format_time(best)})."
    )


def _least_ratio(
    program: Program,
    constraints: Sequence[LinearConstraint],
    design: Design,
    jobs: Sequence[int],
    seconds: Floats,
) -> float:
    """Least value of the largest ratio of a job's step time to its limit under constraints."""
    largest = _UNLIMITED * float(first_guess(program).max())
    ceilings = [
        LinearConstraint(f"dim{d + 1}", row, "<=", largest, BANDWIDTH)
        for d, row in enumerate(np.eye(program.columns))
    ]
    rows = [*constraints, *ceilings]
    capped = build_program(program.timings, program.weights, rows, program.owner)
    bounds = np.full(len(program.weights), np.inf)
    np.minimum.at(bounds, jobs, seconds)
    free = np.zeros(len(bounds))
    ratios = np.diag(1 / bounds)[np.isfinite(bounds)]
    goal = Goal(np.zeros(program.columns), free, free + np.inf, ratios)
    parts = build_parts(design.mean_pricing, rows, capped.rows, design.row_pricing)
    return reach(Search(capped, parts=parts), goal).value
