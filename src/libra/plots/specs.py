"""Charts as plain Vega-Lite specifications, in the house style.

The charts of a result are made so, since altair takes longer to load than a report to be written;
`as_chart` makes altair charts of them for notebooks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from libra.plots.look import CONFIG, GREY, MUTED, PALETTE, ROW, SHAPES, WIDTH

if TYPE_CHECKING:
    from libra.plots.theme import Chart

__all__ = [
    "Spec",
    "as_chart",
    "channel",
    "color_scale",
    "drawing",
    "empty_spec",
    "layered",
    "row_data",
    "scaled",
    "shape_scale",
    "stacked_specs",
    "styled_spec",
    "tooltip",
]

Spec = dict[str, Any]
"""Vega-Lite specification, or a part of one."""

_KINDS = {"N": "nominal", "O": "ordinal", "Q": "quantitative"}


def channel(shorthand: str, **options: Any) -> Spec:
    """Channel of an encoding: ``field:N`` (nominal), ``:O`` (ordinal) or ``:Q`` (a quantity)."""
    field, _, kind = shorthand.partition(":")
    return {"field": field, "type": _KINDS[kind], **options}


def tooltip(rows: Sequence[Mapping[str, Any]]) -> list[Spec]:
    """Tooltip of all keys of rows that are for people."""
    if not rows:
        return []
    return [
        channel(f"{key}:{'N' if isinstance(value, str) else 'Q'}")
        for key, value in rows[0].items()
        if key not in ("order", "label")
    ]


def color_scale(names: Sequence[str], grey: Sequence[str] = (), first: int = 0) -> Spec:
    """Colour of each name, in the order of the palette from `first` on; grey for some."""
    own = iter((first + k) % len(PALETTE) for k in range(len(names)))
    colors = [GREY if name in grey else PALETTE[next(own)] for name in names]
    return {"domain": list(names), "range": colors}


def shape_scale(names: Sequence[str]) -> Spec:
    """Shape of each name, which tells it apart where colours do not."""
    return {"domain": list(names), "range": [SHAPES[k % 6] for k in range(len(names))]}


def row_data(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Rows as data of a chart; as one text, since altair would copy and inspect each value."""
    text = json.dumps(rows, ensure_ascii=False, allow_nan=False)
    return {"values": text, "format": {"type": "json"}}


def scaled(rows: Sequence[dict[str, Any]], **factors: float) -> list[dict[str, Any]]:
    """Rows with the given keys divided by what their axes' units hold."""
    return [row | {key: row[key] / by for key, by in factors.items()} for row in rows]


def drawing(mark: str, encoding: Mapping[str, Any], **options: Any) -> Spec:
    """Marks of one kind, with options of the mark."""
    return {"mark": {"type": mark, **options}, "encoding": dict(encoding)}


def layered(base: Mapping[str, Any], *layers: Spec) -> Spec:
    """Drawings above each other; what they share, as data and size, is in the base."""
    return {**base, "layer": list(layers)}


def stacked_specs(parts: Sequence[Spec]) -> Spec:
    """Charts below each other, each with its own colours."""
    own = dict.fromkeys(("color", "shape", "x", "y"), "independent")
    return {"vconcat": list(parts), "spacing": 28, "resolve": {"scale": own}}


def empty_spec(reason: str) -> Spec:
    """Say why there is nothing to draw."""
    said = drawing("text", {"text": channel("reason:N")}, color=MUTED)
    return {"data": row_data([{"reason": reason}]), "width": WIDTH, "height": ROW, **said}


def styled_spec(spec: Spec, *, background: str | None = "white") -> Spec:
    """Specification in the house style; background None: see-through, for a coloured page."""
    look = {"background": "transparent" if background is None else background, **CONFIG}
    return {**spec, "config": look}


def as_chart(spec: Spec) -> Chart:
    """Altair chart of a specification, in the house style."""
    import altair

    kinds: dict[str, Any] = {"vconcat": altair.VConcatChart, "layer": altair.LayerChart}
    kind = next((kinds[key] for key in kinds if key in spec), altair.Chart)
    # The tests check it against the schema, which takes longer than drawing it.
    chart: Chart = kind.from_dict(styled_spec(spec), validate=False)
    return chart
