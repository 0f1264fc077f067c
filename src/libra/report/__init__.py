"""One page that shows results, works offline and can be sent by mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra.result import Result

__all__ = ["render_report", "write_report"]


def write_report(results: Sequence[Result | str | Path], path: str | Path) -> None:
    """Write a page of one or several results: HTML that needs no network, nor any other file.

    Parameters
    ----------
    results : sequence of Result, str or Path
        Results, or result files as ``libra optimize -o`` writes them.
    path : str or Path
        Where to write it.

    Raises
    ------
    InputError
        If there is no result, a file is none, or the page cannot be written.

    Notes
    -----
    The page times steps itself, see `libra.report.what_if`. A result file is shown in full where
    its design's traces can still be read, and says what is left out where they cannot.
    """
    from libra.files import write_whole

    write_whole(Path(path), render_report(results))


def render_report(results: Sequence[Result | str | Path]) -> str:
    """HTML of the page, see `write_report`."""
    from libra.plots.engine import engine_ahead

    with engine_ahead():
        from libra.report.page import render_page

        return render_page(results)
