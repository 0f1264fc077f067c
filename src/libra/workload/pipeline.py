"""Pipelines: 1F1B and interleaved schedules as graphs over all stages.

Each task is a slot (one micro-batch's forward or backward pass through a stage's layers, with the
blocking collectives in it) or a send to the next stage. Every stage runs its slots in the order of
its schedule; a slot also waits for the send that feeds it; sends do not hold up the sender. After
its last backward slot a stage reduces its weight gradients and updates its weights.

References
----------
.. [1] Narayanan et al., "PipeDream", SOSP 2019: 1F1B.
.. [2] Narayanan et al., "Efficient large-scale language model training on GPU clusters using
   Megatron-LM", SC 2021, arXiv 2104.04473, section 2.2: the interleaved schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from libra.collectives import Collective, CollectiveKind
from libra.errors import FieldError
from libra.placement import Group
from libra.workload.graph import GraphBuilder, StepGraph
from libra.workload.layers import Layer, Phase

__all__ = ["Pipeline", "peers", "pipeline_graph", "split_layers"]

Counts = list[tuple[Collective, float]]


@dataclass(frozen=True)
class Pipeline:
    """How a step is cut over pipeline stages.

    Attributes
    ----------
    group : Group
        NPUs of one pipeline, one a stage.
    sizes : tuple of int
        Members of the network's dimensions, to tell a closed ring.
    micro_batches : int
        Micro-batches a step, at least 1.
    activation : float
        What a stage sends to the next for one micro-batch, and back [bytes].
    virtual_stages : int
        Parts of the model on each stage; more than 1: the interleaved schedule.
    """

    group: Group
    sizes: tuple[int, ...]
    micro_batches: int
    activation: float
    virtual_stages: int = 1

    def __post_init__(self) -> None:
        for name in ("micro_batches", "virtual_stages"):
            if getattr(self, name) < 1:
                raise FieldError(
                    name, f"must be at least 1, got {getattr(self, name)}. Correct it."
                )
        if not self.activation > 0:
            raise FieldError(
                "activation",
                f"a stage sends more than 0 bytes on, got {self.activation!r}. Give a size.",
            )
        if self.virtual_stages > 1 and self.micro_batches % self.stages:
            raise FieldError(
                "micro_batches",
                f"the interleaved schedule needs a multiple of the {self.stages} stages, got "
                f"{self.micro_batches}. Change it.",
            )

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.group.size


@dataclass(frozen=True)
class _Slot:
    """One pass of one micro-batch through one part of the model."""

    part: int
    micro_batch: int
    forward: bool


def split_layers(layers: Sequence[Layer], parts: int) -> list[Sequence[Layer]]:
    """Cut layers into contiguous parts so that the slowest part computes as little as possible.

    Raises
    ------
    FieldError
        If there are fewer layers than parts.
    """
    if len(layers) < parts:
        raise FieldError(
            "parallel.pp",
            f"{len(layers)} layers cannot fill {parts} parts, got pp x virtual stages "
            f"= {parts}. Use fewer.",
        )
    times = np.array([_compute(layer) for layer in layers])
    low, high = float(times.max()), float(times.sum())
    for _ in range(60):
        middle = (low + high) / 2
        if _cuts(times, middle, parts) is None:
            low = middle
        else:
            high = middle
    cuts = _cuts(times, high * (1 + 1e-12), parts) or [
        len(layers) - parts + k for k in range(parts)
    ]
    ends = [*cuts[1:], len(layers)]
    return [layers[a:b] for a, b in zip(cuts, ends, strict=True)]


def _compute(layer: Layer) -> float:
    phases = (layer.forward, layer.input_gradient, layer.weight_gradient, layer.recomputation)
    return sum(p.compute for p in phases if p is not None)


def _cuts(times: np.ndarray, limit: float, parts: int) -> list[int] | None:
    """Starts of parts that each stay within a limit, none empty; None if there are too many."""
    starts, load = [0], 0.0
    for k, time in enumerate(times):
        must = len(times) - k == parts - len(starts) and k > starts[-1]
        if k > starts[-1] and (load + time > limit or must) and len(starts) < parts:
            starts.append(k)
            load = 0.0
        load += float(time)
        if load > limit * (1 + 1e-12):
            return None
    return starts if len(starts) == parts else None


def pipeline_graph(
    layers: Sequence[Layer], pipeline: Pipeline, note: Sequence[str] = ()
) -> StepGraph:
    """Graph of one step of a pipeline.

    Parameters
    ----------
    layers : sequence of Layer
        The whole model on one tensor-parallel group; compute and blocking collectives of one
        micro-batch; weight-gradient collectives of the whole step.
    pipeline : Pipeline
    note : sequence of str
        What a user should know about how the layers were read.
    """
    stages, parts = pipeline.stages, pipeline.stages * pipeline.virtual_stages
    pieces = split_layers(layers, parts)
    work = {
        True: [_slot_work([p for layer in piece for p in (layer.forward,)]) for piece in pieces],
        False: [_slot_work(_backward(piece)) for piece in pieces],
    }
    builder = GraphBuilder()
    orders = [list(_stage_order(pipeline, stage)) for stage in range(stages)]
    done: dict[_Slot, int] = {}
    last: list[int | None] = [None] * stages
    position = [0] * stages
    while any(at < len(order) for at, order in zip(position, orders, strict=True)):
        for stage, order in enumerate(orders):
            while position[stage] < len(order):
                slot = order[position[stage]]
                feed = _feeding(slot, parts)
                if feed is not None and feed not in done:
                    break
                after = [
                    t for t in (last[stage], None if feed is None else done[feed]) if t is not None
                ]
                compute, counts = work[slot.forward][slot.part]
                way = "forward" if slot.forward else "backward"
                label = f"part {slot.part} {way} {slot.micro_batch}"
                task = builder.add(label, compute, counts, after, place=stage)
                last[stage] = task
                done[slot] = _send(builder, pipeline, slot, task, parts)
                position[stage] += 1
    for stage in range(stages):
        for part in range(stage, parts, stages):
            _reduce_part(builder, pieces[part], last, stage)
    return builder.build(note)


def _backward(piece: Sequence[Layer]) -> list[Phase]:
    phases = []
    for layer in reversed(piece):
        weight = Phase(layer.weight_gradient.compute)
        again = [] if layer.recomputation is None else [layer.recomputation]
        phases += [*again, layer.input_gradient, weight]
    return phases


def _slot_work(phases: Sequence[Phase]) -> tuple[float, Counts]:
    """Compute and counts of collectives of phases that run one after the other."""
    counts = Counter(p.collective for p in phases if p.collective is not None)
    return sum(p.compute for p in phases), [(c, float(n)) for c, n in counts.items()]


def _feeding(slot: _Slot, parts: int) -> _Slot | None:
    """Slot whose output a slot waits for; None for the first forward."""
    if slot.forward:
        return None if slot.part == 0 else _Slot(slot.part - 1, slot.micro_batch, True)
    if slot.part == parts - 1:
        return _Slot(slot.part, slot.micro_batch, True)
    return _Slot(slot.part + 1, slot.micro_batch, False)


def _send(builder: GraphBuilder, pipeline: Pipeline, slot: _Slot, task: int, parts: int) -> int:
    """Send a slot's output on; return the task that those who need it wait for."""
    target = slot.part + (1 if slot.forward else -1)
    if not 0 <= target < parts:
        return task
    stages = pipeline.stages
    here, there = slot.part % stages, target % stages
    if here == there:
        return task
    collective = Collective(
        CollectiveKind.POINT_TO_POINT, pipeline.activation, _pair(pipeline, here, there)
    )
    label = f"part {slot.part} send {slot.micro_batch}"
    return builder.add(label, 0.0, [(collective, 1.0)], [task], place=here)


def _pair(pipeline: Pipeline, here: int, there: int) -> Group:
    return peers(pipeline.group, pipeline.sizes, here, there)


def peers(group: Group, sizes: Sequence[int], here: int, there: int) -> Group:
    """Two members of a pipeline's group that exchange something.

    Parameters
    ----------
    group : Group
        One member a stage.
    sizes : sequence of int
        Members of the network's dimensions, to tell a closed ring.
    here, there : int
        Stages.
    """
    extents, strides = [], []
    for extent, stride, size in zip(group.extents, group.strides, sizes, strict=True):
        (here, a), (there, b) = divmod(here, extent), divmod(there, extent)
        apart = abs(a - b)
        if extent * stride == size:
            apart = min(apart, extent - apart)
        extents.append(2 if apart else 1)
        strides.append(stride * max(apart, 1))
    return Group(group.name, tuple(extents), tuple(strides))


def _reduce_part(
    builder: GraphBuilder, piece: Sequence[Layer], last: list[int | None], stage: int
) -> None:
    """Reduce the weight gradients of a part, blocking, then update its weights."""
    compute, counts = _slot_work([Phase(0.0, layer.weight_gradient.collective) for layer in piece])
    for label, time, work in (
        ("gradients", compute, counts),
        ("update", sum(layer.update for layer in piece), []),
    ):
        if time or work:
            after = [t for t in (last[stage],) if t is not None]
            last[stage] = builder.add(f"stage {stage} {label}", time, work, after, place=stage)


def _stage_order(pipeline: Pipeline, stage: int) -> Iterator[_Slot]:
    """Slots of a stage in the order of its schedule: warm-up, one forward one backward, drain."""
    stages, parts_here = pipeline.stages, pipeline.virtual_stages
    total = pipeline.micro_batches * parts_here
    if parts_here == 1:
        warm = min(stages - 1 - stage, total)
    else:
        all_forward = pipeline.micro_batches == stages
        warm = (
            total
            if all_forward
            else min(2 * (stages - 1 - stage) + (parts_here - 1) * stages, total)
        )
    for k in range(warm):
        yield _interleaved_slot(pipeline, stage, k, forward=True)
    for k in range(total - warm):
        yield _interleaved_slot(pipeline, stage, warm + k, forward=True)
        yield _interleaved_slot(pipeline, stage, k, forward=False)
    for k in range(total - warm, total):
        yield _interleaved_slot(pipeline, stage, k, forward=False)


def _interleaved_slot(pipeline: Pipeline, stage: int, k: int, *, forward: bool) -> _Slot:
    """The k-th forward or backward slot of a stage: micro-batches in groups as large as stages."""
    stages, here = pipeline.stages, pipeline.virtual_stages
    if here == 1:
        return _Slot(stage, k, forward)
    group, within = divmod(k, stages * here)
    turn, offset = divmod(within, stages)
    part = turn if forward else here - 1 - turn
    return _Slot(part * stages + stage, group * stages + offset, forward)
