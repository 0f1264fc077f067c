"""Design file → `Design`: every problem of the input at once, each with its line.

The file's plain data is brought to its long form (`_expand`), checked against the schema of
`DesignFile` and the types below it by pydantic, then assembled. What a value must satisfy is said
once, in the ``__post_init__`` of the type that carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from libra.constraints import LinearConstraint, parse_constraint
from libra.cost import bandwidth_prices
from libra.design import Design, Workload
from libra.errors import FieldError, InputError, Problem, nearest
from libra.formats.astra_sim import read_text_workload
from libra.formats.astra_sim_policy import place_text_workload
from libra.network import Network, parse_shape
from libra.placement import Group, nest_groups, place_groups
from libra.presets import load_presets
from libra.schema import DesignFile, WorkloadEntry, validate_design
from libra.workload.schedule import build_graph
from libra.yaml_source import Override, Place, Source, read_yaml, shown

if TYPE_CHECKING:
    pass

__all__ = ["load_design"]

T = TypeVar("T")


def load_design(path: str | Path, overrides: Sequence[Override] = ()) -> Design:
    """Read a design file.

    Parameters
    ----------
    path : str or Path
        The YAML file. Traces are found relative to its folder.
    overrides : sequence of Override
        ``path=value`` settings that replace values of the file.

    Returns
    -------
    Design

    Raises
    ------
    InputError
        With every problem of the design file and of the files it names, in file order.
    """
    source = read_yaml(Path(path), overrides)
    problems: list[Problem] = []
    places: dict[str, Place] = {}
    settings = source.data
    expanded = _expand(source, problems, places)
    parsed = validate_design(expanded, source, problems, places)
    if parsed is None or problems:
        raise _in_order(problems, source)
    return _Assembly(source, problems, parsed).design(settings)


def _in_order(problems: Sequence[Problem], source: Source) -> InputError:
    unique = list(dict.fromkeys(problems))
    return InputError(sorted(unique, key=lambda p: (p.file != source.file, p.line)))


# --- short forms -------------------------------------------------------------------------------


def _expand(source: Source, problems: list[Problem], places: dict[str, Place]) -> Any:
    """Bring the short forms of ``network``, ``prices`` and ``baseline`` to their long form."""
    if not isinstance(source.data, dict):
        problems.append(
            source.problem(
                (),
                "a design is a mapping with network, workloads and prices, got "
                f"{shown(source.data)}. Start from `libra new`.",
            )
        )
        return None
    data = dict(source.data)
    if "network" in data:
        try:
            data["network"] = _expand_network(data["network"])
        except FieldError as error:
            place: Place = ("network", error.field_name) if error.field_name else ("network",)
            problems.append(source.problem(place, error.message))
            data.pop("network")
            places["network"] = ("network",)
    data["prices"] = data.get("prices", "default")
    if isinstance(data["prices"], str):
        presets = load_presets("prices")
        if data["prices"] not in presets:
            text = f"unknown price list, got {data['prices']!r}. {nearest(data['prices'], presets)}"
            problems.append(source.problem(("prices",), text))
        preset = presets.get(data["prices"], presets["default"])
        data["prices"] = {"tiers": preset["tiers"], "source": preset["source"]}
    elif isinstance(data["prices"], dict):
        tiers = {k: v for k, v in data["prices"].items() if k != "npu"}
        data["prices"] = {k: v for k, v in data["prices"].items() if k == "npu"} | {"tiers": tiers}
    if data.get("baseline") == "equal":
        data.pop("baseline")
    return data


def _expand_network(value: Any) -> Any:
    """Long form of a network: one mapping a dimension."""
    if isinstance(value, str):
        presets = load_presets("networks")
        if value not in presets:
            raise FieldError(
                "",
                f"unknown network, got {value!r}. {nearest(value, presets)} "
                "Or give shape: and tiers:.",
            )
        value = {k: v for k, v in presets[value].items() if k != "source"}
    if not isinstance(value, dict):
        return value
    for key in value:
        if key not in ("shape", "tiers", "names"):
            raise FieldError(
                key, f"unknown key, got {key!r}. {nearest(key, ('shape', 'tiers', 'names'))}"
            )
    shape, tiers = value.get("shape"), value.get("tiers")
    if not isinstance(shape, str):
        raise FieldError("shape", f"a shape is text, got {shown(shape)}. Write e.g. RI(4)_SW(32).")
    try:
        blocks = parse_shape(shape)
    except ValueError as error:
        raise FieldError("shape", str(error)) from None
    lists: dict[str, Any] = {"tier": tiers}
    if "names" in value:
        lists["name"] = value["names"]
    for key, items in lists.items():
        if not isinstance(items, list) or len(items) != len(blocks):
            raise FieldError(
                f"{key}s",
                f"needs one {key} for each of the {len(blocks)} dimensions of {shape}, got "
                f"{shown(items)}. Write {len(blocks)} of them, innermost first.",
            )
    return [
        {"topology": topology.value, "size": size} | {key: items[d] for key, items in lists.items()}
        for d, (topology, size) in enumerate(blocks)
    ]


# --- assembly ----------------------------------------------------------------------------------


class _Assembly:
    """Builds the parts of a design, collecting what is wrong with each."""

    def __init__(self, source: Source, problems: list[Problem], parsed: DesignFile) -> None:
        self.source, self.problems, self.parsed = source, problems, parsed

    def attempt(self, place: Place, build: Callable[[], T]) -> T | None:
        """Result of a step, or None after noting what is wrong at a place."""
        try:
            return build()
        except FieldError as error:
            names: Place = tuple(p for p in error.field_name.split(".") if p)
            self.problems.append(self.source.problem((*place, *names), error.message))
        except ValueError as error:
            self.problems.append(self.source.problem(place, str(error)))
        except InputError as error:
            self.problems.extend(error.problems)
        return None

    def design(self, settings: Mapping[str, Any]) -> Design:
        parsed = self.parsed
        network = self.attempt(("network",), lambda: Network(parsed.network))
        if network is None:
            raise _in_order(self.problems, self.source)
        self.check_tiers(network)
        prices = self.attempt(("prices",), lambda: bandwidth_prices(network, parsed.prices))
        constraints = []
        for k, text in enumerate(parsed.constraints):
            place = ("constraints", k)
            row = self.attempt(place, lambda: self.constraint(text, network, prices, place))  # noqa: B023
            constraints += [row] if row is not None else []
        workloads = []
        for k, entry in enumerate(parsed.workloads):
            found = self.workload(entry, network, ("workloads", k))
            workloads += [found] if found is not None else []
        if self.problems:
            raise _in_order(self.problems, self.source)
        design = self.attempt(
            (),
            lambda: Design(
                network,
                tuple(workloads),
                parsed.prices,
                tuple(constraints),
                parsed.objective,
                parsed.collectives,
                parsed.training_loop,
                parsed.baseline or None,
                self.source.file,
                settings,
                self.warnings(workloads),
            ),
        )
        if design is None:
            raise _in_order(self.problems, self.source)
        return design

    def check_tiers(self, network: Network) -> None:
        for d, dimension in enumerate(network.dimensions):
            if dimension.tier not in self.parsed.prices.tiers:
                place: Place = ("network", d, "tier")
                if place not in self.source.lines:
                    place = ("network", "tiers", d)
                self.problems.append(
                    self.source.problem(
                        place,
                        f"unknown tier, got {dimension.tier!r}. "
                        f"{nearest(dimension.tier, self.parsed.prices.tiers)}",
                    )
                )

    def constraint(
        self, text: str, network: Network, prices: Any, place: Place
    ) -> LinearConstraint:
        file, line = self.source.locate(place)
        return parse_constraint(text, network, prices, file, line)

    def workload(self, entry: WorkloadEntry, network: Network, place: Place) -> Workload | None:
        groups = self.attempt(place, lambda: self.groups(entry, network))
        groups_known = groups is not None or not (entry.parallel or entry.groups)
        path = Path(self.source.file).parent / entry.trace
        text = self.attempt((*place, "trace"), lambda: read_text_workload(path))
        if text is None or not groups_known:
            return None
        placed = self.attempt(
            place,
            lambda: place_text_workload(text, network, groups, self.parsed.collectives.compat),
        )
        if placed is None:
            return None
        layers, notes = placed
        name = entry.name or path.stem
        return self.attempt(
            place,
            lambda: Workload(
                name,
                build_graph(layers, self.parsed.training_loop, notes),
                entry.weight,
                groups or {},
                entry.trace,
            ),
        )

    def groups(self, entry: WorkloadEntry, network: Network) -> dict[str, Group] | None:
        extents: Mapping[str, Sequence[int]] | None = entry.groups
        if entry.parallel is not None:
            order = {r: entry.parallel[r] for r in ("tp", "dp") if r in entry.parallel}
            try:
                extents = place_groups(network.sizes, order)
            except ValueError as error:
                raise FieldError("parallel", str(error)) from None
        if extents is None:
            return None
        try:
            return nest_groups(network, extents)
        except FieldError as error:
            raise FieldError(f"groups.{error.field_name}".rstrip("."), error.message) from None

    def warnings(self, workloads: Sequence[Workload]) -> tuple[str, ...]:
        found = []
        for workload in workloads:
            found += [f"{workload.name}: {note}." for note in workload.graph.note]
            if not workload.graph.collectives:
                found.append(
                    f"{workload.name}: communicates nothing, so its time does not depend on any "
                    "bandwidth. Check its collectives and groups."
                )
        return tuple(found)
