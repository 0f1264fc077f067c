"""Designs and results side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from libra.errors import InputError, Problem, format_path, shown
from libra.files import read_text
from libra.load import load_design
from libra.optimize import optimize_design
from libra.result_form import misplaced
from libra.yaml_source import Override

__all__ = ["Compared", "compare_files", "read_result"]

MAX_BYTES = 200_000_000
_NEEDED = ("status", "network", "dimensions", "bandwidth_GBps", "step_time_s", "workloads")


@dataclass(frozen=True)
class Compared:
    """One of the things compared.

    Attributes
    ----------
    name : str
        Name of its file.
    data : dict
        With the keys of ``libra optimize --json``.
    """

    name: str
    data: dict[str, Any]

    def ratio(self, first: Compared, key: str) -> float | None:
        """How many times the first one's value a value is; None where one is missing or 0."""
        mine, base = self.data.get(key), first.data.get(key)
        return mine / base if mine is not None and base else None


def compare_files(paths: Sequence[Path], overrides: Sequence[Override] = ()) -> list[Compared]:
    """Read results, and optimise designs, to compare them.

    Parameters
    ----------
    paths : sequence of Path
        Results (JSON, as ``-o`` writes them) or designs (YAML), at least two.
    overrides : sequence of Override
        For the designs.

    Raises
    ------
    InputError
        If there are fewer than two, or one cannot be read.
    """
    if len(paths) < 2:
        raise InputError(
            f"compare: two or more files are compared, got {len(paths)}. Name another one."
        )
    found = []
    for path in paths:
        if path.suffix.lower() == ".json":
            data = read_result(path)
        else:
            data = optimize_design(load_design(path, overrides)).to_dict()
        found.append(Compared(path.name if _distinct(paths) else str(path), data))
    return found


def _distinct(paths: Sequence[Path]) -> bool:
    names = [path.name for path in paths]
    return len(set(names)) == len(names)


def read_result(path: Path) -> dict[str, Any]:
    """Plain data of a result file.

    Raises
    ------
    InputError
        If it is not one.
    """
    try:
        text = read_text(path, MAX_BYTES)
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        reason = str(error)
        if isinstance(error, json.JSONDecodeError | RecursionError):
            reason = "is not JSON" if isinstance(error, ValueError) else "is nested too deeply"
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        advice = ", got something else. Write a result with `libra optimize DESIGN -o FILE`."
        if not isinstance(error, json.JSONDecodeError | RecursionError):
            advice = ""
        raise InputError(Problem(f"{reason}{advice}", file=str(path), line=line)) from None
    missing = [k for k in _NEEDED if not (isinstance(data, dict) and k in data)]
    if missing:
        raise InputError(
            Problem(
                f"is not a result: {', '.join(missing)} missing, got {shown(text[:40])}. Write one "
                "with `libra optimize DESIGN -o FILE`.",
                file=str(path),
            )
        )
    odd = misplaced(data)
    if odd is not None:
        value = data
        for key in odd:
            value = value.get(key) if isinstance(value, dict) else value[key]
        raise InputError(
            Problem(
                f"is not a result: {format_path(odd)} is of another kind, got {shown(value)}. "
                "Write one with `libra optimize DESIGN -o FILE`.",
                file=str(path),
            )
        )
    result: dict[str, Any] = data
    return result


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"holds a number that JSON has not, got {word}. Write null.")
