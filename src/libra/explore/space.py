"""Space file → `Space`: what may vary, and what all candidates share.

A space file is a design file in which the network is a list of tiers with what each may be, and in
which a workload's parallelism, micro-batch, recomputation and placement may be lists or ``auto``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from libra.errors import FieldError, InputError, Place, Problem, in_file_order, nearest, shown
from libra.network import Topology
from libra.schema import read_part
from libra.sweep import parse_axis
from libra.yaml_source import Override, Source, read_yaml

__all__ = ["Space", "TierSpace", "load_space"]

SHARED = (
    "collectives",
    "prices",
    "power",
    "constraints",
    "objective",
    "baseline",
    "training_loop",
)
"""Keys of a design file that a space has as they are."""
ALTERNATIVES = ("tp", "pp", "dp", "ep", "cp", "zero", "virtual_stages", "sequence_parallel")
"""Keys of a model's ``parallel:`` that may be lists; the degrees may be ``auto``, too."""
DEGREES = ("tp", "pp", "dp", "cp")
OBJECTIVES = ("time", "time-cost", "cost")


@dataclass(frozen=True)
class TierSpace:
    """What a tier may be; a size of 1 leaves it out.

    Attributes
    ----------
    tier : str
        Its name, by which it is priced.
    topologies : tuple of Topology
        Building blocks to look at.
    sizes : tuple of int or str
        Members, or ``auto``: any that divides the NPUs that the other tiers leave.
    latency, efficiency, min_bandwidth, max_bandwidth, radix, lane, max_lanes, bandwidth_choices
        As of a dimension of a design.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tier: str
    topologies: tuple[Topology, ...]
    sizes: tuple[int, ...] | str = "auto"
    name: str = ""
    latency: str | None = None
    efficiency: float | None = None
    min_bandwidth: str | None = None
    max_bandwidth: str | None = None
    in_network: bool | None = None
    radix: int | None = None
    lane: str | None = None
    min_lanes: int | None = None
    max_lanes: int | None = None
    bandwidth_choices: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if not self.topologies:
            raise FieldError("topologies", "needs at least one, got []. Write e.g. [ring, switch].")
        if isinstance(self.sizes, str):
            if self.sizes != "auto":
                raise FieldError(
                    "sizes", f"must be a list or auto, got {shown(self.sizes)}. Write auto."
                )
        elif not self.sizes or min(self.sizes) < 1 or len(set(self.sizes)) < len(self.sizes):
            raise FieldError(
                "sizes",
                f"must be different sizes of at least 1, got {list(self.sizes)}. Correct them.",
            )

    def dimension(self, topology: Topology, size: int) -> dict[str, Any]:
        """Plain data of the dimension with a topology and a size."""
        fixed = ("topologies", "sizes")
        given = {k: v for k, v in vars(self).items() if k not in fixed and v not in (None, "")}
        if topology is not Topology.SWITCH:
            given = {k: v for k, v in given.items() if k not in ("radix", "in_network")}
        return {"topology": topology.value, "size": size} | given


@dataclass(frozen=True)
class NetworkSpace:
    """Tiers, innermost first, and how many dimensions a network may have.

    Attributes
    ----------
    tiers : tuple of TierSpace
        Innermost first.
    dimensions : tuple of int or None
        Fewest and most; None: any number.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tiers: tuple[TierSpace, ...]
    dimensions: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.tiers:
            raise FieldError("tiers", "needs at least one tier, got []. Add one.")
        low, high = self.dimensions or (1, 99)
        if not 1 <= low <= high:
            raise FieldError(
                "dimensions", f"must be fewest and most, got {[low, high]}. Write e.g. [2, 4]."
            )


@dataclass(frozen=True, eq=False)
class Space:
    """A space of designs.

    Attributes
    ----------
    file : str
        Where it was read from.
    data : mapping
        The file as plain data.
    source : Source
        Its lines.
    npus : tuple of int
        Numbers of NPUs to look at.
    network : NetworkSpace
    workloads : tuple of mapping
        Plain data of each workload, with its alternatives.
    shared : mapping
        Keys of a design that all candidates have.
    """

    file: str
    data: Mapping[str, Any]
    source: Source
    npus: tuple[int, ...]
    network: NetworkSpace
    workloads: tuple[Mapping[str, Any], ...]
    shared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The space as text that is the same for the same space."""
        return json.dumps(self.data, indent=1, sort_keys=True, ensure_ascii=False)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Collective algorithms to look at."""
        given = self.shared.get("collectives", {}).get("algorithm", "multi-rail")
        return tuple(given) if isinstance(given, list) else (given,)


def load_space(path: str | Path, overrides: Sequence[Override] = ()) -> Space:
    """Read a space file.

    Parameters
    ----------
    path : str or Path
    overrides : sequence of Override
        As for a design.

    Raises
    ------
    InputError
        With every problem of the space's own keys; those that it shares with designs are checked
        as the candidates are built.
    """
    return space_of_source(read_yaml(Path(path), overrides))


def space_of_source(source: Source) -> Space:
    """Space of a file's plain data."""
    problems = list(source.problems)
    data = source.data

    def note(place: Place, message: str) -> None:
        problems.append(source.problem(place, message))

    if not isinstance(data, dict):
        note((), f"a space is a mapping, got {shown(data)}. See `libra explore --help`.")
        raise in_file_order(problems)
    known = ("npus", "network", "workloads", *SHARED)
    for key, value in data.items():
        if key not in known:
            note((key,), f"unknown key, got {shown(key)}. {nearest(key, known)}")
        if key == "objective" and value not in OBJECTIVES:
            note((key,), f"an exploration minimises one of {', '.join(OBJECTIVES)}, got "
                 f"{shown(value)}. Use one of them.")  # fmt: skip
    npus = _npus(data.get("npus"), note)
    network = _network(source, data.get("network"), problems)
    workloads = data.get("workloads")
    fine = isinstance(workloads, list) and all(isinstance(w, dict) for w in workloads)
    if not (fine and workloads):
        note(("workloads",), f"must be a list of mappings, got {shown(workloads)}. Add one.")
        workloads = []
    for k, item in enumerate(workloads):
        for place, message in _alternative_faults(item):
            note(("workloads", k, *place), message)
    if problems:
        raise in_file_order(problems)
    assert network is not None
    shared = {key: data[key] for key in SHARED if key in data}
    return Space(source.file, data, source, npus, network, tuple(workloads), shared)


def _npus(value: Any, note: Any) -> tuple[int, ...]:
    found = value if isinstance(value, list) else [value]
    if isinstance(value, str):
        try:
            found = [int(number) for number in parse_axis(f"npus={value}").values]
        except (InputError, ValueError):
            found = []
    if not found or not all(
        isinstance(n, int) and not isinstance(n, bool) and n > 1 for n in found
    ):
        note(
            ("npus",),
            "must be a number of NPUs, a list, or a range such as 1024..8192:x2 or "
            f"1024..4096:1024, got {shown(value)}. Write one.",
        )
        return ()
    return tuple(found)


def _network(source: Source, value: Any, problems: list[Problem]) -> NetworkSpace | None:
    if not isinstance(value, dict):
        message = f"must be a mapping with tiers, got {shown(value)}. Add network: {{tiers: …}}."
        problems.append(source.problem(("network",), message))
        return None
    tiers = value.get("tiers")
    items = tiers if isinstance(tiers, list) else []
    for place, item, owner in (
        (("network",), value, NetworkSpace),
        *((("network", "tiers", k), item, TierSpace) for k, item in enumerate(items)),
    ):
        valid = [f.name for f in fields(owner)]
        for key in item if isinstance(item, dict) else ():
            if key not in valid:
                message = f"unknown key, got {shown(key)}. {nearest(key, valid)}"
                problems.append(source.problem((*place, key), message))
    if problems:
        return None
    if isinstance(value.get("dimensions"), int):
        value = value | {"dimensions": [value["dimensions"]] * 2}
    found: NetworkSpace | None = read_part(source, problems, NetworkSpace, value, ("network",))
    return found


def _alternative_faults(item: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    parallel = item.get("parallel", "auto")
    if "model" not in item:
        yield ("model",), "is missing, got nothing. An exploration needs model:."
    batch = item.get("batch")
    micro = batch.get("micro") if isinstance(batch, dict) else None
    yield from _list_faults(micro, ("batch", "micro"))
    yield from _list_faults(item.get("recomputation"), ("recomputation",))
    if parallel == "auto":
        return
    if not isinstance(parallel, dict):
        yield ("parallel",), f"must be auto or a mapping, got {shown(parallel)}. Write auto."
        return
    for key in DEGREES:
        value = parallel.get(key)
        if isinstance(value, str) and value != "auto":
            message = f"must be a degree, a list or auto, got {shown(value)}. Write e.g. [1, 2, 4]."
            yield ("parallel", key), message
    for key, value in parallel.items():
        if key != "blocks":  # One choice is a list.
            yield from _list_faults(value, ("parallel", key))
    orders = parallel.get("order")
    if orders is not None and not isinstance(orders, list):
        yield ("parallel", "order"), f"must be a list, got {shown(orders)}. Correct it."


def _list_faults(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """What is wrong with a list of alternatives, if it is one."""
    if not isinstance(value, list):
        return
    if not value:
        yield place, "a list of choices needs at least one, got []. Add one, or leave it out."
    for k, choice in enumerate(value):
        if choice in value[:k]:
            yield (*place, k), f"a choice stands twice, got {shown(choice)}. Remove one."


def refuse_text(error: InputError) -> str:
    """One line for a candidate that cannot be built."""
    first = error.problems[0]
    return f"{first.path}: {first.message}" if first.path else first.message
