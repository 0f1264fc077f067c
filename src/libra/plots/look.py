"""How charts look: colours that colour-blind people tell apart, sizes, units of axes."""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    "CONFIG",
    "GREY",
    "GRID",
    "INK",
    "MUTED",
    "PALETTE",
    "ROW",
    "SHAPES",
    "WIDTH",
    "log_ticks",
    "money_unit",
    "power_unit",
    "time_unit",
]

INK, MUTED, GRID = "#1c2128", "#57606b", "#d5dae0"
GREY = "#8b929c"
# Okabe and Ito's colours (jfly.uni-koeln.de/color), yellow left out: too pale on white.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7a5195", "#a6761d")
SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down")
# The drawing engine measures text in Liberation Sans, which is as wide as Arial and Helvetica.
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
WIDTH = 520
ROW = 26

CONFIG: dict[str, Any] = {
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
