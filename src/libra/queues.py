"""Queues: collectives that share a dimension's links wait for each other, in program order.

A collective starts when every earlier collective of the program that uses the same links has
ended. This approximates the hardware, which queues chunk by chunk: the second may fill gaps that
the first leaves in some dimensions (then this is too slow), or its chunks may hold up those of the
first that are on their way back (then it is too fast). `libra.evaluate.simulate_result` shows the
difference. Groups with different strides in a fully connected block use different links, so they
do not share them; on rings and switches they do. Messages from one NPU to another queue among
themselves only: they are short, and a switch lets them pass between the messages of a collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind, CollectiveModel, Contention
from libra.network import Network, Topology
from libra.workload.graph import StepGraph, add_predecessors

__all__ = ["add_queues", "links_of", "queue_users"]

Ints = NDArray[np.int64]


def links_of(collective: Collective, network: Network) -> tuple[tuple[int, int], ...]:
    """Links that a collective occupies: (dimension, stride in a fully connected block or 0).

    Messages from one NPU to another have a queue of their own beside each, (dimension, -1 - that).
    """
    group = collective.group
    found = []
    for d, extent in enumerate(group.extents):
        if extent > 1:
            connected = network.dimensions[d].topology is Topology.FULLY_CONNECTED
            link = group.strides[d] if connected else 0
            message = collective.kind is CollectiveKind.POINT_TO_POINT
            found.append((d, -1 - link if message else link))
    return tuple(found)


def add_queues(graph: StepGraph, network: Network, model: CollectiveModel) -> StepGraph:
    """Graph in which each task also waits for the last one that uses the same links.

    Returns the graph itself for ``contention: none`` and for a chain, where nothing can overlap.
    """
    if model.contention is Contention.NONE or graph.is_chain or not graph.collectives:
        return graph
    index: dict[tuple[int, int], list[int]] = {}
    for j, collective in enumerate(graph.collectives):
        for link in links_of(collective, network):
            index.setdefault(link, []).append(j)
    return queue_users(graph, index.values())


def queue_users(graph: StepGraph, sharers: Iterable[Sequence[int]]) -> StepGraph:
    """Graph in which tasks with collectives that share something wait for each other, in order.

    Parameters
    ----------
    graph : StepGraph
    sharers : iterable of sequence of int
        For each thing that is shared, which of the graph's collectives use it.
    """
    later, earlier = [], []
    for users in sharers:
        tasks = graph.count_task[np.isin(graph.count_index, users)]
        tasks = tasks[np.diff(tasks, prepend=np.int64(-1)) > 0]  # sorted: each once
        if len(tasks) == 0:
            continue
        if graph.places is not None:
            tasks = tasks[np.argsort(graph.places[tasks], kind="stable")]
        same = np.ones(len(tasks) - 1, dtype=np.bool_)
        if graph.places is not None:
            same = np.diff(graph.places[tasks]) == 0
        later.append(tasks[1:][same])
        earlier.append(tasks[:-1][same])
    none = np.zeros(0, dtype=np.int64)
    return add_predecessors(graph, np.concatenate([none, *later]), np.concatenate([none, *earlier]))
