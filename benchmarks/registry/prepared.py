"""What a phase hands to the process that measures it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Note", "Prepared"]

Note = float | str


@dataclass(frozen=True)
class Prepared:
    """Work whose time counts; what came before it does not.

    Attributes
    ----------
    work : callable
    fingerprint : str
        Of the input.
    describe : callable
        What to say of the work's outcome.
    children : bool
        The work is done by processes that it starts; their memory and CPU time count.
    """

    work: Callable[[], object]
    fingerprint: str
    describe: Callable[[object], Mapping[str, Note]] = lambda outcome: {}
    children: bool = False
