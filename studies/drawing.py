"""Parts of the studies' figures that several of them draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from libra.plots.theme import WIDTH, Chart, colors_of, inline, log_ticks, shapes_of, styled

__all__ = ["bars", "framed", "lines", "stacks"]

HEIGHT = 200


def framed(*panels: Any) -> Chart:
    """Panels below each other in the style of libra's charts, each with its own legend."""
    return styled(
        alt.VConcatChart(vconcat=list(panels), spacing=28).resolve_scale(
            color="independent", shape="independent", yOffset="independent"
        )
    )


def lines(
    rows: Sequence[Mapping[str, Any]],
    x: tuple[str, str],
    y: tuple[str, str],
    series: str,
    title: str,
    *,
    log: bool = False,
    log_x: bool = False,
    height: int = HEIGHT,
) -> Any:
    """Lines with marks over numbers, one of each value of a series.

    Parameters
    ----------
    rows : sequence of mapping
    x, y : (str, str)
        Key and title of the axis.
    series : str
        Key by which lines are told apart, by colour and by shape.
    title : str
        Of the panel.
    log, log_x : bool
        Whether y, and x, are logarithmic; x then has a tick at each of its values.
    height : int
    """
    names = list(dict.fromkeys(row[series] for row in rows))
    scale = alt.Scale(type="log") if log else alt.Scale(zero=False)
    values = [row[y[0]] for row in rows]
    marked: dict[str, Any] = {"values": log_ticks(min(values), max(values))} if log else {}
    upright = alt.Axis(format=",~f", tickCount=6, **marked)
    along = alt.Scale(type="log", nice=False) if log_x else alt.Scale(zero=False)
    ticks: dict[str, Any] = (
        {"values": sorted({row[x[0]] for row in rows}), "format": ",~f"} if log_x else {}
    )
    base = alt.Chart(inline(rows), width=WIDTH, height=height, title=title)
    at = {
        "x": alt.X(f"{x[0]}:Q", title=x[1], scale=along, axis=alt.Axis(tickCount=10, **ticks)),
        "y": alt.Y(f"{y[0]}:Q", title=y[1], scale=scale, axis=upright),
        "color": alt.Color(f"{series}:N", scale=colors_of(names), sort=names, title=None),
    }
    shape = alt.Shape(f"{series}:N", scale=shapes_of(names), sort=names, title=None)
    dots = base.mark_point(filled=True, size=44, opacity=1).encode(**at, shape=shape)
    return base.mark_line().encode(**at) + dots


def bars(
    rows: Sequence[Mapping[str, Any]],
    x: tuple[str, str],
    y: str,
    series: str,
    title: str,
    *,
    form: str = ".2f",
) -> Any:
    """Horizontal bars, grouped by y, one of each value of a series, with their values written.

    Parameters
    ----------
    rows : sequence of mapping
    x : (str, str)
        Key and title of the lengths.
    y : str
        Key of the groups.
    series : str
        Key by which the bars of a group are told apart.
    title : str
        Of the panel.
    form : str
        How the values are written.
    """
    names = list(dict.fromkeys(row[series] for row in rows))
    axis = alt.Axis(format=".0%" if form.endswith("%") else ",~f", tickCount=8, grid=False)
    groups = list(dict.fromkeys(row[y] for row in rows))
    base = alt.Chart(inline(rows), width=WIDTH, height=alt.Step(18), title=title)
    at = {
        "x": alt.X(f"{x[0]}:Q", title=x[1], axis=axis),
        "y": alt.Y(f"{y}:N", sort=groups, title=None, scale=alt.Scale(paddingInner=0.3)),
        "yOffset": alt.YOffset(f"{series}:N", sort=names),
    }
    color = alt.Color(f"{series}:N", scale=colors_of(names), sort=names, title=None)
    text = base.mark_text(align="left", dx=4).encode(**at, text=alt.Text(f"{x[0]}:Q", format=form))
    return base.mark_bar().encode(**at, color=color) + text


def stacks(
    rows: Sequence[Mapping[str, Any]],
    x: tuple[str, str],
    y: tuple[str, str],
    series: str,
    title: str,
    *,
    height: int = HEIGHT,
) -> Any:
    """Upright bars that add up the values of a series, its first value at the bottom.

    Parameters
    ----------
    rows : sequence of mapping
    x, y : (str, str)
        Key and title of the bars and of the heights.
    series : str
        Key of the parts of a bar.
    title : str
        Of the panel.
    height : int
    """
    names = list(dict.fromkeys(row[series] for row in rows))
    ranked = [dict(row) | {"rank": names.index(row[series])} for row in rows]
    chart = alt.Chart(inline(ranked), width=WIDTH, height=height, title=title).mark_bar()
    total: dict[Any, float] = {}
    for row in rows:
        total[row[x[0]]] = total.get(row[x[0]], 0.0) + row[y[0]]
    # Without the digits that a solver leaves open, which would move the end of a round axis.
    upright = alt.Scale(domainMax=float(f"{max(total.values()):.6g}"))
    return chart.encode(
        x=_steps(x),
        y=alt.Y(f"{y[0]}:Q", title=y[1], axis=alt.Axis(tickCount=6), scale=upright),
        color=alt.Color(f"{series}:N", scale=colors_of(names), sort=names, title=None),
        order=alt.Order("rank:Q"),
    )


def _steps(x: tuple[str, str]) -> alt.X:
    """Axis on which each value takes the same room, in the order of the rows."""
    return alt.X(f"{x[0]}:O", title=x[1], sort=None, axis=alt.Axis(labelAngle=0))
