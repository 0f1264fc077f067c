"""Bytes on each NPU: weights, gradients, optimiser states, activations, by pipeline stage.

States after ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054) section 3, activations after
Korthikanti et al. 2022 (arXiv 2205.05198), micro-batches in flight after 1F1B with virtual stages
(Narayanan et al. 2021, arXiv 2104.04473).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from libra.errors import FieldError
from libra.workload.activations import (
    ActivationPlan,
    block_activations,
    block_working_set,
)
from libra.workload.blocks import Block, require_sizes
from libra.workload.model import Model, block_parameters, model_blocks

__all__ = [
    "DEEPSPEED_BF16",
    "DEEPSPEED_FP16",
    "FP32",
    "MEGATRON_MIXED",
    "MemoryPlan",
    "NpuMemory",
    "StateBytes",
    "chunk_sizes",
    "in_flight_chunks",
    "npu_block_parameters",
    "npu_memory",
    "stage_memory",
]

_FP32_BYTES = 4


@dataclass(frozen=True)
class StateBytes:
    """Bytes a parameter of what training keeps for it.

    Attributes
    ----------
    weights, gradients, optimizer : float
        The weight that computes, the gradient that is accumulated, and the optimiser's states with
        its own copies of weight and gradient [bytes].
    """

    weights: float
    gradients: float
    optimizer: float

    def __post_init__(self) -> None:
        for name in ("weights", "gradients", "optimizer"):
            value = getattr(self, name)
            if not 0 <= value <= 64:
                raise FieldError(
                    name, f"must be between 0 and 64 bytes a parameter, got {value}. Correct it."
                )


MEGATRON_MIXED = StateBytes(weights=2, gradients=4, optimizer=12)
"""16-bit weights, 32-bit gradients, and Adam: 32-bit weight and two moments (Megatron-LM)."""
DEEPSPEED_FP16 = StateBytes(weights=2, gradients=2, optimizer=16)
"""16-bit weights and gradients; Adam keeps 32-bit copies of both and two moments (DeepSpeed)."""
DEEPSPEED_BF16 = StateBytes(weights=2, gradients=6, optimizer=12)
"""16-bit weights and gradients, 32-bit sums; Adam: 32-bit weight and two moments (DeepSpeed)."""
FP32 = StateBytes(weights=4, gradients=4, optimizer=8)
"""Everything in 32 bits, Adam."""


@dataclass(frozen=True)
class MemoryPlan:
    """How a model is spread over NPUs, as far as memory depends on it.

    Attributes
    ----------
    activations : ActivationPlan
        Micro-batch, sequence, tensor and context parallelism, recomputation.
    pp, virtual_stages : int
        Pipeline stages, and parts of the model on each.
    dp : int
        Data-parallel degree; expert parallelism takes its members from it.
    ep : int
        Expert-parallel degree.
    micro_batches : int
        Of a step in one pipeline.
    zero : int
        0: states whole on every replica; 1: optimiser states split over the replicas, 2: gradients
        as well, 3: weights as well (FSDP).
    states : StateBytes
        Bytes a parameter.
    chunks : tuple of int
        Blocks of each part of the model in order, pp x virtual_stages of them; empty: equal parts.
    reserved : float
        What the runtime itself takes: the device's context, communication buffers [bytes].
    """

    activations: ActivationPlan
    pp: int = 1
    virtual_stages: int = 1
    dp: int = 1
    ep: int = 1
    micro_batches: int = 1
    zero: int = 0
    states: StateBytes = MEGATRON_MIXED
    chunks: tuple[int, ...] = ()
    reserved: float = 0.0

    def __post_init__(self) -> None:
        require_sizes(self, "pp", "virtual_stages", "dp", "ep", "micro_batches")
        if self.zero not in (0, 1, 2, 3):
            raise FieldError("zero", f"must be 0, 1, 2 or 3, got {self.zero}. Correct it.")
        if self.virtual_stages > 1 and self.pp == 1:
            raise FieldError(
                "virtual_stages",
                f"need more than one pipeline stage, got {self.virtual_stages}. Raise pp.",
            )
        plan = self.activations
        members = self.dp * plan.cp * (plan.tp // plan.expert_tp)
        if members % self.ep:
            raise FieldError(
                "ep",
                f"must divide the {members} members that share experts (dp x cp x tp / expert_tp), "
                f"got {self.ep}. Use a divisor.",
            )
        if self.reserved < 0:
            raise FieldError("reserved", f"must not be negative, got {self.reserved}. Correct it.")

    @property
    def replicas(self) -> int:
        """NPUs that hold the same part of a dense layer, over which ZeRO splits."""
        return self.dp * self.activations.cp

    @property
    def expert_replicas(self) -> int:
        """NPUs that hold the same experts."""
        plan = self.activations
        return self.dp * plan.cp * (plan.tp // plan.expert_tp) // self.ep


@dataclass(frozen=True)
class NpuMemory:
    """Bytes on the NPUs of one pipeline stage at the fullest moment of a step.

    Attributes
    ----------
    stage : int
        The stage, from 0.
    weights, gradients, optimizer : float
        States [bytes].
    kept : float
        Activations kept for backward passes [bytes].
    working : float
        Gradients of activations, logits, gathered weights and what is computed again, while the
        backward pass runs [bytes].
    reserved : float
        Of the runtime itself [bytes].
    """

    stage: int
    weights: float
    gradients: float
    optimizer: float
    kept: float
    working: float
    reserved: float = 0.0

    @property
    def activations(self) -> float:
        """Kept and working activations [bytes]."""
        return self.kept + self.working

    @property
    def states(self) -> float:
        """Weights, gradients and optimiser states [bytes]."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of it [bytes]."""
        return self.states + self.activations + self.reserved


class _Held(NamedTuple):
    """Parameters on one NPU: of dense parts, and of experts."""

    dense: float
    expert: float


def check_degrees(model: Model, plan: MemoryPlan) -> None:
    """Refuse degrees that do not divide the model.

    Raises
    ------
    FieldError
        Naming the degree, what it must divide, and a remedy.
    """
    tp, expert_tp = plan.activations.tp, plan.activations.expert_tp
    if plan.ep > 1 and not any(run.block.experts for run in (*model.encoder_runs, *model.runs)):
        raise FieldError("ep", f"the model has no experts, got {plan.ep}. Remove ep.")
    for run in (*model.encoder_runs, *model.runs):
        block = run.block
        for attention in (block.attention, block.cross_attention):
            if attention is None:
                continue
            if attention.heads % tp:
                raise FieldError(
                    "tp", f"must divide the {attention.heads} heads, got {tp}. Use a divisor."
                )
            if attention.kv_heads % tp and tp % attention.kv_heads:
                raise FieldError(
                    "tp",
                    f"must divide the {attention.kv_heads} key-value heads or be a multiple, got "
                    f"{tp}. Use a divisor.",
                )
        experts = block.experts
        if experts is None:
            continue
        if experts.experts % plan.ep:
            raise FieldError(
                "ep", f"must divide the {experts.experts} experts, got {plan.ep}. Use a divisor."
            )
        if experts.expert.width % expert_tp:
            raise FieldError(
                "expert_tp",
                f"must divide the width {experts.expert.width} of an expert, got {expert_tp}. "
                "Use a divisor.",
            )


def chunk_sizes(model: Model, plan: MemoryPlan) -> tuple[int, ...]:
    """Blocks of each part of the model, in order; part k is on stage k modulo pp.

    Raises
    ------
    FieldError
        If the blocks do not divide into equal parts, or given parts do not add up.
    """
    parts = plan.pp * plan.virtual_stages
    if not plan.chunks:
        if model.layers % parts:
            raise FieldError(
                "pp",
                f"{model.layers} blocks do not divide into pp x virtual_stages = {parts} equal "
                f"parts, got pp = {plan.pp}. Use a divisor, or give blocks, those of each part.",
            )
        return (model.layers // parts,) * parts
    if len(plan.chunks) != parts or sum(plan.chunks) != model.layers or min(plan.chunks) < 0:
        raise FieldError(
            "blocks",
            f"must be {parts} numbers that add up to the {model.layers} blocks, got "
            f"{len(plan.chunks)} that add up to {sum(plan.chunks)}. Correct them.",
        )
    return plan.chunks


def in_flight_chunks(plan: MemoryPlan, stage: int) -> list[int]:
    """Micro-batches whose activations a stage keeps at most, for each of its parts in order.

    1F1B: ``pp - stage``. With v virtual stages Megatron's warm-up runs
    ``2 (pp - stage - 1) + (v - 1) pp`` parts ahead, in groups of pp micro-batches a part; stage 0
    keeps ``1 + (pp - 1) / (pp v)`` times the model's blocks (Korthikanti et al., section 4.2.3).
    """
    pp, virtual = plan.pp, plan.virtual_stages
    if virtual == 1:
        return [min(pp - stage, plan.micro_batches)]
    ahead = min(2 * (pp - stage - 1) + (virtual - 1) * pp + 1, plan.micro_batches * virtual)
    counts = [0] * virtual
    for k in range(ahead):
        group, within = divmod(k, pp * virtual)
        # The last group may be short of micro-batches.
        size = min(pp, plan.micro_batches - group * pp)
        counts[min(within // size, virtual - 1)] += 1
    return counts


def npu_block_parameters(model: Model, block: Block, plan: MemoryPlan) -> tuple[float, float]:
    """Parameters of a block on one NPU: of its dense part, and of experts.

    Key-value heads fewer than `tp` are on several members.
    """
    split = block_parameters(model, block)
    tp, expert_tp = plan.activations.tp, plan.activations.expert_tp
    heads = [a.kv_heads for a in (block.attention, block.cross_attention) if a is not None]
    share = max([1 / tp, *(1 / n for n in heads)]) if heads else 1 / tp
    dense = split.tensor / tp + split.key_value * share + split.replicated
    return dense, split.expert / (plan.ep * expert_tp) + split.expert_whole / plan.ep


def _outer_parameters(model: Model, plan: MemoryPlan, stage: int) -> float:
    """Parameters outside the blocks on one NPU; a tied head is on the last stage as well."""
    rows = math.ceil(model.vocabulary / plan.activations.tp)
    table = rows * model.token_width
    size = 0.0
    if stage == 0:
        size += table + sum(layer.parameters for layer in model.before)
    if stage == plan.pp - 1:
        own_head = model.lm_head and (not model.tied or plan.pp > 1)
        size += own_head * table + model.lm_head_bias * rows
        size += sum(layer.parameters for layer in model.after)
    return size


def stage_memory(model: Model, plan: MemoryPlan, stage: int) -> NpuMemory:
    """Bytes on each NPU of a pipeline stage.

    Parameters
    ----------
    model : Model
        The model.
    plan : MemoryPlan
        How it is spread.
    stage : int
        From 0 to pp - 1.

    Returns
    -------
    NpuMemory

    Raises
    ------
    FieldError
        If a degree does not divide what it splits.
    """
    check_degrees(model, plan)
    sizes = chunk_sizes(model, plan)
    blocks = list(model_blocks(model))
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    parts = [blocks[starts[k] : starts[k] + sizes[k]] for k in range(stage, len(sizes), plan.pp)]
    mine = [block for part in parts for block in part]
    held = _Held(_outer_parameters(model, plan, stage), 0.0)
    for block, count in Counter(mine).items():
        dense, expert = npu_block_parameters(model, block, plan)
        held = _Held(held.dense + count * dense, held.expert + count * expert)
    states = plan.states
    kept, working = _activations(model, plan, stage, parts)
    return NpuMemory(
        stage,
        weights=states.weights * _split(held, plan, plan.zero >= 3),
        gradients=states.gradients * _split(held, plan, plan.zero >= 2),
        optimizer=states.optimizer * _split(held, plan, plan.zero >= 1),
        kept=kept,
        working=working + _gathered(model, mine, plan),
        reserved=plan.reserved,
    )


def _split(held: _Held, plan: MemoryPlan, over_replicas: bool) -> float:
    if not over_replicas:
        return held.dense + held.expert
    return held.dense / plan.replicas + held.expert / plan.expert_replicas


def _gathered(model: Model, blocks: Sequence[Block], plan: MemoryPlan) -> float:
    """Whole weights and gradients of the largest block where ZeRO splits them, one ahead."""
    largest = max((sum(npu_block_parameters(model, b, plan)) for b in set(blocks)), default=0.0)
    size = 2 * plan.states.weights * largest if plan.zero >= 3 else 0.0
    return size + (plan.states.gradients * largest if plan.zero >= 2 else 0.0)


def _activations(
    model: Model, plan: MemoryPlan, stage: int, parts: list[list[Block]]
) -> tuple[float, float]:
    """Kept and working activations of a stage at its fullest moment [bytes].

    That is when a backward pass begins, with the logits on the last stage; or on the first stage
    when one ends, its micro-batch let go, and the token embedding's gradient is a whole matrix.
    """
    run = plan.activations
    counts = in_flight_chunks(plan, stage)
    kinds = {block for part in parts for block in part}
    sizes = {block: block_activations(model.hidden, block, run) for block in kinds}
    each = [sum(sizes[block] for block in part) for part in parts]
    kept = sum(count * size for count, size in zip(counts, each, strict=True))
    working = max((block_working_set(model.hidden, b, run) for b in kinds), default=0.0)
    if stage == 0:
        kept += counts[0] * run.dropout * run.tokens * model.hidden / run.whole
    if stage == plan.pp - 1:
        kept += 2 * run.element * run.tokens * model.hidden / run.whole
        if model.lm_head:
            logits = run.tokens * model.vocabulary / run.tp
            working = max(working, (run.element + _FP32_BYTES) * logits)
    if stage == 0 and model.vocabulary:
        table = math.ceil(model.vocabulary / run.tp) * model.token_width
        after = kept - each[0]
        if after + run.element * table > kept + working:
            return after, run.element * table
    return kept, working


def npu_memory(model: Model, plan: MemoryPlan) -> NpuMemory:
    """Bytes on each NPU of the fullest pipeline stage.

    Examples
    --------
    >>> from libra.workload.blocks import Attention, FeedForward
    >>> from libra.workload.model import Run
    >>> block = Block(Attention(96, 96, 128, 128), FeedForward(49152, gated=False))
    >>> model = Model("gpt-3", 12288, 51200, (Run(block, 96),), tied=True)
    >>> plan = MemoryPlan(ActivationPlan(1, 2048, tp=8, sequence_parallel=True), pp=8, dp=1,
    ...                   micro_batches=64)
    >>> round(npu_memory(model, plan).states / 2**30, 1)
    46.9
    """
    check_degrees(model, plan)
    memories = [stage_memory(model, plan, stage) for stage in range(plan.pp)]
    return max(memories, key=lambda memory: memory.total)
