"""How a model is trained, beyond what its memory depends on: precisions, overlap, routing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from libra.errors import FieldError
from libra.workload.memory import MemoryPlan
from libra.workload.operators import Precision

__all__ = ["ContextExchange", "Overlap", "TokenDispatch", "TrainingPlan"]


class ContextExchange(StrEnum):
    """How context parallelism brings keys and values together.

    ``RING`` passes them on, one block at a time (Liu et al. 2023, arXiv 2310.01889);
    ``ALL_GATHER`` gathers them first (Llama 3, arXiv 2407.21783, section 3.3.2).
    """

    RING = "ring"
    ALL_GATHER = "all-gather"


class TokenDispatch(StrEnum):
    """How tokens travel to their experts, and the results back.

    - all-to-all: a copy for each expert, in one all-to-all (Megatron-Core's default);
    - deduplicated: dimension by dimension from the outermost, one copy for all experts that lie the
      same way, and results added up on the way back (DeepEP, HybridEP).
    """

    ALL_TO_ALL = "all-to-all"
    DEDUPLICATED = "deduplicated"


@dataclass(frozen=True)
class Overlap:
    """Which communication runs beside computation.

    Attributes
    ----------
    tp : bool
        Collectives of tensor and sequence parallelism, cut into pieces beside the products that
        they feed.
    tp_gradients : bool
        Those of the backward pass that the weights' gradients do not wait for or need alone, beside
        these (``LinearWithGradAccumulationAndAsyncCommunication`` of Megatron-LM). Software does
        so by default, but measured steps show no gain (docs/validation.md), so that it is off here.
    ep : bool
        Exchange of tokens, beside another micro-batch.
    dp : bool
        Gradients are reduced in buckets beside the last backward pass.
    zero : bool
        Weights that ZeRO splits are gathered ahead of the layer that needs them.
    pp : bool
        A stage goes on while it sends.
    cp : bool
        Keys and values travel beside the attention to those that are there.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tp: bool = False
    tp_gradients: bool = False
    ep: bool = False
    dp: bool = True
    zero: bool = True
    pp: bool = True
    cp: bool = True


@dataclass(frozen=True)
class TrainingPlan:
    """A training run of a model, on any network and accelerator.

    Attributes
    ----------
    memory : MemoryPlan
        Degrees, batch, recomputation, ZeRO.
    precision : Precision
        That matrices are multiplied in.
    communication : float
        Of an activation that tensor, expert and context parallelism and the pipeline send [bytes].
    gradient : float
        Of a gradient that data parallelism sends [bytes].
    weight : float
        Of a weight that ZeRO gathers [bytes].
    compression : float
        Bytes of gradients sent for each byte that there is, in (0, 1]: quantised or pruned.
    capacity : float
        Tokens that an expert computes for each that balanced routing sends it, at least 1: places
        that a capacity factor pads.
    bucket : float
        Gradients are reduced, and weights gathered, in buckets of about this size [bytes]; 0: of
        each block.
    fused_accumulation : bool
        The product that gives a weight's gradient adds it to the sum over micro-batches; else a
        kernel of its own reads both and writes the sum (Megatron-LM before 2022, DeepSpeed).
    overlap : Overlap
    exchange : ContextExchange
        Of keys and values.
    dispatch : TokenDispatch
        Of tokens to experts.
    """

    memory: MemoryPlan
    precision: Precision = Precision.BF16
    communication: float = 2.0
    gradient: float = 4.0
    weight: float = 2.0
    compression: float = 1.0
    capacity: float = 1.0
    bucket: float = 0.0
    fused_accumulation: bool = True
    overlap: Overlap = field(default_factory=Overlap)
    exchange: ContextExchange = ContextExchange.RING
    dispatch: TokenDispatch = TokenDispatch.ALL_TO_ALL

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", Precision(self.precision))
        object.__setattr__(self, "exchange", ContextExchange(self.exchange))
        object.__setattr__(self, "dispatch", TokenDispatch(self.dispatch))
        for name in ("communication", "gradient", "weight"):
            value = getattr(self, name)
            if not 0 < value <= 8:
                raise FieldError(
                    name, f"must be above 0 and at most 8 bytes, got {value}. Correct it."
                )
        if not 0 < self.compression <= 1:
            raise FieldError(
                "compression",
                f"is the fraction of the gradients' bytes that is sent, in (0, 1], got "
                f"{self.compression}. Correct it.",
            )
        if not 1 <= self.capacity <= 100:
            raise FieldError(
                "capacity", f"must be from 1 to 100, got {self.capacity}. Use 1 for no padding."
            )
        if not (math.isfinite(self.bucket) and self.bucket >= 0):
            raise FieldError(
                "bucket", f"must be finite and not negative, got {self.bucket}. Correct it."
            )
