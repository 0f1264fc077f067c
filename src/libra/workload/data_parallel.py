"""Networks that are data parallel: convolutional ones, and DLRM, whose tables are spread out.

Each layer computes its passes on its micro-batch and all-reduces its weight's gradient. DLRM's
embedding tables lie on all NPUs: an all-to-all brings each sample its vectors, another returns
their gradients; its perceptrons are data parallel (Naumov et al. 2019, arXiv 1906.00091).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from libra.collectives import Collective, CollectiveKind
from libra.placement import Group
from libra.workload.cnn import CNNS
from libra.workload.compute import Accelerator, operator_times
from libra.workload.graph import StepGraph
from libra.workload.layers import Layer, Phase
from libra.workload.operators import Operator, OperatorKind
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer_operators import (
    OperatorWriter,
    PhaseOperators,
    update_operator,
)

__all__ = ["DATA_PARALLEL_MODELS", "DataParallelStep", "build_data_parallel_step"]

DLRM_FEATURES, DLRM_WIDTH = 64, 64
"""Sparse features with one lookup each, and width of a vector, in the size that studies with
ASTRA-sim and LIBRA use."""
DLRM_BOTTOM = (1600, *[1024] * 6, DLRM_WIDTH)
DLRM_TOP = ((1 + DLRM_FEATURES) * DLRM_WIDTH, *[2048] * 11, 1)
DATA_PARALLEL_MODELS = (*CNNS, "dlrm")


@dataclass(frozen=True)
class _Made:
    """A layer's operators, what it holds, and what it exchanges by all-to-all [bytes]."""

    name: str
    operators: PhaseOperators
    parameters: int
    kept: float
    exchanged: float = 0.0
    updated: int | None = None


@dataclass(frozen=True, eq=False)
class DataParallelStep:
    """A training step of a network that is data parallel.

    Attributes
    ----------
    graph : StepGraph
    parameters : int
        Those of every NPU; embedding tables, whose number of rows no one says, are not counted.
    flops : float
        Of a step on all NPUs.
    weights, gradients, optimizer, activations : float
        On an NPU [bytes].
    """

    graph: StepGraph
    parameters: int
    flops: float
    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """Bytes on an NPU."""
        return self.weights + self.gradients + self.optimizer + self.activations


def build_data_parallel_step(
    name: str, plan: TrainingPlan, accelerator: Accelerator, group: Group
) -> DataParallelStep:
    """Training step of a network of `DATA_PARALLEL_MODELS`.

    Parameters
    ----------
    name : str
    plan : TrainingPlan
        Its micro-batch, precisions, compression, and whether gradients overlap, in buckets.
    accelerator : Accelerator
    group : Group
        All NPUs.
    """
    made = list(_dlrm(plan) if name == "dlrm" else _cnn(name, plan))
    layers = _layers(made, plan, accelerator, group)
    overlap = plan.overlap.dp
    loop = TrainingLoop(
        LoopKind.GRADIENT_OVERLAP if overlap else LoopKind.NO_OVERLAP, plan.bucket * overlap
    )
    states, count = plan.memory.states, sum(layer.parameters for layer in made)
    note = ("embedding tables are not counted: their rows are not known",) * (name == "dlrm")
    return DataParallelStep(
        build_graph(layers, loop, note=note),
        count,
        group.size
        * sum(o.flops for m in made for phase in m.operators.phases()[:3] for o in phase),
        states.weights * count,
        states.gradients * count,
        states.optimizer * count,
        sum(layer.kept for layer in made),
    )


def _layers(
    made: Sequence[_Made], plan: TrainingPlan, accelerator: Accelerator, group: Group
) -> list[Layer]:
    """Layers with their times and collectives; all operators are timed at once."""
    operators: list[Operator] = []
    owner: list[int] = []
    for k, layer in enumerate(made):
        updated = layer.parameters if layer.updated is None else layer.updated
        update = [update_operator(updated, plan)] if updated else []
        for j, found in enumerate((*layer.operators.phases()[:3], update)):
            operators += found
            owner += [4 * k + j] * len(found)
    times = np.bincount(owner, operator_times(operators, accelerator), 4 * len(made))
    layers = []
    for layer, (forward, inputs, weights, update_time) in zip(
        made, times.reshape(-1, 4).tolist(), strict=True
    ):
        exchange = reduce = None
        if layer.exchanged and group.size > 1:
            exchange = Collective(CollectiveKind.ALL_TO_ALL, layer.exchanged, group)
        if layer.parameters and group.size > 1:
            size = layer.parameters * plan.gradient * plan.compression
            reduce = Collective(CollectiveKind.ALL_REDUCE, size, group)
        layers.append(
            Layer(
                layer.name,
                Phase(forward, exchange),
                Phase(inputs, exchange),
                Phase(weights, reduce),
                update_time,
            )
        )
    return layers


def _cnn(name: str, plan: TrainingPlan) -> Iterator[_Made]:
    run = plan.memory.activations
    for k, layer in enumerate(CNNS[name]()):
        writer = OperatorWriter(plan)
        rows = run.micro_batch * layer.pixels**2
        writer.product(layer.name, rows, layer.outputs, layer.edge**2 * layer.inputs)
        if k == 0:
            writer.found.input_gradient.clear()  # images need none
        size = run.element * rows * layer.outputs
        if layer.norm:
            writer.norm("normalisation", rows * layer.outputs)
        if layer.pixels > 1:
            writer.move("activation", 2 * size, 3 * size)
        yield _Made(layer.name, writer.found, layer.parameters, (1 + layer.norm) * size)


def _dlrm(plan: TrainingPlan) -> Iterator[_Made]:
    run = plan.memory.activations
    values = run.micro_batch * DLRM_FEATURES * DLRM_WIDTH
    size = run.element * values
    tables = PhaseOperators(
        forward=[Operator(OperatorKind.EMBEDDING, 0.0, size, size, name="lookups")],
        weight_gradient=[Operator(OperatorKind.EMBEDDING, 0.0, 2 * size, size, name="gradients")],
    )
    exchanged = plan.communication * values
    yield _Made("embedding", tables, 0, size, exchanged, values)
    for part, widths in (("bottom", DLRM_BOTTOM), ("top", DLRM_TOP)):
        for k, (inputs, outputs) in enumerate(pairwise(widths)):
            writer = OperatorWriter(plan)
            name = f"{part}_{k + 1}"
            writer.product(name, run.micro_batch, outputs, inputs)
            if part == "bottom" and k == 0:
                writer.found.input_gradient.clear()
            made = run.element * run.micro_batch * outputs
            writer.move("activation", 2 * made, 3 * made)
            yield _Made(name, writer.found, inputs * outputs, made)
