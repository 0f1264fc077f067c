"""``libra validate`` and ``libra calibrate`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from libra.cli_options import AsJson, Debug, JsonFile, Quiet, Run

__all__ = ["add_model_commands"]

Measurements = Annotated[
    Path, typer.Argument(metavar="MEASUREMENTS.csv", help="Measured training steps.")
]


def add_model_commands(app: typer.Typer, run: Run) -> None:
    """Add the two commands.

    Parameters
    ----------
    app : Typer
    run : callable
        Runs a command.
    """

    @app.command()
    def validate(
        measurements: Measurements,
        tier: Annotated[str, typer.Option(help="Only rows of this tier, e.g. A.")] = "",
        as_json: AsJson = False,
        output: JsonFile = None,
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        """Compare predicted with measured step times, by set, and say what was skipped."""

        def work() -> None:
            from libra.validate_command import validate_command

            validate_command(measurements, tier, output, as_json=as_json)

        run(work, as_json=as_json, debug=debug, quiet=quiet)

    @app.command()
    def calibrate(
        measurements: Measurements,
        output: Annotated[
            Path, typer.Option("-o", "--output", help="The accelerator file to write (YAML).")
        ],
        accelerator: Annotated[
            str, typer.Option(help="Preset to start from, where the rows do not name one.")
        ] = "",
        as_json: AsJson = False,
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        """Fit an accelerator's efficiencies to measured steps or collectives (nccl-tests)."""

        def work() -> None:
            from libra.validate_command import calibrate_command

            calibrate_command(measurements, output, accelerator, as_json=as_json)

        run(work, as_json=as_json, debug=debug, quiet=quiet)
