"""Training loops: the order in which the layers' phases run, as a graph of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from libra.workload.graph import StepGraph, chain_graph
from libra.workload.layers import Layer, Phase

__all__ = ["TrainingLoop", "build_graph"]


class TrainingLoop(StrEnum):
    """How compute and communication of a step are ordered."""

    NO_OVERLAP = "no-overlap"


def build_graph(layers: Sequence[Layer], loop: TrainingLoop, note: Sequence[str] = ()) -> StepGraph:
    """Graph of one training step.

    Parameters
    ----------
    layers : sequence of Layer
        In forward order, at least one.
    loop : TrainingLoop
        Order of their phases.
    note : sequence of str
        What a user should know about how the layers were read.
    """
    return _LOOPS[loop](layers, note)


def no_overlap(layers: Sequence[Layer], note: Sequence[str] = ()) -> StepGraph:
    """Every collective blocks: the step is one chain.

    Forward phases in order; then, from the last layer to the first, the forward phase again where
    it is recomputed, input gradient, weight gradient, update. The order does not change the sum.
    """
    chain: list[Phase] = [layer.forward for layer in layers]
    for layer in reversed(layers):
        if layer.recomputation is not None:
            chain.append(layer.recomputation)
        chain += [layer.input_gradient, layer.weight_gradient, Phase(layer.update)]
    return chain_graph(
        [phase.compute for phase in chain], [phase.collective for phase in chain], note
    )


_LOOPS: Mapping[TrainingLoop, Callable[[Sequence[Layer], Sequence[str]], StepGraph]] = {
    TrainingLoop.NO_OVERLAP: no_overlap,
}
