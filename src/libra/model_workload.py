"""A model's entry on a network → its training step; a design that does not fit is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from libra.accelerators import load_accelerator
from libra.errors import FieldError, InputError, Problem, format_path
from libra.model_entry import ModelEntry, training_plan
from libra.models import load_model
from libra.network import Network
from libra.placement import Group, whole_group
from libra.workload.activations import Recomputation
from libra.workload.compute import Accelerator
from libra.workload.data_parallel import (
    DATA_PARALLEL_MODELS,
    DataParallelStep,
    build_data_parallel_step,
)
from libra.workload.memory import MemoryPlan, NpuMemory, npu_memory
from libra.workload.model import Model, has_aligned_heads
from libra.workload.roles import place_roles
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer import TransformerStep, build_step

__all__ = ["build_model_workload"]


def build_model_workload(
    entry: ModelEntry, network: Network, folder: Path
) -> tuple[TransformerStep | DataParallelStep, dict[str, Group]]:
    """Training step of an entry, and its groups.

    Parameters
    ----------
    entry : ModelEntry
    network : Network
        As many NPUs as its degrees multiply to.
    folder : Path
        Where relative paths of configurations begin.

    Raises
    ------
    FieldError
        Degrees that do not divide the model, its batch or the network; a step that does not fit an
        NPU's memory, with the breakdown and what would make it fit.
    InputError
        An unknown model or accelerator, or a wrong file or mapping.
    """
    if entry.model in DATA_PARALLEL_MODELS:
        return _data_parallel(entry, network, folder)
    model = _model(entry, folder)
    accelerator = _accelerator(entry, folder)
    if entry.batch.sequence is None:
        raise FieldError(("batch", "sequence"), "is missing, got nothing. Add sequence:.")
    plan = training_plan(entry)
    if model.max_sequence is not None and entry.batch.sequence > model.max_sequence:
        raise FieldError(
            ("batch", "sequence"),
            f"{model.name} has positions for {model.max_sequence} tokens, got "
            f"{entry.batch.sequence}. Use fewer, or a configuration for longer sequences.",
        )
    try:
        groups = place_roles(network, plan.memory, entry.parallel.order)
        memory = npu_memory(model, plan.memory)
    except FieldError as error:
        raise FieldError(("parallel", *error.place), error.message) from None
    if memory.total > accelerator.memory:
        raise FieldError("parallel", _too_large(model, plan, memory, accelerator))
    try:
        step = build_step(model, plan, accelerator, groups, network.sizes, _notes(model))
    except FieldError as error:
        raise FieldError(("accelerator", *error.place), error.message) from None
    return step, {name: group for name, group in groups.items() if _shown(name, group)}


def _data_parallel(
    entry: ModelEntry, network: Network, folder: Path
) -> tuple[DataParallelStep, dict[str, Group]]:
    """Step of a convolutional network or DLRM, which is data parallel over the whole network."""
    degrees = entry.parallel
    for name, only in (("tp", 1), ("pp", 1), ("ep", 1), ("cp", 1), ("zero", 0)):
        if getattr(degrees, name) != only:
            raise FieldError(
                ("parallel", name),
                f"{entry.model} is data parallel only, got {getattr(degrees, name)}. Use dp.",
            )
    if entry.batch.sequence is not None:
        raise FieldError(
            ("batch", "sequence"),
            f"{entry.model} has no sequences, got {entry.batch.sequence}. Remove it.",
        )
    accelerator, plan = _accelerator(entry, folder), training_plan(entry)
    if degrees.dp != network.npus:
        raise FieldError(
            ("parallel", "dp"),
            f"must be the {network.npus} NPUs of the network, got {degrees.dp}. Correct one.",
        )
    group = whole_group(network, "dp", range(len(network.names)))
    step = build_data_parallel_step(entry.model, plan, accelerator, group)
    if step.total > accelerator.memory:
        raise FieldError(
            ("batch", "micro"),
            f"does not fit the {accelerator.memory / 1e9:g} GB of {accelerator.name}, got "
            f"{step.total / 1e9:.1f} GB (activations {step.activations / 1e9:.1f} GB). Lower it.",
        )
    return step, {"dp": group}


def _shown(name: str, group: Group) -> bool:
    return name in ("tp", "dp") or (name in ("pp", "cp", "ep") and group.size > 1)


def _notes(model: Model) -> tuple[str, ...]:
    if has_aligned_heads(model):
        return model.notes
    slow = "heads whose dimension is no multiple of 8 run slower than predicted on tensor cores"
    return (*model.notes, slow)


def _model(entry: ModelEntry, folder: Path) -> Model:
    try:
        return load_model(entry.model, folder)
    except InputError as error:
        if all(p.file for p in error.problems):
            raise
        raise FieldError("model", "; ".join(p.message for p in error.problems)) from None


def _accelerator(entry: ModelEntry, folder: Path) -> Accelerator:
    def locate(place: tuple[str | int, ...], message: str) -> Problem:
        return Problem(message, format_path(place))

    try:
        return load_accelerator(entry.accelerator, locate, folder)
    except InputError as error:
        if all(p.file for p in error.problems):
            raise
        first = error.problems[0]
        place = ("accelerator", *([first.path] if first.path else []))
        raise FieldError(place, first.message) from None


def _too_large(model: Model, plan: TrainingPlan, memory: NpuMemory, chip: Accelerator) -> str:
    """Breakdown of what does not fit, and the single changes that would make it fit."""
    parts = ", ".join(
        f"{name} {getattr(memory, name) / 1e9:.1f} GB"
        for name in ("weights", "gradients", "optimizer", "activations", "reserved")
        if getattr(memory, name)
    )
    remedies = [words for words, changed in _changes(plan.memory) if _fits(model, changed, chip)][
        :3
    ]
    advice = (
        f"It fits with {', or '.join(remedies)}."
        if remedies
        else "No single change of tp, pp, zero, micro or recomputation makes it fit: use more NPUs."
    )
    return (
        f"does not fit the {chip.memory / 1e9:g} GB of {chip.name}, got {memory.total / 1e9:.1f} "
        f"GB on stage {memory.stage} ({parts}). {advice}"
    )


def _changes(plan: MemoryPlan) -> Iterator[tuple[str, MemoryPlan | None]]:
    """Single changes that lower the memory, the cheapest in time first; None: not possible."""
    run = plan.activations
    for zero in range(plan.zero + 1, 4):
        yield f"zero: {zero}", _changed(plan, zero=zero)
    for word in (Recomputation.SELECTIVE, Recomputation.FULL):
        if run.recomputation is not word and run.recomputation is not Recomputation.FULL:
            yield f"recomputation: {word.value}", _changed(plan, {"recomputation": word})
    if run.micro_batch > 1:
        count = plan.micro_batches * run.micro_batch
        yield "micro: 1", _changed(plan, {"micro_batch": 1}, micro_batches=count)
    for degree in (2, 4, 8, 16):
        if plan.dp % degree == 0:
            less = plan.dp // degree
            more = plan.micro_batches * degree
            words = f"pp: {plan.pp * degree}, dp: {less}"
            yield words, _changed(plan, pp=plan.pp * degree, dp=less, micro_batches=more)
            expert = run.expert_tp * degree if run.expert_tp > 1 else 1
            wider = {"tp": run.tp * degree, "expert_tp": expert}
            words = f"tp: {run.tp * degree}, dp: {less}"
            yield words, _changed(plan, wider, dp=less, micro_batches=more)


def _changed(
    plan: MemoryPlan, run: Mapping[str, Any] = MappingProxyType({}), **fields: Any
) -> MemoryPlan | None:
    """Plan with other fields, and its activations with others; None: they contradict each other."""
    try:
        return replace(plan, activations=replace(plan.activations, **run), **fields)
    except FieldError:
        return None


def _fits(model: Model, plan: MemoryPlan | None, chip: Accelerator) -> bool:
    if plan is None:
        return False
    try:
        return npu_memory(model, plan).total <= chip.memory
    except FieldError:
        return False
