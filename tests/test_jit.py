"""Compiled loops run whatever the folder is like in which they are to be kept."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import libra

pytestmark = pytest.mark.slow

CALL = """
import warnings
warnings.simplefilter("error")
from libra.jit import compiled
from libra.units import _add_up
print(compiled(_add_up)(10))
"""
LOOP = """

def _add_up(n):
    total = 0
    for i in range(n):
        total += i
    return total
"""


@pytest.fixture
def run(tmp_path):
    """Run a compiled loop of a copy of libra, with some variables of the environment."""
    copy = tmp_path / "copy" / "libra"
    shutil.copytree(
        Path(libra.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "examples")
    )
    with (copy / "units.py").open("a", encoding="utf-8") as file:
        file.write(LOOP)

    def call(**variables):
        keep = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
        environment = keep | {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", CALL],
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("45\n", "")

    call.package = copy
    return call


def test_where_nothing_can_be_written(run):
    (run.package / "__pycache__").touch()  # A file where the folder would be.
    run(HOME="/dev/null", XDG_CACHE_HOME="/dev/null/x")


def test_kept_where_the_user_wants_and_used_again(run, tmp_path):
    folder = tmp_path / "kept"
    run(NUMBA_CACHE_DIR=str(folder))
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.nb?")}
    assert kept
    run(NUMBA_CACHE_DIR=str(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.nb?")} == kept


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_half_a_file_among_those_kept(run, tmp_path, left):
    folder = tmp_path / "kept"
    run(NUMBA_CACHE_DIR=str(folder))
    for path in folder.rglob("*.nb?"):
        os.truncate(path, int(left * path.stat().st_size))
    run(NUMBA_CACHE_DIR=str(folder))
