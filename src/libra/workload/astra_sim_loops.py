"""The loops by which ASTRA-sim 1.0 runs a text workload, by policy.

Found by comparing with the simulator's results: see the accuracy page. The time in the layer's last
column follows every collective of the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from libra.workload.graph import GraphBuilder
from libra.workload.layers import Layer
from libra.workload.step_program import StepProgram, kind_of

__all__ = ["ASTRA_SIM_LOOPS"]


def transformer(layers: Sequence[Layer], last_bottom: int) -> GraphBuilder:
    """Loop of HYBRID_TRANSFORMER: forward blocking; backward, a layer waits for its input gradient.

    Input gradient, its collective started; weight gradient, its collective started and not waited
    for; then the input gradient's collective is waited for. The weight-update time follows every
    collective of the layer.
    """
    program = StepProgram()
    for layer in layers:
        program.phase(f"{layer.name} forward", layer.forward, layer.update)
    for layer in reversed(layers):
        if layer.recomputation is not None:
            program.phase(f"{layer.name} recompute", layer.recomputation, layer.update)
        label = f"{layer.name} input gradient"
        program.compute(label, layer.input_gradient.compute)
        awaited = program.issue(
            f"{label} {kind_of(layer.input_gradient)}",
            layer.input_gradient.collective,
            layer.update,
        )
        _weight_gradient(program, layer)
        program.wait(awaited)
    return program


def _weight_gradient(program: StepProgram, layer: Layer) -> None:
    label = f"{layer.name} weight gradient"
    program.compute(label, layer.weight_gradient.compute)
    program.issue(
        f"{label} {kind_of(layer.weight_gradient)}", layer.weight_gradient.collective, layer.update
    )


def data_parallel(layers: Sequence[Layer], last_bottom: int) -> GraphBuilder:
    """Loop of DATA: weight gradients are not waited for; layer 0 has no input gradient."""
    program = StepProgram()
    for layer in layers:
        program.compute(f"{layer.name} forward", layer.forward.compute)
    for k, layer in reversed(list(enumerate(layers))):
        _weight_gradient(program, layer)
        if k > 0:
            program.compute(f"{layer.name} input gradient", layer.input_gradient.compute)
    return program


def dlrm(layers: Sequence[Layer], last_bottom: int) -> GraphBuilder:
    """Loop of HYBRID_DLRM: the embedding's all-to-alls run beside the bottom layers.

    Forward, the layers after the last bottom layer wait for the first layer's collective; backward,
    it starts when they are done and only the step's end waits for it. No input gradient of layer 0.
    """
    program = StepProgram()
    exchange: int | None = None
    for k, layer in enumerate(layers):
        program.compute(f"{layer.name} forward", layer.forward.compute)
        if k == 0:
            label = f"{layer.name} forward {kind_of(layer.forward)}"
            exchange = program.issue(label, layer.forward.collective, layer.update)
        if k == last_bottom:
            program.wait(exchange)
    for k, layer in reversed(list(enumerate(layers))):
        _weight_gradient(program, layer)
        if k > 0:
            program.compute(f"{layer.name} input gradient", layer.input_gradient.compute)
        if k == last_bottom + 1:
            first = layers[0].input_gradient
            label = f"{layers[0].name} input gradient {kind_of(first)}"
            program.issue(label, first.collective, layers[0].update)
    return program


ASTRA_SIM_LOOPS: Mapping[str, Callable[[Sequence[Layer], int], GraphBuilder]] = {
    "HYBRID_TRANSFORMER": transformer,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": transformer,
    "DATA": data_parallel,
    "HYBRID_DLRM": dlrm,
}
