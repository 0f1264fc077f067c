"""The command line. Data goes to stdout, messages to stderr.

Exit status: 0 solved; 2 the input is wrong; 3 infeasible or unbounded; 4 the solver failed;
130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

from libra import __version__
from libra.cli_explore import add_explore_command
from libra.cli_input import design_reader, load_settings, read_overrides
from libra.cli_models import add_model_commands
from libra.cli_options import (
    AsJson,
    CsvFile,
    Debug,
    DesignFile,
    JsonFile,
    Output,
    PlotFile,
    Quiet,
    Settings,
    Simulate,
    Timeline,
)
from libra.cli_report import add_report_command, draw_frontier, draw_result, draw_sweep
from libra.cli_schema import add_schema_command
from libra.cli_traces import add_trace_commands
from libra.errors import FieldError, InfeasibleError, InputError, LibraError
from libra.files import files_kept, write_whole
from libra.progress import counted, say, silenced, waited
from libra.startup import program_for, spare_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from libra.result import Result

app = typer.Typer(
    help="Find the network bandwidths that make AI training fast or cheap, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# What the parser raises for unknown options, missing arguments and the like.
_USAGE_ERRORS = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to put it.")] = Path(),
    example: Annotated[str, typer.Option(help="Which example: see `libra presets examples`.")] = (
        "gpt-3-4d"
    ),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Copy a commented example design, with its workload, to start from."""
    _run(lambda: _new(directory, example), as_json=False, debug=debug, quiet=quiet)


@app.command()
def check(
    design: DesignFile,
    as_json: AsJson = False,
    output: JsonFile = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Validate a design and print it as understood; solve nothing."""

    def work() -> None:
        from libra.check import summarize_design
        from libra.screen import check_table

        summary = summarize_design(load_settings(design, settings))
        _show(lambda: summary, lambda: check_table(summary), as_json=as_json, output=output)

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def optimize(
    design: DesignFile,
    as_json: AsJson = False,
    output: Output = None,
    settings: Settings = None,
    simulate: Simulate = False,
    timeline: Timeline = None,
    plot: PlotFile = None,
    price_ranges: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="Show how far prices may move while the answer stays within so much of the best.",
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the best bandwidths, the proof, and what limits them."""

    def work() -> None:
        from libra.optimize import optimize_design

        if price_ranges is not None and not 0 <= price_ranges < inf:
            raise InputError(
                f"--price-ranges: a percentage is at least 0, got {price_ranges:g}. Write e.g. 1."
            )
        with design_reader(design, settings) as read:
            result = waited("optimising", lambda: optimize_design(read()))
        if price_ranges is not None:
            from libra.price_range import price_ranges as find_ranges

            result = replace(result, price_ranges=find_ranges(result, price_ranges / 100))
        _report(result, as_json, output, simulate=simulate, timeline=timeline, plot=plot)

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def evaluate(
    design: DesignFile,
    bandwidth: Annotated[
        str,
        typer.Option("--bandwidth", "-b", metavar="B1,B2,…", help="GB/s of each dimension."),
    ],
    as_json: AsJson = False,
    output: Output = None,
    settings: Settings = None,
    simulate: Simulate = False,
    timeline: Timeline = None,
    plot: PlotFile = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Time, cost and bottlenecks of given bandwidths."""

    def work() -> None:
        from libra.evaluate import evaluate_design

        values = _bandwidths(bandwidth)
        result = waited("timing", lambda: evaluate_design(load_settings(design, settings), values))
        _report(result, as_json, output, simulate=simulate, timeline=timeline, plot=plot)

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def frontier(
    design: DesignFile,
    points: Annotated[int, typer.Option(help="How many limits, evenly spaced.")] = 20,
    against: Annotated[str, typer.Option(metavar="cost|power", help="What is limited.")] = "cost",
    csv: CsvFile = None,
    plot: PlotFile = None,
    as_json: AsJson = False,
    output: JsonFile = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """The least step time at each cost (or power) of the network, each point with its proof."""

    def work() -> None:
        from libra.frontier import Against, time_frontier
        from libra.tables import frontier_csv, frontier_table

        if against not in list(Against):
            raise InputError(f"--against: cost or power, got {against!r}. Write one of them.")
        with design_reader(design, settings) as read:
            loaded = read()
            found = waited("solving", time_frontier, loaded, points, Against(against))
        if csv is not None:
            write_whole(csv, frontier_csv(loaded.network.names, found))
        names = loaded.network.names
        draw_frontier(plot, found, names, Against(against))

        def data() -> dict[str, Any]:
            points = [point.to_dict() for point in found]
            shape = loaded.network.shape
            return {"network": shape, "dimensions": list(names), "points": points}

        _show(data, lambda: frontier_table(names, found), as_json=as_json, output=output)

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def sweep(
    design: DesignFile,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="PATH=LOW..HIGH:STEP",
            help="What varies: a range (LOW..HIGH:xFACTOR multiplies) or a list a,b,c; several "
            "make a grid.",
        ),
    ],
    csv: CsvFile = None,
    plot: PlotFile = None,
    as_json: AsJson = False,
    output: JsonFile = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Optimise for each value of a setting, or of several; one row a solve."""

    def work() -> None:
        from libra.load import DesignReader
        from libra.sweep import parse_axis, sweep_design
        from libra.tables import sweep_csv, sweep_table

        axes = [parse_axis(text) for text in vary]
        reader = DesignReader(design, read_overrides(settings))
        total = prod(len(axis.values) for axis in axes)
        rows = list(counted("solved", sweep_design(reader, axes), total))
        if csv is not None:
            write_whole(csv, sweep_csv(axes, rows))
        draw_sweep(plot, reader, axes, rows)

        def data() -> dict[str, Any]:
            return {"vary": [a.path for a in axes], "rows": [row.to_dict() for row in rows]}

        _show(data, lambda: sweep_table(axes, rows), as_json=as_json, output=output)
        if all(row.result is None for row in rows):
            raise InfeasibleError(rows[0].message, [])

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="A B …", help="Designs (YAML) or results (JSON).")
    ],
    as_json: AsJson = False,
    output: JsonFile = None,
    settings: Settings = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Designs (optimised) or results side by side, the first one as the measure."""

    def work() -> None:
        from libra.compare import compare_files
        from libra.tables import compare_table

        found = waited("comparing", compare_files, files, read_overrides(settings))

        def data() -> dict[str, Any]:
            return {"results": [{"name": c.name} | c.data for c in found]}

        _show(data, lambda: compare_table(found), as_json=as_json, output=output)

    _run(work, as_json=as_json, debug=debug, quiet=quiet)


@app.command()
def presets(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[networks|accelerators|models|prices|power|examples]", help="What to list."
        ),
    ] = "",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what ships with libra, each number with its source."""

    def work() -> None:
        from libra.presets_command import print_presets

        print_presets(_console(), kind, as_json=as_json)

    _run(work, as_json=as_json, debug=debug)


def _bandwidths(text: str) -> list[float]:
    from libra.units import BANDWIDTH, GB_PER_S, parse_number, require_range

    values = []
    for word in text.split(","):
        split = parse_number(word)
        if split is None or split[1] or split[0] < 0:
            raise InputError(
                f"--bandwidth: must be numbers in GB/s, not negative, got {word.strip()!r}. "
                "Write e.g. 500,300,150,50."
            )
        values.append(split[0] * GB_PER_S)
        try:
            require_range(values[-1], BANDWIDTH, f"{word.strip()!r} GB/s")
        except ValueError as error:
            raise InputError(f"--bandwidth: {error}") from None
    return values


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `_run`."""
            raise BrokenPipeError

    return PipeConsole(stderr=stderr, emoji=False)


def _json_text(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _show(
    data: Callable[[], Any],
    table: Callable[[], RenderableType],
    *,
    as_json: bool,
    output: Path | None,
) -> None:
    """Print plain data as JSON, or what they say as a table; write the JSON, too."""
    text = _json_text(data()) if as_json or output is not None else ""
    if output is not None:
        write_whole(output, text)
    if as_json:
        sys.stdout.write(text)
    else:
        from libra.screen import print_to

        print_to(_console(), table())
    if output is not None:
        say(f"wrote {output}")


def _report(
    result: Result,
    as_json: bool,
    output: Path | None,
    *,
    simulate: bool = False,
    timeline: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Print a result and write the files that were asked for."""
    if simulate:
        from libra.evaluate import simulate_result

        result = simulate_result(result)
    if output is not None:
        write_whole(output, result.to_json(with_design=True) + "\n")
    if timeline is not None:
        from libra.timeline import result_timeline

        write_whole(timeline, result_timeline(result).write_csv())
    draw_result(plot, result)
    if as_json:
        sys.stdout.write(result.to_json() + "\n")
    else:
        from libra.screen import print_to, result_table

        print_to(_console(), result_table(result))
    for line in result.design.warnings if as_json else ():
        say(f"warning: {line}")
    for path in (output, timeline):
        if path is not None:
            say(f"wrote {path}")


def _new(directory: Path, example: str) -> None:
    from libra.starters import copy_example, example_command

    for path in copy_example(directory, example):
        print(path)
    command = example_command(example)
    say(f"Next: libra {command} {directory / (example + '.yaml')}")


def _run(work: Callable[[], None], *, as_json: bool, debug: bool, quiet: bool = False) -> None:
    """Run a command; turn errors into one clear message and an exit status."""
    try:
        with silenced(quiet), files_kept():
            work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        _fail(StopError("interrupted"), as_json)
    except (LibraError, FieldError) as error:
        if debug:
            raise
        if isinstance(error, FieldError):
            error = InputError(f"{error.field_name}: {error.message}")
        _fail(error, as_json)
    except BrokenPipeError:
        _drop_stdout()
        raise typer.Exit(0) from None
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError):
            _drop_stdout()
        _fail(_unforeseen(error), as_json)


class StopError(LibraError):
    """The user has stopped the program."""

    exit_status = 130
    status = "interrupted"


def _unforeseen(error: Exception) -> LibraError:
    """Error of this program, for one that nobody thought of."""
    if isinstance(error, OSError):
        return LibraError(f"the output cannot be written: {error.strerror}. Make room for it.")
    return LibraError(
        f"libra itself is at fault: {type(error).__name__}: {error}. "
        "Please report it with what --debug shows."
    )


def _drop_stdout() -> None:
    """Send what is still to come on stdout nowhere, so that Python ends without complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: LibraError, as_json: bool) -> NoReturn:
    if as_json:
        data: dict[str, Any] = {"status": error.status, "message": str(error)}
        if isinstance(error, InputError):
            data["problems"] = [vars(p) for p in error.problems]
        if isinstance(error, InfeasibleError):
            data["conflict"] = [vars(c) for c in error.conflict]
        sys.stdout.write(_json_text(data))
    print(error, file=sys.stderr)
    raise typer.Exit(error.exit_status)


add_trace_commands(app, _run, load_settings, _bandwidths)
add_explore_command(app, _run, read_overrides)
add_model_commands(app, _run)
add_report_command(app, _run)
add_schema_command(app, _run)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the ``libra`` command."""
    spare_time()
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # It was closed before the program started.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        if words == ["--version"]:
            # The parser would load pydantic for it, which takes five times as long as all else.
            typer.echo(__version__)
            sys.exit(0)
        status = program_for(app, words)(words, standalone_mode=False)
    except KeyboardInterrupt:
        status = StopError.exit_status
    except BrokenPipeError:
        _drop_stdout()
        status = 0
    except OSError as error:  # The help, on a full disk.
        _drop_stdout()
        print(_unforeseen(error), file=sys.stderr)
        status = LibraError.exit_status
    except _USAGE_ERRORS as error:
        error.show()
        if "--json" in words:
            data = {"status": InputError.status, "message": error.format_message()}
            sys.stdout.write(_json_text(data))
        status = error.exit_code
    sys.exit(status or 0)
