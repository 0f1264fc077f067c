"""The page as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from libra import __version__
from libra.report.cards import item_section
from libra.report.compared import comparison_section, start_comparison
from libra.report.figures import start_figures
from libra.report.html import Html, fill_in, join, json_script, tag
from libra.report.items import items_of
from libra.report.what_if import what_if_model
from libra.result import Result

__all__ = ["render_page"]


def render_page(results: Sequence[Result | str | Path]) -> str:
    """HTML of a page of results or result files, see `libra.report.write_report`."""
    items = items_of(results)
    several = len(items) > 1
    title = items[0].name if not several else f"{len(items)} results compared"
    keys = [f"r{k + 1}" for k in range(len(items))]
    compared = start_comparison(items) if several else None
    figures = [start_figures(item, key) for item, key in zip(items, keys, strict=True)]
    data = [
        json_script(what_if_model(item.result), f"{key}-model")
        for item, key in zip(items, keys, strict=True)
        if item.result is not None
    ]
    content = [comparison_section(items, compared)] if compared else []
    content += [
        item_section(item, key, drawn, alone=not several)
        for item, key, drawn in zip(items, keys, figures, strict=True)
    ]
    return fill_in(
        _text("page.html"),
        {
            "VERSION": __version__,
            "TITLE": join([f"{title} - libra report"]),
            "STYLE": _text("page.css"),
            "CONTENT": join([tag("h1", title), *content]),
            "DATA": join(data),
            "MODEL": _text("step_model.js"),
            "SCRIPT": _text("page.js"),
        },
    )


def _text(name: str) -> Html:
    return Html(resources.files("libra.report").joinpath(name).read_text("utf-8"))
