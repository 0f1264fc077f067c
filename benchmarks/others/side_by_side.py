"""One problem by every way: rows, each checked against libra's proven bound."""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from others.problems import METHODS, Method, Problem
from registry.frozen import changed
from registry.measure import peak_memory, run_child
from registry.record import SideRow, row_of
from registry.tables import time_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from others.step import Answer, Step

__all__ = ["judged", "measure_problem", "side_heading", "side_line", "solve_here"]

LIBRA = METHODS[0].name
CLOSE = 1e-4
"""Relative distance to libra's optimum at which a way has arrived."""
ROUNDING = 1e-9
"""Part of a bound by which a feasible answer may be below it: rounding."""
TRUST = 1e-5
"""Part of an optimum by which a bound of another solver may be above it: its tolerances."""
_GRACE = 45.0
_SHORT = 2.0
_REPEATS = 5


def measure_problem(problem: Problem, limit: float, *, here: bool = False) -> Iterator[SideRow]:
    """Solve a problem by libra, then by every other way, each in a process of its own.

    Parameters
    ----------
    problem : Problem
    limit : float
        Time for each [s].
    here : bool
        In this process, once.
    """
    libra: SideRow | None = None
    for method in METHODS:
        row = _row(problem, method)
        if row.status != "skipped":
            target = None if libra is None or libra.value is None else libra.value * (1 + CLOSE)
            row = _attempt(problem, method, row, limit, target, here=here)
        if method.name == LIBRA:
            libra = row
        assert libra is not None
        yield judged(row, libra)


def _row(problem: Problem, method: Method) -> SideRow:
    """Row before it is known what a way makes of a problem; it may not be one, or not be here."""
    reason = method.why_not(problem)
    package = method.package
    if not reason and package and importlib.util.find_spec(package) is None:
        reason = f"{package} is not installed: pip install -e '.[bench]'"
    status = "skipped" if reason else "failed"
    return SideRow(problem.name, problem.kind, problem.objective, method.name, status, reason)


def _attempt(
    problem: Problem,
    method: Method,
    row: SideRow,
    limit: float,
    target: float | None,
    *,
    here: bool,
) -> SideRow:
    if here:
        return solve_here(problem, method, limit, target, 1)
    words = ["--problem", problem.name, "--method", method.name, "--limit", str(limit)]
    words += ["--repeats", str(_REPEATS)]
    words += [] if target is None else ["--target", repr(target)]
    found, error = run_child(words, limit + _GRACE)
    if error:
        late = error.startswith("no answer within")
        return replace(row, status="time limit" if late else "failed", reason=error)
    return row_of(SideRow, found)


def solve_here(
    problem: Problem, method: Method, limit: float, target: float | None, repeats: int
) -> SideRow:
    """Solve a problem in this process.

    What took less than a few seconds is repeated, and the least time counts: the first includes
    loading of modules, and any may include what others do on the machine.
    """
    from others.step import load_step

    step = load_step(problem, target)
    row = SideRow(problem.name, problem.kind, problem.objective, method.name, "failed")
    if wrong := changed(problem.input, step.fingerprint):
        return replace(row, reason=wrong)
    seconds: list[float] = []
    reached: list[float] = []
    try:
        module = importlib.import_module(method.module)
        solve: Callable[[Step, float], Answer] = getattr(module, method.function)
        while len(seconds) < repeats and (not seconds or seconds[0] < _SHORT):
            start = time.perf_counter()
            answer = solve(step, limit)
            seconds.append(time.perf_counter() - start)
            reached += [] if answer.reached is None else [answer.reached]
    except Exception as error:  # whatever another solver raises is its row
        return replace(row, reason=f"{type(error).__name__}: {error}")
    answer = replace(answer, reached=min(reached, default=None))
    return _filled(row, method, step, answer, min(seconds))


def _filled(row: SideRow, method: Method, step: Step, answer: Answer, seconds: float) -> SideRow:
    """Row of an answer, with the objective of its bandwidths."""
    row = replace(row, status=answer.status, reason=answer.remark, seconds=seconds)
    row = replace(row, peak_bytes=peak_memory(), bound=answer.bound)
    if answer.bandwidth is None:
        return row
    bandwidth = step.feasible(answer.bandwidth)
    if bandwidth is None:
        return replace(row, status="failed", reason="its bandwidths miss the limits")
    value = step.value(bandwidth)
    if not math.isfinite(value):
        return replace(row, status="failed", reason="its bandwidths never end the step")
    reached = answer.reached
    if reached is None and (value <= step.target or method.name == LIBRA):
        reached = seconds
    return replace(row, value=value, reached=reached, proof=method.proof if answer.proven else "")


def judged(row: SideRow, libra: SideRow) -> SideRow:
    """Row beside libra's: how far from its optimum and bound, and whether the two contradict.

    No feasible bandwidths can be better than a proven bound, and no other proven bound can be above
    the value of feasible bandwidths.
    """
    best, least, value, bound = libra.value, libra.bound, row.value, row.bound
    if best is None or least is None:
        return row
    if value is not None:
        row = replace(row, excess=value / best - 1, above_bound=value / least - 1)
        if value < least * (1 - ROUNDING):
            wrong = "it is better than libra's proven bound"
            return replace(row, status="contradiction", reason=wrong)
    if bound is not None and bound > best * (1 + TRUST):
        wrong = "its bound is above libra's optimum"
        return replace(row, status="contradiction", reason=wrong)
    return row


def side_heading() -> str:
    """Heading of the lines on the screen."""
    return (
        f"{'problem':46s} {'method':20s} {'time':>9s} {'to 1e-4':>9s} {'from optimum':>12s}  proof"
    )


def side_line(row: SideRow) -> str:
    """One line on the screen."""
    head = f"{row.problem.removeprefix('side by side: '):46s} {row.method:20s}"
    if row.seconds is None or row.excess is None:
        return f"{head} {row.status}: {row.reason}"
    reached = "never" if row.reached is None else time_text(row.reached)
    words = [row.proof or "none"]
    words += [f"{row.status}: {row.reason}" if row.status != "solved" else row.reason]
    tail = "; ".join(w for w in words if w)
    return f"{head} {time_text(row.seconds):>9s} {reached:>9s} {row.excess:12.1e}  {tail}"
