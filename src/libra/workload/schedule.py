"""Training loops: the order in which the layers' phases run, as a graph of tasks.

An NPU computes one thing at a time, in program order. A collective is *blocking* if what follows in
the program waits for it. That collectives which share a dimension queue is added later, see
`libra.timing`: a loop says only what the program waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from libra.collectives import Collective
from libra.errors import FieldError
from libra.units import SIZE
from libra.workload.astra_sim_loops import ASTRA_SIM_LOOPS
from libra.workload.graph import GraphBuilder, StepGraph
from libra.workload.layers import Layer
from libra.workload.step_program import StepProgram, add_forward, kind_of

__all__ = ["LoopKind", "TrainingLoop", "build_graph"]


class LoopKind(StrEnum):
    """Named training loops.

    ``NO_OVERLAP``: every collective blocks. ``TP_DP_OVERLAP``: in the backward pass of a layer, the
    input gradient's collective runs beside the weight gradient and its collective, and the next
    layer waits for both (Won et al., LIBRA, section IV-B). ``GRADIENT_OVERLAP``: weight gradients
    are reduced in buckets beside the rest of the backward pass and only the step's end waits for
    them (Li et al., "PyTorch Distributed", VLDB 2020). ``ASTRA_SIM``: the simulator's own loop for
    the workload's policy. ``ONE_F_ONE_B`` and ``INTERLEAVED``: pipelines (Narayanan et al., SC'21).
    """

    NO_OVERLAP = "no-overlap"
    TP_DP_OVERLAP = "tp-dp-overlap"
    GRADIENT_OVERLAP = "gradient-overlap"
    ASTRA_SIM = "astra-sim"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True)
class TrainingLoop:
    """A training loop with its parameters.

    Attributes
    ----------
    kind : LoopKind
        What runs beside what.
    bucket : float
        ``gradient-overlap``: weight gradients are collected up to this size before they are reduced
        [bytes]; 0: each layer's on its own.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    kind: LoopKind = LoopKind.NO_OVERLAP
    bucket: Annotated[float, SIZE] = 0.0

    def __post_init__(self) -> None:
        if self.bucket and self.kind is not LoopKind.GRADIENT_OVERLAP:
            raise FieldError(
                "bucket", f"only gradient-overlap has buckets, got {self.kind.value}. Remove it."
            )


def build_graph(
    layers: Sequence[Layer],
    loop: TrainingLoop,
    *,
    policy: str = "",
    last_bottom: int = -1,
    note: Sequence[str] = (),
) -> StepGraph:
    """Graph of one training step without a pipeline.

    Parameters
    ----------
    layers : sequence of Layer
        In forward order, at least one.
    loop : TrainingLoop
        Order of their phases.
    policy : str
        ``astra-sim``: the policy word of the workload, which picks the loop.
    last_bottom : int
        ``astra-sim`` and HYBRID_DLRM: index of the last bottom layer.
    note : sequence of str
        What a user should know about how the layers were read.

    Raises
    ------
    FieldError
        If the simulator's loop for the policy is not known, or the loop is a pipeline.
    """
    if loop.kind is LoopKind.ASTRA_SIM:
        if policy not in ASTRA_SIM_LOOPS:
            raise FieldError(
                "training_loop",
                f"the simulator's loop is known for {', '.join(ASTRA_SIM_LOOPS)}, got policy "
                f"{policy or 'none (no header)'}. Use no-overlap, tp-dp-overlap or another.",
            )
        return ASTRA_SIM_LOOPS[policy](layers, last_bottom).build(note)
    if loop.kind not in _LOOPS:
        raise FieldError(
            "training_loop",
            f"the workload has no pipeline, got {loop.kind.value}. Add pp: to its parallel:.",
        )
    return _LOOPS[loop.kind](layers, loop).build(note)


def no_overlap(layers: Sequence[Layer], loop: TrainingLoop) -> GraphBuilder:
    """Every collective blocks: the step is one chain.

    Forward phases in order; then, from the last layer to the first, the forward phase again where
    it is recomputed, input gradient, weight gradient, update.
    """
    program = StepProgram()
    add_forward(program, layers)
    for layer in reversed(layers):
        if layer.recomputation is not None:
            program.phase(f"{layer.name} recompute", layer.recomputation)
        program.phase(f"{layer.name} input gradient", layer.input_gradient)
        program.phase(f"{layer.name} weight gradient", layer.weight_gradient)
        program.compute(f"{layer.name} update", layer.update)
    return program


def tp_dp_overlap(layers: Sequence[Layer], loop: TrainingLoop) -> GraphBuilder:
    """Within a layer's backward pass, the input gradient's collective runs beside the rest."""
    program = StepProgram()
    add_forward(program, layers)
    for layer in reversed(layers):
        if layer.recomputation is not None:
            program.phase(f"{layer.name} recompute", layer.recomputation)
        label = f"{layer.name} input gradient"
        program.compute(label, layer.input_gradient.compute)
        beside = program.issue(
            f"{label} {kind_of(layer.input_gradient)}", layer.input_gradient.collective
        )
        program.phase(f"{layer.name} weight gradient", layer.weight_gradient)
        program.compute(f"{layer.name} update", layer.update)
        program.wait(beside)
    return program


def gradient_overlap(layers: Sequence[Layer], loop: TrainingLoop) -> GraphBuilder:
    """Weight gradients are reduced in buckets beside the backward pass; the step's end waits."""
    program = StepProgram()
    add_forward(program, layers)
    bucket: list[Layer] = []
    for k, layer in enumerate(reversed(layers)):
        if layer.recomputation is not None:
            program.phase(f"{layer.name} recompute", layer.recomputation)
        program.phase(f"{layer.name} input gradient", layer.input_gradient)
        program.compute(f"{layer.name} weight gradient", layer.weight_gradient.compute)
        if bucket and not _alike(bucket[-1], layer):
            _reduce(program, bucket)
            bucket = []
        bucket.append(layer)
        if k == len(layers) - 1 or _size(bucket) >= loop.bucket:
            _reduce(program, bucket)
            bucket = []
    return program


def _size(bucket: Sequence[Layer]) -> float:
    collectives = [layer.weight_gradient.collective for layer in bucket]
    return sum(c.size for c in collectives if c is not None)


def _alike(one: Layer, other: Layer) -> bool:
    """Whether two layers' gradients can be reduced together: same kind and group, or none."""
    a, b = one.weight_gradient.collective, other.weight_gradient.collective
    return a is None or b is None or (a.kind, a.group) == (b.kind, b.group)


def _reduce(program: StepProgram, bucket: Sequence[Layer]) -> None:
    """Reduce a bucket's gradients beside the program, then update its weights."""
    found = [c for layer in bucket if (c := layer.weight_gradient.collective) is not None]
    update = sum(layer.update for layer in bucket)
    name = bucket[-1].name if len(bucket) == 1 else f"{bucket[0].name} … {bucket[-1].name}"
    if not found:
        program.compute(f"{name} update", update)
        return
    together = Collective(found[0].kind, sum(c.size for c in found), found[0].group)
    program.issue(f"{name} weight gradient {together.kind.value}", together, update)


_LOOPS: Mapping[LoopKind, Callable[[Sequence[Layer], TrainingLoop], GraphBuilder]] = {
    LoopKind.NO_OVERLAP: no_overlap,
    LoopKind.TP_DP_OVERLAP: tp_dp_overlap,
    LoopKind.GRADIENT_OVERLAP: gradient_overlap,
}
