"""What can go wrong, said so that the user can put it right.

Every error that libra raises on purpose derives from `LibraError` and carries the exit status of
the command line: 2 the input is wrong, 3 infeasible or unbounded, 4 the solver failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FieldError",
    "InfeasibleError",
    "InputError",
    "LibraError",
    "Place",
    "Problem",
    "ProblemList",
    "SolverError",
    "UnboundedError",
    "format_path",
    "nearest",
    "shown",
]

Key = str | int
Place = tuple[Key, ...]
"""Where a value stands in a file: keys of mappings and indices of lists, from the outside in."""

MOST_SHOWN = 100
"""Problems that an error's text lists; ``problems`` holds all of them."""


class LibraError(Exception):
    """Base of all errors that libra raises on purpose."""

    exit_status = 4
    status = "error"


class FieldError(ValueError):
    """An invariant of a value is broken; says which field, so that a file's line can be found.

    Parameters
    ----------
    field : str or tuple of str and int
        The field at fault, as keys and indices where it is nested; empty for the value itself.
    message : str
        ``what is wrong, got VALUE. What to do.``
    """

    def __init__(self, field: str | Place, message: str) -> None:
        super().__init__(message)
        self.place: Place = ((field,) if field else ()) if isinstance(field, str) else field
        self.message = message

    @property
    def field_name(self) -> str:
        """Text form of the field's place."""
        return format_path(self.place)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input.

    Attributes
    ----------
    message : str
        ``what is wrong, got VALUE. What to do.``
    path : str
        Where in the input, e.g. ``network[1].size``; empty for the whole file.
    file : str
        Name of the file, or of what stands in for it (``--set``).
    line : int
        Line in the file, from 1; 0 when there is none.
    """

    message: str
    path: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = ":".join(part for part in (self.file, str(self.line or "")) if part)
        return printable(": ".join(part for part in (place, self.path, self.message) if part))


class InputError(LibraError):
    """The input is wrong: all problems found, in file order."""

    exit_status = 2
    status = "input-error"

    def __init__(self, problems: Iterable[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        lines = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            lines.append(f"and {len(self.problems) - MOST_SHOWN:,} more problems.")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class Conflict:
    """One constraint that takes part in a contradiction, and how far it alone must give way."""

    constraint: str
    line: int = 0
    file: str = ""
    way_out: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else ""
        return f"{place}{self.constraint}"


class InfeasibleError(LibraError):
    """No bandwidths meet the constraints; names a smallest set that cannot hold together."""

    exit_status = 3
    status = "infeasible"

    def __init__(self, message: str, conflict: Iterable[Conflict] = ()) -> None:
        self.message = message
        self.conflict = tuple(conflict)
        lines = [message, *(f"  {item}" for item in self.conflict)]
        lines += [f"One way out: {item.way_out}" for item in self.conflict if item.way_out][:1]
        super().__init__("\n".join(lines))


class UnboundedError(LibraError):
    """Nothing limits a bandwidth that the objective wants to be larger."""

    exit_status = 3
    status = "unbounded"


class SolverError(LibraError):
    """The solver did not reach the promised gap."""

    exit_status = 4
    status = "solver-failed"


@dataclass
class ProblemList:
    """Collects problems of a file so that all of them can be reported at once."""

    file: str = ""
    problems: list[Problem] = field(default_factory=list)

    def add(self, message: str, path: str = "", line: int = 0) -> None:
        """Add a problem of this file."""
        self.problems.append(Problem(message, path, self.file, line))

    def raise_if_any(self) -> None:
        """Raise `InputError` with everything collected; do nothing when there is nothing."""
        if self.problems:
            raise in_file_order(self.problems)


def in_file_order(problems: Sequence[Problem]) -> InputError:
    """Error with the problems by line, files in the order given; one problem for each place.

    What is found first at a place is the cause of what else is found there.
    """
    files = list(dict.fromkeys(p.file for p in problems))
    first: dict[tuple[str, int, str], Problem] = {}
    for problem in problems:
        first.setdefault((problem.file, problem.line, problem.path or problem.message), problem)
    rank = {file: k for k, file in enumerate(files)}
    return InputError(sorted(first.values(), key=lambda p: (rank[p.file], p.line)))


def printable(text: str) -> str:
    """Text on one line that no terminal obeys: escapes in place of control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: Any) -> str:
    """Short form of a value, for messages."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def format_path(place: Sequence[Key]) -> str:
    """Text form of a place: indices in brackets, from 0.

    Examples
    --------
    >>> format_path(("network", 1, "size"))
    'network[1].size'
    """
    text = ""
    for key in place:
        word = f"[{key}]" if isinstance(key, int) else key if len(key) <= 40 else key[:37] + "..."
        text += f".{word}" if text and not isinstance(key, int) else word
    return text


def nearest(word: str, valid: Iterable[str]) -> str:
    """``Did you mean 'X'?`` for the valid word most like `word`, else the list of valid words.

    Examples
    --------
    >>> nearest("latancy", ["latency", "size"])
    "Did you mean 'latency'?"
    >>> nearest("zzz", ["latency", "size"])
    'Use one of: latency, size.'
    """
    words = list(valid)
    lowered = {w.lower(): w for w in reversed(words)}
    match = difflib.get_close_matches(word[:60].lower(), lowered, n=1, cutoff=0.6)
    if match:
        return f"Did you mean {lowered[match[0]]!r}?"
    return f"Use one of: {', '.join(words)}." if words else "There is none."
