"""``libra schema`` on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from libra.cli_options import Debug, Quiet, Run
from libra.errors import InputError, nearest
from libra.progress import say

__all__ = ["add_schema_command"]


def add_schema_command(app: typer.Typer, run: Run) -> None:
    """Add the command.

    Parameters
    ----------
    app : Typer
    run : callable
        Runs a command.
    """

    @app.command()
    def schema(
        kind: Annotated[
            str, typer.Argument(metavar="[design|space]", help="Of which files.")
        ] = "design",
        output: Annotated[
            Path | None, typer.Option("-o", "--output", help="Write it to a file instead.")
        ] = None,
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        """Print the JSON Schema of design or space files, for editors."""

        def work() -> None:
            from libra.files import write_whole
            from libra.json_schema import SchemaKind, file_schema

            words = [word.value for word in SchemaKind]
            if kind not in words:
                raise InputError(f"schema: unknown kind, got {kind!r}. {nearest(kind, words)}")
            text = json.dumps(file_schema(SchemaKind(kind)), indent=1, ensure_ascii=False) + "\n"
            if output is None:
                sys.stdout.write(text)
            else:
                write_whole(output, text)
                say(f"wrote {output}")

        run(work, as_json=False, debug=debug, quiet=quiet)
