"""The picture of how the optimiser's time grows with the task graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from registry.cases import Phase
from registry.record import Record

__all__ = ["Point", "growth_chart", "growth_points"]


@dataclass(frozen=True)
class Point:
    """One graph: its tasks, and the time of the whole optimum and of one round of it [s]."""

    tasks: int
    optimum: float
    round: float


def growth_points(record: Record) -> list[Point]:
    """Re-solves of random graphs in a record, by size; least times, so that load counts less."""
    rows = [
        r
        for r in record.rows
        if r.phase == Phase.SOLVE and r.input.startswith("graph-") and r.status == "ok"
    ]
    points = [
        Point(int(r.notes["tasks"]), r.least, r.least / float(r.notes["rounds"])) for r in rows
    ]
    return sorted(points, key=lambda p: p.tasks)


def growth_chart(points: list[Point]) -> Any:
    """Time over tasks, both logarithmic, with a line of slope 1 to compare with."""
    import altair

    rows = [
        {"tasks": p.tasks, "seconds": value, "what": what}
        for p in points
        for what, value in (("optimum", p.optimum), ("one round", p.round))
    ]
    last = points[-1]
    rows += [
        {"tasks": n, "seconds": last.round * n / last.tasks, "what": "proportional to tasks"}
        for n in (points[0].tasks, last.tasks)
    ]
    data = altair.InlineData(values=rows)
    base = altair.Chart(data).encode(
        x=altair.X(
            "tasks:Q",
            scale=altair.Scale(type="log"),
            axis=altair.Axis(format="~s", labelOverlap=True),
            title="tasks",
        ),
        y=altair.Y("seconds:Q", scale=altair.Scale(type="log"), title="time [s]"),
        color=altair.Color("what:N", title=None),
        strokeDash=altair.StrokeDash("what:N", title=None),
    )
    lines = base.mark_line()
    dots = base.transform_filter("datum.what != 'proportional to tasks'").mark_point(filled=True)
    return altair.layer(lines, dots).properties(width=520, height=320)
