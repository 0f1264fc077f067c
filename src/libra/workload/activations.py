"""Bytes that a block keeps from the forward to the backward pass, of one micro-batch on one NPU.

Every tensor that a backward pass reads is counted once, after Korthikanti et al. 2022 (arXiv
2205.05198) section 4, which counts multi-head attention and an ungated network of four times the
hidden size: 34 sbh + 5 as^2b bytes. The same count, tensor by tensor, covers grouped heads, latent
attention, gates and experts; its special case is equation (2), (4) and (6) there exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from libra.errors import FieldError
from libra.workload.blocks import (
    Attention,
    Block,
    FeedForward,
    MixtureOfExperts,
    QueryKeyNorm,
    require_sizes,
)

__all__ = ["ActivationPlan", "Recomputation", "block_activations", "block_working_set"]

_MASK_BYTES = 1
_FP32_BYTES = 4


class Recomputation(StrEnum):
    """What the backward pass computes again instead of keeping it.

    ``SELECTIVE`` the scores of attention, ``FULL`` all of a block from its input.
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True)
class ActivationPlan:
    """What the activations of a micro-batch on one NPU depend on.

    Attributes
    ----------
    micro_batch : int
        Sequences in a micro-batch of one model replica.
    sequence : int
        Tokens of a sequence; of an encoder-decoder, of both.
    tp, cp : int
        Tensor- and context-parallel degrees.
    expert_tp : int
        Tensor parallelism within an expert; the rest of `tp` deals out tokens.
    sequence_parallel : bool
        What tensor parallelism leaves whole is split over the sequence.
    recomputation : Recomputation
        What is computed again.
    distribute_saved_activations : bool
        A block's input is kept split over the tensor-parallel group, and gathered in the backward
        pass (``--distribute-saved-activations`` of Megatron-LM; P_a of ZeRO, Rajbhandari et al.
        2020, arXiv 1910.02054, section 6.1).
    fused_attention : bool
        Attention in one kernel that keeps no scores (FlashAttention), only a float for each row.
    dropout : bool
        Masks of dropout are kept, one byte an element.
    element : float
        Of an activation [bytes].
    """

    micro_batch: int
    sequence: int
    tp: int = 1
    cp: int = 1
    expert_tp: int = 1
    sequence_parallel: bool = False
    recomputation: Recomputation = Recomputation.NONE
    distribute_saved_activations: bool = False
    fused_attention: bool = True
    dropout: bool = False
    element: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "recomputation", Recomputation(self.recomputation))
        require_sizes(self, "micro_batch", "sequence", "tp", "cp", "expert_tp")
        if self.tp % self.expert_tp:
            raise FieldError(
                "expert_tp", f"must divide tp = {self.tp}, got {self.expert_tp}. Use a divisor."
            )
        if self.sequence % self.cp:
            raise FieldError(
                "cp", f"must divide the sequence of {self.sequence} tokens, got {self.cp}. Use a "
                "divisor.",
            )  # fmt: skip
        if self.sequence_parallel and (self.sequence // self.cp) % self.tp:
            raise FieldError(
                "tp",
                f"sequence parallelism splits {self.sequence // self.cp} tokens, got tp = "
                f"{self.tp}. Use a divisor, or sequence_parallel: false.",
            )
        if self.sequence_parallel and self.distribute_saved_activations:
            raise FieldError(
                "distribute_saved_activations",
                "sequence parallelism splits them already, got true with sequence_parallel: true. "
                "Remove one of them.",
            )
        if not 0 < self.element <= 8:
            raise FieldError(
                "element", f"must be above 0 and at most 8 bytes, got {self.element}. Correct it."
            )

    @property
    def tokens(self) -> float:
        """Tokens of a micro-batch that this NPU's tensor-parallel group works on."""
        return self.micro_batch * self.sequence / self.cp

    @property
    def whole(self) -> int:
        """What divides tensors that tensor parallelism alone leaves whole."""
        return self.tp if self.sequence_parallel else 1

    @property
    def saved(self) -> int:
        """What divides the input of a block as it is kept."""
        return self.tp if self.distribute_saved_activations else self.whole


def _scores(attention: Attention, plan: ActivationPlan) -> float:
    """Of one token: softmax and dropped-out scores with their mask, or a float for each row."""
    if plan.fused_attention:
        return _FP32_BYTES * attention.heads / plan.tp
    keys = min(attention.window or plan.sequence, plan.sequence)
    kept = plan.element + plan.dropout * (_MASK_BYTES + plan.element)
    return kept * attention.heads * keys / plan.tp


def _attention(attention: Attention, hidden: int, plan: ActivationPlan) -> float:
    """Of one token: input, queries, keys, values, result, mask of the output's dropout; no scores.

    Keys and values of fewer heads than members are on several of them.
    """
    query = attention.query_width / plan.tp
    kv_heads = max(attention.kv_heads / plan.tp, 1)
    keys, values = kv_heads * attention.head_dim, kv_heads * attention.value_dim
    cut = query + keys + values + attention.output_width / plan.tp
    if attention.norm is not QueryKeyNorm.NONE:
        cut += query + keys
    whole = float(hidden)
    if attention.latent is not None:
        latent = attention.latent
        # Each compressed vector before and after its norm; the key's rotary part once.
        whole += 2 * (latent.query_rank + latent.key_value_rank) + latent.rope_dim
    mask = plan.dropout * _MASK_BYTES * hidden / plan.whole
    return plan.element * (cut + whole / plan.whole) + mask


def _feed_forward(network: FeedForward, hidden: int, plan: ActivationPlan) -> float:
    """Of one token: input, inputs of activation (and gate), input of the second matrix, mask."""
    mask = plan.dropout * _MASK_BYTES * hidden / plan.whole
    return plan.element * (hidden / plan.whole + network.matrices * network.width / plan.tp) + mask


def _experts(mixture: MixtureOfExperts, hidden: int, plan: ActivationPlan) -> float:
    """Of one token, routing balanced: input, scores, and each visited expert's tensors.

    An expert's input and result travel, so both are kept besides the router's input.
    """
    local = plan.expert_tp / plan.tp
    inner = mixture.expert.matrices * mixture.expert.width / plan.expert_tp
    routed = plan.element * mixture.active * local * (2 * hidden + inner)
    size = plan.element * hidden / plan.whole + _FP32_BYTES * mixture.experts / plan.whole + routed
    if mixture.shared is not None:
        size += plan.element * mixture.shared.matrices * mixture.shared.width / plan.tp
    return size + plan.dropout * _MASK_BYTES * hidden / plan.whole


def _network(block: Block, hidden: int, plan: ActivationPlan) -> float:
    if isinstance(block.feed_forward, MixtureOfExperts):
        return _experts(block.feed_forward, hidden, plan)
    return 0.0 if block.feed_forward is None else _feed_forward(block.feed_forward, hidden, plan)


def block_activations(hidden: int, block: Block, plan: ActivationPlan) -> float:
    """What a block keeps of one micro-batch on one NPU [bytes].

    Parameters
    ----------
    hidden : int
        Width of the residual stream.
    block : Block
        The block.
    plan : ActivationPlan
        Degrees, sizes and what is computed again.

    Returns
    -------
    float
        With full recomputation its input alone; with selective all but the scores of attention.

    Examples
    --------
    The 34 sbh of Korthikanti et al. without scores, for s = b = h = 1 element:

    >>> block = Block(Attention(1, 1, 8, 8), FeedForward(32, gated=False))
    >>> plan = ActivationPlan(1, 1, recomputation="selective", fused_attention=False, dropout=True)
    >>> block_activations(8, block, plan) / 8
    34.0
    """
    if plan.recomputation is Recomputation.FULL:
        return plan.tokens * plan.element * hidden / plan.saved
    size = plan.element * block.norms * hidden / plan.whole
    if block.norms:
        size += plan.element * hidden * (1 / plan.saved - 1 / plan.whole)
    attentions = [a for a in (block.attention, block.cross_attention) if a is not None]
    size += sum(_attention(attention, hidden, plan) for attention in attentions)
    if plan.recomputation is Recomputation.NONE:
        size += sum(_scores(attention, plan) for attention in attentions)
    size += _network(block, hidden, plan)
    if block.parallel and block.norms == 1 and block.attention and block.feed_forward:
        size -= plan.element * hidden / plan.whole  # both read the same normed input
    return plan.tokens * size


def block_working_set(hidden: int, block: Block, plan: ActivationPlan) -> float:
    """What a block needs beside the kept activations while its backward pass runs [bytes].

    Gradients of the tensors of its feed-forward network, the widest part; with recomputation what
    is computed again.
    """
    gradients = plan.tokens * _network(block, hidden, plan)
    again = 0.0
    if plan.recomputation is Recomputation.FULL:
        again = block_activations(hidden, block, _keeping_all(plan))
    elif plan.recomputation is Recomputation.SELECTIVE and block.attention is not None:
        again = plan.tokens * _scores(block.attention, plan)
    return gradients + again


def _keeping_all(plan: ActivationPlan) -> ActivationPlan:
    return replace(plan, recomputation=Recomputation.NONE, distribute_saved_activations=False)
