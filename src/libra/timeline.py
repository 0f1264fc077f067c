"""Timeline of a step: when each task runs, and each chunk where the step was simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from libra.result import Result
from libra.simulate import Simulation
from libra.timing import StepTiming, task_ends

if TYPE_CHECKING:
    import polars

__all__ = ["result_timeline"]

Floats = NDArray[np.float64]


def result_timeline(result: Result) -> polars.DataFrame:
    """One row a task, and one a visit of a chunk to a dimension where the result was simulated.

    Returns
    -------
    polars.DataFrame
        Columns ``source`` (model or simulation), ``workload``, ``task`` (index), ``label``,
        ``place`` (pipeline stage), ``dimension`` (of a chunk's visit), ``start_s``, ``end_s`` and
        ``critical`` (on the model's critical path).
    """
    import polars

    frames = []
    workloads = zip(result.design.workloads, result.timings, strict=True)
    for k, (workload, timing) in enumerate(workloads):
        frames.append(_tasks(workload.name, timing, result.bandwidth))
        if result.simulations is not None:
            names = result.design.network.names
            frames.append(_chunks(workload.name, timing, result.simulations[k], names))
    return polars.concat([polars.DataFrame(frame) for frame in frames])


def _tasks(name: str, timing: StepTiming, bandwidth: Floats) -> dict[str, Any]:
    graph = timing.graph
    start, end, critical = task_ends(timing, bandwidth)
    return _frame("model", name, timing, np.arange(graph.tasks), [""] * graph.tasks, start, end) | {
        "critical": critical
    }


def _chunks(
    name: str, timing: StepTiming, simulation: Simulation, names: Sequence[str]
) -> dict[str, Any]:
    dimension = [names[simulation.links[k][0]] for k in simulation.chunk_link]
    return _frame(
        "simulation",
        name,
        timing,
        simulation.chunk_task,
        dimension,
        simulation.chunk_start,
        simulation.chunk_end,
    ) | {"critical": np.zeros(len(dimension), dtype=np.bool_)}


def _frame(
    source: str,
    name: str,
    timing: StepTiming,
    task: NDArray[np.int64],
    dimension: Sequence[str],
    start: Floats,
    end: Floats,
) -> dict[str, Any]:
    graph = timing.graph
    labels = np.array(list(graph.labels) or [""] * graph.tasks)
    places = np.zeros(graph.tasks, dtype=np.int64) if graph.places is None else graph.places
    return {
        "source": [source] * len(task),
        "workload": [name] * len(task),
        "task": task,
        "label": labels[task],
        "place": places[task],
        "dimension": list(dimension),
        "start_s": start,
        "end_s": end,
    }
