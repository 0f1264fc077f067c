"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "Debug", "DesignFile", "Settings"]

DesignFile = Annotated[Path, typer.Argument(metavar="DESIGN", help="The design file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a value of the design file."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the program an error arose.")]
