"""Where the time of an exploration goes, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

__all__ = ["Stage", "StageClock"]


class Stage(StrEnum):
    """What an exploration spends time on."""

    GENERATE = "generate"
    """Listing jobs and networks, and the keys of candidates."""
    REFUSE = "refuse"
    """Whether degrees divide and memory suffices."""
    BUILD = "build"
    """Designs of candidates from their plain data."""
    BOUND = "bound"
    SOLVE = "solve"
    WRITE = "write"
    """Parts of results, written and read back."""


class StageClock:
    """CPU time of this thread in each stage; a stage within another stops the other's clock.

    CPU time, because what else a machine does is not the exploration's.
    """

    def __init__(self) -> None:
        self._spent = dict.fromkeys(Stage, 0.0)
        self._open: list[Stage] = []
        self._since = 0.0

    @contextmanager
    def measure(self, stage: Stage) -> Iterator[None]:
        """Count the time of a block for a stage."""
        self._turn()
        self._open.append(stage)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.thread_time()
        if self._open:
            self._spent[self._open[-1]] += now - self._since
        self._since = now

    def take(self) -> dict[Stage, float]:
        """Seconds of each stage since they were last taken."""
        taken, self._spent = self._spent, dict.fromkeys(Stage, 0.0)
        return taken

    def add(self, seconds: Mapping[Stage, float]) -> None:
        """Count seconds that another clock has measured."""
        for stage, spent in seconds.items():
            self._spent[stage] += spent
