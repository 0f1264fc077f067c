"""Charts of explorations: the best of two degrees, and choices side by side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import altair as alt

from libra.errors import FieldError
from libra.plots.exploration_rows import CHOICES, coordinate_rows, heat_rows
from libra.plots.of_frames import candidates_chart
from libra.plots.theme import (
    GREY,
    GRID,
    INK,
    Chart,
    empty_chart,
    inline,
    styled,
    time_unit,
)

if TYPE_CHECKING:
    import polars

__all__ = ["plot_coordinates", "plot_exploration", "plot_heat_map"]

_HEIGHT = 320
_CELL_WIDTH, _CELL_HEIGHT = 76, 34
_AXIS_WIDTH = 92
_BEST = "#d55e00"
_NOTHING = "No candidate was solved."


def plot_exploration(frame: polars.DataFrame, *, best: int = 10) -> Chart:
    """What an exploration found: time and cost, the best of each two degrees, the choices.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of an exploration, `libra.explore.store.read_exploration`.
    best : int
        How many candidates to single out.
    """
    if not _solved(frame):
        return styled(empty_chart(_NOTHING))
    charts = [candidates_chart(frame, "network").properties(title="Time and cost")]
    prefix = "w0_" if "w0_tp" in frame.columns else ""
    if any(frame[prefix + key].n_unique() > 1 for key in ("tp", "pp")):
        charts.append(_heat_map(frame, prefix + "tp", prefix + "pp"))
    charts.append(_coordinates(frame, best, 200))
    joined = alt.vconcat(*charts, spacing=36)
    return styled(joined.resolve_scale(color="independent", x="independent", y="independent"))


def plot_heat_map(frame: polars.DataFrame, *, x: str = "tp", y: str = "pp") -> Chart:
    """Best objective for each pair of values of two columns, whatever the rest is.

    Where all candidates of a pair were pruned it says what they cannot go below.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of an exploration.
    x, y : str
        Columns.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    if not _solved(frame):
        return styled(empty_chart(_NOTHING))
    return styled(_heat_map(frame, x, y))


def plot_coordinates(frame: polars.DataFrame, *, best: int = 10, most: int = 200) -> Chart:
    """Parallel coordinates: each candidate a line through its choices, to its objective.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of an exploration.
    best : int
        How many lines to single out.
    most : int
        How many of the best candidates are drawn at all.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    if not _solved(frame):
        return styled(empty_chart(_NOTHING))
    return styled(_coordinates(frame, best, most))


def _solved(frame: polars.DataFrame) -> int:
    missing = [name for name in ("objective", "bound", "status") if name not in frame.columns]
    if missing:
        raise FieldError(
            "frame",
            f"a chart of an exploration needs {', '.join(missing)}, got "
            f"{', '.join(frame.columns) or 'no columns'}. Read what `libra explore` has written.",
        )
    return int(frame["objective"].is_not_null().sum())


def _unit(frame: polars.DataFrame) -> tuple[float, str]:
    """Size and name of the unit of the objective, which is a time, or a cost, or their product."""
    solved = frame.filter(frame["objective"].is_not_null())
    if solved["objective"].equals(solved["step_time_s"]):
        span, unit = time_unit(float(solved["step_time_s"].max()))  # type: ignore[arg-type]
        return span, f"step time, {unit}"
    return 1.0, "objective"


def _heat_map(frame: polars.DataFrame, x: str, y: str) -> Any:
    span, title = _unit(frame)
    rows = heat_rows(frame, x, y)
    for row in rows:
        if row["value"] is not None:
            row["value"] /= span
            row["text"] = f"{'> ' if row['kind'] == 'pruned' else ''}{row['value']:.4g}"
    across, down = (list(dict.fromkeys(sorted(row[k] for row in rows))) for k in "xy")
    least = min(row["value"] for row in rows if row["kind"] == "solved")
    most = max(row["value"] for row in rows if row["kind"] == "solved")
    base = alt.Chart(
        inline(rows), width=_CELL_WIDTH * len(across), height=_CELL_HEIGHT * len(down)
    ).encode(
        x=alt.X("x:O", sort=across, title=_word(x), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("y:O", sort=down[::-1], title=_word(y)),
    )
    scale = alt.Scale(range=["#0072b2", "#e8f1f8"], domain=[least, max(most, least * 1.01)])
    cells = base.transform_filter("datum.kind == 'solved'").mark_rect(stroke="white")
    others = base.transform_filter("datum.kind != 'solved'").mark_rect(fill="none", stroke=GRID)
    dark = f"datum.kind == 'solved' && datum.value <= {least + 0.5 * (most - least)!r}"
    text = base.mark_text(fontSize=11).encode(
        text="text:N",
        color=alt.condition(dark, alt.value("white"), alt.value(INK)),
        tooltip=["text:N", "network:N"],
    )
    color = alt.Color("value:Q", scale=scale, legend=None)
    what = f"Best {title} (>: pruned above this; –: not possible)"
    return (others + cells.encode(color=color) + text).properties(
        title=alt.TitleParams(what, fontSize=13)
    )


def _coordinates(frame: polars.DataFrame, best: int, most: int) -> Any:
    span, title = _unit(frame)
    lines, ticks, axes = coordinate_rows(frame, span, title.split(",")[0], best, most)
    width = _AXIS_WIDTH * (len(axes) - 1)
    x = alt.X(
        "axis:N",
        sort=axes,
        title=None,
        scale=alt.Scale(type="point", padding=0.1),
        axis=alt.Axis(labelAngle=0, orient="top", labelExpr=_LABEL, grid=False, domain=False,
                      ticks=False, labelFontWeight=600),
    )  # fmt: skip
    y = alt.Y("position:Q", axis=None, scale=alt.Scale(domain=[-0.04, 1.04]))
    base = alt.Chart(inline(lines), width=width, height=_HEIGHT)
    order = alt.Order("place:Q")
    tip = ["rank:Q", "network:N", "objective:Q"]
    plain = (
        base.transform_filter(f"datum.rank > {best}")
        .mark_line(strokeWidth=0.8, opacity=0.35, color=GREY)
        .encode(x=x, y=y, detail="rank:N", order=order)
    )
    singled, first = (
        base.transform_filter(chosen)
        .mark_line(strokeWidth=width_of, opacity=0.75, color=color)
        .encode(x=x, y=y, detail="rank:N", order=order, tooltip=tip)
        for chosen, width_of, color in (
            (f"datum.rank > 1 && datum.rank <= {best}", 1.6, "#0072b2"),
            ("datum.rank == 1", 2.4, _BEST),
        )
    )
    marks = alt.Chart(inline(ticks))
    rules = marks.mark_rule(color=GRID, strokeWidth=1.2).encode(x=x)
    text = marks.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(
        x=x, y=y, text="text:N"
    )
    halo = marks.mark_text(
        align="left", dx=5, fontSize=11, stroke="white", strokeWidth=4, strokeOpacity=0.9
    ).encode(x=x, y=y, text="text:N")
    ranks = len({row["rank"] for row in lines})
    return (rules + plain + singled + first + halo + text).properties(
        title=f"The best {ranks} candidates: the first in orange, {min(best, ranks)} in colour"
    )


_LABEL = "replace(datum.label, '_', ' ')"


def _word(column: str) -> str:
    """What a person calls a column of degrees."""
    key = re.sub(r"^w\d+_", "", column)
    number = re.match(r"^w(\d+)_", column)
    word = CHOICES.get(key, key)
    return f"{word} of workload {number[1]}" if number else word
