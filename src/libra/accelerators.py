"""Accelerators and clusters, by name or from plain data: read and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra.cluster import Cluster
from libra.collectives import CollectiveModel
from libra.efficiency import EfficiencyPoint
from libra.errors import (
    FieldError,
    InputError,
    Place,
    Problem,
    format_path,
    in_file_order,
    nearest,
    shown,
)
from libra.network import Dimension
from libra.presets import load_presets
from libra.workload.compute import Accelerator, KindEfficiency
from libra.workload.systolic import SystolicArray

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

__all__ = ["load_accelerator", "load_cluster", "read_accelerator"]


Locate = Callable[[Place, str], Problem]
"""Problem with a message about the value at a place of the mapping."""


def _in_accelerator(place: Place, message: str) -> Problem:
    return Problem(message, format_path(("accelerator", *place)))


def _in_cluster(place: Place, message: str) -> Problem:
    return Problem(message, format_path(("cluster", *place)))


def load_accelerator(
    source: str | Mapping[str, Any],
    locate: Locate = _in_accelerator,
    folder: str | Path | None = None,
) -> Accelerator:
    """Accelerator of a preset's name, of a YAML file, or of a mapping with `Accelerator`'s keys.

    Parameters
    ----------
    source : str or mapping
        A name of ``libra presets accelerators``; or plain data in which each number with a unit is
        text, ``{name: own, peak: {bf16: 400 TFLOP/s}, memory: 64 GB, …}``. Its ``cluster`` is the
        name of a preset network with bandwidths, or a mapping, too.
    locate : callable
        Makes a problem of a place in the mapping and a message; for files, with its line.
    folder : str, Path or None
        Where a name that ends in ``.yaml`` is a file, see `read_accelerator`; None: nowhere.

    Raises
    ------
    InputError
        Unknown name, with the nearest; or all that is wrong in the mapping, each with its key.

    Examples
    --------
    >>> load_accelerator("h100").memory
    80000000000.0
    """
    if folder is not None and isinstance(source, str) and source.endswith((".yaml", ".yml")):
        return read_accelerator(Path(folder) / source)
    data = _preset("accelerators", source, (), locate) if isinstance(source, str) else dict(source)
    cluster = data.get("cluster")
    if isinstance(cluster, str):
        data = data | {"cluster": _preset("networks", cluster, ("cluster",), locate)}
    accelerator = _validate(Accelerator, data, locate)
    assert isinstance(accelerator, Accelerator)
    return accelerator


def load_cluster(source: str | Mapping[str, Any], locate: Locate = _in_cluster) -> Cluster:
    """Cluster of the name of a preset network with bandwidths, or of a mapping.

    Raises
    ------
    InputError
        As `load_accelerator`.

    Examples
    --------
    >>> load_cluster("dgx-a100").bandwidth
    (300000000000.0, 25000000000.0)
    """
    data = _preset("networks", source, (), locate) if isinstance(source, str) else dict(source)
    cluster = _validate(Cluster, data, locate)
    assert isinstance(cluster, Cluster)
    return cluster


def read_accelerator(file: str | Path) -> Accelerator:
    """Accelerator of a YAML file, such as ``libra calibrate`` writes.

    Raises
    ------
    InputError
        The file cannot be read, or is wrong.
    """
    from libra.yaml_source import read_yaml

    source = read_yaml(Path(file))
    if not source.problems and not isinstance(source.data, dict):
        source.problems.append(
            source.problem((), f"must be a mapping, got {shown(source.data)}. Write name: first.")
        )
    if source.problems:
        raise in_file_order(source.problems)
    try:
        return load_accelerator(source.data, source.problem)
    except InputError as error:
        raise in_file_order(error.problems) from None


def _preset(kind: str, name: str, place: Place, locate: Locate) -> dict[str, Any]:
    """Plain data of a preset, with its name inside."""
    presets = load_presets(kind)
    if kind == "networks":
        presets = {k: v for k, v in presets.items() if "dimensions" in v}
    if name not in presets:
        what = "accelerator" if kind == "accelerators" else "cluster"
        message = f"unknown {what}, got {shown(name)}. {nearest(name, presets)}"
        raise InputError(locate(place, message))
    data: dict[str, Any] = {"name": name} | presets[name]
    return data


@cache
def _adapter(form: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(form)


def _validate(form: type, data: Mapping[str, Any], locate: Locate) -> object:
    """Typed form of plain data; raises `InputError` with all that is wrong."""
    from pydantic import ValidationError

    try:
        # JSON, because only there a strict check takes lists for tuples and text for enums.
        return _adapter(form).validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        problems = []
        for details in error.errors(include_url=False):
            place = tuple(part for part in details["loc"] if part != "[key]")
            message, place = _message(form, details, place)
            problems.append(locate(place, message))
        raise InputError(problems) from None


def _message(form: type, details: ErrorDetails, place: Place) -> tuple[str, Place]:
    """What pydantic found, in libra's words, and where."""
    kind, value = details["type"], details["input"]
    if kind == "value_error":
        error = details.get("ctx", {}).get("error")
        if isinstance(error, FieldError):
            return error.message, (*place, *error.place)
        return str(error), place
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        key = str(place[-1])
        return f"unknown key, got {shown(key)}. {nearest(key, _keys(form, place[:-1]))}", place
    if kind in ("missing", "missing_argument"):
        return f"is missing, got nothing. Add {place[-1]}:.", place
    if kind == "enum":
        expected = details.get("ctx", {}).get("expected", "")
        words = [w.strip(" '") for part in expected.split(",") for w in part.split(" or ")]
        return f"unknown value, got {shown(value)}. {nearest(str(value), words)}", place
    wanted = {
        "int": "a whole number",
        "float": "a number",
        "string": "text",
        "bool": "true or false",
        "tuple": "a list",
        "dict": "a mapping",
        "mapping": "a mapping",
        "dataclass": "a mapping",
    }.get(kind.split("_")[0], details["msg"])
    return f"must be {wanted}, got {shown(value)}. Correct it.", place


def _keys(form: type, place: Place) -> list[str]:
    """Keys of the mapping at a place."""
    inner = place[1:] if place and place[0] == "cluster" else place
    match inner:
        case ("efficiency", _):
            owner: type = KindEfficiency
        case ("array",):
            owner = SystolicArray
        case ("dimensions", int()):
            owner = Dimension
        case ("dimensions", int(), "efficiency_by_size", *_):
            owner = EfficiencyPoint
        case ("collectives",):
            owner = CollectiveModel
        case _:
            owner = Cluster if place else form
    return [f.name for f in fields(owner)]
