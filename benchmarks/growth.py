"""Measure how the optimiser's time grows with the task graph, and draw it.

    python benchmarks/growth.py [FILE.svg]     default: docs/assets/growth.svg

Graphs are random; the best of some runs counts, so that compiling does not.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import altair
from run import GRAPH_SIZES, ROOT, random_graph, rounds

import libra
from libra.collectives import CollectiveModel, Contention
from libra.presets import example_folder


@dataclass(frozen=True)
class Point:
    """One graph: its tasks, and the time of the whole optimum and of one round of it [s]."""

    tasks: int
    optimum: float
    round: float


def measure_growth() -> list[Point]:
    """Optimise random graphs of all sizes, warm; the better of two runs."""
    design = libra.load_design(example_folder() / "gpt-3-4d.yaml")
    model = CollectiveModel(contention=Contention.NONE)
    points = []
    for tasks in GRAPH_SIZES:
        workload = replace(design.workloads[0], graph=random_graph(tasks))
        case = replace(design, workloads=(workload,), collectives=model)
        best = float("inf")
        for _ in range(6 if tasks <= 10_000 else 2):
            start = time.perf_counter()
            result = libra.optimize_design(case)
            best = min(best, time.perf_counter() - start)
        points.append(Point(tasks, best, best / rounds(result)))
        print(f"{tasks:>10,} tasks: {best * 1e3:9.1f} ms, {rounds(result)} rounds")
    return points


def growth_chart(points: list[Point]) -> altair.LayerChart:
    """Time over tasks, both logarithmic, with a line of slope 1 to compare with."""
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
    data = altair.Data(values=rows)
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


def main() -> None:
    """Measure, then write the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "assets" / "growth.svg"
    growth_chart(measure_growth()).save(target)
    print(target)


if __name__ == "__main__":
    main()
