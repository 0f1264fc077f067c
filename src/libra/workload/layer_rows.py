"""A model's training step as rows of three phases, each with at most one collective.

That is what a text workload of ASTRA-sim can say of a model: no pipeline, no micro-batches. A block
of a transformer is cut before each matrix or pair of them (`block_sections`), so that a phase
communicates at most once: with tensor parallelism the result of ``attention_output`` and
``feed_forward_output`` is all-reduced in the forward pass, the input's gradient of ``attention``
and ``feed_forward`` in the backward pass, and a block's saved input is gathered there if it was
distributed. Data parallelism all-reduces each row's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from libra.collectives import Collective, CollectiveKind
from libra.errors import FieldError
from libra.workload.activations import Recomputation
from libra.workload.blocks import Block
from libra.workload.compute import Accelerator, operator_times
from libra.workload.layers import Layer, Phase
from libra.workload.memory import check_degrees
from libra.workload.model import Model, model_blocks
from libra.workload.operators import Operator
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer_collectives import Groups
from libra.workload.transformer_operators import PhaseOperators, block_sections, update_operator

__all__ = ["Row", "fold_gradients", "time_rows", "transformer_rows"]


@dataclass(frozen=True)
class Row:
    """A part of a model on one NPU whose operators are not timed yet.

    Attributes
    ----------
    name : str
    operators : PhaseOperators
    updated : float
        Parameters that the optimiser updates.
    forward, input_gradient, weight_gradient : Collective or None
        What follows the operators of a phase.
    """

    name: str
    operators: PhaseOperators
    updated: float
    forward: Collective | None = None
    input_gradient: Collective | None = None
    weight_gradient: Collective | None = None


def time_rows(rows: Sequence[Row], plan: TrainingPlan, accelerator: Accelerator) -> list[Layer]:
    """Layers of rows; all their operators are timed at once."""
    operators: list[Operator] = []
    owner: list[int] = []
    for k, row in enumerate(rows):
        update = [update_operator(row.updated, plan)] if row.updated else []
        for j, found in enumerate((*row.operators.phases()[:3], update)):
            operators += found
            owner += [4 * k + j] * len(found)
    times = np.bincount(owner, operator_times(operators, accelerator), 4 * len(rows))
    return [
        Layer(
            row.name,
            Phase(forward, row.forward),
            Phase(inputs, row.input_gradient),
            Phase(weights, row.weight_gradient),
            update,
        )
        for row, (forward, inputs, weights, update) in zip(
            rows, times.reshape(-1, 4).tolist(), strict=True
        )
    ]


def transformer_rows(
    model: Model, plan: TrainingPlan, groups: Groups, blocks: int | None = None
) -> list[Row]:
    """Rows of a transformer's blocks; embedding, head, norms and biases send nothing here.

    Published workloads count the matrices of the blocks alone: see docs/workloads.md.

    Parameters
    ----------
    model : Model
    plan : TrainingPlan
        Tensor and data parallelism, one micro-batch.
    groups : mapping of str to Group
        ``tp`` and ``dp``.
    blocks : int, optional
        So many blocks from the first; all unless given.

    Returns
    -------
    list of Row
        ``attention_1``, ``attention_output_1``, ``feed_forward_1``, ``feed_forward_output_1``, …

    Raises
    ------
    FieldError
        Degrees that do not divide the model; what such rows cannot say.
    """
    check_degrees(model, plan.memory)
    _check_plan(plan)
    made: dict[Block, list[Row]] = {}
    rows: list[Row] = []
    for number, block in enumerate(islice(model_blocks(model), blocks), start=1):
        if block not in made:
            made[block] = _block_rows(model, block, plan, groups)
        rows += [replace(row, name=f"{row.name}_{number}") for row in made[block]]
    return rows


def _check_plan(plan: TrainingPlan) -> None:
    memory, run = plan.memory, plan.memory.activations
    for name, value, only in (
        ("pp", memory.pp, 1),
        ("cp", run.cp, 1),
        ("ep", memory.ep, 1),
        ("zero", memory.zero, 0),
        ("micro_batches", memory.micro_batches, 1),
        ("sequence_parallel", run.sequence_parallel, False),
        ("recomputation", run.recomputation.value, Recomputation.NONE.value),
    ):
        if value != only:
            raise FieldError(name, f"rows have none, got {value}. Use {only}.")


def _block_rows(model: Model, block: Block, plan: TrainingPlan, groups: Groups) -> list[Row]:
    if block.experts or block.parallel or block.attention is None or block.cross_attention:
        raise FieldError(
            "runs",
            "rows are of blocks with attention, then one feed-forward network, got another. "
            "Use a dense decoder or encoder.",
        )
    run = plan.memory.activations
    size = run.tokens * model.hidden * plan.communication
    tensor, replicas = groups["tp"], groups["dp"]
    reduce = gather = None
    if tensor.size > 1:
        reduce = Collective(CollectiveKind.ALL_REDUCE, size, tensor)
        if run.distribute_saved_activations:
            gather = Collective(CollectiveKind.ALL_GATHER, size, tensor)
    rows = []
    for name, operators in block_sections(model, block, plan):
        # A product's gradient has the sides of its weight.
        weights = sum(float(o.m * o.n) for o in operators.weight_gradient if o.flops)
        gradient = None
        if replicas.size > 1:
            sent = weights * plan.gradient * plan.compression
            gradient = Collective(CollectiveKind.ALL_REDUCE, sent, replicas)
        second = name.endswith("_output")
        backward = reduce if not second else gather if name == "attention_output" else None
        rows.append(Row(name, operators, weights, reduce if second else None, backward, gradient))
    return rows


def fold_gradients(layers: Sequence[Layer]) -> list[Layer]:
    """Layers whose gradients are reduced as one bucket after the first layer's, the last to be had.

    Raises
    ------
    FieldError
        If they are reduced by different collectives.
    """
    found = [c for layer in layers if (c := layer.weight_gradient.collective) is not None]
    if len({(c.kind, c.group) for c in found}) > 1:
        raise FieldError(
            "weight_gradient", "one bucket has one collective, got several. Keep them."
        )
    bare = [
        replace(layer, weight_gradient=Phase(layer.weight_gradient.compute)) for layer in layers
    ]
    if found:
        bucket = replace(found[0], size=sum(c.size for c in found))
        bare[0] = replace(bare[0], weight_gradient=Phase(bare[0].weight_gradient.compute, bucket))
    return bare
