"""What a report is about: results, and result files with as much of the result as they allow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from libra.compare import read_result
from libra.design import Design
from libra.errors import InputError, Problem, shown
from libra.evaluate import evaluate_design
from libra.load import restore_design
from libra.network import parse_shape
from libra.result import Result, Solver
from libra.shadow import ShadowPrice
from libra.units import GB_PER_S, format_time

__all__ = ["Item", "item_of_file", "items_of"]

_SAME = 1e-6
"""Relative difference up to which a step time is the one that a file states."""


@dataclass(frozen=True)
class Item:
    """One result of a report.

    Attributes
    ----------
    name : str
        What the report calls it; all names differ.
    data : mapping
        With the keys of ``libra optimize --json``, and ``design`` where it is known.
    result : Result or None
        None: it could not be restored, and `reason` says why.
    reason : str
    """

    name: str
    data: Mapping[str, Any]
    result: Result | None
    reason: str = ""


def items_of(results: Sequence[Result | str | Path]) -> list[Item]:
    """Items of results and of result files.

    Raises
    ------
    InputError
        If there is none, or a file is no result.
    """
    if not results:
        raise InputError("report: shows at least one result, got none. Name a result file.")
    found = [
        _item_of(one) if isinstance(one, Result) else item_of_file(Path(one)) for one in results
    ]
    names = [item.name for item in found]
    return [
        item if names.count(item.name) == 1 else replace(item, name=f"{item.name} ({k + 1})")
        for k, item in enumerate(found)
    ]


def _item_of(result: Result) -> Item:
    design = result.design
    data = json.loads(result.to_json(with_design=True))
    name = Path(design.file).stem if design.file else design.network.shape
    return Item(name, data, result)


def item_of_file(path: Path) -> Item:
    """Item of a result file; the design and its traces are read again where they can be.

    Raises
    ------
    InputError
        If it is no result.
    """
    data = read_result(path)
    _require_whole(data, path)
    name = path.name.removesuffix(".json").removesuffix(".result")
    result, reason = _restored(data, path)
    return Item(name, data, result, reason)


_KINDS: dict[str, type | tuple[type, ...]] = {
    "status": str,
    "network": str,
    "dimensions": list,
    "bandwidth_GBps": list,
    "workloads": list,
    "shadow_prices": list,
    "objective_value": (int, float, NoneType),
    "step_time_s": (int, float, NoneType),
    "network_cost_usd": (int, float),
}
_WORKLOAD_KEYS = {
    *("name", "step_time_s", "compute_s", "exposed_communication_s", "idle_s", "busy_s"),
    "collectives",
}
_PRICE_KEYS = {field.name for field in fields(ShadowPrice)}


def _require_whole(data: Mapping[str, Any], path: Path) -> None:
    """Refuse a result of another version, or one that was changed by hand.

    Raises
    ------
    InputError
        Names the first key that is not as it should be.
    """
    wrong = [k for k, kind in _KINDS.items() if not isinstance(data.get(k), kind)]
    if not wrong:
        each = data["bandwidth_GBps"]
        if len(each) != len(data["dimensions"]) or not all(
            isinstance(b, int | float) for b in each
        ):
            wrong.append("bandwidth_GBps")
        try:
            parse_shape(data["network"])
        except ValueError:
            wrong.append("network")
        for key, keys in (("workloads", _WORKLOAD_KEYS), ("shadow_prices", _PRICE_KEYS)):
            if not all(isinstance(one, dict) and set(one) >= keys for one in data[key]):
                wrong.append(key)
    if wrong:
        got = shown(data.get(wrong[0])) if wrong[0] in data else "nothing"
        raise InputError(
            Problem(
                f"{wrong[0]} is not what this version of libra writes, got {got}. Write the result "
                "again with `libra optimize DESIGN -o FILE`.",
                file=str(path),
            )
        )


def _restored(data: Mapping[str, Any], path: Path) -> tuple[Result | None, str]:
    kept = data.get("design")
    if not isinstance(kept, dict) or not isinstance(kept.get("settings"), dict):
        return None, "the result file does not hold its design (libra optimize -o writes it)"
    file, design, reason = str(kept.get("file", "")), None, ""
    for place in dict.fromkeys([file, str(path.parent / Path(file).name)]):
        try:
            design = restore_design(place, kept["settings"])
            break
        except InputError as error:
            reason = reason or f"the design cannot be read again ({error.problems[0]})"
    if design is None:
        return None, reason
    return _checked(data, design)


def _checked(data: Mapping[str, Any], design: Design) -> tuple[Result | None, str]:
    """Result at the file's bandwidths, if it is still what the file says."""
    bandwidth = np.array(data["bandwidth_GBps"], dtype=np.float64) * GB_PER_S
    try:
        result = evaluate_design(design, bandwidth.tolist())
    except InputError as error:
        return None, f"the design no longer fits the result ({error})"
    stated = data["step_time_s"]
    same = stated is not None and abs(result.step_time - stated) <= _SAME * abs(stated)
    if not same and not (stated is None and result.step_time == np.inf):
        return None, (
            "the design or its traces have changed since: at the same bandwidths a step now takes "
            f"{format_time(result.step_time)}"
        )
    solver = data.get("solver")
    return (
        replace(
            result,
            status=data["status"],
            objective_value=data["objective_value"],
            objective_bound=data.get("objective_bound"),
            gap=data.get("gap"),
            schedule_bound=data.get("schedule_bound"),
            continuous_objective=data.get("continuous_objective"),
            shadow_prices=tuple(
                ShadowPrice(**{k: p[k] for k in _PRICE_KEYS}) for p in data["shadow_prices"]
            ),
            solver=None if solver is None else Solver(**solver),
        ),
        "",
    )
