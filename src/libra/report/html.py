"""HTML from Python values; whatever is not HTML already is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from libra.plots.save import json_for_script

__all__ = ["Html", "card", "fill_in", "join", "json_script", "not_shown", "table", "tag"]


class Html(str):
    """Text that is HTML already; all other text is escaped where it enters a page."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | bool | None) -> Html:
    """Element with children and attributes.

    Parameters
    ----------
    name : str
    children : str or None
        Text, which is escaped, or `Html`; None: nothing.
    attributes : str, bool or None
        ``_`` stands for ``-``, a trailing one for nothing; None or False: leave it out.

    Examples
    --------
    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        words.append(word if value is True else f'{word}="{html.escape(value)}"')
    head = " ".join(words)
    if name in ("br", "input", "meta"):
        return Html(f"<{head}>")
    return Html(f"<{head}>{join(children)}</{name}>")


def join(children: Sequence[str | None]) -> Html:
    """Children one after the other, text escaped."""
    return Html(
        "".join(c if isinstance(c, Html) else html.escape(c) for c in children if c is not None)
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str | None]], *, caption: str) -> Html:
    """Table that scrolls sideways where the page is narrow.

    Parameters
    ----------
    head : sequence of str
    rows : sequence of sequence of str or None
    caption : str
        What it shows, for those who cannot see it.
    """
    columns = zip(*rows, strict=True) if rows else [[] for _ in head]
    marks = ["number" if k and _are_numbers(c) else None for k, c in enumerate(columns)]
    cells = [tag("th", h, scope="col", class_=m) for h, m in zip(head, marks, strict=True)]
    body = [
        tag("tr", *(_cell(k, c, m) for k, (c, m) in enumerate(zip(row, marks, strict=True))))
        for row in rows
    ]
    inner = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *cells)),
        tag("tbody", *body),
    )
    return tag("div", inner, class_="wide", tabindex="0", role="region", aria_label=caption)


_NUMBER = re.compile(r"[-+]?[\d.]|(?:none|many|included|any|no end)?$")


def _are_numbers(cells: Sequence[str | None]) -> bool:
    """Whether cells hold numbers, which stand right, rather than words."""
    return bool(cells) and all(_NUMBER.match(cell or "") for cell in cells)


def _cell(column: int, content: str | None, mark: str | None) -> Html:
    if column == 0:
        return tag("th", content, scope="row")
    return tag("td", content, class_=mark)


def card(title: str, *children: str | None, key: str) -> Html:
    """Part of the page with a heading."""
    return tag(
        "section",
        tag("h3", title, id=key),
        *children,
        class_="card",
        aria_labelledby=key,
    )


def not_shown(reason: str) -> Html:
    """Why a card has nothing to show."""
    return tag("p", f"Not shown: {reason}", class_="none")


def json_script(data: Any, name: str) -> Html:
    """Data for the page's scripts; nothing in it can end the element."""
    text = json_for_script(data)
    return tag("script", Html(text), type="application/json", id=name)


def fill_in(template: str, parts: Mapping[str, str]) -> str:
    """Template with ``@@NAME@@`` replaced in one pass, so that parts are not searched again."""
    return re.sub(r"@@([A-Z]+)@@", lambda match: parts[match[1]], template)
