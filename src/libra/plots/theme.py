"""How charts look: colours that colour-blind people tell apart, sizes, units of axes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

__all__ = [
    "GREY",
    "GRID",
    "INK",
    "MUTED",
    "Chart",
    "colors_of",
    "empty_chart",
    "inline",
    "log_ticks",
    "money_unit",
    "power_unit",
    "scaled",
    "shapes_of",
    "styled",
    "time_unit",
]

Chart = alt.Chart | alt.LayerChart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart

INK, MUTED, GRID = "#1c2128", "#57606b", "#d5dae0"
GREY = "#8b929c"
# Okabe and Ito's colours (jfly.uni-koeln.de/color), yellow left out: too pale on white.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a5195", "#a6761d")
# The drawing engine measures text in Liberation Sans, which is as wide as Arial and Helvetica.
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
WIDTH = 520
ROW = 26


_LOOK: dict[str, Any] = {
    "font": FONT,
    "padding": 6,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 330,
        "labelFlush": False,
        "labelOverlap": True,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "top",
        "labelLimit": 330,
    },
    "title": {
        "color": INK,
        "fontSize": 14,
        "fontWeight": 600,
        "anchor": "start",
        "frame": "group",
        "offset": 10,
    },
    "text": {"color": INK, "fontSize": 12},
}
"""Configuration of Vega-Lite."""


def colors_of(names: Sequence[str], grey: Sequence[str] = (), first: int = 0) -> alt.Scale:
    """Colour of each name, in the order of the palette from `first` on; grey for some."""
    own = iter((first + k) % len(PALETTE) for k in range(len(names)))
    colors = [GREY if name in grey else PALETTE[next(own)] for name in names]
    return alt.Scale(domain=list(names), range=colors)


def shapes_of(names: Sequence[str]) -> alt.Scale:
    """Shape of each name, which tells it apart where colours do not."""
    shapes = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down")
    return alt.Scale(domain=list(names), range=[shapes[k % 6] for k in range(len(names))])


def styled(chart: Any, *, background: str | None = "white") -> Chart:
    """Chart in the house style.

    Parameters
    ----------
    chart : Chart
    background : str or None
        None: see-through, for a page of its own colour.
    """
    result: Chart = chart.copy(deep=False)
    look = {"background": "transparent" if background is None else background, **_LOOK}
    result.config = alt.Config(**look)
    return result


def inline(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as data of a chart; as one text, since altair would copy and inspect each value."""
    values = json.dumps(rows, ensure_ascii=False, allow_nan=False)
    return alt.InlineData(values=values, format={"type": "json"})


def empty_chart(reason: str) -> Any:
    """Say why there is nothing to draw."""
    data = inline([{"reason": reason}])
    return alt.Chart(data, width=WIDTH, height=ROW).mark_text(color=MUTED).encode(text="reason:N")


def scaled(rows: Sequence[dict[str, Any]], **factors: float) -> list[dict[str, Any]]:
    """Rows with the given keys divided by what their axes' units hold."""
    return [row | {key: row[key] / by for key, by in factors.items()} for row in rows]


def time_unit(longest: float) -> tuple[float, str]:
    """Unit of an axis of times up to the longest [s]: its size and name."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if longest >= size:
            return size, name
    return 1e-9, "ns"


def money_unit(most: float) -> tuple[float, str]:
    """Unit of an axis of money up to the most [USD]: its size and name."""
    for size, name in ((1e9, "G USD"), (1e6, "M USD"), (1e3, "k USD")):
        if most >= size:
            return size, name
    return 1.0, "USD"


def power_unit(most: float) -> tuple[float, str]:
    """Unit of an axis of power up to the most [W]: its size and name."""
    for size, name in ((1e6, "MW"), (1e3, "kW")):
        if most >= size:
            return size, name
    return 1.0, "W"


def log_ticks(low: float, high: float) -> list[float]:
    """Labelled values of a logarithmic axis: powers of ten, with 2 and 5 between a few of them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    within = (1.0,) if len(decades) > 4 else (1.0, 2.0, 5.0)
    return [m * 10.0**k for k in decades for m in within]
