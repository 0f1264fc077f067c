"""What can go wrong, said so that the user can put it right.

Every error that libra raises on purpose derives from `LibraError` and carries the exit status of
the command line: 2 the input is wrong, 3 infeasible or unbounded, 4 the solver failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = [
    "FieldError",
    "InfeasibleError",
    "InputError",
    "LibraError",
    "Problem",
    "SolverError",
    "UnboundedError",
    "nearest",
]


class LibraError(Exception):
    """Base of all errors that libra raises on purpose."""

    exit_status = 4
    status = "error"


class FieldError(ValueError):
    """An invariant of a value is broken; says which field, so that a file's line can be found.

    Parameters
    ----------
    field_name : str
        The field at fault, dotted where it is nested.
    message : str
        ``what is wrong, got VALUE. What to do.``
    """

    def __init__(self, field_name: str, message: str) -> None:
        super().__init__(message)
        self.field_name = field_name
        self.message = message


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
        return ": ".join(part for part in (place, self.path, self.message) if part)


class InputError(LibraError):
    """The input is wrong: all problems found, in file order."""

    exit_status = 2
    status = "input-error"

    def __init__(self, problems: Iterable[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


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
    """Collects problems so that all of them can be reported at once, in file order."""

    file: str = ""
    problems: list[Problem] = field(default_factory=list)

    def add(self, message: str, path: str = "", line: int = 0) -> None:
        """Add a problem of this file."""
        self.problems.append(Problem(message, path, self.file, line))

    def raise_if_any(self) -> None:
        """Raise `InputError` with everything collected; do nothing when there is nothing."""
        if self.problems:
            raise InputError(sorted(self.problems, key=lambda p: (p.file != self.file, p.line)))


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
    match = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    if match:
        return f"Did you mean {lowered[match[0]]!r}?"
    return f"Use one of: {', '.join(words)}." if words else "There is none to choose from."
