"""Layer tables: a workload as one row a layer, in CSV or YAML.

    name,   forward, input_gradient, weight_gradient, forward_collective, weight_gradient_collective
    client, 3 ms,    3 ms,           3 ms,            point-to-point 8 MB edge,  all-reduce 5 MB pod
    server, 9 ms,    9 ms,           9 ms,            ,                          all-reduce 90 MB dp

Columns: ``name``; the times ``forward``, ``input_gradient``, ``weight_gradient``, ``update`` and
``recomputation`` (0 if left out; a recomputed layer runs its forward collective again); a
collective after each of the first three phases, ``KIND SIZE GROUP``; ``count``, equal layers that
follow each other. A group is a role of ``parallel:`` or ``groups:``, a dimension of the network by
its name, or ``all``. YAML: a list of mappings with the same keys.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TypeVar

from libra.collectives import Collective, CollectiveKind
from libra.errors import FieldError, InputError, Problem, in_file_order, nearest, shown
from libra.files import read_text
from libra.network import Network
from libra.placement import Group, whole_group
from libra.units import SIZE, TIME, parse_quantity
from libra.workload.layers import Layer, Phase
from libra.yaml_source import read_yaml

__all__ = ["LayerTable", "is_layer_table", "place_layer_table", "read_layer_table"]

T = TypeVar("T")
PHASES = ("forward", "input_gradient", "weight_gradient")
TIMES = (*PHASES, "update", "recomputation")
COLUMNS = ("name", *TIMES, *(f"{phase}_collective" for phase in PHASES), "count")
_MOST_BYTES = 100_000_000
_MOST_LAYERS = 1_000_000


@dataclass(frozen=True)
class TableRow:
    """One row of a table: a layer and how often it follows itself.

    Attributes
    ----------
    name : str
    times : mapping of str to float
        By column [s].
    collectives : mapping of str to (CollectiveKind, float, str)
        Kind, size [bytes] and group, by phase.
    count, line : int
    """

    name: str
    times: Mapping[str, float]
    collectives: Mapping[str, tuple[CollectiveKind, float, str]]
    count: int
    line: int


@dataclass(frozen=True)
class LayerTable:
    """A table of layers; see the head of this module."""

    file: str
    rows: tuple[TableRow, ...]


def is_layer_table(name: str) -> bool:
    """Whether a trace's name is that of a layer table."""
    return PurePath(name).suffix in (".csv", ".yaml", ".yml")


def read_layer_table(path: Path) -> LayerTable:
    """Read a table.

    Raises
    ------
    InputError
        The file cannot be read; all that is wrong in it, each with its line.
    """
    problems: list[Problem] = []
    rows = []
    for line, values in _raw_rows(path):
        unknown = [key for key in values if key not in COLUMNS]
        if unknown:
            message = f"unknown column, got {shown(unknown[0])}. {nearest(unknown[0], COLUMNS)}"
            problems.append(Problem(message, unknown[0], str(path), line))
            if path.suffix == ".csv":
                break  # every row has it
            continue
        try:
            rows.append(_row(values, line))
        except FieldError as error:
            problems.append(Problem(error.message, error.field_name, str(path), line))
    if not rows and not problems:
        problems.append(Problem("has no layers, got an empty table. Add a row.", file=str(path)))
    if sum(row.count for row in rows) > _MOST_LAYERS:
        problems.append(
            Problem(f"has at most {_MOST_LAYERS:,} layers, got more. Lower count.", file=str(path))
        )
    if problems:
        raise in_file_order(problems)
    return LayerTable(str(path), tuple(rows))


def _raw_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line and cells of each row; empty cells are left out."""
    if path.suffix == ".csv":
        reader = csv.DictReader(io.StringIO(read_text(path, _MOST_BYTES)), skipinitialspace=True)
        found = []
        for raw in reader:
            if None in raw:
                message = f"has more cells than the {len(raw) - 1} columns, got {shown(raw[None])}."
                raise InputError(Problem(f"{message} Remove some.", "", str(path), reader.line_num))
            cells = {str(k).strip(): (v or "").strip() for k, v in raw.items()}
            found.append((reader.line_num, {k: v for k, v in cells.items() if v}))
        return found
    source = read_yaml(path)
    if not source.problems and not isinstance(source.data, list):
        message = f"must be a list of layers, got {shown(source.data)}. Write '- name: …'."
        source.problems.append(source.problem((), message))
    found = []
    for k, item in enumerate(source.data if isinstance(source.data, list) else []):
        if isinstance(item, dict):
            _, line = source.locate((k,))
            found.append((line, {str(key): str(value) for key, value in item.items()}))
        else:
            source.problems.append(
                source.problem((k,), f"must be a mapping, got {shown(item)}. Write 'name: …'.")
            )
    if source.problems:
        raise in_file_order(source.problems)
    return found


def _row(values: Mapping[str, str], line: int) -> TableRow:
    if "name" not in values:
        raise FieldError("name", "is missing, got nothing. Name the layer.")
    times = {
        key: _read(key, partial(parse_quantity, values[key], TIME))
        for key in TIMES
        if key in values
    }
    collectives = {
        phase: _collective(f"{phase}_collective", values[f"{phase}_collective"])
        for phase in PHASES
        if f"{phase}_collective" in values
    }
    count = values.get("count", "1")
    if not (count.isdecimal() and 1 <= int(count) <= _MOST_LAYERS):
        raise FieldError("count", f"must be a whole number from 1, got {shown(count)}. Correct it.")
    return TableRow(values["name"], times, collectives, int(count), line)


def _read(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except FieldError as error:
        raise FieldError((key, *error.place), error.message) from None
    except ValueError as error:
        raise FieldError(key, str(error)) from None


def _collective(key: str, text: str) -> tuple[CollectiveKind, float, str]:
    words = text.split()
    if len(words) < 3:
        raise FieldError(
            key, f"is KIND SIZE GROUP, got {shown(text)}. Write e.g. all-reduce 25 MB dp."
        )
    kinds = [kind.value for kind in CollectiveKind]
    if words[0] not in kinds:
        raise FieldError(
            key, f"unknown collective, got {shown(words[0])}. {nearest(words[0], kinds)}"
        )
    size = _read(key, lambda: parse_quantity(" ".join(words[1:-1]), SIZE))
    if size == 0:
        raise FieldError(key, f"sends nothing, got {shown(text)}. Leave it out.")
    return CollectiveKind(words[0]), size, words[-1]


def place_layer_table(
    table: LayerTable, network: Network, groups: Mapping[str, Group]
) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """Layers of a table on a network, and what a user should know.

    Raises
    ------
    InputError
        Groups that are none, each with its line; a message between more than two.
    """
    everything = {name: whole_group(network, name, [d]) for d, name in enumerate(network.names)}
    everything["all"] = whole_group(network, "all", range(len(network.names)))
    everything |= groups
    problems: list[Problem] = []
    layers: list[Layer] = []
    silent = 0
    for row in table.rows:
        phases = {}
        for phase in PHASES:
            found = None
            if phase in row.collectives:
                kind, size, name = row.collectives[phase]
                key = f"{phase}_collective"
                if name not in everything:
                    message = f"unknown group, got {shown(name)}. {nearest(name, everything)}"
                    problems.append(Problem(message, key, table.file, row.line))
                    continue
                group = _pair(everything[name]) if kind is _MESSAGE else everything[name]
                silent += group.size == 1
                found = Collective(kind, size, group) if group.size > 1 else None
            phases[phase] = Phase(row.times.get(phase, 0.0), found)
        if len(phases) < len(PHASES):
            continue
        again = None
        if "recomputation" in row.times:
            again = Phase(row.times["recomputation"], phases["forward"].collective)
        for k in range(row.count):
            name = row.name if row.count == 1 else f"{row.name} {k + 1}"
            forward, inputs, weights = (phases[phase] for phase in PHASES)
            update = row.times.get("update", 0.0)
            layers.append(Layer(name, forward, inputs, weights, update, again))
    if problems:
        raise in_file_order(problems)
    note = f"{silent} collectives join one NPU only and send nothing" if silent else ""
    return tuple(layers), (note,) if note else ()


_MESSAGE = CollectiveKind.POINT_TO_POINT


def _pair(group: Group) -> Group:
    """Neighbours of a group: who exchanges a message."""
    extents = list(group.extents)
    first = next((d for d, e in enumerate(extents) if e > 1), None)
    return Group(
        group.name,
        tuple(2 if d == first else 1 for d in range(len(extents))),
        group.strides,
    )
