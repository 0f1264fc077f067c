"""``libra explore`` on the command line."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra.cli_options import AsJson, Debug, PlotFile, Quiet, Run, Settings

if TYPE_CHECKING:
    from libra.explore.run import Progress
    from libra.explore.summary import Summary
    from libra.yaml_source import Override

__all__ = ["add_explore_command"]


def add_explore_command(
    app: typer.Typer, run: Run, overrides: Callable[[Sequence[str] | None], list[Override]]
) -> None:
    """Add the command.

    Parameters
    ----------
    app : Typer
    run : callable
        Runs a command.
    overrides : callable
        Overrides of ``--set`` options.
    """

    @app.command()
    def explore(
        space: Annotated[Path, typer.Argument(metavar="SPACE", help="The space file (YAML).")],
        output: Annotated[
            Path | None,
            typer.Option("-o", "--output", help="Folder of the results; else by the space's name."),
        ] = None,
        top: Annotated[int, typer.Option(help="How many of the best are wanted exactly.")] = 10,
        jobs: Annotated[
            int | None, typer.Option(help="Processes; as many as there are cores if left out.")
        ] = None,
        dask: Annotated[
            str | None,
            typer.Option(metavar="ADDRESS|local", help="Run on a Dask cluster instead."),
        ] = None,
        prune: Annotated[
            bool, typer.Option(help="Leave out what a bound proves not to be among the best.")
        ] = True,
        plot: PlotFile = None,
        as_json: AsJson = False,
        quiet: Quiet = False,
        settings: Settings = None,
        debug: Debug = False,
    ) -> None:
        """Search shapes, blocks, parallelism, placement and bandwidths together, with proof.

        Interrupt it at will: the same command goes on where it stopped.
        """

        def work() -> None:
            from libra.explore.run import run_exploration
            from libra.explore.space import load_space

            found = load_space(space, overrides(settings))
            folder = output if output is not None else Path(f"{space.stem}-explored")
            _require_positive("--top", top)
            count = jobs if jobs is not None else os.cpu_count() or 1
            _require_positive("--jobs", count)
            with _Screen(quiet=quiet or as_json) as report:
                summary = run_exploration(
                    found, folder, top=top, prune=prune, jobs=count, dask=dask, report=report
                )
            _require_a_winner(summary, folder)
            _show(summary, folder, found.shared.get("objective", "time"), as_json=as_json)
            if plot is not None:
                from libra.plots import plot_exploration, save_chart

                save_chart(plot_exploration(summary.frame), plot)

        run(work, as_json=as_json, debug=debug, quiet=quiet)


def _show(summary: Summary, folder: Path, objective: str, *, as_json: bool) -> None:
    if not as_json:
        _print(summary, folder, objective)
        return
    data = {"status": "optimal", "objective": objective, "folder": str(folder)}
    text = json.dumps(data | summary.to_dict(), indent=1, ensure_ascii=False)
    sys.stdout.write(text + "\n")


def _require_positive(name: str, value: int) -> None:
    from libra.errors import InputError

    if value < 1:
        raise InputError(f"{name}: must be at least 1, got {value}. Correct it.")


def _require_a_winner(summary: Summary, folder: Path) -> None:
    """Refuse an exploration of which nothing came, with the reasons."""
    from libra.errors import InfeasibleError, SolverError

    if len(summary.top):
        return
    words = " ".join(_counts_by_reason(summary))
    rest = f"The rows in {folder} say why for each."
    if summary.counts.get("failed"):
        raise SolverError(f"no candidate was solved, got {words} {rest}")
    raise InfeasibleError(f"no candidate has an optimum, got {words} {rest}", [])


class _Screen:
    """Progress bar with the best so far, on stderr; nothing where that is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def __enter__(self) -> Callable[[Progress], None]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True, emoji=False)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            disable=self.quiet or not console.is_terminal,
        )
        self.bar.start()
        self.task = self.bar.add_task("Exploring", total=None, rate="")
        return self.report

    def report(self, progress: Progress) -> None:
        words = "Exploring"
        if progress.best is not None:
            words = f"Best so far {progress.best['objective']:.6g}: {progress.best['network']}"
        speed = self.bar.tasks[0].speed
        rate = f"{speed:,.0f} candidates/s" if speed else ""
        self.bar.update(
            self.task, completed=progress.done, total=progress.total, description=words, rate=rate
        )

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


_SHOWN = ("tp", "pp", "dp", "ep", "cp", "zero", "micro", "recomputation", "order", "algorithm")


def _print(summary: Summary, folder: Path, objective: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    from libra.fitting_table import new_table
    from libra.screen import print_to
    from libra.units import format_money, format_time

    rows = summary.top.to_dicts()
    columns = [("Network", "left"), ("Job", "left"), ("Step time", "right"), ("Cost", "right")]
    table = new_table([*columns, ("GB/s", "left")], title=f"Best {len(rows)} by {objective}")
    varied = _varied(summary)
    for row in rows:
        table.add_row(
            escape(row["network"]),
            escape(", ".join(f"{key} {row[key]}" for key in varied if row[key] is not None)),
            format_time(row["step_time_s"]),
            format_money(row["network_cost_usd"]),
            ", ".join(f"{b:,.4g}" for b in row["bandwidth_GBps"]),
        )
    console = Console(emoji=False)
    if rows:
        print_to(console, table)
    for line in _sentences(summary):
        print_to(console, line)
    print_to(console, f"One row a candidate: {folder}/part-*.parquet")


def _varied(summary: Summary) -> list[str]:
    """Keys of jobs that differ between candidates."""
    return [
        key
        for key in summary.frame.columns
        if re.sub(r"^w\d+_", "", key) in _SHOWN and summary.frame[key].drop_nulls().n_unique() > 1
    ]


def _sentences(summary: Summary) -> list[str]:
    lines = [*_counts_by_reason(summary), _proof(summary)]
    effort = summary.effort
    if effort.candidates:
        shares = ", ".join(
            f"{stage.value} {spent / effort.cpu_seconds:.0%}"
            for stage, spent in effort.stages.items()
        )
        lines.append(
            f"{effort.candidates:,} candidates in {effort.seconds:,.1f} s, {effort.rate:,.0f} a "
            f"second of a core: {shares}."
        )
    return lines


def _counts_by_reason(summary: Summary) -> list[str]:
    words = ", ".join(f"{n:,} {status}" for status, n in summary.counts.items())
    lines = [f"{len(summary.frame):,} candidates: {words}."]
    if summary.refused:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in summary.refused.items())
        lines.append(f"Not possible, by reason: {reasons}.")
    return lines


def _proof(summary: Summary) -> str:
    """What is known of the candidates that were not solved."""
    last = summary.top["objective"][-1]
    if math.isinf(summary.proven):
        return "Every candidate that can be built was solved."
    left_out = "pruned or failed" if summary.counts.get("failed") else "pruned"
    if summary.is_proven:
        return (
            f"Proven: no {left_out} candidate is below {summary.proven:.9g}, and the last of the "
            f"best is {last:.9g}."
        )
    return (
        f"Not proven: the least bound of the {left_out} candidates is {summary.proven:.9g}, the "
        f"last of the best is {last:.9g}."
    )
