"""Step graph of a workload entry: its groups, its pipeline, its layers in their training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from libra.errors import FieldError
from libra.formats.astra_sim import TextWorkload
from libra.network import Network
from libra.placement import Group, nest_groups, place_groups
from libra.workload.graph import StepGraph
from libra.workload.layers import Layer
from libra.workload.pipeline import Pipeline, pipeline_graph
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph
from libra.workload_entry import WorkloadEntry

__all__ = ["at_speed", "entry_graph", "entry_groups", "entry_pipeline"]


def entry_graph(
    entry: WorkloadEntry,
    text: TextWorkload,
    placed: tuple[Sequence[Layer], Sequence[str]],
    loop: TrainingLoop,
    network: Network,
    groups: Mapping[str, Group],
) -> StepGraph:
    """Step graph of a text workload whose layers are placed on a network."""
    layers, notes = placed
    pipeline = entry_pipeline(entry, network, groups, loop)
    if pipeline is None:
        graph = build_graph(
            layers, loop, policy=text.policy, last_bottom=text.last_bottom, note=notes
        )
    else:
        graph = pipeline_graph(layers, pipeline, notes)
    return at_speed(entry, graph)


def at_speed(entry: WorkloadEntry, graph: StepGraph) -> StepGraph:
    """Graph whose computations run at the entry's speed; refuses one that does nothing."""
    if graph.total_fixed == 0 and not graph.collectives:
        raise FieldError(
            "trace",
            "the workload computes nothing and communicates nothing, got "
            f"{entry.trace!r}. Give its layers their times and sizes.",
        )
    speed = entry.compute_speed
    return graph if speed is None else replace(graph, fixed=graph.fixed / speed)


def entry_groups(entry: WorkloadEntry, network: Network) -> dict[str, Group] | None:
    """Groups of a workload entry on a network; None: the trace alone says."""
    extents: Mapping[str, Sequence[int]] | None = entry.groups
    if entry.parallel is not None:
        try:
            extents = place_groups(network.sizes, entry.parallel.degrees)
        except ValueError as error:
            raise FieldError("parallel", str(error)) from None
    if extents is None:
        return None
    try:
        return nest_groups(network, extents)
    except FieldError as error:
        raise FieldError(("groups", *error.place), error.message) from None


def entry_pipeline(
    entry: WorkloadEntry, network: Network, groups: Mapping[str, Group], loop: TrainingLoop
) -> Pipeline | None:
    """Pipeline of a workload entry; None: it has one stage.

    Raises
    ------
    FieldError
        If degrees, training loop and pipeline do not say the same.
    """
    group, given = groups.get("pp"), entry.pipeline
    if group is None or group.size == 1:
        if given is not None:
            raise FieldError("pipeline", "the workload has one stage, got a pipeline. Add pp:.")
        return None
    if loop.kind not in (LoopKind.ONE_F_ONE_B, LoopKind.INTERLEAVED):
        raise FieldError(
            "training_loop",
            f"pp {group.size} makes a pipeline, got {loop.kind.value}. Use 1f1b or interleaved.",
        )
    if given is None:
        raise FieldError(
            "pipeline",
            f"is missing for {group.size} stages, got nothing. Add pipeline: "
            "{micro_batches: …, activation: … MB}.",
        )
    if (given.virtual_stages > 1) != (loop.kind is LoopKind.INTERLEAVED):
        raise FieldError(
            ("pipeline", "virtual_stages"),
            f"{loop.kind.value} has {'several' if given.virtual_stages == 1 else 'no'} virtual "
            f"stages, got {given.virtual_stages}. Correct one of the two.",
        )
    try:
        return Pipeline(
            group, network.sizes, given.micro_batches, given.activation, given.virtual_stages
        )
    except FieldError as error:
        raise FieldError(("pipeline", *error.place), error.message) from None
