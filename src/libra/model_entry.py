"""Items of ``workloads:`` that name a model: their keys, and what is wrong with them alone.

- model: llama-3-70b            # preset, or path of a config.json
  accelerator: h100             # preset, or a mapping
  parallel: {tp: 8, pp: 4, dp: 32, sequence_parallel: true, zero: 1}
  batch: {global: 2048, micro: 1, sequence: 8192}
  precision: bf16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any, ClassVar

from libra.errors import FieldError
from libra.units import SIZE
from libra.workload.activations import ActivationPlan, Recomputation
from libra.workload.memory import MemoryPlan, StateBytes
from libra.workload.operators import Precision
from libra.workload.roles import DEFAULT_ORDER
from libra.workload.training_plan import ContextExchange, Overlap, TokenDispatch, TrainingPlan

__all__ = [
    "MODEL_FORMS",
    "BatchEntry",
    "ModelEntry",
    "ModelParallel",
    "PrecisionEntry",
    "expand_model_item",
    "training_plan",
]

_ADAM_MOMENTS = 8
_FP32_BYTES = 4


@dataclass(frozen=True)
class ModelParallel:
    """Degrees of parallelism of a model, and how it uses them.

    Attributes
    ----------
    tp, pp, dp, ep, cp : int
        Tensor, pipeline, data, expert and context parallelism; experts are dealt out over members
        of the others, so that tp x pp x dp x cp is the number of NPUs.
    expert_tp : int or None
        Tensor parallelism within an expert; None: as tp without ep, else 1.
    sequence_parallel : bool
        What tensor parallelism leaves whole is split along the sequence.
    zero : int
        0 to 3; 3 is FSDP.
    virtual_stages : int
        Parts of the model on each stage.
    blocks : tuple of int
        Blocks of each part in order, pp x virtual_stages of them; empty: equal parts.
    order : tuple of str
        tp, cp, pp and dp, innermost first.
    context : ContextExchange
        How keys and values are exchanged.
    dispatch : TokenDispatch
        How tokens travel to their experts.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    expert_tp: int | None = None
    sequence_parallel: bool = False
    zero: int = 0
    virtual_stages: int = 1
    blocks: tuple[int, ...] = ()
    order: tuple[str, ...] = DEFAULT_ORDER
    context: ContextExchange = ContextExchange.RING
    dispatch: TokenDispatch = TokenDispatch.ALL_TO_ALL

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep", "cp", "virtual_stages"):
            if getattr(self, name) < 1:
                raise FieldError(
                    name, f"a degree is at least 1, got {getattr(self, name)}. Correct it."
                )
        if self.expert_tp is not None and self.expert_tp < 1:
            raise FieldError(
                "expert_tp", f"a degree is at least 1, got {self.expert_tp}. Correct it."
            )


@dataclass(frozen=True)
class BatchEntry:
    """Sequences of a step.

    Attributes
    ----------
    sequences : int
        Of a step of all replicas; ``global`` in a file.
    micro : int
        Of a micro-batch of one replica.
    sequence : int or None
        Tokens of a sequence; None: of images and samples, which have none.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    sequences: int
    micro: int
    sequence: int | None = None

    def __post_init__(self) -> None:
        for name in ("sequences", "micro", "sequence"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FieldError(name, f"is at least 1, got {getattr(self, name)}. Correct it.")


@dataclass(frozen=True)
class PrecisionEntry:
    """Number formats.

    Attributes
    ----------
    compute : Precision
        That matrices are multiplied in.
    weights, activations : Precision or None
        As they are kept; None: in 16 bits, or 32 if matrices are.
    gradients : Precision
        As they are summed up and, by data parallelism, sent.
    communication : Precision or None
        Of activations on the network; None: as they are kept.
    compression : float
        Fraction of the gradients' bytes that is sent: quantised or pruned.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    compute: Precision
    weights: Precision | None = None
    activations: Precision | None = None
    gradients: Precision = Precision.FP32
    communication: Precision | None = None
    compression: float = 1.0


@dataclass(frozen=True)
class ModelEntry:
    """What an item of ``workloads:`` says of a model's training; see the design file's manual."""

    model: str
    accelerator: str | Mapping[str, Any]
    batch: BatchEntry
    precision: PrecisionEntry
    parallel: ModelParallel = field(default_factory=ModelParallel)
    recomputation: Recomputation = Recomputation.NONE
    distribute_saved_activations: bool = False
    fused_attention: bool = True
    dropout: bool = False
    capacity: float = 1.0
    bucket: Annotated[float, SIZE] = 0.0
    reserved: Annotated[float, SIZE] = 0.0
    overlap: Overlap = field(default_factory=Overlap)

    @property
    def display_name(self) -> str:
        """Preset's name, or that of the configuration's folder."""
        path = PurePath(self.model)
        return (path.parent.name or path.stem) if path.suffix == ".json" else self.model


MODEL_FORMS: Mapping[str, Any] = {
    "model": str,
    "accelerator": str | dict[str, Any],
    "parallel": ModelParallel,
    "batch": BatchEntry,
    "precision": PrecisionEntry,
    "recomputation": Recomputation,
    "distribute_saved_activations": bool,
    "fused_attention": bool,
    "dropout": bool,
    "capacity": float,
    "bucket": Annotated[float, SIZE],
    "reserved": Annotated[float, SIZE],
    "overlap": Overlap,
}
"""Type of each key of a model's item beside name and weight."""

REQUIRED = ("accelerator", "batch", "precision")


def expand_model_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Long form of a model's item: ``global`` is no name in Python, a precision may be one word."""
    long = dict(item)
    if isinstance(long.get("batch"), dict):
        names = {"global": "sequences", "sequences": "sequences:"}  # one name in a file, not two
        long["batch"] = {names.get(key, key): value for key, value in long["batch"].items()}
    if isinstance(long.get("precision"), str):
        long["precision"] = {"compute": long["precision"]}
    return long


def training_plan(entry: ModelEntry) -> TrainingPlan:
    """Training plan of an entry.

    Raises
    ------
    FieldError
        Degrees and sizes that contradict each other, at their place in the entry.
    """
    degrees, batch, precision = entry.parallel, entry.batch, entry.precision
    step = degrees.dp * batch.micro
    if batch.sequences % step:
        raise FieldError(
            ("batch", "global"),
            f"must be a multiple of dp x micro = {degrees.dp} x {batch.micro} = {step}, got "
            f"{batch.sequences}. Use {max(batch.sequences // step, 1) * step}.",
        )
    wide = precision.compute.bytes > 2
    default = Precision.FP32 if wide else Precision.BF16
    weights = (precision.weights or default).bytes
    activations = (precision.activations or default).bytes
    try:
        run = ActivationPlan(
            batch.micro,
            1 if batch.sequence is None else batch.sequence,
            tp=degrees.tp,
            cp=degrees.cp,
            expert_tp=_expert_tp(degrees),
            sequence_parallel=degrees.sequence_parallel,
            recomputation=entry.recomputation,
            distribute_saved_activations=entry.distribute_saved_activations,
            fused_attention=entry.fused_attention,
            dropout=entry.dropout,
            element=activations,
        )
        memory = MemoryPlan(
            run,
            pp=degrees.pp,
            virtual_stages=degrees.virtual_stages,
            dp=degrees.dp,
            ep=degrees.ep,
            micro_batches=batch.sequences // step,
            zero=degrees.zero,
            states=_adam_states(weights, precision.gradients.bytes),
            chunks=degrees.blocks,
            reserved=entry.reserved,
        )
    except FieldError as error:
        raise FieldError(_placed(error), error.message) from None
    _check_interleaving(memory)
    try:
        return TrainingPlan(
            memory,
            precision.compute,
            communication=(precision.communication or precision.activations or default).bytes,
            gradient=precision.gradients.bytes,
            weight=weights,
            compression=precision.compression,
            capacity=entry.capacity,
            bucket=entry.bucket,
            overlap=entry.overlap,
            exchange=degrees.context,
            dispatch=degrees.dispatch,
        )
    except FieldError as error:
        inside = ("precision",) if error.place == ("compression",) else ()
        raise FieldError((*inside, *error.place), error.message) from None


def _adam_states(weights: float, gradients: float) -> StateBytes:
    """Adam's two moments, and a copy in 32 bits of weights that are kept in fewer."""
    copy = _FP32_BYTES if weights < _FP32_BYTES else 0
    return StateBytes(weights, gradients, _ADAM_MOMENTS + copy)


def _expert_tp(degrees: ModelParallel) -> int:
    if degrees.expert_tp is not None:
        return degrees.expert_tp
    return degrees.tp if degrees.ep == 1 else 1


def _placed(error: FieldError) -> tuple[str | int, ...]:
    """Place in an entry of an error of a plan's field."""
    match error.place:
        case ("micro_batch",):
            return ("batch", "micro")
        case ("sequence",):
            return ("batch", "sequence")
        case ("element",):
            return ("precision", "activations")
        case ("weights" | "gradients" as key,):
            return ("precision", key)
        case ("reserved" | "distribute_saved_activations" as key,):
            return (key,)
    return ("parallel", *error.place)


def _check_interleaving(memory: MemoryPlan) -> None:
    """Refuse interleaved schedules whose micro-batches do not come in groups of stages."""
    if memory.virtual_stages > 1 and memory.micro_batches % memory.pp:
        raise FieldError(
            ("parallel", "virtual_stages"),
            f"the interleaved schedule needs a multiple of the {memory.pp} stages as micro-batches "
            f"of each replica, got {memory.micro_batches}. Change the batch, or use 1.",
        )
