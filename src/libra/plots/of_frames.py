"""Charts of tables that other commands write: explored candidates, validation errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import altair as alt

from libra.errors import FieldError
from libra.plots.theme import (
    GREY,
    INK,
    ROW,
    WIDTH,
    Chart,
    colors_of,
    empty_chart,
    inline,
    log_ticks,
    money_unit,
    shapes_of,
    styled,
    time_unit,
)

if TYPE_CHECKING:
    import polars

__all__ = ["candidate_rows", "plot_candidates", "plot_validation", "validation_rows"]

_HEIGHT = 320
_MOST_COLORS = 7
_SAME = 1e-6
"""Relative difference of times that is nothing: optima are proven to so much."""


def candidate_rows(
    frame: polars.DataFrame, *, color: str = "network"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of explored candidates, and of those that no other beats in both time and cost.

    Parameters
    ----------
    frame : polars.DataFrame
        Columns ``step_time_s`` and ``network_cost_usd``, and `color` if it is there.
    color : str
        Column whose values are told apart: seven of them, those of the frontier first, then those
        with the least step times.

    Returns
    -------
    candidates, frontier : list of dict
        ``time`` [s], ``cost`` [USD], ``kind``.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    _require_columns(frame, ("step_time_s", "network_cost_usd"))
    kept = frame.filter(frame["step_time_s"].is_finite() & frame["network_cost_usd"].is_finite())
    times, costs = kept["step_time_s"].to_list(), kept["network_cost_usd"].to_list()
    kinds = [str(k) for k in kept[color].to_list()] if color in kept.columns else [""] * len(times)
    rows = [{"time": t, "cost": c, "kind": k} for t, c, k in zip(times, costs, kinds, strict=True)]
    best, frontier = float("inf"), []
    for row in sorted(rows, key=lambda r: (r["cost"], r["time"])):
        if row["time"] < best * (1 - _SAME):
            best = row["time"]
            frontier.append(row)
    fastest = sorted(rows, key=lambda r: (r["time"], r["cost"], r["kind"]))
    told = list(dict.fromkeys(row["kind"] for row in [*frontier, *fastest]))[:_MOST_COLORS]
    for row in rows:
        row["kind"] = row["kind"] if row["kind"] in told else "others"
    return sorted(rows, key=lambda r: r["kind"] != "others"), frontier


def plot_candidates(frame: polars.DataFrame, *, color: str = "network") -> Chart:
    """Step time and cost of explored candidates, with the frontier among them.

    Parameters
    ----------
    frame : polars.DataFrame
        Columns ``step_time_s`` and ``network_cost_usd``, and `color` if it is there.
    color : str
        Column whose values have colours of their own.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    return styled(candidates_chart(frame, color))


def candidates_chart(frame: polars.DataFrame, color: str) -> Any:
    """Return `plot_candidates`, to be joined with other charts."""
    rows, frontier = candidate_rows(frame, color=color)
    if not rows:
        return empty_chart("No candidate has a step time and a cost.")
    span, seconds = time_unit(max(row["time"] for row in rows))
    size, unit = money_unit(max(row["cost"] for row in rows))
    shown, best = (
        [row | {"time": row["time"] / span, "cost": row["cost"] / size} for row in some]
        for some in (rows, frontier)
    )
    kinds = list(dict.fromkeys(row["kind"] for row in [*best, *reversed(shown)]))
    x = alt.X("cost:Q", title=f"network cost, {unit}", scale=alt.Scale(zero=False))
    low, high = min(row["time"] for row in shown), max(row["time"] for row in shown)
    scale = alt.Scale(zero=False)
    if high - low < 1e-3 * high:  # An axis of digits that mean nothing.
        scale = alt.Scale(domain=[0.98 * low, 1.02 * high])
    y = alt.Y("time:Q", title=f"step time, {seconds}", scale=scale)
    base = alt.Chart(inline(shown), width=WIDTH, height=_HEIGHT)
    several = len(kinds) > 1
    legend = alt.Legend(columns=4) if several else None
    colors = colors_of(kinds, grey=["others"])
    dots = base.mark_circle(size=40, opacity=0.65).encode(
        x=x,
        y=y,
        color=alt.Color("kind:N", scale=colors, sort=kinds, title=None, legend=legend),
        tooltip=["kind:N", "cost:Q", "time:Q"],
    )
    line = alt.Chart(inline(best)).mark_line(color=INK, strokeWidth=1.5, interpolate="step-after")
    return dots + line.encode(x=x, y=y)


Validated: TypeAlias = "polars.DataFrame | Sequence[Mapping[str, Any]]"


def validation_rows(found: Validated) -> list[dict[str, Any]]:
    """Rows of a validation: ``id``, ``set``, ``predicted``, ``measured`` [s], ``error``.

    Parameters
    ----------
    found : polars.DataFrame or sequence of mapping
        Columns ``id``, ``set``, ``predicted_s`` and ``measured_s``: also the ``rows`` that
        ``libra validate --json`` prints.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    columns = ("id", "set", "predicted_s", "measured_s")
    if isinstance(found, Sequence):
        import polars

        rows = [{key: row[key] for key in columns if key in row} for row in found]
        found = polars.DataFrame(rows or dict.fromkeys(columns, ()), infer_schema_length=None)
    _require_columns(found, columns)
    return [
        {
            "id": str(row["id"]),
            "set": str(row["set"]),
            "predicted": row["predicted_s"],
            "measured": row["measured_s"],
            "error": row["predicted_s"] / row["measured_s"] - 1,
        }
        for row in found.iter_rows(named=True)
        if row["predicted_s"] and row["measured_s"]
    ]


def plot_validation(found: Validated) -> Chart:
    """Predicted over measured times, and the errors by set.

    Parameters
    ----------
    found : polars.DataFrame or sequence of mapping
        Columns ``id``, ``set``, ``predicted_s`` and ``measured_s``: also the ``rows`` that
        ``libra validate --json`` prints.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    rows = validation_rows(found)
    if not rows:
        return styled(empty_chart("Nothing has both a predicted and a measured time."))
    sets = list(dict.fromkeys(row["set"] for row in rows))
    # In one row on top, many sets would push the charts apart.
    legend = alt.Legend(orient="bottom", columns=2)
    color = alt.Color("set:N", scale=colors_of(sets), sort=sets, title=None, legend=legend)
    shape = alt.Shape("set:N", scale=shapes_of(sets), sort=sets, title=None, legend=legend)
    plain = alt.Color("set:N", scale=colors_of(sets), sort=sets, legend=None)
    parts = alt.hconcat(
        _scatter(rows, color, shape), _errors(rows, sets, plain), spacing=40
    ).resolve_scale(color="independent", shape="independent", x="independent", y="independent")
    return styled(parts)


def _scatter(rows: Sequence[dict[str, Any]], color: Any, shape: Any) -> Any:
    """Predicted over measured, with the line of equality and ten per cent around it."""
    every = [row[key] for row in rows for key in ("predicted", "measured")]
    span, unit = time_unit(max(every))
    low, high = min(every) / span / 1.15, max(every) / span * 1.15
    shown = [
        row | {"predicted": row["predicted"] / span, "measured": row["measured"] / span}
        for row in rows
    ]
    log = alt.Scale(type="log", domain=[low, high], nice=False)
    ends = [{"x": v, "y": v, "low": v * 0.9, "high": v * 1.1} for v in (low, high)]
    base = alt.Chart(inline(ends), width=330, height=330)
    ticks = alt.Axis(values=log_ticks(low, high))
    x = alt.X("x:Q", scale=log, title=f"measured, {unit}", axis=ticks)
    band = base.mark_area(color=GREY, opacity=0.2, clip=True).encode(
        x=x, y=alt.Y("low:Q", scale=log, title=f"predicted, {unit}", axis=ticks), y2="high:Q"
    )
    line = base.mark_line(color=GREY, strokeWidth=1).encode(x=x, y=alt.Y("y:Q", scale=log))
    dots = alt.Chart(inline(shown)).mark_point(filled=True, size=50, opacity=0.85)
    tip = ["id:N", "set:N", "measured:Q", "predicted:Q", alt.Tooltip("error:Q", format="+.1%")]
    return (
        band
        + line
        + dots.encode(
            x=alt.X("measured:Q", scale=log),
            y=alt.Y("predicted:Q", scale=log),
            color=color,
            shape=shape,
            tooltip=tip,
        )
    ).properties(title="Predicted over measured (band: 10 %)")


def _errors(rows: Sequence[dict[str, Any]], sets: Sequence[str], color: Any) -> Any:
    """Error of each prediction, one line a set, with the mean of its size."""
    means = []
    for name in sets:
        mine = [abs(row["error"]) for row in rows if row["set"] == name]
        text = f"mean {sum(mine) / len(mine):.1%} of {len(mine)}"
        far = max(row["error"] for row in rows)
        means.append({"set": name, "text": text, "error": far})
    base = alt.Chart(inline(list(rows)), width=330, height=alt.Step(ROW + 8))
    y = alt.Y("set:N", sort=list(sets), title=None)
    x = alt.X("error:Q", title="error of the prediction", axis=alt.Axis(format="+.0%", tickCount=6))
    ticks = base.mark_tick(thickness=2, size=16).encode(
        x=x, y=y, color=color, tooltip=["id:N", alt.Tooltip("error:Q", format="+.1%")]
    )
    zero = alt.Chart(inline([{"error": 0}])).mark_rule(color=GREY).encode(x="error:Q")
    text = alt.Chart(inline(means)).mark_text(align="left", dx=12, fontSize=11)
    return (zero + ticks + text.encode(x="error:Q", y=y, text="text:N")).properties(
        title="Error by set"
    )


def _require_columns(frame: polars.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise FieldError(
            "frame",
            f"a chart needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}, got "
            f"{', '.join(frame.columns) or 'none'}. Rename or add.",
        )
