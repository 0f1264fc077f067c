"""What a model's training step consists of, as plain data to verify by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libra.collectives import Collective, CollectiveKind
from libra.workload.data_parallel import DataParallelStep
from libra.workload.graph import sum_by_index
from libra.workload.model import active_parameters, parameters
from libra.workload.transformer import TransformerStep

__all__ = ["phase_traffic", "summarize_step"]


def summarize_step(step: TransformerStep | DataParallelStep) -> dict[str, Any]:
    """Plain data of ``libra check --json``: parameters, FLOPs, memory, bytes by phase.

    FLOPs are those of the matrix products and of attention on all NPUs, as they are executed;
    what the backward pass computes again stands apart.
    """
    if isinstance(step, DataParallelStep):
        return _data_parallel(step)
    memory = step.memory
    return {
        "parameters": parameters(step.model),
        "active_parameters": active_parameters(step.model),
        "flops_per_step": step.flops("forward", "input_gradient", "weight_gradient"),
        "recomputed_flops_per_step": step.flops("recomputation"),
        "micro_batches": step.plan.memory.micro_batches,
        "bytes_per_npu": {
            "weights": memory.weights,
            "gradients": memory.gradients,
            "optimizer": memory.optimizer,
            "activations": memory.activations,
            "reserved": memory.reserved,
            "total": memory.total,
        },
        "fullest_stage": memory.stage,
        # A step that does not fit is refused when it is built.
        "fits": True,
        "phases": [
            {
                "phase": phase,
                "kind": collective.kind.value,
                "group": collective.group.name,
                "bytes": collective.size,
                "count": count,
            }
            for (phase, collective), count in phase_traffic(step).items()
        ],
    }


def _data_parallel(step: DataParallelStep) -> dict[str, Any]:
    parts = ("weights", "gradients", "optimizer", "activations", "total")
    graph = step.graph
    return {
        "parameters": step.parameters,
        "active_parameters": step.parameters,
        "flops_per_step": step.flops,
        "recomputed_flops_per_step": 0.0,
        "micro_batches": step.micro_batches,
        "bytes_per_npu": {part: getattr(step, part) for part in parts},
        "fullest_stage": 0,
        "fits": True,
        "phases": [
            {
                "phase": "exchange" if c.kind is CollectiveKind.ALL_TO_ALL else "gradients",
                "kind": c.kind.value,
                "group": c.group.name,
                "bytes": c.size,
                "count": float(count),
            }
            for c, count in zip(graph.collectives, graph.total_counts, strict=True)
        ],
    }


def phase_traffic(step: TransformerStep) -> dict[tuple[str, Collective], float]:
    """Collectives of a step on an NPU of the stage that communicates most, by phase.

    Returns
    -------
    dict of (str, Collective) to float
        How often each runs in a step: in the phases forward, backward and recomputation of all
        micro-batches, in ``gradients`` and ``weights`` of data parallelism, and in ``pipeline``.
    """
    stages = step.plan.memory.pp
    found = [_of_stage(step, stage) for stage in range(stages)]
    return max(found, key=lambda t: sum(c.size * n for (_, c), n in t.items()))


def _of_stage(step: TransformerStep, stage: int) -> dict[tuple[str, Collective], float]:
    total: dict[tuple[str, Collective], float] = {}
    for phase, collective, count in _entries(step, stage):
        key = (phase, collective)
        total[key] = total.get(key, 0.0) + count * step.plan.memory.micro_batches
    graph = step.graph
    assert graph.places is not None
    here = graph.places[graph.count_task] == stage
    size = len(graph.collectives)
    counts = sum_by_index(graph.count_index[here], graph.count_value[here], size)
    for collective, count in zip(graph.collectives, counts.tolist(), strict=True):
        name = collective.group.name
        if count and name in _OUTSIDE:
            gathers = collective.kind is CollectiveKind.ALL_GATHER
            phase = "weights" if gathers else _OUTSIDE[name]
            total[phase, collective] = count
    return total


_OUTSIDE = {
    "dp": "gradients",
    "expert dp": "gradients",
    "embedding": "gradients",
    "pp": "pipeline",
}
"""Phase of the collectives of groups that no block knows of."""


def _entries(step: TransformerStep, stage: int) -> Iterator[tuple[str, Collective, float]]:
    for part in step.parts[stage :: step.plan.memory.pp]:
        for piece, times in part:
            for phase in ("forward", "backward", "recomputation"):
                for _, collective, count in getattr(piece.collectives, phase):
                    yield phase, collective, times * count
