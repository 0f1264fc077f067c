"""JSON text → plain data with the line of every value, read safely.

Stricter than Python's reader: no NaN or infinity, no key twice in an object, no number that is no
64-bit integer or finite double, and size and nesting are limited.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from libra.errors import InputError, Place, Problem, format_path, shown

__all__ = ["JsonSource", "read_json"]

MAX_CHARACTERS = 8_000_000
MAX_DEPTH = 32
MAX_DIGITS = 19
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[\]{},:]|\n|[^\s\[\]{},:"]+')


@dataclass(frozen=True)
class JsonSource:
    """Plain data of a JSON text and the line of each value.

    Attributes
    ----------
    file : str
        Name of the file, for messages.
    data : dict
        The object.
    lines : dict
        Line (from 1) of the value at each place.
    """

    file: str
    data: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)

    def problem(self, place: Place, message: str) -> Problem:
        """Describe what is wrong with the value at a place, or with the nearest one around it."""
        known = place
        while known and known not in self.lines:
            known = known[:-1]
        return Problem(message, format_path(place), self.file, self.lines.get(known, 1))


def read_json(text: str, file: str = "") -> JsonSource:
    """Read a JSON object.

    Parameters
    ----------
    text : str
        The text.
    file : str
        Its name, for messages.

    Returns
    -------
    JsonSource

    Raises
    ------
    InputError
        With the line, if it is no JSON object, too large or too deep, has a key twice, or holds a
        number that is not finite or too long.
    """
    if len(text) > MAX_CHARACTERS:
        message = f"a configuration has at most {MAX_CHARACTERS:,} characters, got {len(text):,}."
        raise InputError(Problem(f"{message} Is it the right file?", file=file))
    _refuse_depth(text, file)
    try:
        data = json.loads(text, parse_constant=_refuse_constant, parse_int=_integer,
                          parse_float=_float)  # fmt: skip
    except json.JSONDecodeError as error:
        lines = text.split("\n")
        got = shown(lines[error.lineno - 1].strip() if text.strip() else None)
        message = f"is not JSON: {error.msg.lower()}, got {got}. Mend the text there."
        raise InputError(Problem(message, file=file, line=error.lineno)) from None
    except _NumberError as error:
        line = text.count("\n", 0, max(text.find(error.text), 0)) + 1
        raise InputError(Problem(error.message, file=file, line=line)) from None
    if not isinstance(data, dict):
        message = f"must be an object of keys and values, got {shown(data)}. Is it the right file?"
        raise InputError(Problem(message, file=file, line=1))
    source = JsonSource(file, data)
    _note_lines(text, source)
    return source


class _NumberError(Exception):
    """A number that is not read."""

    def __init__(self, text: str, message: str) -> None:
        super().__init__(message)
        self.text, self.message = text, message


def _refuse_constant(text: str) -> NoReturn:
    raise _NumberError(text, f"a number must be finite, got {text}. Write a number.")


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        message = f"an integer has at most {MAX_DIGITS} digits, got {len(text.lstrip('-')):,}."
        raise _NumberError(text, f"{message} Correct it.")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NumberError(text, f"a number must be finite, got {shown(text)}. Write a number.")
    return value


def _refuse_depth(text: str, file: str) -> None:
    depth, line = 0, 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        line += token == "\n"
        depth += (token in "[{") - (token in "]}")
        if depth > MAX_DEPTH:
            message = (
                f"values nest at most {MAX_DEPTH} levels deep, got more. Is it the right file?"
            )
            raise InputError(Problem(message, file=file, line=line))


def _note_lines(text: str, source: JsonSource) -> None:
    """Note the line of every value of a valid text; refuse keys that stand twice."""
    tokens: list[tuple[str, int]] = []
    line = 1
    for match in _TOKEN.finditer(text):
        if match[0] == "\n":
            line += 1
        else:
            tokens.append((match[0], line))
    tokens.reverse()
    problems: list[Problem] = []

    def note(place: Place, line: int) -> bool:
        twice = place in source.lines
        if twice:
            message = f"the key stands twice, got {shown(place[-1])}. Remove one."
            problems.append(Problem(message, format_path(place), source.file, line))
        else:
            source.lines[place] = line
        return twice

    _walk(tokens, (), note)
    if problems:
        raise InputError(problems)


def _walk(tokens: list[tuple[str, int]], place: Place, note: Callable[[Place, int], bool]) -> None:
    """Visit a value, the last of `tokens` first, and what is in it."""
    token, _ = tokens.pop()
    if token not in ("{", "["):
        return
    closing = "}" if token == "{" else "]"
    index = 0
    while tokens[-1][0] != closing:
        word, line = tokens[-1]
        if token == "{":
            tokens.pop()
            inner: Place = (*place, json.loads(word))
            tokens.pop()
        else:
            inner = (*place, index)
            index += 1
        note(inner, line)
        _walk(tokens, inner, note)
        if tokens[-1][0] == ",":
            tokens.pop()
    tokens.pop()
