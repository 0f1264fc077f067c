"""Charts as part of the page: SVG that takes the page's colours."""

from __future__ import annotations

import re
from collections.abc import Callable

from libra.plots.engine import start_drawing
from libra.plots.look import GRID, INK, MUTED
from libra.plots.specs import Spec, styled_spec
from libra.report.html import Html, tag

__all__ = ["Figure", "start_figure"]

Figure = Callable[[], Html]
"""Waits until a figure is drawn, and gives it."""

_INK = {INK: "currentColor", MUTED: "var(--muted)", GRID: "var(--grid)"}


def start_figure(spec: Spec, key: str, title: str, caption: str = "") -> Figure:
    """Start to draw the figure of a chart that is not styled yet.

    Parameters
    ----------
    spec : mapping
    key : str
        Different for each figure of a page.
    title : str
        What it shows, for those who cannot see it.
    caption : str
    """
    drawn = start_drawing(styled_spec(spec, background=None))
    return lambda: _figure(drawn(), key, title, caption)


def _figure(svg: str, key: str, title: str, caption: str) -> Html:
    for color, name in _INK.items():
        svg = svg.replace(f'"{color}"', f'"{name}"')
    svg = re.sub(r'(id="|url\(#)([a-z]+_?\d+)', rf"\g<1>{key}-\g<2>", svg)
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert size is not None
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{_quoted(title)}" ', 1)
    return tag("figure", Html(svg), tag("figcaption", caption) if caption else None)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
