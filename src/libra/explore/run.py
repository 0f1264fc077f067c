"""Running an exploration: waves of parts, on one process, several, or a Dask cluster.

Between waves the objective to beat is what the parts of the waves before have found; within a wave
all parts are given the same. So the rows do not depend on how many compute them, nor on when a run
was interrupted.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path

from libra.explore.computers import open_computer
from libra.explore.explorer import Explorer, Row
from libra.explore.space import Space, load_space
from libra.explore.stages import Stage
from libra.explore.store import open_store, read_exploration
from libra.explore.summary import Effort, Summary, summarise

__all__ = ["Progress", "explore_space", "run_exploration", "waves"]

_WAVES = (1, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Progress:
    """How far an exploration is.

    Attributes
    ----------
    done, total : int
        Candidates.
    best : Row or None
        Best so far.
    """

    done: int
    total: int
    best: Row | None


Report = Callable[[Progress], None]


def waves(parts: int) -> Iterator[range]:
    """Runs of parts that are given the same objective to beat."""
    start = 0
    for k in range(parts):
        if start >= parts:
            return
        size = _WAVES[min(k, len(_WAVES) - 1)]
        yield range(start, min(start + size, parts))
        start += size


def explore_space(
    space: Space | str | Path,
    folder: str | Path | None = None,
    *,
    top: int = 10,
    prune: bool = True,
    jobs: int = 1,
    dask: str | None = None,
    report: Report | None = None,
) -> Generator[Row, None, Effort]:
    """Explore a space, yielding one row a candidate as soon as its part is done.

    Parameters
    ----------
    space : Space, str or Path
        Or the path of its file.
    folder : str, Path or None
        Gets the rows as Parquet parts; where an earlier run of the same space has stopped there,
        its rows come first and this run goes on. None: no folder.
    top : int
        How many of the best are wanted exactly.
    prune : bool
        False: solve every candidate that can be solved.
    jobs : int
        Processes, or workers of a local Dask cluster.
    dask : str or None
        Address of a Dask scheduler, or ``local``; takes the place of processes.
    report : callable or None
        Is told the `Progress` after each part.

    Yields
    ------
    dict
        The candidate's keys, ``status``, ``bound``, ``objective``, ``step_time_s``,
        ``network_cost_usd``, ``bandwidth_GBps``, …, as in the Parquet parts; in no special order.

    Raises
    ------
    InputError
        What is wrong with the space or the folder.

    Examples
    --------
    >>> import libra
    >>> rows = libra.explore_space("space.yaml")  # doctest: +SKIP
    >>> solved = (row for row in rows if row["status"] == "solved")  # doctest: +SKIP
    >>> best = min(solved, key=lambda row: row["objective"])  # doctest: +SKIP
    """
    start = time.perf_counter()
    space = space if isinstance(space, Space) else load_space(space)
    explorer = Explorer(space, top, prune=prune)
    explorer.check()
    clock, computed = explorer.clock, 0
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(open_store(Path(folder), _identity(explorer)))
        compute = stack.enter_context(open_computer(explorer, jobs, dask))
        tell = _Teller(explorer.count, top, report)
        for wave in waves(explorer.parts):
            to_beat = tell.to_beat
            present = [part for part in wave if store.has(part)]
            for part in present:
                with clock.measure(Stage.WRITE):
                    rows = store.read(part)
                tell.note(rows)
                yield from rows
            missing = [(part, to_beat) for part in wave if part not in present]
            for found in compute(missing):
                clock.add(found.seconds)
                with clock.measure(Stage.WRITE):
                    store.write(found.part, found.rows)
                computed += len(found.rows)
                tell.note(found.rows)
                yield from found.rows
    return Effort(computed, time.perf_counter() - start, clock.take())


def run_exploration(
    space: Space | str | Path,
    folder: str | Path,
    *,
    top: int = 10,
    prune: bool = True,
    jobs: int = 1,
    dask: str | None = None,
    report: Report | None = None,
) -> Summary:
    """Explore a space into a folder and summarise what is there; arguments as `explore_space`."""
    rows = explore_space(space, folder, top=top, prune=prune, jobs=jobs, dask=dask, report=report)
    while True:
        try:
            next(rows)
        except StopIteration as end:
            effort: Effort = end.value
            return summarise(read_exploration(Path(folder)), top, effort)


def _identity(explorer: Explorer) -> str:
    """What decides the rows, as text."""
    pruned = str(explorer.prune).lower()
    return f'{{"top": {explorer.top}, "prune": {pruned}, "space":\n{explorer.space.text}}}\n'


class _Teller:
    """Knows the best so far and reports the progress."""

    def __init__(self, total: int, top: int, report: Report | None) -> None:
        self.total, self.top, self.report = total, top, report
        self.done = 0
        self.best: list[Row] = []
        self._tell()

    @property
    def to_beat(self) -> float:
        """Objective above which a candidate cannot be among the best."""
        return self.best[-1]["objective"] if len(self.best) >= self.top else math.inf

    def note(self, rows: list[Row]) -> None:
        """Count a part's rows."""
        self.done += len(rows)
        solved = [row for row in rows if row["objective"] is not None]
        self.best = nsmallest(self.top, [*self.best, *solved], key=lambda row: row["objective"])
        self._tell()

    def _tell(self) -> None:
        if self.report is not None:
            self.report(Progress(self.done, self.total, self.best[0] if self.best else None))
