"""Layers, sizes of modules, and what is imported when."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import libra

ROOT = Path(__file__).parents[1]
MODULES = sorted(Path(libra.__file__).parent.rglob("*.py"))


def run(*command):
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def imported(code):
    """Top-level packages that a fresh interpreter has loaded after some code."""
    done = run(sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_lower_layers_never_import_upper_ones():
    code = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    done = run(sys.executable, "-c", code, "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_modules_stay_small(path):
    assert len(path.read_text("utf-8").splitlines()) <= 500


def test_the_median_module_is_small():
    lines = sorted(len(path.read_text("utf-8").splitlines()) for path in MODULES)
    assert lines[len(lines) // 2] < 200


def test_import_costs_nothing():
    assert not imported("import libra") & {"numpy", "pydantic", "yaml", "clarabel", "scipy"}


def test_a_solve_imports_no_more_than_it_needs():
    code = """
import libra
from libra.presets import example_folder
libra.optimize_design(libra.load_design(example_folder() / "gpt-3-4d.yaml"))
"""
    loaded = imported(code)
    assert "clarabel" in loaded
    assert not loaded & {"scipy", "numba", "highspy", "polars", "rich"}


def test_public_names_exist():
    for name in libra.__all__:
        assert getattr(libra, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute"):
        _ = libra.nothing
