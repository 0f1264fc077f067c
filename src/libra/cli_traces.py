"""``libra import`` and ``libra export`` on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra.cli_options import AsJson, Debug, DesignFile, Quiet, Run, Settings

if TYPE_CHECKING:
    from libra.design import Design

__all__ = ["add_trace_commands"]


def add_trace_commands(
    app: typer.Typer,
    run: Run,
    load: Callable[[Path, Sequence[str] | None], Design],
    bandwidths: Callable[[str], list[float]],
) -> None:
    """Add the two commands.

    Parameters
    ----------
    app : Typer
    run : callable
        Runs a command.
    load : callable
        Design of a file and ``--set`` options.
    bandwidths : callable
        Values of ``--bandwidth`` [bytes/s].
    """
    _add_import(app, run)
    _add_export(app, run, load, bandwidths)


def _add_import(app: typer.Typer, run: Run) -> None:
    @app.command("import")
    def import_(
        trace: Annotated[
            Path,
            typer.Argument(metavar="FILE", help="Chakra trace (w.et, w.*.et) or text workload."),
        ],
        output: Annotated[Path, typer.Option("-o", "--output", help="The design file to write.")],
        network: Annotated[
            str,
            typer.Option(help="Shape, preset, or ASTRA-sim network.yml, which the trace lacks."),
        ] = "",
        tiers: Annotated[str, typer.Option(metavar="T1,T2,…", help="Tier of each dimension.")] = "",
        comm_groups: Annotated[
            Path | None, typer.Option(help="Members of the process groups (JSON).")
        ] = None,
        durations: Annotated[
            str, typer.Option(metavar="us|ns", help="Unit of the trace's durations, if not us.")
        ] = "",
        peak: Annotated[
            str, typer.Option(help="FLOP/s of an NPU, for nodes without duration.")
        ] = "",
        memory: Annotated[str, typer.Option(help="Its memory bandwidth, for the same.")] = "",
        parallel: Annotated[
            str, typer.Option(metavar="tp=16,dp=256", help="Degrees, for a text workload.")
        ] = "",
        as_json: AsJson = False,
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        """Write a design for another tool's trace, and check it."""

        def work() -> None:
            from libra.commands import import_command

            import_command(
                trace,
                output,
                (network, tiers, durations, peak, memory, parallel),
                comm_groups,
                as_json=as_json,
            )

        run(work, as_json=as_json, debug=debug, quiet=quiet)


def _add_export(
    app: typer.Typer,
    run: Run,
    load: Callable[[Path, Sequence[str] | None], Design],
    bandwidths: Callable[[str], list[float]],
) -> None:
    @app.command()
    def export(
        design: DesignFile,
        to: Annotated[
            str, typer.Option(metavar="FORMAT", help="astra-sim, chakra or astra-sim-1.")
        ],
        output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
        bandwidth: Annotated[
            str,
            typer.Option(
                "--bandwidth",
                "-b",
                metavar="B1,B2,…",
                help="GB/s of each dimension; else the best.",
            ),
        ] = "",
        chunks: Annotated[
            int | None, typer.Option(help="Parts of a collective in the simulator.")
        ] = None,
        comm_groups: Annotated[
            bool, typer.Option("--comm-groups", help="Address collectives by process groups.")
        ] = False,
        one: Annotated[
            bool, typer.Option("--one", help="chakra: one trace for all NPUs that do the same.")
        ] = False,
        as_json: AsJson = False,
        quiet: Quiet = False,
        settings: Settings = None,
        debug: Debug = False,
    ) -> None:
        """Write a design's workloads, and its network, for another tool."""

        def work() -> None:
            from libra.commands import export_command

            values = bandwidths(bandwidth) if bandwidth else None
            export_command(
                load(design, settings),
                to,
                output,
                values,
                chunks,
                comm_groups=comm_groups,
                one=one,
                as_json=as_json,
            )

        run(work, as_json=as_json, debug=debug, quiet=quiet)
