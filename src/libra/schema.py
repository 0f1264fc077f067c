"""Schema of a design file, and what is wrong with a file in libra's words.

The short forms of a file are brought to their long form (`expand`); then pydantic checks each part
of the plain data against the dataclasses here and below. What a value must satisfy is said once, in
the ``__post_init__`` of the type that carries it. A part that is wrong is None, so that the others
can still be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from libra.choices import Choice
from libra.collectives import CollectiveModel, EfficiencyPoint
from libra.cost import Energy, PartPower, PartPrices, PowerList, PriceList
from libra.design import Objective
from libra.errors import FieldError, Place, Problem, nearest, shown
from libra.formats.chakra_options import TraceOptions
from libra.long_form import (
    Note,
    expand_baseline,
    expand_collectives,
    expand_loop,
    expand_network,
    expand_power,
    expand_prices,
    expand_scenarios,
    unknown_key,
)
from libra.network import Dimension
from libra.scenarios import CaseEntry, SampleEntry, ScenariosEntry
from libra.units import BANDWIDTH
from libra.workload.schedule import LoopKind, TrainingLoop
from libra.workload_entry import Parallel, PipelineEntry, WorkloadEntry
from libra.yaml_source import Source

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

__all__ = ["ENTRY_FORMS", "FORMS", "DesignFile", "WorkloadEntry", "file_place", "read_design_file"]


@dataclass(frozen=True)
class DesignFile:
    """Top level of a design file in long form; None: missing or wrong."""

    network: tuple[Dimension, ...] | None
    workloads: tuple[WorkloadEntry, ...]
    prices: PriceList | None
    power: PowerList | None
    collectives: CollectiveModel | None
    training_loop: TrainingLoop | None
    constraints: tuple[str | None, ...]
    objective: Objective | None
    baseline: tuple[float, ...] | None
    scenarios: ScenariosEntry | None = None


Expand = Callable[[Any, Note], Any]
Bandwidths = tuple[Annotated[float, BANDWIDTH], ...]
FORMS: Mapping[str, Any] = {
    "network": tuple[Dimension, ...],
    "workloads": list[Any],
    "prices": PriceList,
    "power": PowerList,
    "collectives": CollectiveModel,
    "training_loop": TrainingLoop,
    "constraints": list[Any],
    "objective": Objective,
    "baseline": Bandwidths,
    "scenarios": ScenariosEntry,
}
"""Type of each top-level key; the items of the lists of anything are read one by one."""

ENTRY_FORMS: Mapping[str, Any] = {
    "trace": str,
    "name": str,
    "parallel": Parallel,
    "groups": Mapping[str, tuple[int, ...]],
    "weight": float,
    "training_loop": TrainingLoop,
    "pipeline": PipelineEntry,
    "chakra": TraceOptions,
    "compute_speed": float,
}
"""Type of each key of an item of ``workloads:`` with a trace."""

_DEFAULTS: Mapping[str, Any] = {
    "prices": "default",
    "collectives": {},
    "training_loop": LoopKind.NO_OVERLAP.value,
    "constraints": [],
    "objective": Objective.TIME.value,
    "baseline": "equal",
}
_OPTIONAL = ("power", "scenarios")
_WANTED: Mapping[Place, str] = {
    ("network",): "a list of dimensions, or a mapping with shape and tiers",
    ("scenarios",): "a mapping with cases or samples, or a list of cases",
    ("prices",): "the name of a price list, or a mapping of tiers",
    ("power",): "the name of a power list, or a mapping of tiers",
    ("baseline",): "equal, or a list of bandwidths",
    ("training_loop",): "the name of a training loop, or a mapping with kind",
    ("collectives", "chunks"): "a whole number, or auto",
}
_WANTED_IN_ENTRY: Mapping[str, str] = {
    "accelerator": "the name of an accelerator, or a mapping",
    "precision": "a number format, or a mapping",
    "training_loop": _WANTED[("training_loop",)],
}
_OWNERS: Mapping[str, Any] = {
    "network": Dimension,
    "collectives": CollectiveModel,
}


def read_design_file(
    source: Source, problems: list[Problem], memory: dict[Any, Any] | None = None
) -> DesignFile:
    """Typed form of a design file, as far as it is right; notes what is wrong.

    Parameters
    ----------
    source : Source
        The file's plain data, a mapping.
    problems : list of Problem
        Gets what is wrong.
    memory : dict or None
        Parts that were read before: those that are the same objects still are not read again.
    """
    reader = _Reader(source, problems, {} if memory is None else memory)
    data = source.data
    reader.refuse_unknown(data, FORMS, ())
    workloads = reader.read("workloads") or []
    constraints = reader.read("constraints") or []
    return DesignFile(
        reader.read("network", expand_network),
        tuple(reader.read_entry(item, ("workloads", k)) for k, item in enumerate(workloads)),
        reader.read("prices", expand_prices),
        reader.read("power", expand_power),
        reader.read("collectives", expand_collectives),
        reader.read("training_loop", expand_loop),
        tuple(reader.validate(str, c, ("constraints", k)) for k, c in enumerate(constraints)),
        reader.read("objective"),
        reader.read("baseline", expand_baseline),
        reader.read("scenarios", expand_scenarios),
    )


def read_part(source: Source, problems: list[Problem], form: Any, value: Any, place: Place) -> Any:
    """Typed form of plain data at a place of a file; None after noting what is wrong."""
    return _Reader(source, problems, {}).validate(form, value, place)


def read_workload(
    source: Source, problems: list[Problem], item: Any, place: Place
) -> WorkloadEntry:
    """Typed form of an item of ``workloads:`` at a place of a file, as far as it is right."""
    return _Reader(source, problems, {}).read_entry(item, place)


class _Reader:
    """Reads the parts of a file, each for itself."""

    def __init__(self, source: Source, problems: list[Problem], memory: dict[Any, Any]) -> None:
        self.source, self.problems, self.memory = source, problems, memory

    def note(self, place: Place, message: str) -> None:
        """Note what is wrong at a place of the long form."""
        where = file_place(self.source.data, place)
        self.problems.append(self.source.problem(where, message))

    def refuse_unknown(self, data: Mapping[str, Any], forms: Iterable[str], place: Place) -> None:
        """Note the keys of a mapping that have no form."""
        for key, value in data.items():
            if key not in forms:
                self.note((*place, key), unknown_key(key, value, forms))

    def read(self, key: str, expand: Expand | None = None) -> Any:
        """Typed form of a top-level key; None if it is missing or wrong."""
        return self.remembered((key,), self.source.data.get(key), lambda: self._read(key, expand))

    def remembered(self, place: Place, value: Any, read: Callable[[], Any]) -> Any:
        """Typed form of a value: as it was read before, if it is the same object and was right."""
        old = self.memory.get(place)
        if old is not None and old[0] is value:
            return old[1]
        before = len(self.problems)
        found = read()
        if len(self.problems) == before:
            self.memory[place] = (value, found)
        return found

    def _read(self, key: str, expand: Expand | None) -> Any:
        if key not in self.source.data and key in _OPTIONAL:
            return None
        if key not in self.source.data and key not in _DEFAULTS:
            self.note((key,), f"is missing, got nothing. Add {key}:.")
        value = self.source.data.get(key, _DEFAULTS.get(key))
        if value is not None and expand is not None:

            def note(place: Place, message: str) -> None:
                self.problems.append(self.source.problem((key, *place), message))

            value = expand(value, note)
        return None if value is None else self.validate(FORMS[key], value, (key,))

    def read_entry(self, item: Any, place: Place) -> WorkloadEntry:
        """Typed form of an item of ``workloads:``, as far as it is right."""
        entry: WorkloadEntry = self.remembered(place, item, lambda: self._read_entry(item, place))
        return entry

    def _read_entry(self, item: Any, place: Place) -> WorkloadEntry:
        before = len(self.problems)
        if not isinstance(item, dict):
            self.note(place, f"must be a mapping, got {shown(item)}. Write e.g. '- trace: w.txt'.")
            return WorkloadEntry(right=False)
        if "model" in item and "trace" in item:
            message = "model and trace both say what is trained, got both. Remove one of them."
            self.note((*place, "trace"), message)
            return WorkloadEntry(right=False)
        if "model" in item:
            return self.read_model_entry(item, place, before)
        self.refuse_unknown(item, ENTRY_FORMS, place)
        if "trace" not in item:
            self.note((*place, "trace"), "is missing, got nothing. Add trace:, or model:.")
        if "training_loop" in item:
            item = item | {"training_loop": expand_loop(item["training_loop"], self.note)}
        values = {
            key: self.validate(form, item[key], (*place, key))
            for key, form in ENTRY_FORMS.items()
            if key in item
        }
        entry = WorkloadEntry(**values)
        for fault in entry.faults():
            self.note((*place, *fault.place), fault.message)
        missing = any(value is None for value in values.values())
        return replace(entry, right=not missing and len(self.problems) == before)

    def read_model_entry(self, item: Any, place: Place, before: int) -> WorkloadEntry:
        """Typed form of an item that names a model, as far as it is right."""
        from libra.model_entry import MODEL_FORMS, REQUIRED, ModelEntry, expand_model_item

        common = {key: ENTRY_FORMS[key] for key in ("name", "weight")}
        self.refuse_unknown(item, {**common, **MODEL_FORMS}, place)
        long = expand_model_item(item)
        values = {
            key: self.validate(form, long[key], (*place, key))
            for key, form in {**common, **MODEL_FORMS}.items()
            if key in long
        }
        for key in REQUIRED:
            if key not in item:
                self.note((*place, key), f"is missing, got nothing. Add {key}:.")
        shared = {key: values.pop(key) for key in common if key in values}
        entry = WorkloadEntry(**shared)
        for fault in entry.faults():
            self.note((*place, *fault.place), fault.message)
        right = len(self.problems) == before
        return replace(entry, model=ModelEntry(**values) if right else None, right=right)

    def validate(self, form: Any, value: Any, place: Place) -> Any:
        """Typed form of plain data at a place; None after noting what is wrong."""
        if form is str and isinstance(value, str):
            return value
        from pydantic import ValidationError

        try:
            return _validated(form, json.dumps(value))
        except ValidationError as error:
            for details in error.errors(include_url=False):
                where = _keys_within(value, details)
                message, at = _message(details, (*place, *where), form)
                self.note(at, message)
            return None


def _keys_within(value: Any, details: ErrorDetails) -> Place:
    """Keys that lead to an error; pydantic puts the alternatives of a union among them."""
    place: list[str | int] = []
    for part in details["loc"]:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        else:
            continue
        if part != "[key]":
            place.append(part)
    return tuple(place)


@lru_cache(maxsize=1000)
def _validated(form: Any, text: str) -> Any:
    """Typed form of JSON text, which does not change; a sweep reads the same parts again."""
    # JSON, because only there a strict check takes lists for tuples and text for enums.
    return _adapter(form).validate_json(text, strict=True)


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(form)


def file_place(data: Any, place: Place) -> Place:
    """Place in the file of a place in the long form."""
    match place:
        case ("prices" | "power" as key, "tiers", *rest):
            return (key, *rest)
        case ("network", int(d), str(key), *_) if isinstance(data.get("network"), dict):
            parts: dict[str, Place] = {"tier": ("tiers", d), "name": ("names", d)}
            return ("network", *parts.get(key, ("shape",)))
        case ("network", *_) if isinstance(data.get("network"), str):
            return ("network",)
        case (*around, "training_loop", "kind"):
            return (*around, "training_loop")
        case ("workloads", int(), "batch", "sequences"):
            return (*place[:-1], "global")
        case ("workloads", int(k), "precision", "compute"):
            return place if isinstance(data["workloads"][k]["precision"], dict) else place[:-1]
    return place


# --- messages ----------------------------------------------------------------------------------


def _message(details: ErrorDetails, place: Place, form: Any) -> tuple[str, Place]:
    """What pydantic found, in libra's words, and where."""
    kind, value = details["type"], details["input"]
    key = _IN_FILE.get(str(place[-1]), str(place[-1]))
    if kind == "value_error":
        error = details.get("ctx", {}).get("error")
        if isinstance(error, FieldError):
            return error.message, (*place, *error.place)
        return str(error), place
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return unknown_key(key, value, _valid_keys(place[:-1], form)), place
    if kind in ("missing", "missing_argument"):
        return f"is missing, got nothing. Add {key}:.", place
    if kind == "enum":
        advice = nearest(str(value), _words(details))
        return f"unknown value, got {shown(value)}. {advice}", place
    entry = len(place) == 3 and place[0] == "workloads"
    wanted = (_WANTED_IN_ENTRY.get(key) if entry else _WANTED.get(place)) or {
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


def _valid_keys(place: Place, form: Any) -> list[str]:
    """Keys of the mapping at a place of the long form, which has a type."""
    match place:
        case ("prices" | "power" as key, "tiers", _):
            owner: Any = PartPrices if key == "prices" else PartPower
        case ("prices", "energy"):
            owner = Energy
        case ("scenarios", "cases", int()):
            owner = CaseEntry
        case ("scenarios", "samples"):
            owner = SampleEntry
        case ("scenarios",):
            owner = ScenariosEntry
        case ("network", int(), "bandwidth_choices", int()):
            owner = Choice
        case ("workloads", int(), "pipeline"):
            owner = PipelineEntry
        case ("workloads", int(), "parallel" | "batch" | "precision" | "overlap"):
            owner = form
        case ("workloads", int(), "chakra"):
            owner = TraceOptions
        case (*_, "training_loop"):
            owner = TrainingLoop
        case ("collectives", "efficiency", *_):
            owner = EfficiencyPoint
        case _:
            owner = _OWNERS[str(place[0])]
    return [_IN_FILE.get(f.name, f.name) for f in fields(owner)]


_IN_FILE = {"sequences": "global"}
"""Keys of a file whose name in Python is another."""
