"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import typer

from libra.errors import InputError

__all__ = [
    "AsJson",
    "CsvFile",
    "Debug",
    "DesignFile",
    "JsonFile",
    "Output",
    "PlotFile",
    "Quiet",
    "Run",
    "Settings",
    "Simulate",
    "Timeline",
]


class Run(Protocol):
    """Runs a command; turns errors into one message and an exit status."""

    def __call__(
        self, work: Callable[[], None], *, as_json: bool, debug: bool, quiet: bool = False
    ) -> None:
        """Run it."""


def _checked_name(path: Path | None) -> Path | None:
    """Name of a chart's file, refused before anything is solved if it says no kind."""
    if path is not None:
        from libra.plots.save import require_chart_name

        try:
            require_chart_name(path)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None
    return path


PlotFile = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.{png,svg,pdf,html}",
        help="Draw it, too.",
        callback=_checked_name,
    ),
]


DesignFile = Annotated[Path, typer.Argument(metavar="DESIGN", help="The design file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value of the design file."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the program an error arose.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the result, design inside, as JSON.")
]
JsonFile = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the JSON object to a file, too.")
]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write the rows as CSV, too.")
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Simulate the steps chunk by chunk, as a second opinion.")
]
Timeline = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="Write when each task (and simulated chunk) runs."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no messages.")]
