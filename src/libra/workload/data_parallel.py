"""Networks that are data parallel: convolutional ones, and DLRM, whose tables are spread out.

Each layer computes its passes on a micro-batch; after the last one its weight's gradient is
all-reduced. DLRM's embedding tables lie on all NPUs: an all-to-all brings each sample its vectors,
another returns their gradients, for each micro-batch; its perceptrons are data parallel (Naumov et
al. 2019, arXiv 1906.00091).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from libra.collectives import Collective, CollectiveKind
from libra.placement import Group
from libra.workload.cnn import CNNS, ConvLayer
from libra.workload.compute import Accelerator
from libra.workload.graph import StepGraph, begin_with
from libra.workload.layer_rows import Row, time_rows
from libra.workload.layers import Layer
from libra.workload.operators import Operator, OperatorKind
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer_operators import OperatorWriter, PhaseOperators

__all__ = [
    "DATA_PARALLEL_MODELS",
    "DataParallelStep",
    "build_data_parallel_step",
    "data_parallel_rows",
]

DLRM_FEATURES, DLRM_WIDTH = 64, 64
"""Sparse features with one lookup each, and width of a vector, in the size that studies with
ASTRA-sim and LIBRA use."""
DLRM_BOTTOM = (1600, *[1024] * 6, DLRM_WIDTH)
DLRM_TOP = ((1 + DLRM_FEATURES) * DLRM_WIDTH, *[2048] * 11, 1)
DATA_PARALLEL_MODELS = (*CNNS, "dlrm")


@dataclass(frozen=True)
class _Made:
    """A row, its parameters, and what it keeps of a micro-batch for the backward pass [bytes]."""

    row: Row
    parameters: int
    kept: float


@dataclass(frozen=True, eq=False)
class DataParallelStep:
    """A training step of a network that is data parallel.

    Attributes
    ----------
    graph : StepGraph
    parameters : int
        Those of every NPU; embedding tables, whose number of rows no one says, are not counted.
    micro_batches : int
        Of a step on each NPU.
    flops : float
        Of a step on all NPUs.
    weights, gradients, optimizer, activations : float
        On an NPU [bytes].
    """

    graph: StepGraph
    parameters: int
    micro_batches: int
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
        Its micro-batches, precisions, compression, and whether gradients overlap, in buckets.
    accelerator : Accelerator
    group : Group
        All NPUs.
    """
    made = _made(name, plan, group, vectors=True)
    layers = time_rows([m.row for m in made], plan, accelerator)
    overlap = plan.overlap.dp
    loop = TrainingLoop(
        LoopKind.GRADIENT_OVERLAP if overlap else LoopKind.NO_OVERLAP, plan.bucket * overlap
    )
    states, count = plan.memory.states, sum(m.parameters for m in made)
    batches = plan.memory.micro_batches
    note = ("embedding tables are not counted: their rows are not known",) * (name == "dlrm")
    graph = build_graph(layers, loop, note=note)
    if batches > 1:
        graph = _accumulate(graph, layers, batches - 1)
    return DataParallelStep(
        graph,
        count,
        batches,
        batches
        * group.size
        * sum(o.flops for m in made for phase in m.row.operators.phases()[:3] for o in phase),
        states.weights * count,
        states.gradients * count,
        states.optimizer * count,
        sum(m.kept for m in made),
    )


def data_parallel_rows(
    name: str, plan: TrainingPlan, group: Group, *, vectors: bool = True
) -> list[Row]:
    """Rows of a network of `DATA_PARALLEL_MODELS`, one a layer.

    Parameters
    ----------
    name : str
    plan : TrainingPlan
        Its micro-batch, precisions and compression.
    group : Group
        All NPUs.
    vectors : bool
        Batch normalisation and biases count; published workloads count weights alone.
    """
    return [m.row for m in _made(name, plan, group, vectors=vectors)]


def _made(name: str, plan: TrainingPlan, group: Group, *, vectors: bool) -> list[_Made]:
    made = list(_dlrm(plan, group) if name == "dlrm" else _cnn(name, plan, vectors=vectors))
    if group.size == 1:
        return made
    each = plan.gradient * plan.compression
    return [
        replace(
            m,
            row=replace(
                m.row,
                weight_gradient=Collective(CollectiveKind.ALL_REDUCE, m.parameters * each, group),
            ),
        )
        if m.parameters
        else m
        for m in made
    ]


def _accumulate(graph: StepGraph, layers: Sequence[Layer], times: int) -> StepGraph:
    """Graph after so many micro-batches whose gradients are summed up but not reduced.

    What they exchange blocks, as it does in the last one, so that they are one task.
    """
    phases = [p for layer in layers for p in (layer.forward, layer.input_gradient)]
    compute = sum(p.compute for p in phases) + sum(x.weight_gradient.compute for x in layers)
    exchanged = Counter(p.collective for p in phases if p.collective is not None)
    counts = [(collective, float(times * n)) for collective, n in exchanged.items()]
    return begin_with(graph, f"first {times} micro-batches", times * compute, counts)


def _cnn(name: str, plan: TrainingPlan, *, vectors: bool) -> Iterator[_Made]:
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
        count = layer.parameters if vectors else _weights(layer)
        row = Row(layer.name, writer.found, count)
        yield _Made(row, count, (1 + layer.norm) * size)


def _weights(layer: ConvLayer) -> int:
    return replace(layer, norm=False, bias=False).parameters


def _dlrm(plan: TrainingPlan, group: Group) -> Iterator[_Made]:
    run = plan.memory.activations
    values = run.micro_batch * DLRM_FEATURES * DLRM_WIDTH
    size = run.element * values
    tables = PhaseOperators(
        forward=[Operator(OperatorKind.EMBEDDING, 0.0, size, size, name="lookups")],
        weight_gradient=[Operator(OperatorKind.EMBEDDING, 0.0, 2 * size, size, name="gradients")],
    )
    exchange = None
    if group.size > 1:
        exchange = Collective(CollectiveKind.ALL_TO_ALL, plan.communication * values, group)
    # Of the tables the rows that a step looked up are updated, taken as distinct.
    updated = values * plan.memory.micro_batches
    yield _Made(Row("embedding", tables, updated, exchange, exchange), 0, size)
    for part, widths in (("bottom", DLRM_BOTTOM), ("top", DLRM_TOP)):
        for k, (inputs, outputs) in enumerate(pairwise(widths)):
            writer = OperatorWriter(plan)
            name = f"{part}_{k + 1}"
            writer.product(name, run.micro_batch, outputs, inputs)
            if part == "bottom" and k == 0:
                writer.found.input_gradient.clear()
            made = run.element * run.micro_batch * outputs
            writer.move("activation", 2 * made, 3 * made)
            yield _Made(Row(name, writer.found, inputs * outputs), inputs * outputs, made)
