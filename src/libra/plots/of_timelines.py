"""Timeline of a step."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from libra.plots.look import ROW, WIDTH, time_unit
from libra.plots.specs import Spec, as_chart, channel, color_scale, drawing, empty_spec, row_data
from libra.plots.timeline_rows import COMPUTE, CRITICAL, hidden_stages, timeline_rows
from libra.result import Result

if TYPE_CHECKING:
    from libra.plots.theme import Chart

__all__ = ["plot_timeline"]


def plot_timeline(
    result: Result,
    window: tuple[float, float] | None = None,
    stages: Sequence[int] | None = None,
) -> Chart:
    """When compute and each group's communication run, with the critical path on top.

    Parameters
    ----------
    result : Result
    window : (float, float) or None
        From when to when [s]; None: the whole step. Where a lane has more than 300 stretches of
        work, the height of a bin says how much of it is in use.
    stages : sequence of int or None
        Which pipeline stages, from 0. None: all, or of more than 8 the first, the last, the one
        with the longest part of the critical path, and others evenly between them.

    Raises
    ------
    FieldError
        If the step has none of the stages.
    """
    return as_chart(timeline_bars(result, window, stages))


def timeline_bars(
    result: Result,
    window: tuple[float, float] | None = None,
    stages: Sequence[int] | None = None,
    *,
    still: bool = False,
) -> Spec:
    """Bars of `timeline_rows`; of a still picture only what can be seen, if there are many."""
    rows = timeline_rows(result, window, stages)
    if not rows:
        return empty_spec("The step never ends: a dimension with traffic has no bandwidth.")
    latest, first = max(row["end"] for row in rows), min(row["start"] for row in rows)
    size, unit = time_unit(latest - first)
    shown = [row | {"start": row["start"] / size, "end": row["end"] / size} for row in rows]
    lanes = {row["order"]: row["lane"] for row in rows}
    orders = sorted(lanes)
    shown = [row | _height(row, orders.index(row["order"])) for row in shown]
    names = [lanes[order] for order in orders]
    whats = {row["what"] for row in rows}
    scale = _lane_colors(result, whats)
    low, high = (first, latest) if window is None else window
    # Hundreds of bins would each be described in words, and say little.
    dense = len(shown) > _MOST_DESCRIBED
    across = {"domain": [low / size, high / size], "nice": False}
    down = {"domain": [len(names), 0], "nice": False}
    told = ["task:N"] if any(row["task"] for row in rows) else []
    encoding = {
        "y": channel("top:Q", title=None, scale=down, axis=_lane_axis(names)),
        "y2": {"field": "bottom"},
        "x": channel(
            "start:Q", title=f"time, {unit}", scale=across, axis={"grid": False, "tickCount": 8}
        ),
        "x2": {"field": "end"},
        "color": channel("what:N", scale=scale, sort=scale["domain"], title=None),
        "tooltip": [
            *(channel(name) for name in (*told, "what:N", "start:Q", "end:Q")),
            channel("share:Q", format=".1%"),
        ],
    }
    if still and dense:
        del encoding["tooltip"]
        shown = [{key: row[key] for key in _DRAWN} for row in shown]
    bars = {
        "data": row_data(shown),
        "width": WIDTH + 40,
        "height": ROW * len(names),
        **drawing("rect", encoding, aria=not dense),
    }
    hidden = hidden_stages(result, stages)
    return {**bars, "title": hidden} if hidden else bars


def _lane_colors(result: Result, present: Collection[str]) -> Spec:
    """Colours of compute and groups; a group has the same one in every window of a step."""
    graphs = [w.graph for w in result.design.workloads]
    names = [COMPUTE, *(c.group.name for graph in graphs for c in graph.collectives)]
    every = color_scale(list(dict.fromkeys(names)), grey=[COMPUTE], first=4)
    shown = [(n, c) for n, c in zip(every["domain"], every["range"], strict=True) if n in present]
    return {"domain": [n for n, _ in shown], "range": [c for _, c in shown]}


_MOST_DESCRIBED = 200
_DRAWN = ("what", "start", "end", "top", "bottom")
_FILL = 0.8
"""Part of a lane that its bars take."""


def _height(row: dict[str, Any], lane: int) -> dict[str, float]:
    """Where a row's bar begins and ends; lanes are 1 high and counted downwards."""
    foot = lane + (1 + _FILL) / 2
    under, over = row["below"], min(row["below"] + row["share"], 1.0)
    return {"top": foot - _FILL * over, "bottom": foot - _FILL * under}


def _lane_axis(names: Sequence[str]) -> Spec:
    """Names of the lanes in the middle of each; critical paths stand out."""
    bold = [k + 0.5 for k, name in enumerate(names) if name.endswith(CRITICAL)]
    return {
        "values": [k + 0.5 for k in range(len(names))],
        "labelExpr": f"{json.dumps(names)}[floor(datum.value)]",
        "labelFontWeight": {
            "condition": {"test": f"indexof({bold}, datum.value) >= 0", "value": "bold"},
            "value": "normal",
        },
        "grid": False,
        "ticks": False,
        "domain": False,
        "labelOverlap": False,
    }
