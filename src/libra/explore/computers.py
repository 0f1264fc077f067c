"""What computes the parts of an exploration: this process, several, or a Dask cluster.

Each yields a part once, whatever is lost on the way: parts of processes and workers that end early
are computed again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context, parent_process
from typing import Any

from libra.errors import InputError, LibraError
from libra.explore.explorer import Explorer, Row
from libra.explore.space import space_of_source
from libra.explore.stages import Stage
from libra.yaml_source import Source

__all__ = ["Computed", "Task", "open_computer"]

_RETRIES = 5
_CLUSTER_PATIENCE = "20s"

Task = tuple[int, float]
"""A part, and the objective to beat."""


@dataclass(frozen=True, eq=False)
class Computed:
    """Rows of a part, and the CPU time of each stage that they took [s]."""

    part: int
    rows: list[Row]
    seconds: dict[Stage, float]


Compute = Callable[[Sequence[Task]], Iterator[Computed]]


@contextmanager
def open_computer(explorer: Explorer, jobs: int, dask: str | None) -> Iterator[Compute]:
    """Function that computes parts, in whatever order.

    Parameters
    ----------
    explorer : Explorer
    jobs : int
        Processes, or workers of a cluster of its own.
    dask : str or None
        Address of a scheduler, or ``local``; None: processes of this machine.

    Raises
    ------
    InputError
        If Dask is not there, or no scheduler answers at the address.
    LibraError
        If processes or workers are lost again and again.
    """
    if dask is not None:
        with _open_client(dask, jobs) as client:
            yield lambda tasks: _on_cluster(client, _packed(explorer), tasks)
    elif jobs == 1:
        yield lambda tasks: (_computed(explorer, *task) for task in tasks)
    else:
        with _Pool(jobs) as pool:
            yield lambda tasks: _on_processes(pool, _packed(explorer), tasks)


def _computed(explorer: Explorer, part: int, to_beat: float) -> Computed:
    rows = explorer.part_rows(part, to_beat)
    return Computed(part, rows, explorer.clock.take())


class _Pool:
    """Processes, which are replaced when one of them is lost."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.jobs, mp_context=get_context("spawn"), initializer=_prepare_process
        )

    def restart(self) -> None:
        """Replace all processes."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self._start()

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        processes = dict(getattr(self.executor, "_processes", None) or {})
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in processes.values():  # Else Ctrl-C would wait for the parts in flight.
            process.terminate()


def _prepare_process() -> None:
    """End with the parent, however it ends, and leave Ctrl-C to it."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _on_processes(pool: _Pool, packed: Packed, tasks: Sequence[Task]) -> Iterator[Computed]:
    missing = dict(tasks)
    for _ in range(_RETRIES):
        pending: set[Future[Computed]] = set()
        try:
            for part, to_beat in missing.items():
                pending.add(pool.executor.submit(compute_part, packed, part, to_beat))
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    computed = future.result()
                    del missing[computed.part]
                    yield computed
        except BrokenProcessPool:
            pool.restart()
        else:
            return
    raise LibraError(
        f"{_RETRIES} times a process of the exploration was ended from outside, got parts "
        f"{', '.join(map(str, missing))}. Look for what ends it (memory?); the same command goes "
        "on."
    )


@contextmanager
def _open_client(address: str, jobs: int) -> Iterator[Any]:
    """Client of a Dask scheduler, or of a cluster of this machine."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InputError(
            f"--dask: Dask is not installed, got {address!r}. Install libra-fabric[dask]."
        ) from None
    if address == "local":
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address=":0",  # None would take a port that another cluster may have.
            scheduler_kwargs={"dashboard": False},
            silence_logs=40,
        )
        with cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
            yield client
        return
    try:
        client = Client(address, timeout=_CLUSTER_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(
            f"--dask: no scheduler answers, got {address!r} ({error}). Give the address that "
            "`dask scheduler` prints, e.g. tcp://host:8786, or local."
        ) from None
    with client:
        yield client


def _on_cluster(client: Any, packed: Packed, tasks: Sequence[Task]) -> Iterator[Computed]:
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    futures = [
        client.submit(compute_part, packed, part, to_beat, pure=False, retries=_RETRIES)
        for part, to_beat in tasks
    ]
    for future in as_completed(futures):  # type: ignore[no-untyped-call]
        try:
            yield future.result()
        except KilledWorker as error:
            raise LibraError(
                f"workers of the cluster were lost again and again, got {error}. Look for what "
                "ends them (memory?); the same command goes on."
            ) from None
        except ModuleNotFoundError as error:
            raise InputError(
                f"--dask: the workers lack a module, got {error.name}. Install the same version "
                "of libra-fabric on them."
            ) from None


Packed = tuple[str, str, str, int, bool]
"""Working folder, file, space, top, prune: text, not objects, and small to send."""


def _packed(explorer: Explorer) -> Packed:
    """What another process needs to make the same explorer."""
    space = explorer.space
    return os.getcwd(), space.file, space.text, explorer.top, explorer.prune


_ONE_AT_A_TIME = threading.Lock()
"""Threads of a worker would only wait for each other's Python."""


def compute_part(packed: Packed, part: int, to_beat: float) -> Computed:
    """Rows of a part, in a process of its own."""
    with _ONE_AT_A_TIME:
        return _computed(_explorer(packed), part, to_beat)


@lru_cache(maxsize=2)
def _explorer(packed: Packed) -> Explorer:
    folder, file, text, top, prune = packed
    if os.path.isdir(folder):
        os.chdir(folder)
    return Explorer(space_of_source(Source(file, json.loads(text))), top, prune=prune)
