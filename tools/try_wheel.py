"""Build the wheel, install it into a new environment, and run the tests that need no source tree.

    python tools/try_wheel.py                       with the newest dependencies
    python tools/try_wheel.py --lowest              with the lowest that pyproject.toml allows
    python tools/try_wheel.py --python python3.13   on another Python
    python tools/try_wheel.py tests/test_cli.py     other tests than the usual ones

What runs is the built file: the tests are copied to a folder from which `src` cannot be imported.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("load", "cli", "chakra_read", "frontier", "plots")
"""They touch every dependency."""

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(command: Sequence[str | Path], folder: Path = ROOT) -> None:
    """Run a command in a folder; end the program with its status if it fails."""
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(part) for part in command]
    status = subprocess.run(words, cwd=folder, env=outside, check=False).returncode  # noqa: S603
    if status:
        sys.exit(status)


def lowest(requirements: Sequence[str]) -> list[str]:
    """Pins at the least version of each requirement.

    >>> lowest(["numpy>=1.26,<3", "mkdocstrings[python]>=0.27,<2"])
    ['numpy==1.26', 'mkdocstrings==0.27']
    """
    found = []
    for text in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)", text)
        if match is None:
            raise SystemExit(f"pyproject.toml: a requirement needs a least version, got {text!r}.")
        found.append(f"{match[1]}=={match[2]}")
    return found


def main() -> None:
    """Read the options and do it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("tests", nargs="*", default=[f"tests/test_{name}.py" for name in TESTS])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    parser.add_argument("--lowest", action="store_true", help="lowest versions of dependencies")
    options = parser.parse_args()
    folder = ROOT / "build" / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run([options.python, "-m", "venv", folder / "venv"])
    python = folder / "venv" / "bin" / "python"
    run([python, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT])
    wheel = next(folder.glob("*.whl"))
    pins = folder / "pins.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins.write_text("\n".join(lowest(project["dependencies"])) if options.lowest else "")
    run([python, *PIP, "install", "-c", pins, f"{wheel}[test]"])
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    run([python, "-m", "pytest", "-n", "2", *options.tests], folder)
    print(f"{wheel.name}: works on {options.python}, {'lowest' if options.lowest else 'newest'}.")


if __name__ == "__main__":
    main()
