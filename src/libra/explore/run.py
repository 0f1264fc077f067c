"""Running an exploration: waves of parts, on one process, several, or a Dask cluster.

Between waves the objective to beat is what the parts of the waves before have found; within a wave
all parts are given the same. So the rows do not depend on how many compute them, nor on when a run
was interrupted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra.explore.explorer import Explorer, Row, Status
from libra.explore.space import Space, space_of_source
from libra.explore.store import open_store, read_exploration
from libra.yaml_source import Source

if TYPE_CHECKING:
    import polars

__all__ = ["Progress", "Summary", "explore_space", "waves"]

_WAVES = (1, 1, 2, 4, 8, 16, 32)
Task = tuple[int, float]
Compute = Callable[[Sequence[Task]], Iterator[tuple[int, list[Row]]]]


@dataclass(frozen=True)
class Progress:
    """How far an exploration is."""

    done: int
    total: int
    best: Row | None


@dataclass(frozen=True, eq=False)
class Summary:
    """What an exploration found.

    Attributes
    ----------
    frame : DataFrame
        One row a candidate.
    top : DataFrame
        The best, exactly.
    counts : dict
        Candidates by status.
    refused : dict
        Refused candidates by reason.
    proven : float
        Least bound of what was pruned, or failed to be solved: none of it is better; infinite:
        there is none.
    """

    frame: polars.DataFrame
    top: polars.DataFrame
    counts: dict[str, int]
    refused: dict[str, int]
    proven: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data of ``libra explore --json``, without the rows."""
        return {
            "candidates": len(self.frame),
            "counts": self.counts,
            "refused": self.refused,
            "best_bound_of_pruned": None if math.isinf(self.proven) else self.proven,
            "top": self.top.to_dicts(),
        }


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
    space: Space,
    folder: Path,
    *,
    top: int = 10,
    prune: bool = True,
    jobs: int = 1,
    dask: str | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Explore a space into a folder, or go on where an earlier run of the same space stopped.

    Parameters
    ----------
    space : Space
    folder : Path
        Gets Parquet parts, one row a candidate.
    top : int
        How many of the best are wanted exactly.
    prune : bool
        False: solve every candidate that can be solved.
    jobs : int
        Processes.
    dask : str or None
        Address of a Dask scheduler, or ``local``; takes the place of processes.
    report : callable
        Is told the progress after each part.

    Raises
    ------
    InputError
        What is wrong with the space or the folder.
    """
    explorer = Explorer(space, top, prune=prune)
    explorer.check()
    text = f'{{"top": {top}, "prune": {str(prune).lower()}, "space":\n{space.text}}}\n'
    with open_store(folder, text) as store, _computer(explorer, jobs, dask) as compute:
        best: Row | None = None
        done = sum(store.has(part) for part in range(explorer.parts))
        report(Progress(done, explorer.parts, None))
        for wave in waves(explorer.parts):
            found = store.best(range(wave.start), top)
            to_beat = found[top - 1] if len(found) >= top else math.inf
            missing = [(part, to_beat) for part in wave if not store.has(part)]
            for part, rows in compute(missing):
                store.write(part, rows)
                done += 1
                best = min(
                    (row for row in [best, *rows] if row and row["objective"] is not None),
                    key=lambda row: row["objective"],
                    default=best,
                )
                report(Progress(done, explorer.parts, best))
    return summarise(read_exploration(folder), top)


def summarise(frame: polars.DataFrame, top: int) -> Summary:
    """Summary of the rows of an exploration."""
    import polars as pl

    counts = dict(frame.group_by("status").len().sort("status").iter_rows())
    refused = (
        frame.filter(pl.col("status").is_in([Status.REFUSED, Status.INFEASIBLE]))
        .with_columns(pl.col("reason").str.split(":").list.first().alias("kind"))
        .group_by("kind")
        .len()
        .sort("kind")
    )
    solved = frame.filter(pl.col("status") == Status.SOLVED).sort("objective", "candidate")
    # What failed to be solved is as little ruled out as its bound says.
    unsolved = pl.col("status").is_in([Status.PRUNED, Status.FAILED])
    pruned = frame.filter(unsolved)["bound"].min()
    return Summary(
        frame,
        solved.head(top),
        counts,
        dict(refused.iter_rows()),
        math.inf if pruned is None else float(pruned),  # type: ignore[arg-type]
    )


class _computer:  # noqa: N801 (a context manager)
    """What computes parts: this process, others, or a cluster."""

    def __init__(self, explorer: Explorer, jobs: int, dask: str | None) -> None:
        self.explorer, self.jobs, self.dask = explorer, jobs, dask
        self.close: list[Callable[[], Any]] = []

    def __enter__(self) -> Compute:
        if self.dask is not None:
            return self._cluster(self.dask)
        if self.jobs == 1:
            return lambda tasks: ((p, self.explorer.part_rows(p, b)) for p, b in tasks)
        pool = ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"))
        self.close.append(lambda: pool.shutdown(wait=False, cancel_futures=True))
        packed = _packed(self.explorer)

        def compute(tasks: Sequence[Task]) -> Iterator[tuple[int, list[Row]]]:
            pending: dict[Future[list[Row]], int] = {
                pool.submit(compute_part, packed, part, to_beat): part for part, to_beat in tasks
            }
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield pending.pop(future), future.result()

        return compute

    def _cluster(self, address: str) -> Compute:
        try:
            from distributed import Client, LocalCluster, as_completed
        except ImportError:
            from libra.errors import InputError

            raise InputError(
                f"--dask: Dask is not installed, got {address!r}. Install libra-fabric[dask]."
            ) from None
        if address == "local":
            workers = self.jobs if self.jobs > 1 else os.cpu_count() or 1
            cluster = LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=40
            )
            self.close.append(cluster.close)
            address = cluster.scheduler_address
        client = Client(address, timeout="20s")  # type: ignore[no-untyped-call]
        self.close.insert(0, client.close)
        packed = _packed(self.explorer)

        def compute(tasks: Sequence[Task]) -> Iterator[tuple[int, list[Row]]]:
            part_of = {
                client.submit(compute_part, packed, part, to_beat, pure=False, retries=5): part
                for part, to_beat in tasks
            }
            for future in as_completed(list(part_of)):  # type: ignore[no-untyped-call]
                yield part_of[future], future.result()

        return compute

    def __exit__(self, *error: object) -> None:
        for close in self.close:
            close()


Packed = tuple[str, str, str, int, bool]


def _packed(explorer: Explorer) -> Packed:
    """What another process needs to make the same explorer: text, not objects."""
    space = explorer.space
    return os.getcwd(), space.file, space.text, explorer.top, explorer.prune


def compute_part(packed: Packed, part: int, to_beat: float) -> list[Row]:
    """Rows of a part, in a process of its own."""
    return _explorer(packed).part_rows(part, to_beat)


@lru_cache(maxsize=2)
def _explorer(packed: Packed) -> Explorer:
    import json

    folder, file, text, top, prune = packed
    if os.path.isdir(folder):
        os.chdir(folder)
    return Explorer(space_of_source(Source(file, json.loads(text))), top, prune=prune)
