"""ASTRA-sim 1.0 text workloads, written: of one that was read, or of a chain of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from libra.collectives import Collective
from libra.errors import FieldError
from libra.formats.astra_sim import KINDS, TextLayer, TextPhase, TextWorkload
from libra.formats.astra_sim_policy import text_size
from libra.network import Network
from libra.placement import Group, place_groups
from libra.workload.graph import StepGraph
from libra.workload.layers import Layer, Phase

__all__ = ["chain_text", "layers_text", "workload_text"]

_WORDS = {kind: word for word, kind in KINDS.items()}
_NONE = TextPhase(0.0, None, 0.0)


def workload_text(workload: TextWorkload, network: Network, groups: Mapping[str, Group]) -> str:
    """Text of a workload, with the header that its groups on a network make.

    Parameters
    ----------
    workload : TextWorkload
        As read.
    network : Network
    groups : mapping of str to Group
        The ``tp`` and ``dp`` groups of the design; empty: the workload's own policy says.

    Raises
    ------
    FieldError
        If a header cannot say the groups.
    """
    if "pp" in groups and groups["pp"].size > 1:
        raise FieldError(
            "pipeline",
            f"the text has no pipeline, got pp {groups['pp'].size}. Export to chakra or astra-sim.",
        )
    header = workload.policy
    customized = all(layer.policy for layer in workload.layers)
    if not header and customized:
        header = "HYBRID_CUSTOMIZED"
    if not header:
        header = f"HYBRID_TRANSFORMER model_parallel_NPU_group: {_tensor_parallel(network, groups)}"
    elif workload.tensor_parallel is not None:
        header += f" model_parallel_NPU_group: {workload.tensor_parallel}"
    if workload.recomputed:
        runs = _runs(sorted(workload.recomputed))
        for name, at in (("checkpoints", 0), ("checkpoint_initiates", 1)):
            header += f" {name}: {len(runs)} {' '.join(str(run[at]) for run in runs)}"
    if workload.last_bottom >= 0:
        header += f" DLRM_LAST_BOTTOM_LAYER: {workload.last_bottom}"
    return _text(header, workload.layers)


def _tensor_parallel(network: Network, groups: Mapping[str, Group]) -> int:
    """``model_parallel_NPU_group`` that makes the groups of a design."""
    degree = groups["tp"].size if "tp" in groups else 1
    degrees = {"tp": degree, "dp": network.npus // degree}
    if any(g.size > 1 for name, g in groups.items() if name not in degrees) or {
        name: groups[name].extents for name in degrees if name in groups
    } != {
        name: extents
        for name, extents in place_groups(network.sizes, degrees).items()
        if name in groups
    }:
        raise FieldError(
            "groups",
            "a header has tensor parallel groups on the inner dimensions and data parallel groups "
            f"on the others, got { ({n: list(g.extents) for n, g in groups.items()}) }. "
            "Export to chakra or astra-sim.",
        )
    return degree


def _runs(layers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive layers."""
    runs: list[tuple[int, int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], layer)
        else:
            runs.append((layer, layer))
    return runs


def chain_text(graph: StepGraph, network: Network) -> str:
    """Text of a step that is one chain of tasks, each a layer.

    Collectives of the inner groups follow their compute in the forward pass; those of the outer
    ones are weight gradients, which the simulator runs in the backward pass. So the order changes;
    the sum of all times, which a chain takes, does not.

    Parameters
    ----------
    graph : StepGraph
    network : Network

    Raises
    ------
    FieldError
        If the step is no chain, or its groups or collectives are not those that the text knows.
    """
    if graph.places is not None or not _one_by_one(graph):
        raise FieldError(
            "",
            "the text has layers one after the other, got a step whose tasks overlap. Export "
            "to chakra or astra-sim.",
        )
    degree, inner = _inner_groups(graph.collectives, network)
    layers = []
    for task in range(graph.tasks):
        label = graph.labels[task] if graph.labels else f"task{task}"
        name = "_".join(label.split()) or f"task{task}"
        found = [
            graph.collectives[graph.count_index[k]]
            for k in range(graph.count_start[task], graph.count_start[task + 1])
            for _ in range(int(graph.count_value[k]))
        ]
        phases = [TextPhase(0.0, c.kind, text_size(c)) for c in found]
        forward = [p for p, c in zip(phases, found, strict=True) if c.group.extents in inner]
        weight = [p for p, c in zip(phases, found, strict=True) if c.group.extents not in inner]
        for k in range(max(1, len(forward), len(weight))):
            first = forward[k] if k < len(forward) else _NONE
            time = float(graph.fixed[task]) if k == 0 else 0.0
            last = weight[k] if k < len(weight) else _NONE
            shown = name if k == 0 else f"{name}.{k}"
            layers.append(
                TextLayer(shown, (TextPhase(time, first.kind, first.size), _NONE, last), 0.0)
            )
    return _text(f"HYBRID_TRANSFORMER model_parallel_NPU_group: {degree}", layers)


def _one_by_one(graph: StepGraph) -> bool:
    """Whether each task waits for the one before it, whatever else it waits for."""
    owner = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
    waits = np.zeros(graph.tasks, dtype=np.bool_)
    waits[owner[graph.predecessor == owner - 1]] = True
    return bool(waits[1:].all())


def _inner_groups(
    collectives: Sequence[Collective], network: Network
) -> tuple[int, set[tuple[int, ...]]]:
    """Degree whose groups all collectives run on, and the extents of its inner group."""
    unknown = [c.kind.value for c in collectives if c.kind not in _WORDS]
    if unknown:
        raise FieldError(
            "", f"the text has no {unknown[0]}, got one. Export to chakra or astra-sim."
        )
    extents = {c.group.extents for c in collectives}
    sizes = sorted({c.group.size for c in collectives} | {1})
    for degree in [*sizes, *(network.npus // s for s in sizes)]:
        try:
            placed = place_groups(network.sizes, {"tp": degree, "dp": network.npus // degree})
        except ValueError:
            continue
        if extents <= set(placed.values()):
            return degree, {placed["tp"]}
    raise FieldError(
        "",
        "the text has collectives of an inner group and of the rest of the network, got groups "
        f"{sorted(extents)[:4]}. Export to chakra or astra-sim.",
    )


def layers_text(header: str, layers: Sequence[Layer]) -> str:
    """Text of layers under a header, times rounded to whole ns and at least 1 where there are any.

    Raises
    ------
    FieldError
        If a layer has a collective that the text does not know.
    """
    for layer in layers:
        for phase in (layer.forward, layer.input_gradient, layer.weight_gradient):
            if phase.collective is not None and phase.collective.kind not in _WORDS:
                word = phase.collective.kind.value
                raise FieldError(
                    "", f"the text has no {word}, got one in {layer.name}. Export to chakra."
                )
    return _text(
        header,
        [
            TextLayer(
                layer.name,
                (
                    _phase(layer.forward),
                    _phase(layer.input_gradient),
                    _phase(layer.weight_gradient),
                ),
                _whole(layer.update),
            )
            for layer in layers
        ],
    )


def _phase(phase: Phase) -> TextPhase:
    collective = phase.collective
    if collective is None:
        return TextPhase(_whole(phase.compute), None, 0.0)
    return TextPhase(_whole(phase.compute), collective.kind, text_size(collective))


def _whole(seconds: float) -> float:
    return max(round(seconds * 1e9), 1) * 1e-9 if seconds else 0.0


def _text(header: str, layers: Sequence[TextLayer]) -> str:
    lines = [header, str(len(layers))]
    for layer in layers:
        phases = " ".join(
            f"{_number(p.compute * 1e9)} {_WORDS[p.kind]} {_number(p.size)}" for p in layer.phases
        )
        update = _number(layer.update * 1e9)
        lines.append(f"{layer.name} -1 {phases} {update} {layer.policy}".rstrip())
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Whole where it is to twelve digits, as the simulator wants it."""
    whole = round(value)
    return str(whole) if abs(value - whole) <= 1e-12 * max(1.0, abs(value)) else f"{value:.12g}"
