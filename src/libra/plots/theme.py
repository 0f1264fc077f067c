"""The house style for charts that altair builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from libra.plots.look import (
    CONFIG,
    GREY,
    GRID,
    INK,
    MUTED,
    ROW,
    WIDTH,
    log_ticks,
    money_unit,
    power_unit,
    time_unit,
)
from libra.plots.specs import color_scale, empty_spec, row_data, shape_scale

__all__ = [
    "GREY",
    "GRID",
    "INK",
    "MUTED",
    "ROW",
    "WIDTH",
    "Chart",
    "colors_of",
    "empty_chart",
    "inline",
    "log_ticks",
    "money_unit",
    "power_unit",
    "shapes_of",
    "stacked",
    "styled",
    "time_unit",
    "titled",
]

Chart = alt.Chart | alt.LayerChart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart


def colors_of(names: Sequence[str], grey: Sequence[str] = (), first: int = 0) -> alt.Scale:
    """Colour of each name, in the order of the palette from `first` on; grey for some."""
    return alt.Scale(**color_scale(names, grey, first))


def shapes_of(names: Sequence[str]) -> alt.Scale:
    """Shape of each name, which tells it apart where colours do not."""
    return alt.Scale(**shape_scale(names))


def styled(chart: Any, *, background: str | None = "white") -> Chart:
    """Chart in the house style.

    Parameters
    ----------
    chart : Chart
    background : str or None
        None: see-through, for a page of its own colour.
    """
    result: Chart = chart.copy(deep=False)
    look = {"background": "transparent" if background is None else background, **CONFIG}
    result.config = alt.Config(**look)
    return result


def titled(chart: Any, title: str) -> Any:
    """Chart with a title."""
    return chart.properties(title=title)


def stacked(parts: Sequence[Any]) -> Any:
    """Charts below each other, each with its own colours."""
    joined = alt.vconcat(*parts, spacing=28)
    return joined.resolve_scale(
        color="independent", shape="independent", x="independent", y="independent"
    )


def inline(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as data of a chart; as one text, since altair would copy and inspect each value."""
    return alt.InlineData(**row_data(rows))


def empty_chart(reason: str) -> Any:
    """Say why there is nothing to draw."""
    return alt.Chart.from_dict(empty_spec(reason), validate=False)
