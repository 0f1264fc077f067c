"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import typer

__all__ = ["AsJson", "Debug", "DesignFile", "Run", "Settings"]


class Run(Protocol):
    """Runs a command; turns errors into one message and an exit status."""

    def __call__(self, work: Callable[[], None], *, as_json: bool, debug: bool) -> None:
        """Run it."""


DesignFile = Annotated[Path, typer.Argument(metavar="DESIGN", help="The design file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value of the design file."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the program an error arose.")]
