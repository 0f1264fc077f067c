"""Typed reading of a configuration's keys: by any of their names, with every problem collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from libra.errors import FieldError, Place, shown
from libra.workload.blocks import MOST_SIZE

__all__ = ["Keys"]

MOST_LAYERS = 10_000


@dataclass
class Keys:
    """Keys of one object of a configuration.

    A key that is wrong or missing is noted in `problems` and read as a harmless value, so that the
    others can still be read; nothing may be built before `problems` is found empty.

    Attributes
    ----------
    data : mapping
        The object.
    config : str
        Name of the configuration class, for messages and notes.
    place : tuple
        Where the object stands in the file.
    problems : list of FieldError
        What is wrong so far.
    notes : list of str
        Documented defaults that were used.
    origin : dict
        The key that each field of a model was read from.
    """

    data: Mapping[str, Any]
    config: str = ""
    place: Place = ()
    problems: list[FieldError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)

    def fail(self, key: str, message: str) -> None:
        """Note what is wrong with a key."""
        self.problems.append(FieldError((*self.place, key), message))

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        return self.data.get(key) is not None

    def find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        """First of several names that is there, and its value; conflicting names are noted."""
        present = [name for name in names if self.has(name)]
        if not present:
            return names[0], None
        first = present[0]
        for other in present[1:]:
            if self.data[other] != self.data[first]:
                self.fail(
                    other,
                    f"means the same as {first} = {shown(self.data[first])}, got "
                    f"{shown(self.data[other])}. Remove the wrong one.",
                )
        return first, self.data[first]

    def missing(self, names: tuple[str, ...]) -> None:
        """Note that a key is missing which has no default."""
        others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
        self.fail(
            names[0],
            f"is missing, and a size of {self.config} is never guessed, got nothing. "
            f"Add {names[0]}{others}.",
        )

    def default(self, key: str, value: object, rule: str = "") -> None:
        """Note that a documented default of the configuration class was used."""
        self.notes.append(f"{key}: {rule or shown(value)}, the default of {self.config}")

    def integer(
        self, name: str, *names: str, default: int | None = None, rule: str = "", least: int = 1
    ) -> int:
        """Size by the first of several names.

        Parameters
        ----------
        name : str
            The field of the model that it becomes, for messages.
        *names : str
            Keys, the most common first.
        default : int, optional
            Value where the key is missing or null, as the configuration class documents it;
            without it the key is required.
        rule : str
            The default in words, for the notes, where it is no constant.
        least : int
            Smallest value.
        """
        key, value = self.find(names)
        self.origin[name] = key
        if value is None:
            if default is None:
                self.missing(names)
                return least
            self.default(key, default, rule)
            return default
        return self.check_integer(key, value, least)

    def layers(self, *names: str, default: int | None = None, rule: str = "") -> int:
        """Number of blocks, by the first of several names."""
        count = self.integer("layers", *names, default=default, rule=rule)
        if count > MOST_LAYERS:
            key = self.origin["layers"]
            self.fail(key, f"must be at most {MOST_LAYERS:,}, got {count:,}. Correct it.")
            return 1
        return count

    def optional(self, name: str, *names: str, least: int = 1) -> int | None:
        """Size that may be missing or null, which means that there is no such thing."""
        key, value = self.find(names)
        self.origin[name] = key
        return None if value is None else self.check_integer(key, value, least)

    def check_integer(self, key: str, value: object, least: int) -> int:
        """`value` if it is a size, else note what is wrong."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"must be an integer, got {shown(value)}. Correct it.")
            return least
        if not least <= value <= MOST_SIZE:
            self.fail(
                key,
                f"must be between {least} and {MOST_SIZE:,}, got {shown(value)}. Correct it.",
            )
            return least
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Boolean of a key; its documented default where it is missing."""
        value = self.data.get(key)
        if value is None:
            self.default(key, default)
            return default
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, got {shown(value)}. Correct it.")
            return default
        return value

    def text(self, key: str, default: str) -> str:
        """Text of a key; its documented default where it is missing."""
        value = self.data.get(key)
        if value is None:
            self.default(key, default)
            return default
        if not isinstance(value, str):
            self.fail(key, f"must be text, got {shown(value)}. Correct it.")
            return default
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """List of layer numbers, empty where the key is missing."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(key, f"must be a list of integers, got {shown(value)}. Correct it.")
            return ()
        return tuple(self.check_integer(key, item, 0) for item in value)

    def inner(self, key: str) -> Keys:
        """Keys of the object that a key holds; of an empty one where it is missing."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, dict):
            self.fail(key, f"must be an object, got {shown(value)}. Correct it.")
            value = None
        return Keys(
            value or {}, self.config, (*self.place, key), self.problems, self.notes, self.origin
        )

    def require(self, key: str, wanted: Any, why: str) -> None:
        """Refuse another value of a key than the one whose sizes are known; missing is right."""
        if self.has(key) and self.data[key] != wanted:
            self.fail(
                key,
                f"{why}, got {shown(self.data[key])}. Use a configuration without it.",
            )
