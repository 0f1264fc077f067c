"""Charts as files: PNG, SVG, PDF, or an HTML page that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from libra.errors import InputError
from libra.files import write_whole

__all__ = ["chart_svg", "require_chart_name", "save_chart"]

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
    chart : Chart
        Of any ``plot_*`` function.
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
            what = vl_convert.vegalite_to_svg(spec, vl_version=version)
        case _:
            what = vl_convert.vegalite_to_html(spec, vl_version=version, bundle=True)
    write_whole(path, what)


def chart_svg(chart: Any) -> str:
    """Chart as SVG text."""
    import vl_convert

    spec, version = _spec(chart)
    svg: str = vl_convert.vegalite_to_svg(spec, vl_version=version)
    return svg


def _spec(chart: Any) -> tuple[dict[str, Any], str]:
    """Vega-Lite specification of a chart, and the version it is written for."""
    import altair

    # Checking a chart against the schema takes longer than drawing it; the tests do that.
    spec = chart.to_dict(validate=False)
    return spec, ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
