"""Rows of a step's timeline: what compute and each group's communication do when.

A task computes first and communicates then; both go into a lane of their place, communication one
lane a group. Where a lane has more segments than can be seen apart, time is cut into bins, and each
bin says how much of it is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.result import Result
from libra.timing import StepTiming, task_ends
from libra.workload.graph import sum_by_index

__all__ = ["CRITICAL", "Segments", "hidden_stages", "segments_of", "timeline_rows"]

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
    lanes : tuple of str
        ``compute``, then the groups that communicate.
    """

    lane: NDArray[np.int64]
    place: NDArray[np.int64]
    start: Floats
    end: Floats
    critical: NDArray[np.bool_]
    lanes: tuple[str, ...]


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
    lanes, where, starts, ends, marks = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.argsort(starts, kind="stable")
    return Segments(
        lanes[order], where[order], starts[order], ends[order], marks[order], (COMPUTE, *groups)
    )


def _stretches(
    lane: int, place: Ints, start: Floats, end: Floats, critical: NDArray[np.bool_]
) -> tuple[Ints, Ints, Floats, Floats, NDArray[np.bool_]]:
    """Lane, place, start, end and mark of the stretches of a lane that last."""
    lasts = end > start
    lanes = np.full(int(lasts.sum()), lane, dtype=np.int64)
    return lanes, place[lasts], start[lasts], end[lasts], critical[lasts]


def hidden_stages(result: Result) -> str:
    """Say that a timeline shows only some pipeline stages; empty: it shows all."""
    graphs = [w.graph for w in result.design.workloads]
    most = max(1 if g.places is None else len(np.unique(g.places)) for g in graphs)
    return f"The first {MOST_PLACES} of {most} stages" if most > MOST_PLACES else ""


def timeline_rows(
    result: Result, window: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """Rows of the timeline of a result's workloads.

    Parameters
    ----------
    result : Result
    window : (float, float) or None
        From when to when [s]; None: the whole step.

    Returns
    -------
    list of dict
        ``workload``, ``lane`` (critical path, or stage and what it does), ``what`` (compute or the
        group), ``start``, ``end`` [s], ``share`` of the stretch that is in use, ``below`` (shares
        of what stands below it in the lane), ``order`` of the lane.
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
        rows += _workload_rows(found, workload.name, prefix, low, high, first)
    return rows


def _workload_rows(
    found: Segments, workload: str, prefix: str, low: float, high: float, first: int
) -> list[dict[str, Any]]:
    kinds = range(len(found.lanes))
    seen = (found.end > low) & (found.start < high)
    path = [seen & found.critical & (found.lane == lane) for lane in kinds]
    rows = _lane_rows(found, path, low, high, prefix + CRITICAL, first)
    places = np.unique(found.place)
    for k, place in enumerate(places[:MOST_PLACES]):
        stage = f"stage {place}, " if len(places) > 1 else ""
        for lane, what in enumerate(found.lanes):
            mine = [
                seen & (found.lane == lane) & (found.place == place) & (lane == j) for j in kinds
            ]
            order = first + 1 + k * len(found.lanes) + lane
            rows += _lane_rows(found, mine, low, high, f"{prefix}{stage}{what}", order)
    return [{"workload": workload} | row for row in rows]


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
        rows += [
            {"lane": lane, "what": what, "start": a, "end": b, "share": s, "below": u}
            | {"order": order}
            for a, b, s, u in zip(
                start.tolist(), end.tolist(), share.tolist(), under.tolist(), strict=True
            )
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
