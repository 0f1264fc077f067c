"""Charts as part of the page: SVG that takes the page's colours."""

from __future__ import annotations

import re
from typing import Any

from libra.plots.save import chart_svg
from libra.plots.theme import GRID, INK, MUTED, styled
from libra.report.html import Html, tag

__all__ = ["figure"]

_INK = {INK: "currentColor", MUTED: "var(--muted)", GRID: "var(--grid)"}


def figure(chart: Any, key: str, title: str, caption: str = "") -> Html:
    """Figure of a chart that is not styled yet.

    Parameters
    ----------
    chart : Chart
    key : str
        Different for each figure of a page.
    title : str
        What it shows, for those who cannot see it.
    caption : str
    """
    svg = chart_svg(styled(chart, background=None))
    for color, name in _INK.items():
        svg = svg.replace(f'"{color}"', f'"{name}"')
    svg = re.sub(r'(id="|url\(#)([a-z]+_?\d+)', rf"\g<1>{key}-\g<2>", svg)
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert size is not None
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{_quoted(title)}" ', 1)
    return tag("figure", Html(svg), tag("figcaption", caption) if caption else None)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
