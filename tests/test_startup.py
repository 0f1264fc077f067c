"""What a command loads, and the parser of the one that is called."""

import subprocess
import sys

import pytest
from typer.main import get_command

from libra import __version__
from libra.cli import app
from libra.presets import example_folder
from libra.startup import program_for

COMMANDS = list(get_command(app).commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_only_the_called_command_is_made_and_is_the_same(name):
    own = get_command(program_for(app, [name, "--json"])).commands
    assert list(own) == [name]
    whole = get_command(app).commands[name]
    assert own[name].help == whole.help
    assert [p.opts for p in own[name].params] == [p.opts for p in whole.params]


@pytest.mark.parametrize("words", [[], ["--help"], ["chekc", "d.yaml"], ["--version"]])
def test_all_commands_are_made_where_none_is_called(words):
    assert list(get_command(program_for(app, words)).commands) == COMMANDS


def loaded_by(*words):
    """Standard output of a command, and the modules that it loads."""
    code = (
        "import sys, libra.cli\n"
        "try: libra.cli.main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return done.stdout, {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_help_loads_no_library_of_numbers_or_types(words):
    said, modules = loaded_by(*words)
    assert not modules & {"numpy", "pydantic", "yaml", "rich"}
    if words == ["--version"]:
        assert said == f"{__version__}\n"


def test_check_loads_no_solver_compiler_or_chart():
    _, modules = loaded_by("check", str(example_folder() / "gpt-3-4d.yaml"))
    assert "numpy" in modules
    assert not modules & {"clarabel", "highspy", "numba", "polars", "altair", "scipy", "google"}


def test_reports_and_charts_of_a_result_load_no_altair():
    code = (
        "import sys, libra.report.page, libra.plots.save, libra.plots.of_results\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "libra.report.figures" in done.stdout.split()
    assert not {"altair", "jsonschema", "polars"} & set(done.stdout.split())
