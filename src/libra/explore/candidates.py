"""Candidates of a space: jobs (how a model is trained) and networks, in a fixed order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from libra.accelerators import load_accelerator
from libra.errors import FieldError, InputError, Problem, format_path
from libra.explore.space import Space, TierSpace
from libra.explore.stages import Stage, StageClock
from libra.model_entry import ModelEntry, training_plan
from libra.models import load_model
from libra.network import Dimension, Network, Topology
from libra.schema import read_workload
from libra.workload.compute import Accelerator, operator_times
from libra.workload.memory import npu_memory
from libra.workload.model import Model
from libra.workload.roles import place_roles
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer import model_pieces

__all__ = ["Job", "list_jobs", "list_networks", "reference_network"]

JOB_KEYS = ("tp", "pp", "dp", "ep", "cp", "zero", "virtual_stages", "sequence_parallel")


@dataclass(frozen=True, eq=False)
class Job:
    """One way to train a model on some number of NPUs.

    Attributes
    ----------
    item : mapping
        Plain data of the workload in a design file.
    keys : mapping
        What distinguishes it: degrees, micro-batch, recomputation, order.
    npus : int
    refused : str
        Why it cannot be; empty: it can.
    entry, plan, model, accelerator
        Typed forms; None where it is refused.
    memory : float
        Of the fullest NPU [bytes]; NaN if it is not known.
    floor : float
        Seconds that no network can beat: the work of the busiest stage, and the way of its first
        and last micro-batch through the stages before it.
    """

    item: Mapping[str, Any]
    keys: Mapping[str, Any]
    npus: int
    refused: str = ""
    entry: ModelEntry | None = None
    plan: TrainingPlan | None = None
    model: Model | None = None
    accelerator: Accelerator | None = None
    memory: float = math.nan
    floor: float = math.inf

    @cached_property
    def name(self) -> str:
        """What tells it from others, as text."""
        return " ".join(f"{k} {v}" for k, v in self.keys.items())


def list_jobs(space: Space, k: int, npus: int, clock: StageClock) -> list[Job]:
    """Jobs of workload k on so many NPUs, in the order of their alternatives."""
    return [
        _job(space, k, plain, keys, npus, clock)
        for keys, plain in _alternatives(space.workloads[k], npus)
    ]


def _alternatives(
    item: Mapping[str, Any], npus: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Keys and plain data of each alternative of a workload's item."""
    given = item.get("parallel", "auto")
    parallel = {"tp": "auto", "pp": "auto"} if given == "auto" else dict(given)
    orders = parallel.pop("order", None)
    orders = orders if orders and isinstance(orders[0], list) else [orders]
    dps = parallel.pop("dp", "auto")
    batch = dict(item.get("batch", {}))
    words = {key: _listed(parallel.get(key, 1 if key in ("cp", "ep") else None), npus)
             for key in JOB_KEYS if key != "dp"}  # fmt: skip
    micros = _listed(batch.get("micro"), npus)
    recomputations = _listed(item.get("recomputation"), npus)
    names = [*words, "micro", "recomputation"]
    for values in itertools.product(*words.values(), micros, recomputations):
        chosen = dict(zip(names, values, strict=True))
        cut = chosen["tp"] * chosen["pp"] * chosen["cp"]
        if npus % cut:
            continue
        dp = npus // cut
        if dps != "auto" and dp not in (dps if isinstance(dps, list) else [dps]):
            continue
        degrees = {k: chosen[k] for k in words if chosen[k] is not None} | {"dp": dp}
        plain = dict(item) | {"parallel": degrees}
        if chosen["micro"] is not None:
            plain["batch"] = batch | {"micro": chosen["micro"]}
        if chosen["recomputation"] is not None:
            plain["recomputation"] = chosen["recomputation"]
        for order in _different(orders, degrees):
            keys = {**degrees, "micro": chosen["micro"], "recomputation": chosen["recomputation"]}
            keys["order"] = " ".join(order) if order else None
            yield keys, plain | {"parallel": degrees | ({"order": order} if order else {})}


def _different(orders: Sequence[Any], degrees: Mapping[str, Any]) -> list[Any]:
    """Orders of roles that place the roles with members differently."""
    seen, found = set(), []
    for order in orders:
        used = tuple(role for role in order or () if degrees.get(role, 1) != 1)
        if used not in seen:
            seen.add(used)
            found.append(order)
    return found


def _listed(value: Any, npus: int) -> list[Any]:
    """Alternatives of a value; ``auto``: the divisors of the number of NPUs."""
    if value == "auto":
        return [n for n in range(1, npus + 1) if npus % n == 0]
    return list(value) if isinstance(value, list) else [value]


def _job(
    space: Space,
    k: int,
    plain: dict[str, Any],
    keys: Mapping[str, Any],
    npus: int,
    clock: StageClock,
) -> Job:
    problems: list[Problem] = []
    entry = read_workload(space.source, problems, plain, ("workloads", k)).model
    if problems or entry is None:
        raise InputError(problems or f"{space.file}: workloads.{k}: cannot be read.")
    folder = Path(space.file).parent
    model, accelerator = _model(entry, folder, space, k), _accelerator(entry, space, k)
    try:
        with clock.measure(Stage.REFUSE):
            plan = training_plan(entry)
            memory = npu_memory(model, plan.memory).total
        if memory > accelerator.memory:
            reason = f"memory: {memory / 1e9:.0f} GB do not fit {accelerator.memory / 1e9:g} GB"
            return Job(plain, keys, npus, reason, memory=memory)
        with clock.measure(Stage.BOUND):
            floor = least_time(model, plan, accelerator)
    except FieldError as error:
        return Job(plain, keys, npus, f"{format_path(error.place)}: {error.message}")
    return Job(plain, keys, npus, "", entry, plan, model, accelerator, memory, floor)


def _model(entry: ModelEntry, folder: Path, space: Space, k: int) -> Model:
    try:
        return load_model(entry.model, folder)
    except InputError as error:
        message = "; ".join(p.message for p in error.problems)
        raise InputError(space.source.problem(("workloads", k, "model"), message)) from None


def _accelerator(entry: ModelEntry, space: Space, k: int) -> Accelerator:
    place = ("workloads", k, "accelerator")
    return load_accelerator(
        entry.accelerator,
        lambda inner, message: space.source.problem((*place, *inner), message),
        Path(space.file).parent,
    )


def reference_network(npus: int) -> Network:
    """One dimension of all NPUs, on which any degrees can be placed."""
    return Network((Dimension(Topology.SWITCH, npus, "reference"),))


def least_time(model: Model, plan: TrainingPlan, accelerator: Accelerator) -> float:
    """Least step time on any network, `Job.floor` [s]."""
    memory = plan.memory
    npus = memory.activations.tp * memory.activations.cp * memory.pp * memory.dp
    groups = place_roles(reference_network(npus), memory)
    parts = model_pieces(model, plan, groups)
    work = []
    for part in parts:
        total = 0.0
        for piece, count in part:
            operators = [o for phase in piece.operators.phases() for o in phase]
            total += count * float(operator_times(operators, accelerator).sum())
        work.append(total)
    stages = memory.pp
    busiest = 0.0
    for stage in range(stages):
        own = memory.micro_batches * sum(work[stage::stages])
        busiest = max(busiest, own + sum(work[:stage]))
    return busiest


def list_networks(space: Space, npus: int) -> list[tuple[dict[str, Any], ...]]:
    """Networks of so many NPUs as plain data, in a fixed order."""
    tiers = space.network.tiers
    low, high = space.network.dimensions or (1, len(tiers))
    found = []
    for sizes in _sizes(tiers, npus):
        used = [(t, n) for t, n in zip(tiers, sizes, strict=True) if n > 1]
        if not low <= len(used) <= high:
            continue
        for blocks in itertools.product(*(t.topologies for t, _ in used)):
            found.append(tuple(t.dimension(b, n) for (t, n), b in zip(used, blocks, strict=True)))
    return found


def _sizes(tiers: Sequence[TierSpace], npus: int) -> Iterator[tuple[int, ...]]:
    """Sizes of the tiers that multiply to the number of NPUs."""
    if not tiers:
        if npus == 1:
            yield ()
        return
    first = tiers[0].sizes
    choices = [n for n in range(1, npus + 1) if npus % n == 0] if isinstance(first, str) else first
    for size in choices:
        if npus % size == 0:
            for rest in _sizes(tiers[1:], npus // size):
                yield (size, *rest)
