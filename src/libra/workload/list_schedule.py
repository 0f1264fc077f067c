"""When an NPU starts each operation of a trace: one at a time on each of its resources.

ASTRA-sim's rule: an NPU runs one computation and one communication at a time; of the operations
whose dependencies are met, the one with the lowest id goes first. What is found here is the order
in which operations queue, and the simulator's step time where every duration is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.jit import faster

__all__ = ["ListSchedule", "followers_of", "list_schedule", "lowest_first"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """Start of each operation, and the order in which they start.

    Attributes
    ----------
    start, end : ndarray, shape (operations,)
        In the unit of the durations; nan: it never starts.
    order : ndarray of int
        Operations in the order in which they start; fewer than there are if some never do.
    """

    start: Floats
    end: Floats
    order: Ints


def followers_of(start: Ints, predecessor: Ints) -> tuple[Ints, Ints]:
    """Operations that wait for each operation, as rows of one array.

    Parameters
    ----------
    start : ndarray of int, shape (operations + 1,)
        Operation i waits for ``predecessor[start[i]:start[i + 1]]``.
    predecessor : ndarray of int
    """
    operations = len(start) - 1
    owner = np.repeat(np.arange(operations), np.diff(start))
    order = np.argsort(predecessor, kind="stable")
    counts = np.bincount(predecessor, minlength=operations)
    return np.concatenate([[0], np.cumsum(counts)]), owner[order]


def lowest_first(start: Ints, predecessor: Ints) -> Ints:
    """Operations in topological order, of those possible always the lowest index first.

    Parameters
    ----------
    start, predecessor : ndarray of int
        As in `followers_of`.

    Returns
    -------
    ndarray of int
        Shorter than the number of operations if there is a cycle.
    """
    operations = len(start) - 1
    owner = np.repeat(np.arange(operations), np.diff(start))
    if (predecessor < owner).all():
        return np.arange(operations)
    follower_start, followers = followers_of(start, predecessor)
    walk = faster(_lowest_first, 3 * operations)
    result: Ints = walk(np.diff(start), follower_start, followers)
    return result


def _lowest_first(waiting: Ints, follower_start: Ints, followers: Ints) -> Ints:
    ready = [i for i in range(len(waiting)) if waiting[i] == 0]
    heapq.heapify(ready)
    order = np.empty(len(waiting), np.int64)
    done = 0
    while len(ready) > 0:
        i = heapq.heappop(ready)
        order[done] = i
        done += 1
        for k in range(follower_start[i], follower_start[i + 1]):
            waiting[followers[k]] -= 1
            if waiting[followers[k]] == 0:
                heapq.heappush(ready, followers[k])
    return order[:done]


def list_schedule(
    durations: Sequence[float],
    resource: Sequence[int],
    start: Ints,
    predecessor: Ints,
    meet: Sequence[int] | None = None,
) -> ListSchedule:
    """Run operations by the simulator's rule.

    Parameters
    ----------
    durations : sequence of float
        Of each operation.
    resource : sequence of int
        Resource that each occupies, alone; -1: none.
    start, predecessor : ndarray of int
        As in `followers_of`.
    meet : sequence of int or None
        Operations with the same number, 0 or above, are parts of one collective: it begins when all
        its parts occupy their resources. -1: the operation is on its own.

    Returns
    -------
    ListSchedule
        With fewer operations in ``order`` than given if some wait for each other.
    """
    return _Run(durations, resource, start, predecessor, meet).run()


class _Run:
    """Event loop of `list_schedule`."""

    def __init__(
        self,
        durations: Sequence[float],
        resource: Sequence[int],
        start: Ints,
        predecessor: Ints,
        meet: Sequence[int] | None,
    ) -> None:
        operations = len(durations)
        follower_start, followers = followers_of(start, predecessor)
        self.durations, self.resource = list(durations), list(resource)
        self.follower_start, self.followers = follower_start.tolist(), followers.tolist()
        self.waiting: list[int] = np.diff(start).tolist()
        self.meet = [-1] * operations if meet is None else list(meet)
        self.missing: dict[int, int] = {}
        self.parts: dict[int, list[int]] = {}
        for number in self.meet:
            if number >= 0:
                self.missing[number] = self.missing.get(number, 0) + 1
        self.ready: dict[int, list[int]] = {r: [] for r in set(self.resource)}
        self.busy: set[int] = set()
        self.events: list[tuple[float, int, int]] = []
        self.count = 0
        self.start = np.full(operations, np.nan)
        self.end = np.full(operations, np.nan)
        self.order: list[int] = []

    def run(self) -> ListSchedule:
        """Serve events until nothing is left to run."""
        for i, waits in enumerate(self.waiting):
            if waits == 0:
                heapq.heappush(self.ready[self.resource[i]], i)
        self.issue(set(self.ready), 0.0)
        while self.events:
            now, _, i = heapq.heappop(self.events)
            self.busy.discard(self.resource[i])
            touched = {self.resource[i]}
            for k in range(self.follower_start[i], self.follower_start[i + 1]):
                other = self.followers[k]
                self.waiting[other] -= 1
                if self.waiting[other] == 0:
                    heapq.heappush(self.ready[self.resource[other]], other)
                    touched.add(self.resource[other])
            self.issue(touched, now)
        return ListSchedule(self.start, self.end, np.array(self.order, dtype=np.int64))

    def issue(self, resources: set[int], now: float) -> None:
        """Start what can start on some resources."""
        for r in sorted(resources):
            queue = self.ready.get(r, [])
            while queue and (r < 0 or r not in self.busy):
                i = heapq.heappop(queue)
                if r >= 0:
                    self.busy.add(r)
                self.begin(i, now)

    def begin(self, i: int, now: float) -> None:
        """Start an operation; a collective when its last part has come."""
        number = self.meet[i]
        together = [i]
        if number >= 0:
            self.parts.setdefault(number, []).append(i)
            self.missing[number] -= 1
            if self.missing[number] > 0:
                return
            together = sorted(self.parts[number])
        for part in together:
            self.start[part] = now
            self.end[part] = now + self.durations[part]
            self.order.append(part)
            self.count += 1
            heapq.heappush(self.events, (float(self.end[part]), self.count, part))
