"""What a runtime takes of an NPU's memory beside a model's states and activations.

A reading of the device (``nvidia-smi``) holds it; a reading of the framework's own allocations does
not. PyTorch's allocator keeps what was once allocated, and large buffers of the optimiser's step do
not fit where activations were, so the two add up.
"""

from __future__ import annotations

from libra.workload.blocks import Block
from libra.workload.memory import MemoryPlan, in_flight_chunks, stage_memory
from libra.workload.model import Model, model_blocks

__all__ = ["CUDA_CONTEXT", "deepspeed_bf16_reserved", "deepspeed_fp16_reserved"]

CUDA_CONTEXT = 1573 * 2.0**20
"""Of the device's context and kernels on an A100 of 40 GB [bytes], "probably about the same" on
that of 80 GB; github bigscience-workshop/bigscience @9e64ede
train/tr11-176B-ml/chronicles-prequel.md: 1573 MiB."""
_REDUCE_BUCKET = 500_000_000
"""Elements of DeepSpeed's buffer for gradients on their way (default of ``reduce_bucket_size`` in
deepspeed/runtime/zero/constants.py of github microsoft/DeepSpeed @2151c787a)."""
_DOUBLE_BYTES = 8
_FP32_BYTES = 4


def _largest_matrix(model: Model, block: Block, plan: MemoryPlan) -> float:
    """Elements of the largest weight of a block on one NPU; queries, keys, values are one."""
    tp = plan.activations.tp
    width = 0.0
    if block.attention is not None:
        a = block.attention
        width = (a.query_width + a.kv_heads * (a.head_dim + a.value_dim)) / tp
    if block.experts is not None:
        width = max(width, block.experts.expert.width / plan.activations.expert_tp)
    elif block.feed_forward is not None:
        width = max(width, getattr(block.feed_forward, "width", 0) / tp)
    return width * model.hidden


def _largest_gradient(model: Model, plan: MemoryPlan) -> float:
    """Elements of the largest weight on one NPU of the first stage."""
    table = model.vocabulary / plan.activations.tp * model.token_width
    return max(table, *(_largest_matrix(model, b, plan) for b in set(model_blocks(model))))


def _stage_results(model: Model, plan: MemoryPlan) -> float:
    """Result of the first stage for each micro-batch in flight [bytes].

    The pipeline keeps it beside the activations: ``pipe_buffers`` of
    deepspeed/runtime/pipe/engine.py in github microsoft/DeepSpeed @2151c787a.
    """
    run = plan.activations
    count = sum(in_flight_chunks(plan, 0)) if plan.pp > 1 else 0
    return count * run.tokens * run.element * model.hidden


def deepspeed_fp16_reserved(model: Model, plan: MemoryPlan) -> float:
    """What DeepSpeed's optimiser for fp16 (`DEEPSPEED_FP16`) takes on the first stage [bytes].

    The device's context; stages' results; the bucket through which gradients are reduced; a 16-bit
    copy of the gradients that the NPU updates, and the largest of these in 64 bits, whose norm is
    taken so (``step`` and ``get_grad_norm_direct`` of deepspeed/runtime/zero/stage_1_and_2.py in
    github microsoft/DeepSpeed @2151c787a).

    Parameters
    ----------
    model : Model
        The model.
    plan : MemoryPlan
        How it is spread.
    """
    updated = stage_memory(model, plan, 0).optimizer / plan.states.optimizer
    copies = plan.states.gradients * (_REDUCE_BUCKET + updated)
    squared = _DOUBLE_BYTES * min(_largest_gradient(model, plan), updated)
    return CUDA_CONTEXT + copies + squared + _stage_results(model, plan)


def deepspeed_bf16_reserved(model: Model, plan: MemoryPlan) -> float:
    """What DeepSpeed's optimiser for bf16 (`DEEPSPEED_BF16`) takes on the first stage [bytes].

    The device's context; stages' results; and a 32-bit copy of the largest 16-bit gradient while it
    is added to the sum (``update_hp_grads`` of deepspeed/runtime/bf16_optimizer.py in github
    microsoft/DeepSpeed, July 2022).

    Parameters
    ----------
    model : Model
        The model.
    plan : MemoryPlan
        How it is spread.
    """
    copy = _FP32_BYTES * _largest_gradient(model, plan)
    return CUDA_CONTEXT + copy + _stage_results(model, plan)
