"""The training step as a graph of tasks, held in arrays in topological order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from libra.collectives import Collective, distinct
from libra.errors import FieldError

__all__ = [
    "GraphBuilder",
    "StepGraph",
    "add_predecessors",
    "begin_with",
    "chain_graph",
    "predecessor_rows",
    "sum_by_index",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Tasks of one training step.

    Task i lasts ``fixed[i] + sum_j count_ij tau_j(B)``: fixed compute plus counts of the distinct
    collectives j. It starts when its predecessors have ended; the step ends with the last task.

    Attributes
    ----------
    fixed : ndarray, shape (tasks,)
        Time of each task that does not depend on bandwidths [s].
    collectives : tuple of Collective
        The distinct collectives.
    count_start : ndarray of int, shape (tasks + 1,)
        Task i has the counts ``count_start[i]:count_start[i + 1]`` of the next two arrays.
    count_index : ndarray of int
        Which collective.
    count_value : ndarray
        How often, > 0.
    predecessor_start : ndarray of int, shape (tasks + 1,)
        Task i waits for ``predecessor[predecessor_start[i]:predecessor_start[i + 1]]``.
    predecessor : ndarray of int
        Indices of earlier tasks.
    places : ndarray of int, shape (tasks,), or None
        Which NPU (of those that differ, e.g. pipeline stages) runs each task; None: the same one.
    labels : sequence of str
        What a person calls each task; empty: nothing.
    note : tuple of str
        What a user should know about how the graph was made.

    Raises
    ------
    FieldError
        If shapes disagree, a time or count is negative or not finite, or a predecessor is not an
        earlier task.
    """

    fixed: Floats
    collectives: tuple[Collective, ...]
    count_start: Ints
    count_index: Ints
    count_value: Floats
    predecessor_start: Ints
    predecessor: Ints
    places: Ints | None = None
    labels: Sequence[str] = ()
    note: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        tasks = len(self.fixed)
        if tasks == 0:
            raise FieldError("fixed", "a step needs at least one task, got none. Add one.")
        _require_rows("count_start", self.count_start, len(self.count_index), tasks)
        _require_rows("predecessor_start", self.predecessor_start, len(self.predecessor), tasks)
        for name, values, least in (
            ("fixed", self.fixed, 0.0),
            ("count_value", self.count_value, np.nextafter(0, 1)),
        ):
            if len(values) and not (np.isfinite(values).all() and values.min() >= least):
                bad = values[~(np.isfinite(values) & (values >= least))][0]
                what = "not negative" if least == 0 else "positive"
                raise FieldError(name, f"must be finite and {what}, got {bad}. Mend it.")
        if self.labels and len(self.labels) != tasks:
            raise FieldError("labels", f"needs one a task, got {len(self.labels)}. Or none.")
        if len(self.count_value) != len(self.count_index):
            raise FieldError("count_value", "needs as many values as count_index. Mend it.")
        if len(self.count_index) and not (
            self.count_index.min() >= 0 and self.count_index.max() < len(self.collectives)
        ):
            raise FieldError("count_index", "names a collective that does not exist. Mend it.")
        task_of = np.repeat(np.arange(tasks), np.diff(self.predecessor_start))
        late = (self.predecessor >= task_of) | (self.predecessor < 0)
        if late.any():
            at = int(np.flatnonzero(late)[0])
            raise FieldError(
                "predecessor",
                f"a task may wait for earlier tasks only, got {int(self.predecessor[at])} before "
                f"task {int(task_of[at])}. Order the tasks topologically (a cycle has no order).",
            )

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.fixed)

    @property
    def arrays(self) -> tuple[Floats, Ints, Ints, Floats, Ints, Ints]:
        """Fixed times, counts and predecessors as the pass over the graph takes them."""
        return (
            self.fixed,
            self.count_start,
            self.count_index,
            self.count_value,
            self.predecessor_start,
            self.predecessor,
        )

    @cached_property
    def lists(self) -> tuple[list[float] | list[int], ...]:
        """The same as lists."""
        return tuple(array.tolist() for array in self.arrays)

    @cached_property
    def count_task(self) -> Ints:
        """Task of each entry of ``count_index``."""
        return np.repeat(np.arange(self.tasks), np.diff(self.count_start))

    @cached_property
    def is_chain(self) -> bool:
        """Whether each task waits for the one before it and for nothing else."""
        n = self.tasks
        return len(self.predecessor) == n - 1 and bool(
            np.array_equal(self.predecessor_start, np.maximum(np.arange(n + 1) - 1, 0))
            and np.array_equal(self.predecessor, np.arange(n - 1))
        )

    @cached_property
    def total_fixed(self) -> float:
        """Sum of the fixed times of all tasks [s]."""
        return float(self.fixed.sum())

    @cached_property
    def most_compute(self) -> float:
        """Compute of the NPU that computes most, of those that differ [s]."""
        if self.places is None:
            return self.total_fixed
        return float(np.bincount(self.places, self.fixed).max())

    @cached_property
    def total_counts(self) -> Floats:
        """How often the step runs each distinct collective, shape (collectives,)."""
        return sum_by_index(self.count_index, self.count_value, len(self.collectives))


def sum_by_index(index: Ints, values: Floats, size: int) -> Floats:
    """Sum of the values that share an index, shape (size,)."""
    return np.bincount(index, values, size).astype(np.float64, copy=False)


def _require_rows(name: str, start: Ints, entries: int, tasks: int) -> None:
    if (
        len(start) != tasks + 1
        or start[0] != 0
        or start[-1] != entries
        or (np.diff(start) < 0).any()
    ):
        raise FieldError(
            name, f"must rise from 0 to {entries} in {tasks + 1} steps, got {start[:8]} … Mend it."
        )


def chain_graph(
    times: ArrayLike, collectives: Sequence[Collective | None], note: Sequence[str] = ()
) -> StepGraph:
    """Tasks one after the other, each a fixed time followed by at most one collective.

    Parameters
    ----------
    times : array_like, shape (tasks,)
        Fixed time of each task [s].
    collectives : sequence of Collective or None
        The collective that ends each task; None: there is none.
    note : sequence of str
        What a user should know about how the graph was made.

    Returns
    -------
    StepGraph
    """
    fixed = np.asarray(times, dtype=np.float64)
    has = np.array([c is not None for c in collectives], dtype=np.int64)
    kinds, index = distinct(c for c in collectives if c is not None)
    n = len(fixed)
    return StepGraph(
        fixed=fixed,
        collectives=kinds,
        count_start=np.concatenate([[0], np.cumsum(has)]),
        count_index=index,
        count_value=np.ones(len(index)),
        predecessor_start=np.maximum(np.arange(n + 1) - 1, 0),
        predecessor=np.arange(n - 1),
        note=tuple(note),
    )


class GraphBuilder:
    """Collects tasks in program order and turns them into arrays.

    Examples
    --------
    >>> builder = GraphBuilder()
    >>> first = builder.add("forward", compute=1.0)
    >>> _ = builder.add("backward", compute=2.0, after=[first])
    >>> builder.build().tasks
    2
    """

    def __init__(self) -> None:
        self._fixed: list[float] = []
        self._labels: list[str] = []
        self._counts: list[Sequence[tuple[Collective, float]]] = []
        self._after: list[Sequence[int]] = []
        self._places: list[int] = []

    def add(
        self,
        label: str,
        compute: float = 0.0,
        collectives: Sequence[tuple[Collective, float]] = (),
        after: Sequence[int] = (),
        place: int = 0,
    ) -> int:
        """Add a task and return its index.

        Parameters
        ----------
        label : str
            What a person calls it.
        compute : float
            Fixed time [s].
        collectives : sequence of (Collective, float)
            What it communicates after its compute, and how often.
        after : sequence of int
            Indices of the tasks it waits for.
        place : int
            Which NPU runs it.
        """
        self._fixed.append(compute)
        self._labels.append(label)
        self._counts.append(collectives)
        self._after.append(after)
        self._places.append(place)
        return len(self._fixed) - 1

    def build(self, note: Sequence[str] = ()) -> StepGraph:
        """Graph of the tasks added so far."""
        entries = [entry for task in self._counts for entry in task]
        kinds, index = distinct(c for c, _ in entries)
        return StepGraph(
            fixed=np.array(self._fixed, dtype=np.float64),
            collectives=kinds,
            count_start=_starts(self._counts),
            count_index=index,
            count_value=np.array([n for _, n in entries], dtype=np.float64),
            predecessor_start=_starts(self._after),
            predecessor=np.array([p for task in self._after for p in task], dtype=np.int64),
            places=np.array(self._places, dtype=np.int64) if any(self._places) else None,
            labels=tuple(self._labels),
            note=tuple(note),
        )


def _starts(rows: Sequence[Sequence[object]]) -> Ints:
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def predecessor_rows(later: Ints, earlier: Ints, tasks: int) -> tuple[Ints, Ints]:
    """``predecessor_start`` and ``predecessor`` of pairs of tasks, each pair once.

    Parameters
    ----------
    later, earlier : ndarray of int
        The task ``later[k]`` waits for the task ``earlier[k]``.
    tasks : int
        Number of tasks.
    """
    key = np.sort(later * tasks + earlier)
    key = key[np.diff(key, prepend=np.int64(-1)) > 0]
    owner, predecessor = np.divmod(key, tasks)
    counts = np.bincount(owner, minlength=tasks)
    return np.concatenate([[0], np.cumsum(counts)]), predecessor


def add_predecessors(graph: StepGraph, later: Ints, earlier: Ints) -> StepGraph:
    """Graph in which the tasks `later` also wait for the tasks `earlier`, pair by pair."""
    old = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
    start, predecessor = predecessor_rows(
        np.concatenate([old, later]), np.concatenate([graph.predecessor, earlier]), graph.tasks
    )
    return replace(graph, predecessor_start=start, predecessor=predecessor)


def begin_with(
    graph: StepGraph, label: str, compute: float, collectives: Sequence[tuple[Collective, float]]
) -> StepGraph:
    """Graph with one task before all others.

    Parameters
    ----------
    graph : StepGraph
        With all its tasks on the same NPU.
    label : str
        What a person calls the task.
    compute : float
        Its fixed time [s].
    collectives : sequence of (Collective, float)
        What it communicates, and how often.
    """
    assert graph.places is None
    kinds, index = distinct([*graph.collectives, *(c for c, _ in collectives)])
    first = np.diff(graph.predecessor_start) == 0
    mine = len(graph.collectives)
    return replace(
        graph,
        fixed=np.concatenate([[compute], graph.fixed]),
        collectives=kinds,
        count_start=np.concatenate([[0], graph.count_start + len(collectives)]),
        count_index=np.concatenate([index[mine:], index[:mine][graph.count_index]]),
        count_value=np.concatenate([[n for _, n in collectives], graph.count_value]),
        predecessor_start=np.concatenate(
            [[0, 0], np.cumsum(np.diff(graph.predecessor_start) + first)]
        ),
        predecessor=np.insert(graph.predecessor + 1, graph.predecessor_start[:-1][first], 0),
        labels=(label, *graph.labels) if graph.labels else (),
    )
