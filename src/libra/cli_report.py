"""``libra report`` on the command line, and ``--plot`` of the commands that have charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libra.cli_options import Debug, Quiet, Run
from libra.progress import say, waited

if TYPE_CHECKING:
    from libra.frontier import Against, FrontierPoint
    from libra.load import DesignReader
    from libra.result import Result
    from libra.sweep import Axis, SweepRow

__all__ = ["add_report_command", "draw_frontier", "draw_result", "draw_sweep"]


def add_report_command(app: typer.Typer, run: Run) -> None:
    """Add ``libra report``."""

    @app.command()
    def report(
        results: Annotated[
            list[Path], typer.Argument(metavar="RESULT…", help="Results (JSON), of -o.")
        ],
        output: Annotated[
            Path, typer.Option("-o", "--output", help="The page (HTML) to write.")
        ] = Path("report.html"),
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        """Write one self-contained page of results: works offline, with live what-if."""

        def work() -> None:
            from libra.report import write_report

            waited("writing", write_report, results, output)
            say(f"wrote {output}")

        run(work, as_json=False, debug=debug, quiet=quiet)


def draw_result(path: Path | None, result: Result) -> None:
    """Draw a result, if that was asked for."""
    if path is not None:
        from libra.plots.of_results import result_bars
        from libra.plots.specs import styled_spec

        _write(path, styled_spec(result_bars(result)))


def draw_frontier(
    path: Path | None, points: Sequence[FrontierPoint], names: Sequence[str], against: Against
) -> None:
    """Draw a frontier, if that was asked for."""
    if path is not None:
        from libra.plots import plot_frontier

        _write(path, plot_frontier(points, names, against))


def draw_sweep(
    path: Path | None, reader: DesignReader, axes: Sequence[Axis], rows: Sequence[SweepRow]
) -> None:
    """Draw a sweep, if that was asked for."""
    if path is not None:
        from libra.plots import plot_sweep
        from libra.plots.series_rows import x_axis
        from libra.sweep import axis_unit

        main = x_axis(axes)
        unit = "" if main is None else axis_unit(reader, axes[main])
        _write(path, plot_sweep(axes, rows, unit))


def _write(path: Path, chart: Any) -> None:
    from libra.plots import save_chart

    waited("drawing", save_chart, chart, path)
    say(f"wrote {path}")
