"""Charts of many solves: frontiers and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from libra.frontier import Against, FrontierPoint
from libra.plots.series_rows import (
    bandwidth_in_gb,
    frontier_rows,
    sweep_bandwidth_rows,
    sweep_rows,
    x_axis,
)
from libra.plots.theme import (
    WIDTH,
    Chart,
    colors_of,
    empty_chart,
    inline,
    log_ticks,
    money_unit,
    power_unit,
    shapes_of,
    stacked,
    styled,
    time_unit,
    titled,
)
from libra.sweep import Axis, SweepRow
from libra.units import parse_number

__all__ = ["plot_frontier", "plot_sweep"]

_HEIGHT = 200
_MOST_SERIES = 8


def plot_frontier(
    points: Sequence[FrontierPoint], names: Sequence[str], against: Against = Against.COST
) -> Chart:
    """Least step time at each cost or power, and the bandwidths that reach it.

    Parameters
    ----------
    points : sequence of FrontierPoint
        Of `libra.frontier.time_frontier`.
    names : sequence of str
        Of the dimensions.
    against : Against
        Cost or power.
    """
    if not points:
        return styled(empty_chart("The frontier has no points."))
    against = Against(against)
    rows, bandwidths = frontier_rows(points, names, against)
    most = max(row["x"] for row in rows)
    size, unit = power_unit(most) if against is Against.POWER else money_unit(most)
    span, seconds = time_unit(max(row["time"] for row in rows))
    shown = [{"x": row["x"] / size, "time": row["time"] / span} for row in rows]
    x = alt.X(
        "x:Q",
        title=f"network {against.value}, {unit}",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("time:Q", title=f"step time, {seconds}", scale=alt.Scale(zero=False))
    base = alt.Chart(inline(shown), width=WIDTH, height=_HEIGHT)
    line = base.mark_line(point=alt.OverlayMarkDef(size=36, color=_FIRST), color=_FIRST).encode(
        x=x, y=y, tooltip=[alt.Tooltip("x:Q", title=unit), alt.Tooltip("time:Q", title=seconds)]
    )
    below = [row | {"x": row["x"] / size} for row in bandwidth_in_gb(bandwidths)]
    lines = _bandwidth_lines(below, list(names), x)
    return styled(
        stacked([titled(line, "Least step time"), titled(lines, "Bandwidths that reach it")])
    )


_FIRST = "#0072b2"


def _bandwidth_lines(rows: Sequence[dict[str, Any]], names: Sequence[str], x: Any) -> Any:
    """Bandwidths over x, logarithmic where all are above 0."""
    log = min(row["bandwidth"] for row in rows) > 0
    scale, axis = alt.Scale(zero=True), alt.Axis(tickCount=5)
    if log:
        values = [row["bandwidth"] for row in rows]
        scale = alt.Scale(type="log")
        axis = alt.Axis(values=log_ticks(min(values), max(values)), format="~g")
    y = alt.Y("bandwidth:Q", title="GB/s per NPU", scale=scale, axis=axis)
    base = alt.Chart(inline(rows), width=WIDTH, height=_HEIGHT)
    color = alt.Color("dimension:N", scale=colors_of(names), sort=list(names), title=None)
    shape = alt.Shape("dimension:N", scale=shapes_of(names), sort=list(names), title=None)
    tip = ["dimension:N", alt.Tooltip("bandwidth:Q", title="GB/s")]
    dots = base.mark_point(filled=True, size=44, opacity=1)
    dots = dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tip)
    return dots if _words(x) else base.mark_line().encode(x=x, y=y, color=color) + dots


def _words(x: Any) -> bool:
    """Whether an axis has words, between which no line leads."""
    return str(x.shorthand).endswith(":N")


def plot_sweep(axes: Sequence[Axis], rows: Sequence[SweepRow], unit: str = "") -> Chart:
    """Step time, cost and bandwidths over what varied.

    Parameters
    ----------
    axes : sequence of Axis
        The first one with numbers runs along the charts; the others make lines of their own.
    rows : sequence of SweepRow
        Of `libra.sweep.sweep_design`; without those that have no optimum.
    unit : str
        Of the numbers along the charts, where they carry none themselves.
    """
    found = sweep_rows(axes, rows)
    if not found:
        return styled(empty_chart("No value has an optimum."))
    series = list(dict.fromkeys(row["series"] for row in found))
    x = _x(axes, unit)
    parts = []
    span, seconds = time_unit(max(row["time"] for row in found))
    size, unit = money_unit(max(row["cost"] for row in found))
    for key, by, title, name in (
        ("time", span, f"step time, {seconds}", "Step time"),
        ("cost", size, f"network cost, {unit}", "Network cost"),
    ):
        shown = [row | {key: row[key] / by} for row in found]
        parts.append(titled(_lines(shown, key, title, x, series), name))
    bandwidths = bandwidth_in_gb(sweep_bandwidth_rows(axes, rows))
    for name in series[:_MOST_SERIES]:
        mine = [row for row in bandwidths if row["series"] == name]
        names = list(dict.fromkeys(row["dimension"] for row in mine))
        title = f"Bandwidths, {name}" if name else "Bandwidths"
        parts.append(titled(_bandwidth_lines(mine, names, x), title))
    return styled(stacked(parts))


def _x(axes: Sequence[Axis], unit: str) -> Any:
    """Axis along which a sweep runs; logarithmic where its values multiply."""
    main = x_axis(axes)
    if main is None:
        return alt.X("x:N", sort=None, title=axes[0].path, axis=alt.Axis(labelAngle=0))
    split = [found for v in axes[main].values if (found := parse_number(v)) is not None]
    unit = split[0][1] or unit
    title = f"{axes[main].path}, {unit}" if unit else axes[main].path
    numbers = sorted(number for number, _ in split)
    if numbers[0] > 0 and len(numbers) > 2 and numbers[-1] / numbers[0] >= 8:
        steps = [b / a for a, b in pairwise(numbers)]
        if max(steps) <= 1.001 * min(steps):
            axis = alt.Axis(values=numbers, format=",~g", grid=True)
            return alt.X("x:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=axis)
    return alt.X("x:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=8))


def _lines(
    rows: Sequence[dict[str, Any]], key: str, title: str, x: Any, series: Sequence[str]
) -> Any:
    base = alt.Chart(inline(list(rows)), width=WIDTH, height=_HEIGHT)
    y = alt.Y(f"{key}:Q", title=title, scale=alt.Scale(zero=False))
    several = len(series) > 1
    color: Any = alt.value(_FIRST)
    marks: dict[str, Any] = {}
    if several:
        color = alt.Color("series:N", scale=colors_of(series), sort=list(series), title=None)
        marks = {
            "shape": alt.Shape("series:N", scale=shapes_of(series), sort=list(series), title=None)
        }
    tip = [alt.Tooltip(x.shorthand), "series:N", alt.Tooltip(f"{key}:Q", title=title)]
    dots = base.mark_point(filled=True, size=44, opacity=1)
    dots = dots.encode(x=x, y=y, color=color, tooltip=tip, **marks)
    return dots if _words(x) else base.mark_line().encode(x=x, y=y, color=color) + dots
