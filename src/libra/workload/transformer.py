"""A transformer's training step as a graph: model, plan, accelerator and placement.

Each part of a pipeline runs a forward and a backward slot for each micro-batch (`libra.workload.
slots`). A slot's computation is the sum of its operators' times (`transformer_operators`); its
collectives (`transformer_collectives`) block, or run beside it where the plan overlaps them. Where
gradients or weights travel beside a pass, the slot is cut into buckets of whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind
from libra.placement import Group
from libra.workload.blocks import Block
from libra.workload.compute import Accelerator, operator_times
from libra.workload.graph import StepGraph
from libra.workload.memory import (
    NpuMemory,
    check_degrees,
    chunk_sizes,
    npu_block_parameters,
    npu_memory,
)
from libra.workload.model import LayerKind, Model, model_blocks
from libra.workload.operators import Operator, OperatorKind
from libra.workload.pipeline import peers
from libra.workload.slot_graph import Ahead, Ending, Segment, SlotKind, slot_graph
from libra.workload.slot_labels import name_layers
from libra.workload.slots import schedule_slots
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer_collectives import (
    Counts,
    Groups,
    PhaseCollectives,
    add_tensor,
    block_collectives,
    gradient_counts,
    weight_counts,
)
from libra.workload.transformer_operators import (
    PhaseOperators,
    block_operators,
    head_operators,
    input_operators,
    update_operator,
)

__all__ = [
    "Parts",
    "Piece",
    "TransformerStep",
    "Work",
    "build_step",
    "distinct_pieces",
    "model_pieces",
    "stage_updates",
    "step_graph",
    "time_pieces",
]


@dataclass(frozen=True, eq=False)
class Piece:
    """A block, the input or the head of a model as one NPU runs it for one micro-batch.

    Attributes
    ----------
    operators : PhaseOperators
    collectives : PhaseCollectives
    dense, expert : float
        Parameters on this NPU.
    """

    operators: PhaseOperators
    collectives: PhaseCollectives
    dense: float
    expert: float = 0.0


Parts = tuple[tuple[tuple[Piece, int], ...], ...]
"""Pieces of each part of a pipeline, and how often each follows itself."""
Entries = Sequence[tuple[Piece, int]]
"""Those of one part."""
Named = tuple[SlotKind, tuple[str, ...]]
"""Kind of a slot, and what its segments are called."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TransformerStep:
    """A training step and what it was made of.

    Attributes
    ----------
    graph : StepGraph
    model : Model
    plan : TrainingPlan
    parts : Parts
    """

    graph: StepGraph
    model: Model
    plan: TrainingPlan
    parts: Parts

    @cached_property
    def memory(self) -> NpuMemory:
        """Bytes on the NPUs of the fullest stage."""
        return npu_memory(self.model, self.plan.memory)

    def flops(self, *phases: str) -> float:
        """Floating-point operations of some phases of a step, on all NPUs."""
        memory = self.plan.memory
        run = memory.activations
        each: float = sum(
            count * sum(o.flops for phase in phases for o in getattr(piece.operators, phase))
            for part in self.parts
            for piece, count in part
        )
        return each * run.tp * run.cp * memory.dp * memory.micro_batches


def model_pieces(model: Model, plan: TrainingPlan, groups: Groups) -> Parts:
    """Pieces of each part of the pipeline, in order."""
    memory = plan.memory
    check_degrees(model, memory)
    rotary = not any(layer.kind is LayerKind.TABLE for layer in model.before) and any(
        block.attention is not None and block.attention.causal for block in model_blocks(model)
    )
    made: dict[Block, Piece] = {}
    blocks, parts = list(model_blocks(model)), []
    start = 0
    for size in chunk_sizes(model, memory):
        part: list[tuple[Piece, int]] = []
        for block in blocks[start : start + size]:
            piece = made.get(block)
            if piece is None:
                piece = made[block] = _block_piece(model, block, plan, groups, rotary=rotary)
            if part and part[-1][0] is piece:
                part[-1] = (piece, part[-1][1] + 1)
            else:
                part.append((piece, 1))
        parts.append(part)
        start += size
    parts[0].insert(0, (_input_piece(model, plan, groups), 1))
    parts[-1].append((_head_piece(model, plan, groups), 1))
    return tuple(tuple(part) for part in parts)


def _block_piece(
    model: Model, block: Block, plan: TrainingPlan, groups: Groups, *, rotary: bool
) -> Piece:
    return Piece(
        block_operators(model, block, plan, rotary=rotary),
        block_collectives(model, block, plan, groups),
        *npu_block_parameters(model, block, plan.memory),
    )


def _table(model: Model, plan: TrainingPlan) -> float:
    """Parameters of the token embedding, or of the head, on one NPU."""
    return -(-model.vocabulary // plan.memory.activations.tp) * float(model.token_width)


def _input_piece(model: Model, plan: TrainingPlan, groups: Groups) -> Piece:
    run, found = plan.memory.activations, PhaseCollectives()
    if model.vocabulary and run.tp > 1:
        # Each member looks its rows of the vocabulary up; the sum is reduced, and split.
        scatter = run.sequence_parallel
        kind = CollectiveKind.REDUCE_SCATTER if scatter else CollectiveKind.ALL_REDUCE
        size = run.tokens * model.hidden * plan.communication
        found.forward.append(("tp", Collective(kind, size, groups["tp"]), 1.0))
        if scatter:
            gather = Collective(CollectiveKind.ALL_GATHER, size, groups["tp"])
            found.backward.append(("tp", gather, 1.0))
    others = sum(layer.parameters for layer in model.before)
    return Piece(input_operators(model, plan), found, _table(model, plan) + others)


def _head_piece(model: Model, plan: TrainingPlan, groups: Groups) -> Piece:
    found, run = PhaseCollectives(), plan.memory.activations
    if model.lm_head:
        size = run.tokens * model.hidden * plan.communication
        add_tensor(found, plan, groups, size, 1)
        # The loss is reduced over the vocabulary, not the products' result.
        skipped = CollectiveKind.REDUCE_SCATTER if run.sequence_parallel else None
        found.forward = [
            c for c in found.forward if skipped is not None and c[1].kind is not skipped
        ]
    own = model.lm_head and (not model.tied or plan.memory.pp > 1)
    others = sum(layer.parameters for layer in model.after)
    return Piece(head_operators(model, plan), found, own * _table(model, plan) + others)


@dataclass(frozen=True)
class Work:
    """What a piece costs on an accelerator.

    Attributes
    ----------
    forward, backward : float
        Its two passes [s].
    attention : tuple of float
        Part of each that is attention to keys and values [s].
    """

    forward: float
    backward: float
    attention: tuple[float, float] = (0.0, 0.0)


def time_pieces(pieces: Sequence[Piece], accelerator: Accelerator) -> list[Work]:
    """Times of pieces; all their operators are timed at once."""
    operators: list[Operator] = []
    owner: list[int] = []
    for k, piece in enumerate(pieces):
        for phase, found in enumerate(piece.operators.phases()):
            operators += found
            owner += [2 * k + (phase > 0)] * len(found)
    times = operator_times(operators, accelerator)
    sums = np.bincount(owner, times, 2 * len(pieces)).tolist()
    core = np.array([o.kind is OperatorKind.ATTENTION for o in operators])
    inner = np.bincount(owner, times * core, 2 * len(pieces)).tolist()
    return [
        Work(sums[k], sums[k + 1], (inner[k], inner[k + 1])) for k in range(0, 2 * len(pieces), 2)
    ]


def build_step(
    model: Model,
    plan: TrainingPlan,
    accelerator: Accelerator,
    groups: Mapping[str, Group],
    sizes: tuple[int, ...],
    note: Sequence[str] = (),
) -> TransformerStep:
    """Training step of a model.

    Parameters
    ----------
    model : Model
    plan : TrainingPlan
    accelerator : Accelerator
    groups : mapping of str to Group
        As `libra.workload.roles.place_roles` gives them.
    sizes : tuple of int
        Members along each dimension of the network.
    note : sequence of str
        What a user should know about how the workload was made.

    Returns
    -------
    TransformerStep

    Raises
    ------
    FieldError
        Degrees that do not divide the model; an accelerator that lacks a peak or an efficiency.
    """
    parts = model_pieces(model, plan, groups)
    pieces = distinct_pieces(parts)
    work = dict(zip(pieces, time_pieces(pieces, accelerator), strict=True))
    updates = operator_times(stage_updates(parts, plan), accelerator).tolist()
    graph = step_graph(parts, plan, groups, sizes, model, work, updates, note)
    return TransformerStep(graph, model, plan, parts)


def distinct_pieces(parts: Parts) -> list[Piece]:
    """Pieces of all parts, each once."""
    return list(dict.fromkeys(piece for part in parts for piece, _ in part))


def stage_updates(parts: Parts, plan: TrainingPlan) -> list[Operator]:
    """Optimiser's step of each stage; ZeRO splits it over the replicas."""
    memory, found = plan.memory, []
    for stage in range(memory.pp):
        dense, expert = stage_parameters(parts, memory.pp, stage)
        if memory.zero:
            dense, expert = dense / memory.replicas, expert / memory.expert_replicas
        found.append(update_operator(dense + expert, plan))
    return found


def stage_parameters(parts: Parts, stages: int, stage: int) -> tuple[float, float]:
    """Dense and expert parameters on an NPU of a stage."""
    mine = [entry for part in parts[stage::stages] for entry in part]
    return (
        sum(count * piece.dense for piece, count in mine),
        sum(count * piece.expert for piece, count in mine),
    )


def step_graph(
    parts: Parts,
    plan: TrainingPlan,
    groups: Groups,
    sizes: tuple[int, ...],
    model: Model,
    work: Mapping[Piece, Work],
    updates: Sequence[float],
    note: Sequence[str] = (),
) -> StepGraph:
    """Graph of a step, of the times of its pieces and of each stage's update [s]."""
    memory = plan.memory
    writer = _Slots(plan, groups, sizes, work, model)
    slots = schedule_slots(memory.pp, memory.virtual_stages, memory.micro_batches)
    made = [writer.part(k, part, units) for k, (part, units) in enumerate(_with_units(parts))]
    kinds, index = _numbered([[kind for kind, _ in four] for four in made])
    names, name_index = _numbered([[name for _, name in four] for four in made])
    special = np.where(
        slots.forward, slots.micro_batch == 0, slots.micro_batch == memory.micro_batches - 1
    )
    variant = 2 * ~slots.forward + special
    endings = [writer.ending(stage, parts, updates[stage]) for stage in range(memory.pp)]
    return slot_graph(
        slots,
        kinds,
        index[slots.part, variant],
        endings,
        names,
        name_index[slots.part, variant],
        note,
    )


def _numbered(rows: Sequence[Sequence[T]]) -> tuple[list[T], NDArray[np.int64]]:
    """Distinct entries of rows, and the number of each entry."""
    found = list(dict.fromkeys(entry for row in rows for entry in row))
    number = {entry: k for k, entry in enumerate(found)}
    return found, np.array([[number[entry] for entry in row] for row in rows])


def _with_units(parts: Parts) -> Iterator[tuple[Sequence[tuple[Piece, int]], list[int | str]]]:
    """Each part, and what its pieces are: the input, numbered layers, the head."""
    first = 0
    for k, part in enumerate(parts):
        ends = (k == 0) + (k == len(parts) - 1)
        after = first + sum(count for _, count in part) - ends
        units: list[int | str] = [*range(first, after)]
        yield part, ["input"] * (k == 0) + units + ["head"] * (k == len(parts) - 1)
        first = after


class _Slots:
    """Writes the kinds of slots of each part."""

    def __init__(
        self,
        plan: TrainingPlan,
        groups: Groups,
        sizes: tuple[int, ...],
        work: Mapping[Piece, Work],
        model: Model,
    ) -> None:
        self.plan, self.groups, self.sizes, self.work = plan, groups, sizes, work
        self.model = model
        self.zero = plan.memory.zero

    def part(self, k: int, part: Entries, units: list[int | str]) -> list[Named]:
        """Kinds of a part's slots: forward, the first; backward, the last."""
        overlap = self.plan.overlap
        gather = self.zero in (1, 2) and overlap.zero
        reduce = overlap.dp and self.zero < 2
        whole = self.zero == 3
        ahead, back = self._send(k, k + 1), self._send(k, k - 1)
        forward = self._kind(part, units, ahead, forward=True, gather=whole)
        first = self._kind(part, units, ahead, forward=True, gather=True) if gather else forward
        units = units[::-1]
        backward = self._kind(part, units, back, forward=False, gather=whole, reduce=self.zero >= 2)
        last = self._kind(part, units, back, forward=False, reduce=True) if reduce else backward
        return [forward, first, backward, last]

    def _kind(
        self,
        part: Entries,
        units: Sequence[int | str],
        send: Collective | None,
        *,
        forward: bool,
        gather: bool = False,
        reduce: bool = False,
    ) -> Named:
        """Kind of a slot, and the names of its segments."""
        made: dict[tuple[tuple[Piece, int], ...], Segment] = {}
        segments, names, unit = [], [], 0
        for bucket in self._buckets(part, apart=gather or reduce, forward=forward):
            key = tuple(bucket)
            if key not in made:
                made[key] = self._segment(key, forward=forward, gather=gather, reduce=reduce)
            segments.append(made[key])
            size = sum(count for _, count in bucket)
            names.append(name_layers(units[unit : unit + size]))
            unit += size
        blocks = send is not None and not self.plan.overlap.pp
        return SlotKind(tuple(segments), send, blocks), tuple(names)

    def _buckets(
        self, part: Entries, *, apart: bool, forward: bool
    ) -> list[list[tuple[Piece, int]]]:
        """Parts of a slot: one, or as many whole blocks as fill a bucket."""
        ordered = list(part) if forward else list(reversed(part))
        if not apart:
            return [ordered]
        buckets: list[list[tuple[Piece, int]]] = [[]]
        held = 0.0
        element = self.plan.gradient if not forward else self.plan.weight
        for piece, count in ordered:
            size = (piece.dense + piece.expert) * element
            for _ in range(count):
                buckets[-1].append((piece, 1))
                held += size
                if held >= self.plan.bucket and held > 0:
                    buckets.append([])
                    held = 0.0
        if buckets[-1] == []:
            buckets.pop()
        return buckets

    def _segment(
        self, bucket: Sequence[tuple[Piece, int]], *, forward: bool, gather: bool, reduce: bool
    ) -> Segment:
        compute = 0.0
        dense, expert = 0.0, 0.0
        blocking: dict[Collective, float] = {}
        beside: dict[Collective, float] = {}
        ring: dict[Collective, float] = {}
        overlap, members = self.plan.overlap, self.groups["cp"].size
        within = 0.0
        for piece, count in bucket:
            work = self.work[piece]
            compute += count * (work.forward if forward else work.backward)
            dense, expert = dense + count * piece.dense, expert + count * piece.expert
            found = piece.collectives
            for role, collective, n in (
                found.forward if forward else [*found.backward, *found.recomputation]
            ):
                hidden = getattr(overlap, role) or (role == "tp_gradients" and overlap.tp)
                into = (ring if role == "cp" else beside) if hidden else blocking
                into[collective] = into.get(collective, 0.0) + count * n
            # The last block of keys and values has come when attention to it begins.
            attention = count * work.attention[not forward]
            within += attention * (members - 1) / members
        plan, groups = self.plan, self.groups
        ahead = Ahead.ALL if self.zero < 3 else Ahead.ONE
        ahead = ahead if overlap.zero else Ahead.NOT
        return Segment(
            compute,
            tuple(blocking.items()),
            tuple(beside.items()),
            within if ring else 0.0,
            tuple(ring.items()),
            weight_counts(dense, expert, plan, groups) if gather else (),
            gradient_counts(dense, expert, plan, groups) if reduce else (),
            ahead,
        )

    def _send(self, here: int, there: int) -> Collective | None:
        """Activations of a micro-batch from one part to another; tensor parallelism splits them."""
        memory = self.plan.memory
        stages = memory.pp
        if not 0 <= there < stages * memory.virtual_stages or stages == 1:
            return None
        run = memory.activations
        size = run.tokens * self.model.hidden * self.plan.communication / run.tp
        group = peers(self.groups["pp"], self.sizes, here % stages, there % stages)
        return Collective(CollectiveKind.POINT_TO_POINT, size, group)

    def ending(self, stage: int, parts: Parts, update: float) -> Ending:
        """Reduction that did not overlap, tied embeddings, update, weights that are not split."""
        memory, plan = self.plan.memory, self.plan
        steps: list[tuple[str, float, Counts]] = []
        dense, expert = stage_parameters(parts, memory.pp, stage)
        if not plan.overlap.dp and memory.zero < 2:
            steps.append(("gradients", 0.0, gradient_counts(dense, expert, plan, self.groups)))
        if self.model.tied and memory.pp > 1 and stage in (0, memory.pp - 1):
            group = peers(self.groups["pp"], self.sizes, 0, memory.pp - 1)
            size = _table(self.model, plan) * plan.gradient
            shared = replace(group, name="embedding")
            both = Collective(CollectiveKind.ALL_REDUCE, size, shared)
            steps.append(("tied embeddings", 0.0, ((both, 1.0),)))
        updating: tuple[str, float, Counts] = ("update", update, ())
        gathering: Counts = ()
        if memory.zero in (1, 2) and not plan.overlap.zero:
            gathering = weight_counts(dense, expert, plan, self.groups)
        reducing = [step for step in steps if step[2]]
        ending = [("weights", 0.0, gathering)] if gathering else []
        return Ending((*reducing, updating, *ending))
