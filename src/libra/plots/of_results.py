"""Charts of one result, and of several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from libra.plots import rows as data_of
from libra.plots.look import GREY, INK, MUTED, ROW, WIDTH, time_unit
from libra.plots.specs import (
    Spec,
    as_chart,
    channel,
    color_scale,
    drawing,
    empty_spec,
    layered,
    row_data,
    scaled,
    shape_scale,
    stacked_specs,
    tooltip,
)
from libra.result import Result
from libra.units import GB_PER_S, format_time

if TYPE_CHECKING:
    from libra.plots.theme import Chart

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
    return as_chart(bandwidth_bars(data_of.baseline_rows(result)))


def plot_comparison(results: Mapping[str, Result | Data]) -> Chart:
    """Bandwidths of several results side by side, by their names."""
    designs = [(name, data_of.plain_data(result)) for name, result in results.items()]
    return as_chart(bandwidth_bars(data_of.bandwidth_rows(designs)))


def plot_step_time(result: Result | Data) -> Chart:
    """Where a step's time goes: compute, and exposed communication by collective and dimension."""
    return as_chart(step_bars(data_of.plain_data(result)))


def plot_utilisation(result: Result | Data) -> Chart:
    """How much of a step compute and each dimension are in use."""
    return as_chart(utilisation_bars(data_of.plain_data(result)))


def plot_sensitivities(result: Result | Data) -> Chart:
    """What more bandwidth in each dimension, and looser limits, would save."""
    return as_chart(sensitivity_bars(data_of.plain_data(result)))


def plot_scenarios(result: Result | Data) -> Chart:
    """Regret of each scenario, with and without heeding the scenarios."""
    return as_chart(scenario_dots(data_of.plain_data(result)))


def plot_result(result: Result | Data) -> Chart:
    """Bandwidths, step time, utilisation and sensitivities below each other."""
    return as_chart(result_bars(result))


def result_bars(result: Result | Data) -> Spec:
    """All of a result's bars below each other."""
    data = data_of.plain_data(result)
    parts = {
        "Bandwidths": bandwidth_bars(data_of.baseline_rows(result)),
        "Where the step's time goes": step_bars(data),
        "In use during a step": utilisation_bars(data),
        "What more would save": sensitivity_bars(data),
    }
    if data.get("scenarios"):
        parts["Scenarios"] = scenario_dots(data)
    return stacked_specs([{**part, "title": title} for title, part in parts.items()])


_ENDS = {"align": "left", "dx": 4, "fontSize": 11}
"""Text at the ends of bars."""


def bandwidth_bars(rows: Sequence[dict[str, Any]]) -> Spec:
    """Bars of `libra.plots.rows.bandwidth_rows`."""
    names = list(dict.fromkeys(r["design"] for r in rows))
    shown = [
        row | {"label": f"{row['bandwidth']:,.4g}"} for row in scaled(rows, bandwidth=GB_PER_S)
    ]
    at = {
        "y": channel("dimension:N", sort=None, title=None, scale={"paddingInner": 0.25}),
        "yOffset": channel("design:N", sort=names),
        "x": channel("bandwidth:Q", title="GB/s per NPU", axis={"tickCount": 6}),
    }
    color = channel("design:N", scale=color_scale(names), sort=names, title=None)
    return layered(
        _sized(shown, ROW - 8 - len(names)),
        drawing("bar", {**at, "color": color, "tooltip": tooltip(shown)}),
        drawing("text", {**at, "text": channel("label:N")}, **_ENDS),
    )


def _sized(rows: Sequence[Mapping[str, Any]], step: float) -> Spec:
    """Data and size of a chart whose rows take so many points each."""
    return {"data": row_data(rows), "width": WIDTH, "height": {"step": step}}


def step_bars(data: Data) -> Spec:
    """Bars of `part_rows` above those of `step_rows`."""
    parts, steps = data_of.part_rows(data), data_of.step_rows(data)
    if not parts:
        return empty_spec("The step never ends: a dimension with traffic has no bandwidth.")
    size, unit = time_unit(max(w["step_time_s"] for w in data["workloads"] if w["step_time_s"]))
    shown = scaled(parts, time=size)
    names = [data_of.COMPUTE, data_of.EXPOSED]
    colors = {"domain": names, "range": [GREY, "#d55e00"]}
    encoding = {
        "y": channel("workload:N", sort=None, title=None),
        "x": channel("time:Q", title=f"step time, {unit}", stack="zero", axis=_FEW_TICKS),
        "color": channel("part:N", scale=colors, sort=names, title=None),
        "order": channel("part:O"),
        "tooltip": tooltip(shown),
    }
    whole = {**_sized(shown, ROW), **drawing("bar", encoding)}
    return stacked_specs([whole, _collective_bars(data, steps)]) if steps else whole


_FEW_TICKS = {"tickCount": 6}


def _collective_bars(data: Data, steps: Sequence[dict[str, Any]]) -> Spec:
    size, unit = time_unit(max(row["total"] for row in steps))
    shown = scaled(steps, time=size, total=size)
    present = {row["limit"] for row in steps}
    limits = [*data["dimensions"], data_of.LATENCY, "others"]
    limits = [name for name in limits if name in present]
    scale = dimension_colors(data["dimensions"], limits)
    order = list(dict.fromkeys(row["collective"] for row in steps))
    y = channel("collective:N", sort=order, title=None)
    title = f"exposed communication, {unit}"
    encoding = {
        "y": y,
        "x": channel("time:Q", title=title, stack="zero", axis=_FEW_TICKS),
        "color": channel("limit:N", scale=scale, sort=limits, title="limited by"),
        "tooltip": tooltip(shown),
    }
    ends = [row for k, row in enumerate(shown) if row["collective"] not in _names(shown[:k])]
    text = {"y": y, "x": channel("total:Q"), "text": channel("label:N")}
    return layered(
        {"width": WIDTH, "height": {"step": ROW - 4}},
        {"data": row_data(shown), **drawing("bar", encoding)},
        {"data": row_data(ends), **drawing("text", text, **_ENDS)},
    )


def _names(rows: Sequence[dict[str, Any]]) -> set[str]:
    return {row["collective"] for row in rows}


def dimension_colors(dimensions: Sequence[str], names: Sequence[str]) -> Spec:
    """Colours of names; a dimension has the same one in every chart, all else is grey."""
    whole = color_scale(dimensions)
    of = dict(zip(dimensions, whole["range"], strict=True))
    return {"domain": list(names), "range": [of.get(name, GREY) for name in names]}


def utilisation_bars(data: Data) -> Spec:
    """Bars of `utilisation_rows`."""
    rows = data_of.utilisation_rows(data)
    if not rows:
        return empty_spec("The step never ends: a dimension with traffic has no bandwidth.")
    shown = [row | {"label": f"{row['share']:.1%} ({format_time(row['busy'])})"} for row in rows]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    whats = [data_of.COMPUTE, *data["dimensions"]]
    at = {
        "x": channel(
            "share:Q",
            title="share of the step",
            axis={"format": "%", "tickCount": 6},
            scale={"domain": [0, max(1.0, *(row["share"] for row in rows))]},
        ),
        "y": channel("what:N", sort=whats, title=None),
    }
    if len(workloads) > 1:
        step = max(12, ROW - 8 - len(workloads))
        at["yOffset"] = channel("workload:N", sort=workloads)
        scale = color_scale(workloads)
        color = channel("workload:N", scale=scale, sort=workloads, title=None)
    else:
        step = ROW
        scale = dimension_colors(data["dimensions"], whats)
        color = channel("what:N", scale=scale, legend=None)
    return layered(
        _sized(shown, step),
        drawing("bar", {**at, "color": color, "tooltip": tooltip(shown)}),
        drawing("text", {**at, "text": channel("label:N")}, **_ENDS),
    )


def sensitivity_bars(data: Data) -> Spec:
    """Bars of `gain_rows` above those of `price_rows`."""
    gains, prices = data_of.gain_rows(data), data_of.price_rows(data)
    parts = []
    if gains:
        scale = dimension_colors(data["dimensions"], [row["dimension"] for row in gains])
        color = channel("dimension:N", scale=scale, legend=None)
        parts.append(_share_bars(gains, "% of the step time saved by more bandwidth", color))
    if prices:
        title = "% of the objective saved by a limit that much higher"
        parts.append(_share_bars(prices, title, {"value": GREY}))
    if not parts:
        return empty_spec("No sensitivities: nothing larger is on offer, and no limit has a price.")
    return parts[0] if len(parts) == 1 else stacked_specs(parts)


def _share_bars(rows: Sequence[dict[str, Any]], title: str, color: Spec) -> Spec:
    shown = [
        row | {"percent": 100 * _told(row["share"]), "text": _percent(_told(row["share"]))}
        for row in rows
    ]
    y = channel("label:N", sort=None, title=None)
    values = [row["percent"] for row in shown]
    x = channel(
        "percent:Q",
        title=title,
        axis={"format": "~g", "tickCount": 5},
        scale={"domain": [min(0.0, *values, 0.0), max(_LEAST_AXIS, *values)]},
    )
    text = {"y": y, "x": channel("percent:Q"), "text": channel("text:N")}
    return layered(
        _sized(shown, ROW),
        drawing("bar", {"y": y, "x": x, "color": color, "tooltip": tooltip(shown)}),
        drawing("text", text, **_ENDS),
    )


_LEAST_AXIS = 1e-3
"""Least length of an axis of savings [%]; savings far below it are no reason to act."""


def _told(share: float) -> float:
    """Share; what is within the accuracy of an optimum is 0."""
    return share if abs(share) > 1e-9 else 0.0


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


_LEAST_REGRET = 1e-3
"""Least length of an axis of regrets, so that those of rounding look like none."""


def scenario_dots(data: Data) -> Spec:
    """Dots of `scenario_rows`, joined by a line in each scenario."""
    rows = data_of.scenario_rows(data)
    if not rows:
        return empty_spec(
            "No regrets: nothing limits what the scenarios could have alone."
            if data.get("scenarios")
            else "The design has no scenarios."
        )
    names = ["with scenarios", "without scenarios"]
    order = list(dict.fromkeys(row["scenario"] for row in rows))
    at = {
        "y": channel("scenario:N", sort=order, title=None),
        "x": channel(
            "regret:Q",
            title="slower than the scenario's own best",
            axis={"format": ".2~%", "tickCount": 6},
            scale={"domain": [0.0, max(_LEAST_REGRET, *(row["regret"] for row in rows))]},
        ),
    }
    told = {
        "color": channel("design:N", scale=color_scale(names), sort=names, title=None),
        "shape": channel("design:N", scale=shape_scale(names), sort=names, title=None),
        "tooltip": tooltip(rows),
    }
    dots = {"size": 80, "filled": True, "opacity": 1, "stroke": INK, "strokeWidth": 0.5}
    line = {**at, "detail": channel("scenario:N")}
    return layered(
        _sized(rows, ROW - 6),
        drawing("line", line, color=MUTED, strokeWidth=1),
        drawing("point", {**at, **told}, **dots),
    )
