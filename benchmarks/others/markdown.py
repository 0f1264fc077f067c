"""Side by side, as Markdown: a summary, a table of each kind of problem, what was left out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from others.problems import METHODS, PROBLEMS, Kind, Method, Problem
from registry.record import SideRow
from registry.tables import time_text

__all__ = ["left_out", "problem_tables", "summary", "ways"]

_HEADINGS = {
    (Kind.CHAIN, "time"): "Least step time, the reference implementation's inputs",
    (Kind.CHAIN, "time-cost"): "Least time x cost, the reference implementation's inputs",
    (Kind.GRAPH, "time"): "Least step time, random task graphs",
    (Kind.LANES, "time"): "Least step time, 200 lanes of 5 GB/s over 4 dimensions",
    (Kind.LANES, "time-cost"): "Least time x cost, 200 lanes of 5 GB/s over 4 dimensions",
}
Rows = Sequence[SideRow]


def ways(limit: float) -> Iterator[str]:
    """What each way is, and the time that it was given [s]."""
    yield "| way | what it is | what its claim rests on |"
    yield "|---|---|---|"
    for method in METHODS:
        yield f"| {method.name} | {method.says} | {method.proof or 'it claims nothing'} |"
    yield ""
    yield f"Each was given {limit:g} s a problem."


def summary(rows: Rows) -> Iterator[str]:
    """Each way over all problems of one objective that it was given."""
    yield "| objective | way | within 1e-4 | with proof | median time / libra's | farthest off |"
    yield "|---|---|--:|--:|--:|--:|"
    for objective in ("time", "time-cost"):
        for method in METHODS[1:]:
            mine = [r for r in rows if r.method == method.name and r.objective == objective]
            mine = [r for r in mine if r.status != "skipped"]
            if mine:
                yield f"| {objective} | {method.name} | {_summary_cells(mine, rows)} |"


def _summary_cells(mine: Rows, rows: Rows) -> str:
    libra = {r.problem: r for r in rows if r.method == METHODS[0].name}
    arrived = [r for r in mine if r.reached is not None]
    ratios = [x for r in arrived if (x := _ratio(r, libra[r.problem])) is not None]
    off = [r.excess for r in mine if r.excess is not None]
    cells = [
        f"{len(arrived)} of {len(mine)}",
        f"{sum(bool(r.proof) for r in mine)} of {len(mine)}",
        f"{statistics.median(ratios):.3g}x" if ratios else "–",
        _excess_text(max(off)) if off else "–",
    ]
    return " | ".join(cells)


def _ratio(row: SideRow, libra: SideRow) -> float | None:
    """Time until a way has arrived, over libra's to its proof; None: it never arrives."""
    if row.reached is None or not libra.seconds:
        return None
    return row.reached / libra.seconds


def _excess_text(excess: float) -> str:
    return "0" if abs(excess) < 5e-10 else f"{excess:+.0e}"


def problem_tables(rows: Rows) -> Iterator[str]:
    """One table of each kind of problem and objective: ways across, problems down."""
    for (kind, objective), heading in _HEADINGS.items():
        problems = [p for p in PROBLEMS if p.kind is kind and p.objective == objective]
        found = {(r.problem, r.method): r for r in rows}
        problems = [p for p in problems if (p.name, METHODS[0].name) in found]
        methods = [m for m in METHODS if any(not m.why_not(p) for p in problems)]
        if not problems:
            continue
        yield f"**{heading}**"
        yield ""
        yield f"| problem | {' | '.join(m.name for m in methods)} |"
        yield f"|---|{'--:|' * len(methods)}"
        for problem in problems:
            cells = [_cell(problem, m, found) for m in methods]
            name = problem.input.removeprefix("reference-")
            yield f"| {name} | {' | '.join(cells)} |"
        yield ""


def _cell(problem: Problem, method: Method, found: dict[tuple[str, str], SideRow]) -> str:
    """Time, ratio to libra's, and distance from its optimum; a tick where it has a proof."""
    row, libra = found.get((problem.name, method.name)), found[problem.name, METHODS[0].name]
    if row is None or row.status == "skipped":
        return "not run" if row is None else "skipped"
    if row.excess is None or row.seconds is None:
        return row.status
    if method.name == METHODS[0].name:
        return f"{time_text(row.seconds)}<br>✓"
    ratio = _ratio(row, libra)
    if row.status != "solved" and (method.proof or ratio is None):
        time = f"{row.status}, {time_text(row.seconds)}"
    elif row.reached is None or ratio is None:
        time = f"never, {time_text(row.seconds)}"
    else:
        time = f"{time_text(row.reached)}, {ratio:.3g}x"
    return f"{time}<br>{_excess_text(row.excess)}{' ✓' if row.proof else ''}"


def left_out(rows: Rows) -> Iterator[str]:
    """What was skipped, failed or stopped, with the reason, once for all problems it holds for."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.status == "solved":
            continue
        name = row.problem.removeprefix("side by side: ").removeprefix("reference-")
        late = row.status == "time limit"
        key = (row.method, row.status, "" if late else row.reason)
        reasons.setdefault(key, []).append(
            f"{name} ({row.reason})" if late and row.reason else name
        )
    yield "| way | outcome | reason | problems |"
    yield "|---|---|---|---|"
    for (method, status, reason), problems in reasons.items():
        names = ", ".join(problems)
        if len(problems) > 3 and reason:
            names = f"{len(problems)}: {problems[0]}, …, {problems[-1]}"
        yield f"| {method} | {status} | {reason or 'stopped there'} | {names} |"
