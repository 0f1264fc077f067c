"""YAML text → plain data with the line of every value, read safely.

Only mappings with text keys, lists, text, numbers and booleans come out, by the rules of YAML 1.2
(``yes``, ``010`` and ``1:30`` are text). Size, nesting and the number of values (aliases expanded)
are limited, so that no file can exhaust memory or time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import yaml

from libra.errors import InputError, Key, Place, Problem, format_path, nearest, shown
from libra.files import read_text

__all__ = ["Override", "Source", "apply_overrides", "read_yaml", "split_path", "value_at"]

MAX_BYTES = 1_000_000
MAX_DEPTH = 24
MAX_VALUES = 10_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_KINDS: dict[type[yaml.Node], tuple[str, ...]] = {
    yaml.MappingNode: ("map",),
    yaml.SequenceNode: ("seq",),
    yaml.ScalarNode: ("str", "int", "float", "bool", "null", "timestamp", "value", "merge"),
}
"""Tags that plain YAML gives the kinds of nodes."""
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?")
_SPECIAL: dict[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}
_SPECIAL |= {f"{sign}.inf": float(f"{sign}inf") for sign in ("", "+", "-")} | {".nan": float("nan")}


@dataclass(frozen=True)
class Override:
    """``path=value`` from the command line: replaces or adds one value of the file."""

    path: str
    value: str
    option: str = "--set"

    @property
    def source(self) -> str:
        """What stands in for the file's name in messages."""
        return f"{self.option} {self.path}={self.value if len(self.value) <= 60 else '...'}"


@dataclass
class Source:
    """Plain data of a YAML file and where each value stands.

    Attributes
    ----------
    file : str
        Name of the file as given.
    data : Any
        Mappings, lists and scalars.
    lines : dict
        Line (from 1) of the value at each place, a tuple of keys and indices.
    overridden : dict
        Places that an override has set, with its text.
    problems : list of Problem
        What is wrong with the file's form, in no order.
    """

    file: str
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    overridden: dict[Place, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def locate(self, place: Place) -> tuple[str, int]:
        """File and line of a place, or of the nearest one around it that is known."""
        while True:
            if place in self.overridden:
                return self.overridden[place], 0
            if place in self.lines:
                return self.file, self.lines[place]
            if not place:
                return self.file, 0
            place = place[:-1]

    def problem(self, place: Place, message: str) -> Problem:
        """Describe what is wrong with the value at a place."""
        file, line = self.locate(place)
        return Problem(message, format_path(place), file, line)

    def override(self, place: Place, value: Any, text: str) -> None:
        """Note that an override has set a place, whose lines no longer count."""
        owner = self.data
        for key in place[:-1]:
            owner = owner[key]
        owner[place[-1]] = value
        for old in [p for p in self.lines if p[: len(place)] == place]:
            del self.lines[old]
        self.overridden[place] = text


def read_yaml(path: Path, overrides: Sequence[Override] = ()) -> Source:
    """Read a YAML file, then apply overrides.

    Parameters
    ----------
    path : Path
        The file.
    overrides : sequence of Override
        Applied in order.

    Returns
    -------
    Source
        With the problems that leave something to read: repeated keys, tags, missing values,
        overrides whose path leads nowhere.

    Raises
    ------
    InputError
        If the file cannot be read, is not YAML, or is too large or too deep.
    """
    source = Source(str(path))
    try:
        text = read_text(path, MAX_BYTES)
    except ValueError as error:
        raise InputError(Problem(str(error), file=source.file)) from None
    root = _compose(text, source.file)
    if root is not None:
        source.data = _Converter(source, source.file).convert(root, ())
    apply_overrides(source, overrides)
    return source


def apply_overrides(source: Source, overrides: Sequence[Override]) -> None:
    """Apply overrides in order; those whose path leads nowhere become problems of the source."""
    for override in overrides:
        try:
            apply_override(source, override)
        except ValueError as error:
            source.problems.append(Problem(str(error), file=override.source))
        except InputError as error:
            source.problems += [replace(problem, line=0) for problem in error.problems]


def _compose(text: str, file: str) -> yaml.Node | None:
    """Node tree of a text that is not too deep or large."""
    try:
        _refuse_excess(text, file)
        root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        start = f" from line {error.context_mark.line + 1}" if error.context_mark else ""
        context = f"{error.context}{start}: " if error.context else ""
        lines = text.splitlines()
        got = lines[line - 1].strip(" ") if 0 < line <= len(lines) else None
        advice = (
            "Indent with spaces, not tabs."
            if (got or "").startswith("\t")
            else "Mend the text there."
        )
        message = f"is not YAML: {context}{error.problem}, got {shown(got)}. {advice}"
        raise InputError(Problem(message, file=file, line=line)) from error
    except yaml.YAMLError:
        message = f"is not YAML, got {shown(text)}. Mend the text."
        raise InputError(Problem(message, file=file)) from None
    return root


def _refuse_excess(text: str, file: str) -> None:
    """Refuse text nested too deeply or with too many values, before anything is built from it."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        values += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH or values > MAX_VALUES:
            what = (
                f"values nest at most {MAX_DEPTH} levels deep"
                if depth > MAX_DEPTH
                else f"a file has at most {MAX_VALUES:,} values"
            )
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise InputError(Problem(f"{what}, got more. Is it a design file?", "", file, line))


class _Converter:
    """Node tree → plain data, counting every value so that aliases cannot multiply."""

    def __init__(self, source: Source, file: str) -> None:
        self.source, self.file = source, file
        self.left = MAX_VALUES

    def note(self, node: yaml.Node, place: Place, message: str) -> None:
        """Note what is wrong with a node."""
        line = node.start_mark.line + 1 if self.file == self.source.file else 0
        self.source.problems.append(Problem(message, format_path(place), self.file, line))

    def convert(self, node: yaml.Node, place: Place) -> Any:
        self.left -= 1
        if self.left < 0 or len(place) > MAX_DEPTH:
            message = f"aliases expand to more than {MAX_VALUES:,} values or {MAX_DEPTH} levels"
            line = node.start_mark.line + 1
            raise InputError(
                Problem(f"{message}, got more. Write the values out.", "", self.file, line)
            )
        if self.file == self.source.file:
            self.source.lines[place] = node.start_mark.line + 1
        if node.tag.removeprefix(_TAG) not in _KINDS[type(node)]:
            tag = node.tag.replace(_TAG, "!!")
            self.note(node, place, f"tags are not read, got {shown(tag)}. Remove the tag.")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, (*place, k)) for k, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self.scalar(node, place)

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _TAG + "merge":
                got = shown(key_node.value if isinstance(key_node.value, str) else "a collection")
                self.note(key_node, place, f"a key must be plain text, got {got}. Write the keys.")
                continue
            key = key_node.value
            if not key.isprintable():
                self.note(
                    key_node,
                    (*place, key),
                    f"holds a control character, got {shown(key)}. Mend it.",
                )
            elif key in result:
                self.note(
                    key_node, (*place, key), f"the key stands twice, got {shown(key)}. Remove one."
                )
            else:
                result[key] = self.convert(value_node, (*place, key))
                if self.file == self.source.file:
                    self.source.lines[*place, key] = key_node.start_mark.line + 1
        return result

    def scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        value = node.value if node.style else plain_scalar(node.value)
        if value is None and place:
            self.note(node, place, "has no value, got nothing. Write one, or leave the line out.")
        if isinstance(value, str) and not value.isprintable():
            self.note(node, place, f"holds a control character, got {shown(value)}. Mend it.")
        return value


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Value of unquoted text by YAML 1.2; an integer with leading zeros stays text.

    Examples
    --------
    >>> [plain_scalar(t) for t in ("12", "1e3", "010", "yes", "true", "100 GB/s")]
    [12, 1000.0, '010', 'yes', True, '100 GB/s']
    """
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if _INTEGER.fullmatch(text) and len(text) < 400:
        return int(text)
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
        return float(text)
    return text


def split_path(path: str) -> list[str]:
    """Parts of a path; what stands in brackets is a part of its own, as in messages.

    Examples
    --------
    >>> split_path("workloads[0].batch.micro") == split_path("workloads.0.batch.micro")
    True
    """
    return re.sub(r"\[([^][]+)\]", r".\1", path).removeprefix(".").split(".")


def apply_override(source: Source, override: Override) -> None:
    """Set one value by its dotted path.

    A part of a path is a key, an index of a list from 0, or an item's name (else tier, model or
    file); ``workloads[0]`` and ``workloads.0`` are the same.

    ``constraints.LEFT`` sets the right side of the constraint whose left side is LEFT, so that
    ``constraints.total=500 GB/s`` turns ``total <= 1000 GB/s`` into ``total <= 500 GB/s``.

    Raises
    ------
    ValueError
        If the path leads nowhere.
    """
    keys = split_path(override.path)
    if keys[0] == "constraints" and len(keys) > 1 and not keys[1].isdigit():
        _override_constraint(source, ".".join(keys[1:]), override)
        return
    here: Any = source.data
    place: Place = ()
    for key in keys[:-1]:
        if isinstance(here, dict) and key not in here:
            here[key] = {}
            source.overridden[*place, key] = override.source
        step = _step(here, key)
        here, place = here[step], (*place, step)
    place = (*place, _step(here, keys[-1]))
    root = _compose(override.value, override.source)
    value = None
    if root is not None:
        value = _Converter(source, override.source).convert(root, place)
    else:
        message = "has no value, got nothing. Write one after the =."
        source.problems.append(Problem(message, format_path(place), override.source))
    source.override(place, value, override.source)


def _step(here: Any, key: str) -> Key:
    """Key or index of a mapping or list that a part of a path means."""
    if isinstance(here, dict):
        return key
    if isinstance(here, list):
        if re.fullmatch("[0-9]{1,9}", key) and int(key) < len(here):
            return int(key)
        # An item without a name of its own goes by its tier, model or by what its file is called.
        names = [_item_name(item) for item in here]
        if names.count(key) == 1:
            return names.index(key)
        words = [name for name in names if isinstance(name, str)]
        words += [str(k) for k in range(min(len(here), 8))]
        raise ValueError(f"the path leads nowhere, got {shown(key)}. {nearest(key, words)}")
    raise ValueError(
        f"the path leads into a single value, got {shown(key)}. Leave out what follows the value."
    )


def _item_name(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    name = item.get("name") or item.get("tier")
    if name is None and isinstance(item.get("trace"), str):
        name = PurePath(item["trace"]).stem
    if name is None and isinstance(item.get("model"), str):
        path = PurePath(item["model"])
        name = (path.parent.name or path.stem) if path.suffix == ".json" else item["model"]
    return name if isinstance(name, str) else None


def value_at(source: Source, path: str) -> Any:
    """Value that an override of a path would replace; None: there is none.

    Of ``constraints.LEFT`` it is the right side.

    Raises
    ------
    ValueError
        If the path leads nowhere.
    """
    keys = split_path(path)
    if keys[0] == "constraints" and len(keys) > 1 and not keys[1].isdigit():
        k, _ = _find_constraint(source, ".".join(keys[1:]))
        return re.split("<=|>=|==", source.data["constraints"][k])[1].strip()
    here: Any = source.data
    for key in keys:
        if here is None or (isinstance(here, dict) and key not in here):
            return None
        here = here[_step(here, key)]
    return here


def _override_constraint(source: Source, left: str, override: Override) -> None:
    k, relation = _find_constraint(source, left)
    text = f"{left.strip()} {relation} {override.value.strip()}"
    source.override(("constraints", k), text, override.source)


def _find_constraint(source: Source, left: str) -> tuple[int, str]:
    """Index and relation of the constraint that has a left side."""
    rows = source.data.get("constraints") if isinstance(source.data, dict) else None
    texts = [row if isinstance(row, str) else "" for row in rows] if isinstance(rows, list) else []
    sides = {}
    for k, text in enumerate(texts):
        found = re.search("<=|>=|==", text)
        if found:
            sides[k] = (text[: found.start()].strip(), found[0])
    chosen = [k for k, side in sides.items() if side[0] == left.strip()]
    if not chosen:
        advice = nearest(left, [side[0] for side in sides.values()])
        raise ValueError(f"no constraint has this left side, got {shown(left)}. {advice}")
    if len(chosen) > 1:
        numbers = " or ".join(f"constraints.{k}" for k in chosen)
        raise ValueError(
            f"several constraints have this left side, got {shown(left)}. Write {numbers} and the "
            "whole constraint."
        )
    return chosen[0], sides[chosen[0]][1]
