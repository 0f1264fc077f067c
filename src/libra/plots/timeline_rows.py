"""Rows of a step's timeline: what compute and each group's communication do when.

A task computes first and communicates then; both go into a lane of their place, communication one
lane a group. Where a lane has more segments than can be seen apart, time is cut into bins, and each
bin says how much of it is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError
from libra.result import Result
from libra.timing import StepTiming, task_ends
from libra.workload.graph import sum_by_index

__all__ = ["CRITICAL", "Segments", "hidden_stages", "segments_of", "shown_stages", "timeline_rows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CRITICAL = "critical path"
COMPUTE = "compute"
MOST_SEGMENTS = 300
BINS = 280
MOST_PLACES = 8


@dataclass(frozen=True, eq=False)
class Segments:
    """Stretches of compute or communication of one workload's step.

    Attributes
    ----------
    lane : ndarray of int, shape (segments,)
        Index into `lanes`.
    place : ndarray of int, shape (segments,)
        Pipeline stage.
    start, end : ndarray, shape (segments,)
        [s]
    critical : ndarray of bool, shape (segments,)
        Whether it is on the critical path.
    task : ndarray of int, shape (segments,)
        Index into `labels`.
    lanes : tuple of str
        ``compute``, then the groups that communicate.
    labels : sequence of str
        What the tasks of the step are called; empty: nothing.
    """

    lane: NDArray[np.int64]
    place: NDArray[np.int64]
    start: Floats
    end: Floats
    critical: NDArray[np.bool_]
    task: Ints
    lanes: tuple[str, ...]
    labels: Sequence[str]

    @property
    def stages(self) -> list[int]:
        """Pipeline stages that do something."""
        stages: list[int] = np.unique(self.place).tolist()
        return stages


def segments_of(timing: StepTiming, bandwidth: Floats) -> Segments:
    """Segments of a step at given bandwidths [bytes/s], each as early as it can be."""
    graph = timing.graph
    start, _, critical = task_ends(timing, bandwidth)
    groups = list(dict.fromkeys(c.group.name for c in graph.collectives))
    group = np.array([1 + groups.index(c.group.name) for c in graph.collectives], dtype=np.int64)
    tau = timing.terms.times(bandwidth)
    places = np.zeros(graph.tasks, dtype=np.int64) if graph.places is None else graph.places
    parts = [_stretches(0, places, start, start + graph.fixed, critical)]
    done = start + graph.fixed
    for lane in range(1, len(groups) + 1):
        mine = group[graph.count_index] == lane
        entries = graph.count_value[mine] * tau[graph.count_index[mine]]
        time = sum_by_index(graph.count_task[mine], entries, graph.tasks)
        parts.append(_stretches(lane, places, done, done + time, critical))
        done = done + time
    columns = [np.concatenate(x) for x in zip(*parts, strict=True)]
    order = np.argsort(columns[2], kind="stable")
    lanes, where, starts, ends, marks, tasks = (c[order] for c in columns)
    return Segments(lanes, where, starts, ends, marks, tasks, (COMPUTE, *groups), graph.labels)


def _stretches(
    lane: int, place: Ints, start: Floats, end: Floats, critical: NDArray[np.bool_]
) -> tuple[Any, ...]:
    """Lane, place, start, end, mark and task of the stretches of a lane that last."""
    tasks = np.flatnonzero(end > start)
    lanes = np.full(len(tasks), lane, dtype=np.int64)
    return lanes, place[tasks], start[tasks], end[tasks], critical[tasks], tasks


def shown_stages(found: Segments, stages: Sequence[int] | None = None) -> list[int]:
    """Pipeline stages to show, in order.

    Parameters
    ----------
    found : Segments
    stages : sequence of int or None
        Those wanted. None: all, or of more than 8 the first, the last, the one with the longest
        part of the critical path, and others evenly between them.

    Raises
    ------
    FieldError
        If none of the stages wanted is one of the step.
    """
    every = found.stages
    if stages is not None:
        wanted = [stage for stage in every if stage in stages]
        if not wanted:
            raise FieldError(
                "stages",
                f"the step has the stages {every[0]} to {every[-1]}, got {list(stages)}. Name one.",
            )
        return wanted
    if len(every) <= MOST_PLACES:
        return every
    time = (found.end - found.start) * found.critical
    longest = int(np.bincount(np.searchsorted(every, found.place), time).argmax())
    chosen = np.rint(np.linspace(0, len(every) - 1, MOST_PLACES)).astype(np.int64)
    if longest not in chosen:
        chosen[1 + np.abs(chosen[1:-1] - longest).argmin()] = longest
    return [every[k] for k in chosen]


def hidden_stages(result: Result, stages: Sequence[int] | None = None) -> str:
    """Say that a timeline shows only some pipeline stages; empty: it shows all."""
    graphs = [w.graph for w in result.design.workloads]
    every = max(
        ([0] if g.places is None else np.unique(g.places).tolist() for g in graphs), key=len
    )
    shown = min(len(every), MOST_PLACES) if stages is None else len({*stages} & {*every})
    return f"{shown} of {len(every)} stages" if shown < len(every) else ""


def timeline_rows(
    result: Result,
    window: tuple[float, float] | None = None,
    stages: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the timeline of a result's workloads.

    Parameters
    ----------
    result : Result
    window : (float, float) or None
        From when to when [s]; None: the whole step.
    stages : sequence of int or None
        Which pipeline stages; None: those of `shown_stages`.

    Returns
    -------
    list of dict
        ``workload``, ``lane`` (critical path, or stage and what it does), ``what`` (compute or the
        group), ``task`` (what it is called, where that is known), ``start``, ``end`` [s], ``share``
        of the stretch that is in use, ``below`` (shares of what stands below it in the lane),
        ``order`` of the lane.
    """
    rows: list[dict[str, Any]] = []
    several = len(result.design.workloads) > 1
    for workload, timing, path in zip(
        result.design.workloads, result.timings, result.paths, strict=False
    ):
        if not np.isfinite(path.time):
            continue
        low, high = (0.0, path.time) if window is None else window
        found = segments_of(timing, result.bandwidth)
        prefix = f"{workload.name}: " if several else ""
        first = 1 + max((row["order"] for row in rows), default=-1)
        made = _workload_rows(found, shown_stages(found, stages), prefix, low, high, first)
        rows += [{"workload": workload.name} | row for row in made]
    return rows


def _workload_rows(
    found: Segments, stages: Sequence[int], prefix: str, low: float, high: float, first: int
) -> list[dict[str, Any]]:
    kinds = range(len(found.lanes))
    seen = (found.end > low) & (found.start < high)
    path = [seen & found.critical & (found.lane == lane) for lane in kinds]
    rows = _lane_rows(found, path, low, high, prefix + CRITICAL, first)
    several = len(found.stages) > 1
    for k, place in enumerate(stages):
        stage = f"stage {place}, " if several else ""
        for lane, what in enumerate(found.lanes):
            mine = [
                seen & (found.lane == lane) & (found.place == place) & (lane == j) for j in kinds
            ]
            order = first + 1 + k * len(found.lanes) + lane
            rows += _lane_rows(found, mine, low, high, f"{prefix}{stage}{what}", order)
    return rows


def _lane_rows(
    found: Segments, masks: list[NDArray[np.bool_]], low: float, high: float, lane: str, order: int
) -> list[dict[str, Any]]:
    """Rows of a lane, from what is in it of each kind."""
    lasts = (found.end - found.start)[np.any(masks, axis=0)]
    narrow = len(lasts) > BINS // 10 and float(np.median(lasts)) < (high - low) / BINS
    crowded = narrow or len(lasts) > MOST_SEGMENTS
    edges = np.linspace(low, high, BINS + 1)
    below, rows = np.zeros(BINS), []
    for what, mask in zip(found.lanes, masks, strict=True):
        start, end = np.maximum(found.start[mask], low), np.minimum(found.end[mask], high)
        share, under = np.ones(len(start)), np.zeros(len(start))
        if crowded:
            share = _shares(start, end, edges)
            used = share > 1e-9
            start, end, share, under = edges[:-1][used], edges[1:][used], share[used], below[used]
            below[used] += share
        named = found.labels and not crowded
        tasks = [found.labels[k] for k in found.task[mask].tolist()] if named else [""] * len(start)
        columns = (tasks, start.tolist(), end.tolist(), share.tolist(), under.tolist())
        rows += [
            {"lane": lane, "what": what, "task": task, "start": a, "end": b, "share": s}
            | {"below": u, "order": order}
            for task, a, b, s, u in zip(*columns, strict=True)
        ]
    return rows


def _shares(start: Floats, end: Floats, edges: Floats) -> Floats:
    """How much of each bin is in use; what overlaps counts once."""
    if not len(start):
        return np.zeros(len(edges) - 1)
    reach = np.maximum.accumulate(end)
    start = np.maximum(start, np.concatenate([edges[:1], reach[:-1]]))
    end = np.maximum(end, start)
    # Time in use before each edge: whole stretches that began earlier, less what is still to come.
    lengths = np.concatenate([[0.0], np.cumsum(end - start)])
    began = np.searchsorted(start, edges, side="right")
    last = np.maximum(began - 1, 0)
    before = lengths[began] - np.where(began > 0, np.maximum(end[last] - edges, 0.0), 0.0)
    result: Floats = np.clip(np.diff(before) / np.diff(edges), 0.0, 1.0)
    return result
