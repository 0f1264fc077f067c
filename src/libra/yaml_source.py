"""YAML text → plain data with the line of every value, read safely.

Only mappings with text keys, lists, text, numbers, booleans and null come out. Size, nesting and
the number of values (aliases expanded) are limited, so that no file can exhaust memory or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from libra.errors import InputError, Problem

__all__ = ["Override", "Source", "format_path", "read_yaml"]

Key = str | int
Place = tuple[Key, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 24
MAX_VALUES = 50_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Override:
    """``path=value`` from the command line: replaces or adds one value of the file."""

    path: str
    value: str


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
    """

    file: str
    data: Any
    lines: dict[Place, int] = field(default_factory=dict)
    overridden: dict[Place, str] = field(default_factory=dict)

    def locate(self, place: Place) -> tuple[str, int]:
        """File and line of a place, or of the nearest one around it that is known."""
        while True:
            if place in self.overridden:
                return f"--set {self.overridden[place]}", 0
            if place in self.lines:
                return self.file, self.lines[place]
            if not place:
                return self.file, 0
            place = place[:-1]

    def problem(self, place: Place, message: str) -> Problem:
        """Describe what is wrong with the value at a place."""
        file, line = self.locate(place)
        return Problem(message, format_path(place), file, line)


def format_path(place: Sequence[Key]) -> str:
    """Text form of a place: indices in brackets, from 0.

    Examples
    --------
    >>> format_path(("network", 1, "size"))
    'network[1].size'
    """
    text = ""
    for key in place:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def shown(value: Any) -> str:
    """Short form of a value, for messages."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_text(path: Path, max_bytes: int) -> str:
    """Text of a file that must exist, be UTF-8 and not be too large."""
    try:
        size = path.stat().st_size
        if path.is_file() and size > max_bytes:
            raise InputError(
                Problem(
                    f"the file is too large, got {size:,} bytes of at most {max_bytes:,}. "
                    "Is it the right file?",
                    file=str(path),
                )
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            Problem(f"cannot be read: {reason}. Check the name.", file=str(path))
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            Problem(
                f"is not UTF-8 text, got byte {error.object[error.start]:#x} at {error.start}. "
                "Give a text file.",
                file=str(path),
            )
        ) from error


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

    Raises
    ------
    InputError
        If the file cannot be read, is not YAML, is too large or too deep, repeats a key or uses
        tags; or an override's path leads nowhere.
    """
    text = read_text(path, MAX_BYTES)
    source = Source(str(path), None)
    try:
        _refuse_excess(text, source.file)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error)
        line = mark.line + 1 if mark else 0
        raise InputError(
            Problem(f"is not YAML: {reason}. Mend the text there.", file=source.file, line=line)
        ) from error
    if root is not None:
        source.data = _Converter(source).convert(root, ())
    for override in overrides:
        apply_override(source, override)
    return source


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
            what = f"nested deeper than {MAX_DEPTH}" if depth > MAX_DEPTH else "too many values"
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise InputError(Problem(f"{what}, got more. Is it a design file?", "", file, line))


class _Converter:
    """Node tree → plain data, counting every value so that aliases cannot multiply."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.left = MAX_VALUES
        self.scalars = yaml.SafeLoader("")

    def fail(self, node: yaml.Node, place: Place, message: str) -> InputError:
        line = node.start_mark.line + 1 if node.start_mark else 0
        return InputError(Problem(message, format_path(place), self.source.file, line))

    def convert(self, node: yaml.Node, place: Place) -> Any:
        self.source.lines[place] = node.start_mark.line + 1
        self.left -= 1
        if self.left < 0 or len(place) > MAX_DEPTH:
            raise self.fail(
                node, (), "too many values once aliases are expanded, got more. Remove aliases."
            )
        if isinstance(node, yaml.MappingNode):
            result: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
                if key is None or key_node.tag == "tag:yaml.org,2002:merge":
                    raise self.fail(
                        key_node, place, "a key must be plain text, got another value. Mend it."
                    )
                if key in result:
                    raise self.fail(key_node, (*place, key), "the key stands twice. Remove one.")
                result[key] = self.convert(value_node, (*place, key))
                self.source.lines[*place, key] = key_node.start_mark.line + 1
            return result
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, (*place, k)) for k, item in enumerate(node.value)]
        return self.scalar(node, place)

    def scalar(self, node: yaml.Node, place: Place) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "timestamp"):
            return node.value
        if kind in ("int", "float", "bool", "null"):
            try:
                return self.scalars.construct_object(node)
            except (ValueError, yaml.YAMLError):
                return node.value
        raise self.fail(node, place, f"tags are not read, got {node.tag!r}. Remove the tag.")


def apply_override(source: Source, override: Override) -> None:
    """Set one value by its dotted path: keys, list indices from 0, or the ``name`` of an item.

    ``constraints.LEFT`` sets the right side of the constraint whose left side is LEFT, so that
    ``constraints.total=500 GB/s`` turns ``total <= 1000 GB/s`` into ``total <= 500 GB/s``.

    Raises
    ------
    InputError
        If the path leads nowhere.
    """
    text = f"{override.path}={override.value}"
    keys = override.path.split(".")
    value = yaml.safe_load(override.value) if len(override.value) < 1000 else override.value
    if isinstance(value, dict | list):
        value = override.value
    if keys[0] == "constraints" and len(keys) > 1 and not keys[1].isdigit():
        _override_constraint(source, ".".join(keys[1:]), override.value, text)
        return
    here: Any = source.data
    place: Place = ()
    for key in keys[:-1]:
        step = _step(here, key)
        if step is None:
            raise InputError(
                Problem(f"leads nowhere at {key!r}. Check the path.", "", f"--set {text}")
            )
        here, place = here[step], (*place, step)
    last = _step(here, keys[-1])
    if last is None:
        if not isinstance(here, dict):
            raise InputError(
                Problem(f"leads nowhere at {keys[-1]!r}. Check the path.", "", f"--set {text}")
            )
        last = keys[-1]
    here[last] = value
    source.overridden[*place, last] = text


def _step(here: Any, key: str) -> Key | None:
    """Key or index of a mapping or list that a part of a path means; None: there is none."""
    if isinstance(here, dict):
        return key if key in here else None
    if isinstance(here, list):
        if key.isdigit() and int(key) < len(here):
            return int(key)
        named = [
            k for k, item in enumerate(here) if isinstance(item, dict) and item.get("name") == key
        ]
        return named[0] if len(named) == 1 else None
    return None


def _override_constraint(source: Source, left: str, right: str, text: str) -> None:
    rows = source.data.get("constraints") if isinstance(source.data, dict) else None
    found = 0
    for k, row in enumerate(rows if isinstance(rows, list) else []):
        for relation in ("<=", ">=", "=="):
            if isinstance(row, str) and row.partition(relation)[0].strip() == left.strip():
                rows[k] = f"{left.strip()} {relation} {right.strip()}"  # type: ignore[index]
                source.overridden["constraints", k] = text
                found += 1
    if not found:
        raise InputError(
            Problem(
                f"no constraint has the left side {left!r}. Add it to the file first.",
                "",
                f"--set {text}",
            )
        )
