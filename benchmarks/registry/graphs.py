"""Generated step graphs: random ones of any size, and a long chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from libra.collectives import Collective, CollectiveKind, CollectiveModel, Compatibility, Contention
from libra.design import Design
from libra.load import load_design
from libra.placement import Group
from libra.workload.graph import StepGraph, chain_graph
from registry.inputs import write_design

__all__ = ["graph_design", "make_graph", "random_graph"]

_DISTINCT = 20


def random_graph(tasks: int, seed: int = 1) -> StepGraph:
    """Random graph with 20 distinct collectives on the 4D network, built from arrays.

    Exponential compute (mean 0.1 ms); half of the tasks end with a collective; each waits for one
    to three of the tasks shortly before it.
    """
    rng = np.random.default_rng(seed)
    kinds = (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
    )
    found: list[Collective] = []
    while len(found) < _DISTINCT:
        extents = tuple(n if rng.random() < 0.5 else 1 for n in (4, 8, 4, 32))
        if max(extents) > 1:
            size = float(np.exp(rng.uniform(np.log(1e5), np.log(1e8))))
            group = Group("g", extents, (1, 1, 1, 1))
            found.append(Collective(kinds[rng.integers(4)], size, group))
    ends = rng.random(tasks) < 0.5
    index = rng.integers(0, _DISTINCT, int(ends.sum()))
    before = np.minimum(rng.integers(1, 4, tasks), np.arange(tasks))
    start = np.concatenate([[0], np.cumsum(before)])
    owner = np.repeat(np.arange(tasks), before)
    return StepGraph(
        fixed=rng.exponential(1e-4, tasks),
        collectives=tuple(found),
        count_start=np.concatenate([[0], np.cumsum(ends)]),
        count_index=index,
        count_value=np.ones(len(index)),
        predecessor_start=start,
        predecessor=np.maximum(owner - rng.geometric(0.05, len(owner)), 0),
    )


def _long_chain(graph: StepGraph, tasks: int) -> StepGraph:
    """A chain's tasks over and over, until there are at least so many."""
    order: list[Collective | None] = [None] * graph.tasks
    for task, index in zip(graph.count_task, graph.count_index, strict=True):
        order[task] = graph.collectives[index]
    copies = -(-tasks // graph.tasks)
    return chain_graph(graph.fixed.tolist() * copies, order * copies)


def _base() -> Design:
    with TemporaryDirectory() as folder:
        return load_design(write_design("gpt-3-4d", Path(folder)))


def make_graph(name: str) -> StepGraph:
    """Graph of an input named ``graph-TASKS`` or ``chain-TASKS`` (at least so many)."""
    kind, _, tasks = name.partition("-")
    if kind == "chain":
        return _long_chain(_base().workloads[0].graph, int(tasks))
    return random_graph(int(tasks))


def graph_design(graph: StepGraph, compat: Compatibility | None = None) -> Design:
    """Design of a graph on the 4D network with 1000 GB/s in all, without queues."""
    design = _base()
    workload = replace(design.workloads[0], graph=graph)
    model = CollectiveModel(contention=Contention.NONE, compat=compat)
    return replace(design, workloads=(workload,), collectives=model)


def is_graph(name: str, kinds: Sequence[str] = ("graph-", "chain-")) -> bool:
    """Whether an input is a generated graph."""
    return name.startswith(tuple(kinds))
