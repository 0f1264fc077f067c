"""Charts as files: PNG, SVG, PDF, or an HTML page that needs no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from libra.errors import InputError
from libra.files import write_whole
from libra.plots.engine import draw_svg

__all__ = ["chart_svg", "json_for_script", "require_chart_name", "save_chart"]

KINDS = (".png", ".svg", ".pdf", ".html")


def require_chart_name(path: Path) -> None:
    """Refuse a file name whose ending is no kind of chart.

    Raises
    ------
    InputError
        Names the kinds.
    """
    if path.suffix.lower() not in KINDS:
        raise InputError(
            f"a chart's name says its kind, got {path.name!r}. End it in "
            f"{', '.join(KINDS[:-1])} or {KINDS[-1]}."
        )


def save_chart(chart: Any, path: str | Path) -> None:
    """Write a chart; the ending of the name says the kind: .png, .svg, .pdf or .html.

    Parameters
    ----------
    chart : Chart or mapping
        Of any ``plot_*`` function; or a Vega-Lite specification.
    path : str or Path
        An HTML page holds all its scripts, and can be moved and zoomed.

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.
    """
    import vl_convert

    path = Path(path)
    require_chart_name(path)
    spec, version = _spec(chart)
    what: str | bytes
    match path.suffix.lower():
        case ".png":
            what = vl_convert.vegalite_to_png(spec, vl_version=version, scale=2)
        case ".pdf":
            what = vl_convert.vegalite_to_pdf(spec, vl_version=version)
        case ".svg":
            what = draw_svg(spec, version)
        case _:
            # Without a snippet it holds Vega, Vega-Lite and vegaEmbed; its type leaves that out.
            scripts = vl_convert.javascript_bundle(None, vl_version=version)  # type: ignore[arg-type]
            what = _page(path.stem, spec, scripts)
    write_whole(path, what)


def chart_svg(chart: Any) -> str:
    """Chart as SVG text."""
    return draw_svg(*_spec(chart))


def json_for_script(data: Any) -> str:
    """Data as JSON that no ``<script>`` element around it ends early."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _page(title: str, spec: Mapping[str, Any], scripts: str) -> str:
    """Page that draws a chart with scripts of its own.

    The drawing engine can write one, too, but a name with ``</script>`` in it would end it.
    """
    template = resources.files("libra.plots").joinpath("chart.html").read_text("utf-8")
    parts = {"TITLE": html.escape(title), "SCRIPTS": scripts, "SPEC": json_for_script(spec)}
    return re.sub(r"@@([A-Z]+)@@", lambda match: parts[match[1]], template)


def _spec(chart: Any) -> tuple[dict[str, Any], str | None]:
    """Vega-Lite specification of a chart, and the version it is written for; None: the latest."""
    if isinstance(chart, Mapping):
        return dict(chart), None
    import altair

    # Checking a chart against the schema takes longer than drawing it; the tests do that.
    spec = chart.to_dict(validate=False)
    return spec, ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
