"""A step graph → the nodes of traces, one list for each place of the graph.

A task becomes its compute, then its collectives one after the other. Where a task waits for a
message, there is a receive; where the parts of a collective of several places wait for each other,
that they are one collective says it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind
from libra.errors import FieldError
from libra.formats.chakra import NodeType
from libra.workload.graph import StepGraph

__all__ = ["LoweredNode", "lower_graph"]

MOST_LOWERED = 5_000_000
"""Nodes of the largest trace that is written."""


@dataclass
class LoweredNode:
    """One node of a trace; its id is its index in the list of its place.

    Attributes
    ----------
    name : str
    type : NodeType
    seconds : float
        Of a computation [s].
    after : list of int
        Nodes of the same place that it waits for.
    collective : Collective or None
        Of a collective or a message.
    peer : int
        Place that a message comes from or goes to.
    tag : int
        What pairs a send with its receive.
    """

    name: str
    type: NodeType
    seconds: float = 0.0
    after: list[int] = field(default_factory=list)
    collective: Collective | None = None
    peer: int = -1
    tag: int = 0


def lower_graph(graph: StepGraph) -> list[list[LoweredNode]]:
    """Nodes of each place of a graph.

    Parameters
    ----------
    graph : StepGraph

    Raises
    ------
    FieldError
        If a collective runs a broken number of times, a message is not the last thing of its task,
        places wait for each other without a message, or there are too many nodes.
    """
    if len(graph.count_value) and (graph.count_value != np.round(graph.count_value)).any():
        raise FieldError(
            "count_value", "a trace runs a collective a whole number of times, got others. Mend it."
        )
    nodes = graph.tasks + graph.total_counts.sum()
    if nodes > MOST_LOWERED:
        raise FieldError(
            "",
            f"a trace of {nodes:,.0f} nodes is too large to write, got more than "
            f"{MOST_LOWERED:,}. Export fewer micro-batches or layers.",
        )
    return _Lowering(graph).run()


class _Lowering:
    """Goes over the tasks in order."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        place = np.zeros(graph.tasks, dtype=np.int64) if graph.places is None else graph.places
        owner = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
        abroad = place[owner] != place[graph.predecessor]
        self.place: list[int] = place.tolist()
        self.start: list[int] = graph.predecessor_start.tolist()
        self.predecessor: list[int] = graph.predecessor.tolist()
        self.empty = (graph.fixed == 0) & (np.diff(graph.count_start) == 0)
        self.sends = self.messages()
        self.leaves = np.zeros(graph.tasks, dtype=np.bool_)
        self.leaves[graph.predecessor[abroad]] = True
        self.joins = self.joining(owner)
        self.found: list[list[LoweredNode]] = [[] for _ in range(int(place.max()) + 1)]
        self.last = [-1] * graph.tasks
        self.received: dict[int, tuple[int, int]] = {}

    def messages(self) -> NDArray[np.bool_]:
        """Whether each task ends with a message."""
        graph = self.graph
        sends = [c.kind is CollectiveKind.POINT_TO_POINT for c in graph.collectives]
        result = np.zeros(graph.tasks, dtype=np.bool_)
        for k in np.flatnonzero(np.array(sends, dtype=np.bool_)[graph.count_index]).tolist():
            task = int(graph.count_task[k])
            if k + 1 != graph.count_start[task + 1] or graph.count_value[k] != 1:
                raise FieldError(
                    "",
                    f"a task sends one message, as its last thing, got {self.label(task)!r}. "
                    "Split the task.",
                )
            result[task] = True
        return result

    def joining(self, owner: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each task only makes the parts of a collective of several places wait."""
        collective = (np.diff(self.graph.count_start) > 0) & ~self.sends
        other = np.zeros(self.graph.tasks, dtype=np.bool_)
        other[self.graph.predecessor[~collective[owner]]] = True
        result: NDArray[np.bool_] = self.empty & self.leaves & ~other
        return result

    def label(self, task: int) -> str:
        """What the trace calls a task."""
        return self.graph.labels[task] if self.graph.labels else f"task {task}"

    def waits(self, task: int) -> list[int]:
        """Tasks that a task waits for."""
        return self.predecessor[self.start[task] : self.start[task + 1]]

    def run(self) -> list[list[LoweredNode]]:
        """Nodes of each place."""
        for task in range(self.graph.tasks):
            if not self.joins[task]:
                self.lower(task)
        for task in np.flatnonzero(self.sends).tolist():
            if task not in self.received:
                self.receive(task, self.place[task], [])
        return self.found

    def lower(self, task: int) -> None:
        """Append the nodes of a task."""
        graph, place = self.graph, self.place[task]
        after, messages = self.sources(task)
        mine = self.found[place]
        if self.empty[task] and len(messages) == 1:
            self.last[task] = self.receive(messages[0], place, after, self.label(task))
            return
        after += [self.receive(source, place, []) for source in messages]
        entries = range(graph.count_start[task], graph.count_start[task + 1])
        if graph.fixed[task] > 0 or not entries:
            seconds = float(graph.fixed[task])
            mine.append(LoweredNode(self.label(task), NodeType.COMPUTE, seconds, after))
            after = [len(mine) - 1]
        for k in entries:
            collective = graph.collectives[graph.count_index[k]]
            sends = collective.kind is CollectiveKind.POINT_TO_POINT
            kind = NodeType.SEND if sends else NodeType.COLLECTIVE
            alone = graph.fixed[task] == 0 and len(entries) == 1
            name = self.label(task) if alone else f"{self.label(task)} {collective.kind.value}"
            for _ in range(int(graph.count_value[k])):
                mine.append(LoweredNode(name, kind, after=after, collective=collective))
                after = [len(mine) - 1]
        self.last[task] = len(mine) - 1

    def sources(self, task: int) -> tuple[list[int], list[int]]:
        """Nodes of its place that a task waits for, and the tasks whose messages it waits for.

        A message that no other place waits for goes to a neighbour that does the same, and comes
        from one: the task that does nothing but wait for it is its receive.
        """
        place, after, messages = self.place[task], [], list[int]()
        for source in self.waits(task):
            if self.joins[source]:
                inner = [w for w in self.waits(source) if self.place[w] == place]
                after += [self.last[w] for w in inner]
            elif self.place[source] == place:
                own = self.sends[source] and not self.leaves[source]
                if own and self.empty[task] and not messages and source not in self.received:
                    messages.append(source)
                else:
                    after.append(self.last[source])
            elif not self.sends[source]:
                raise FieldError(
                    "",
                    f"{self.label(task)!r} waits for {self.label(source)!r} on another NPU, which "
                    f"sends it nothing, got places {place} and {self.place[source]}. Send it a "
                    "message.",
                )
            elif source in self.received and self.received[source][0] == place:
                after.append(self.received[source][1])
            else:
                messages.append(source)
        return sorted(set(after)), messages

    def receive(self, source: int, place: int, after: list[int], name: str = "") -> int:
        """Append the receive of a task's message; return its node."""
        if source in self.received:
            raise FieldError(
                "",
                f"the message of {self.label(source)!r} is received twice, got places "
                f"{self.received[source][0]} and {place}. Send it twice.",
            )
        sender, tag = self.place[source], len(self.received) + 1
        send = self.found[sender][self.last[source]]
        send.peer, send.tag = place, tag
        mine = self.found[place]
        mine.append(
            LoweredNode(
                name or f"{self.label(source)} arrives",
                NodeType.RECEIVE,
                after=after,
                collective=send.collective,
                peer=sender,
                tag=tag,
            )
        )
        self.received[source] = (place, len(mine) - 1)
        return len(mine) - 1
