"""Charts of one result, and of several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from libra.plots import rows as data_of
from libra.plots.theme import (
    GREY,
    INK,
    MUTED,
    ROW,
    WIDTH,
    Chart,
    colors_of,
    empty_chart,
    inline,
    scaled,
    shapes_of,
    styled,
    time_unit,
)
from libra.result import Result
from libra.units import GB_PER_S, format_time

__all__ = [
    "plot_bandwidths",
    "plot_comparison",
    "plot_result",
    "plot_scenarios",
    "plot_sensitivities",
    "plot_step_time",
    "plot_utilisation",
]

Data = Mapping[str, Any]


def plot_bandwidths(result: Result | Data) -> Chart:
    """Bandwidth of each dimension, beside what a person would choose without an optimiser.

    Parameters
    ----------
    result : Result or mapping
        Or plain data with the keys of ``libra optimize --json``.

    Returns
    -------
    Chart
    """
    return styled(bandwidth_bars(data_of.baseline_rows(result)))


def plot_comparison(results: Mapping[str, Result | Data]) -> Chart:
    """Bandwidths of several results side by side, by their names."""
    designs = [(name, data_of.plain_data(result)) for name, result in results.items()]
    return styled(bandwidth_bars(data_of.bandwidth_rows(designs)))


def plot_step_time(result: Result | Data) -> Chart:
    """Where a step's time goes: compute, and exposed communication by collective and dimension."""
    return styled(step_bars(data_of.plain_data(result)))


def plot_utilisation(result: Result | Data) -> Chart:
    """How much of a step compute and each dimension are in use."""
    return styled(utilisation_bars(data_of.plain_data(result)))


def plot_sensitivities(result: Result | Data) -> Chart:
    """What more bandwidth in each dimension, and looser limits, would save."""
    return styled(sensitivity_bars(data_of.plain_data(result)))


def plot_scenarios(result: Result | Data) -> Chart:
    """Regret of each scenario, with and without heeding the scenarios."""
    return styled(scenario_dots(data_of.plain_data(result)))


def plot_result(result: Result | Data) -> Chart:
    """Bandwidths, step time, utilisation and sensitivities below each other."""
    data = data_of.plain_data(result)
    parts = [
        titled(bandwidth_bars(data_of.baseline_rows(result)), "Bandwidths"),
        titled(step_bars(data), "Where the step's time goes"),
        titled(utilisation_bars(data), "In use during a step"),
        titled(sensitivity_bars(data), "What more would save"),
    ]
    if data.get("scenarios"):
        parts.append(titled(scenario_dots(data), "Scenarios"))
    return styled(stacked(parts))


def titled(chart: Any, title: str) -> Any:
    """Chart with a title."""
    return chart.properties(title=title)


def stacked(parts: Sequence[Any]) -> Any:
    """Charts below each other, each with its own colours."""
    joined = alt.vconcat(*parts, spacing=28)
    return joined.resolve_scale(
        color="independent", shape="independent", x="independent", y="independent"
    )


def bandwidth_bars(rows: Sequence[dict[str, Any]]) -> Any:
    """Bars of `libra.plots.rows.bandwidth_rows`."""
    names = list(dict.fromkeys(r["design"] for r in rows))
    shown = scaled(rows, bandwidth=GB_PER_S)
    shown = [row | {"label": f"{row['bandwidth']:,.4g}"} for row in shown]
    base = alt.Chart(inline(shown), width=WIDTH, height=alt.Step(ROW - 8 - len(names)))
    y = alt.Y("dimension:N", sort=None, title=None, scale=alt.Scale(paddingInner=0.25))
    offset = alt.YOffset("design:N", sort=names)
    x = alt.X("bandwidth:Q", title="GB/s per NPU", axis=alt.Axis(tickCount=6))
    color = alt.Color("design:N", scale=colors_of(names), sort=names, title=None)
    bars = base.mark_bar().encode(y=y, yOffset=offset, x=x, color=color, tooltip=_tips(shown))
    text = base.mark_text(align="left", dx=4, fontSize=11)
    return bars + text.encode(y=y, yOffset=offset, x=x, text="label:N")


def _tips(rows: Sequence[dict[str, Any]]) -> list[alt.Tooltip]:
    """Tooltip of all keys that are for people."""
    if not rows:
        return []
    hidden = {"order", "label"}
    return [
        alt.Tooltip(f"{key}:{'N' if isinstance(value, str) else 'Q'}")
        for key, value in rows[0].items()
        if key not in hidden
    ]


def step_bars(data: Data) -> Any:
    """Bars of `part_rows` above those of `step_rows`."""
    parts, steps = data_of.part_rows(data), data_of.step_rows(data)
    if not parts:
        return empty_chart("The step never ends: a dimension with traffic has no bandwidth.")
    size, unit = time_unit(max(w["step_time_s"] for w in data["workloads"] if w["step_time_s"]))
    shown = scaled(parts, time=size)
    names = [data_of.COMPUTE, data_of.EXPOSED]
    base = alt.Chart(inline(shown), width=WIDTH, height=alt.Step(ROW))
    y = alt.Y("workload:N", sort=None, title=None)
    whole = base.mark_bar().encode(
        y=y,
        x=alt.X("time:Q", title=f"step time, {unit}", stack="zero", axis=_FEW_TICKS),
        color=alt.Color("part:N", scale=_part_colors(names), sort=names, title=None),
        order=alt.Order("part:O"),
        tooltip=_tips(shown),
    )
    if not steps:
        return whole
    return stacked([whole, _collective_bars(data, steps)])


_FEW_TICKS = alt.Axis(tickCount=6)


def _part_colors(names: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=[GREY, "#d55e00"])


def _collective_bars(data: Data, steps: Sequence[dict[str, Any]]) -> Any:
    size, unit = time_unit(max(row["total"] for row in steps))
    shown = scaled(steps, time=size, total=size)
    present = {row["limit"] for row in steps}
    limits = [*data["dimensions"], data_of.LATENCY, "others"]
    limits = [name for name in limits if name in present]
    scale = dimension_colors(data["dimensions"], limits)
    order = list(dict.fromkeys(row["collective"] for row in steps))
    y = alt.Y("collective:N", sort=order, title=None)
    base = alt.Chart(inline(shown), width=WIDTH, height=alt.Step(ROW - 4))
    bars = base.mark_bar().encode(
        y=y,
        x=alt.X("time:Q", title=f"exposed communication, {unit}", stack="zero", axis=_FEW_TICKS),
        color=alt.Color("limit:N", scale=scale, sort=limits, title="limited by"),
        tooltip=_tips(shown),
    )
    ends = [row for k, row in enumerate(shown) if row["collective"] not in _names(shown[:k])]
    text = alt.Chart(inline(ends)).mark_text(align="left", dx=4, fontSize=11)
    return bars + text.encode(y=y, x="total:Q", text="label:N")


def _names(rows: Sequence[dict[str, Any]]) -> set[str]:
    return {row["collective"] for row in rows}


def dimension_colors(dimensions: Sequence[str], names: Sequence[str]) -> alt.Scale:
    """Colours of names; a dimension has the same one in every chart, all else is grey."""
    whole: Any = colors_of(dimensions)
    of = dict(zip(dimensions, whole.range, strict=True))
    return alt.Scale(domain=list(names), range=[of.get(name, GREY) for name in names])


def utilisation_bars(data: Data) -> Any:
    """Bars of `utilisation_rows`."""
    rows = data_of.utilisation_rows(data)
    if not rows:
        return empty_chart("The step never ends: a dimension with traffic has no bandwidth.")
    shown = [row | {"label": f"{row['share']:.1%} ({format_time(row['busy'])})"} for row in rows]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    whats = [data_of.COMPUTE, *data["dimensions"]]
    several = len(workloads) > 1
    step = ROW if not several else max(12, ROW - 8 - len(workloads))
    base = alt.Chart(inline(shown), width=WIDTH, height=alt.Step(step))
    most = max(1.0, *(row["share"] for row in rows))
    x = alt.X(
        "share:Q",
        title="share of the step",
        axis=alt.Axis(format="%", tickCount=6),
        scale=alt.Scale(domain=[0, most]),
    )
    y = alt.Y("what:N", sort=whats, title=None)
    color = (
        alt.Color("workload:N", scale=colors_of(workloads), sort=workloads, title=None)
        if several
        else alt.Color("what:N", scale=dimension_colors(data["dimensions"], whats), legend=None)
    )
    split = {"yOffset": alt.YOffset("workload:N", sort=workloads)} if several else {}
    bars = base.mark_bar().encode(y=y, x=x, color=color, tooltip=_tips(shown), **split)
    text = base.mark_text(align="left", dx=4, fontSize=11)
    return bars + text.encode(y=y, x=x, text="label:N", **split)


def sensitivity_bars(data: Data) -> Any:
    """Bars of `gain_rows` above those of `price_rows`."""
    gains, prices = data_of.gain_rows(data), data_of.price_rows(data)
    parts = []
    if gains:
        scale = dimension_colors(data["dimensions"], [row["dimension"] for row in gains])
        color = alt.Color("dimension:N", scale=scale, legend=None)
        parts.append(
            _share_bars(gains, "label", "% of the step time saved by more bandwidth", color)
        )
    if prices:
        title = "% of the objective saved by a limit that much higher"
        parts.append(_share_bars(prices, "label", title, alt.value(GREY)))
    if not parts:
        return empty_chart(
            "No sensitivities: nothing larger is on offer, and no limit has a price."
        )
    return parts[0] if len(parts) == 1 else stacked(parts)


def _share_bars(rows: Sequence[dict[str, Any]], key: str, title: str, color: Any) -> Any:
    shown = [
        row | {"percent": 100 * _told(row["share"]), "text": _percent(_told(row["share"]))}
        for row in rows
    ]
    base = alt.Chart(inline(shown), width=WIDTH, height=alt.Step(ROW))
    y = alt.Y(f"{key}:N", sort=None, title=None)
    values = [row["percent"] for row in shown]
    x = alt.X(
        "percent:Q",
        title=title,
        axis=alt.Axis(format="~g", tickCount=5),
        scale=alt.Scale(domain=[min(0.0, *values, 0.0), max(_LEAST_AXIS, *values)]),
    )
    bars = base.mark_bar().encode(y=y, x=x, color=color, tooltip=_tips(shown))
    text = base.mark_text(align="left", dx=4, fontSize=11)
    return bars + text.encode(y=y, x="percent:Q", text="text:N")


_LEAST_AXIS = 1e-3
"""Least length of an axis of savings [%]; savings far below it are no reason to act."""


def _told(share: float) -> float:
    """Share; what is within the accuracy of an optimum is 0."""
    return share if abs(share) > 1e-9 else 0.0


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


_LEAST_REGRET = 1e-3
"""Least length of an axis of regrets, so that those of rounding look like none."""


def scenario_dots(data: Data) -> Any:
    """Dots of `scenario_rows`, joined by a line in each scenario."""
    rows = data_of.scenario_rows(data)
    if not rows:
        return empty_chart(
            "No regrets: nothing limits what the scenarios could have alone."
            if data.get("scenarios")
            else "The design has no scenarios."
        )
    names = ["with scenarios", "without scenarios"]
    base = alt.Chart(inline(rows), width=WIDTH, height=alt.Step(ROW - 6))
    order = list(dict.fromkeys(row["scenario"] for row in rows))
    y = alt.Y("scenario:N", sort=order, title=None)
    x = alt.X(
        "regret:Q",
        title="slower than the scenario's own best",
        axis=alt.Axis(format=".2~%", tickCount=6),
        scale=alt.Scale(domain=[0.0, max(_LEAST_REGRET, *(row["regret"] for row in rows))]),
    )
    lines = base.mark_line(color=MUTED, strokeWidth=1).encode(y=y, x=x, detail="scenario:N")
    color = alt.Color("design:N", scale=colors_of(names), sort=names, title=None)
    shape = alt.Shape("design:N", scale=shapes_of(names), sort=names, title=None)
    dots = base.mark_point(size=80, filled=True, opacity=1, stroke=INK, strokeWidth=0.5)
    return lines + dots.encode(y=y, x=x, color=color, shape=shape, tooltip=_tips(rows))
