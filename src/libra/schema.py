"""Schema of a design file in long form, and what is wrong with a file in libra's words.

pydantic checks plain data against the dataclasses here and below; what a value must satisfy is said
once, in the ``__post_init__`` of the type that carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from libra.collectives import CollectiveModel
from libra.cost import PartPrices, PriceList
from libra.design import Objective
from libra.errors import FieldError, Problem, nearest
from libra.network import Dimension
from libra.units import BANDWIDTH
from libra.workload.schedule import TrainingLoop
from libra.yaml_source import Place, Source, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["DesignFile", "WorkloadEntry", "validate_design"]

# Keys of the contract that this version does not read yet: said plainly, never ignored.
_PLANNED = {
    "latency",
    "bandwidth_choices",
    "algorithm",
    "chunks",
    "contention",
    "model",
    "accelerator",
    "batch",
    "precision",
    "power",
    "lane",
    "max_lanes",
    "scenarios",
    "sequence_parallel",
    "zero",
    "pp",
    "ep",
    "cp",
}
_PLANNED_VALUES = {
    "training_loop": ("tp-dp-overlap", "1f1b"),
    "objective": ("cost", "worst-time"),
}


@dataclass(frozen=True)
class WorkloadEntry:
    """One item of ``workloads:``."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    trace: str
    name: str = ""
    parallel: Mapping[str, int] | None = None
    groups: Mapping[str, tuple[int, ...]] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.parallel is not None and self.groups is not None:
            raise FieldError(
                "groups",
                "parallel and groups both place the workload, got both. Remove one of them.",
            )
        for key in ("parallel", "groups"):
            for role in getattr(self, key) or ():
                if role not in ("tp", "dp"):
                    what = "is not read yet" if role in _PLANNED else "is unknown"
                    raise FieldError(
                        f"{key}.{role}",
                        f"the parallelism {what} for a text workload, got {role!r}. "
                        f"{nearest(role, ('tp', 'dp'))}",
                    )
        for role, degree in (self.parallel or {}).items():
            if degree < 1:
                raise FieldError(
                    f"parallel.{role}", f"a degree is at least 1, got {degree}. Correct it."
                )


@dataclass(frozen=True)
class DesignFile:
    """Top level of a design file in long form."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    network: tuple[Dimension, ...]
    workloads: tuple[WorkloadEntry, ...]
    prices: PriceList
    collectives: CollectiveModel = field(default_factory=CollectiveModel)
    training_loop: TrainingLoop = TrainingLoop.NO_OVERLAP
    constraints: tuple[str, ...] = ()
    objective: Objective = Objective.TIME
    baseline: tuple[Annotated[float, BANDWIDTH], ...] = field(default=())


def validate_design(
    data: Any, source: Source, problems: list[Problem], places: Mapping[str, Place]
) -> DesignFile | None:
    """Typed form of a design file's plain data in long form; None after noting what is wrong.

    Parameters
    ----------
    data : Any
        Plain data, short forms expanded.
    source : Source
        Where it is from.
    problems : list of Problem
        Gets what is wrong.
    places : mapping of str to place
        Top-level keys that are known to be wrong already and so may be missing.
    """
    from pydantic import TypeAdapter, ValidationError

    if data is None:
        return None
    try:
        return TypeAdapter(DesignFile).validate_python(data)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            place = _source_place(tuple(details["loc"]))
            if details["type"].startswith("missing") and place[-1] in places:
                continue
            message, place = _message(details, place)
            problems.append(source.problem(place, message))
    return None


def _source_place(place: Place) -> Place:
    """Place in the file of a place in the long form."""
    if place[:2] == ("prices", "tiers"):
        return ("prices", *place[2:])
    return place


def _message(details: ErrorDetails, place: Place) -> tuple[str, Place]:
    """What pydantic found, in libra's words, and where."""
    kind, value = details["type"], details["input"]
    key = str(place[-1]) if place else ""
    if kind == "value_error":
        error = details.get("ctx", {}).get("error")
        if isinstance(error, FieldError):
            return error.message, (
                *place,
                *error.field_name.split("."),
            ) if error.field_name else place
        return str(error), place
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        if key in _PLANNED:
            return f"this version does not read {key!r} yet, got {shown(value)}. Remove it.", place
        return f"unknown key, got {key!r}. {nearest(key, _valid_keys(place[:-1]))}", place
    if kind in ("missing", "missing_argument"):
        return f"is missing, got nothing. Add {key}:.", place
    if kind == "enum":
        if value in _PLANNED_VALUES.get(key, ()):
            return (
                f"this version does not know {value!r} yet, got {value!r}. {_choices(details)}",
                place,
            )
        return f"unknown value, got {shown(value)}. {nearest(str(value), _words(details))}", place
    wanted = {
        "int": "a whole number",
        "float": "a number",
        "string": "text",
        "bool": "true or false",
        "tuple": "a list",
        "list": "a list",
        "dict": "a mapping",
        "mapping": "a mapping",
        "dataclass": "a mapping",
    }.get(kind.split("_")[0], details["msg"])
    return f"must be {wanted}, got {shown(value)}. Correct it.", place


def _words(details: ErrorDetails) -> list[str]:
    expected = details.get("ctx", {}).get("expected", "")
    return [word.strip(" '") for part in expected.split(",") for word in part.split(" or ")]


def _choices(details: ErrorDetails) -> str:
    return f"Use one of: {', '.join(_words(details))}."


def _valid_keys(place: Place) -> list[str]:
    """Keys of the mapping at a place of the file."""
    owner: Any = DesignFile
    for at in (place,):
        if at[:1] == ("network",):
            owner = Dimension
        elif at[:1] == ("workloads",):
            owner = WorkloadEntry
        elif at[:1] == ("collectives",):
            owner = CollectiveModel
        elif at[:1] == ("prices",):
            owner = PartPrices
    return [f.name for f in fields(owner)]
