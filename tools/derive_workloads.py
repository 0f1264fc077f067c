"""Derive the example workloads from the models' published shapes.

Each file is an ASTRA-sim 1.0 text workload: what one NPU computes, and what it hands to the
network, in one training iteration. ``docs/workloads.md`` explains the derivations in prose.

Usage: ``python tools/derive_workloads.py [DIR]``.

Notes
-----
Three rules give every time and size:

* A matrix product of ``m`` multiply-adds costs ``2 m`` FLOP, once forward, once for the input
  gradient and once for the weight gradient, at `FLOPS_PER_NS`. Nothing is recomputed.
* Lookups and optimiser steps are limited by memory, at `MEMORY_BYTES_PER_NS`.
* Activations and gradients have `VALUE_BYTES` bytes.

Only weight matrices and embedding tables count as parameters. Biases, norms and position
embeddings are left out, as are pointwise operations, softmax and pooling.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FLOPS_PER_NS = 156_000
"""Sustained rate, FLOP/ns: half of the A100's dense bf16 peak, 312 TFLOP/s (A100 data sheet).

Megatron-LM reports 43-52 % of that peak on GPT models of 1.7B to 1T parameters (Narayanan et
al., SC'21, arXiv 2104.04473, Table 1; recomputed FLOPs are counted there).
"""

MEMORY_BYTES_PER_NS = 2_000
"""Memory bandwidth, bytes/ns: 2.0 TB/s (A100-80GB data sheet: 1.9 to 2.0 TB/s)."""

VALUE_BYTES = 2
"""Bytes of one activation or gradient (fp16 or bf16)."""

ADAM_BYTES_PER_PARAMETER = 28
"""Bytes that a mixed-precision Adam step moves per parameter.

Read: gradient 2, fp32 master weight, momentum and variance 12. Write: those three 12, 2-byte
weight 2.
"""

DEFAULT_DIRECTORY = Path(__file__).parents[1] / "src/libra/examples/workloads"


@dataclass(frozen=True)
class Phase:
    """One of a layer's three passes: compute, then a collective.

    Attributes
    ----------
    time_ns
        Compute time, ns.
    collective
        ``NONE``, ``ALLREDUCE`` or ``ALLTOALL``.
    size
        The collective's full buffer per NPU, bytes.
    """

    time_ns: int = 0
    collective: str = "NONE"
    size: int = 0


@dataclass(frozen=True)
class Layer:
    """One row of a text workload.

    Attributes
    ----------
    name
        Row name, without white space.
    forward, input_gradient, weight_gradient
        The three passes.
    update_ns
        Time of the optimiser step on the parameters the NPU holds, ns.
    """

    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update_ns: int = 0

    def row(self) -> str:
        """Return the 12 tab-separated columns; the second one, ``-1``, is reserved."""
        passes = (self.forward, self.input_gradient, self.weight_gradient)
        columns = [f"{p.time_ns}\t{p.collective}\t{p.size}" for p in passes]
        return "\t".join([self.name, "-1", *columns, str(self.update_ns)])


@dataclass(frozen=True)
class Workload:
    """A text workload.

    Attributes
    ----------
    policy
        First line: how the model is split over NPUs, with its parameters.
    layers
        Rows in forward order.
    """

    policy: str
    layers: tuple[Layer, ...]

    def text(self) -> str:
        """Return the file's text: policy, number of layers, rows."""
        lines = [self.policy, str(len(self.layers)), *(layer.row() for layer in self.layers)]
        return "\n".join(lines) + "\n"


def duration_ns(work: int, per_ns: int) -> int:
    """Return ``work / per_ns`` in ns, rounded to the nearest (halves up), at least 1 if not zero.

    Parameters
    ----------
    work
        FLOP or bytes.
    per_ns
        Rate in the same unit per ns.
    """
    return max((2 * work + per_ns) // (2 * per_ns), 1) if work else 0


def compute_ns(flops: int) -> int:
    """Return the time of ``flops`` FLOP in ns: ``flops / FLOPS_PER_NS``."""
    return duration_ns(flops, FLOPS_PER_NS)


def memory_ns(size: int) -> int:
    """Return the time to move ``size`` bytes in ns: ``size / MEMORY_BYTES_PER_NS``."""
    return duration_ns(size, MEMORY_BYTES_PER_NS)


def update_ns(parameters: int) -> int:
    """Return the time of an Adam step in ns: ``28 parameters / memory bandwidth``.

    Also used for ResNet-50, for simplicity, although SGD with momentum moves fewer bytes.
    """
    return memory_ns(ADAM_BYTES_PER_PARAMETER * parameters)


def all_reduce(values: int, time_ns: int) -> Phase:
    """Return a pass that ends in an all-reduce of ``VALUE_BYTES * values`` bytes."""
    return Phase(time_ns, "ALLREDUCE", VALUE_BYTES * values)


def lookup_times(looked_up: int, written: int) -> tuple[int, int]:
    """Return the times of an embedding's forward and weight-gradient pass, ns.

    Parameters
    ----------
    looked_up
        Values (lookups times embedding width) that this NPU reads from its tables.
    written
        Values of the output that it writes.

    Notes
    -----
    Forward reads the rows and writes the output. The weight gradient reads the output's gradient
    where it concerns this NPU's rows and adds it to them (one read, one write): ``3 looked_up``.
    """
    return memory_ns(VALUE_BYTES * (looked_up + written)), memory_ns(VALUE_BYTES * 3 * looked_up)


def data_parallel_layer(
    name: str, multiply_adds: int, parameters: int, *, has_input_gradient: bool = True
) -> Layer:
    """Return a replicated convolution or fully connected layer.

    Parameters
    ----------
    name
        Row name.
    multiply_adds
        Multiply-adds of the forward pass on this NPU's batch; each gradient takes as many.
    parameters
        Weights, all-reduced as ``VALUE_BYTES * parameters`` bytes.
    has_input_gradient
        False for a layer that reads the training data.
    """
    time_ns = compute_ns(2 * multiply_adds)
    return Layer(
        name,
        Phase(time_ns),
        Phase(time_ns if has_input_gradient else 0),
        all_reduce(parameters, time_ns),
        update_ns(parameters),
    )


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer of GPT-2's design, with Megatron's tensor parallelism.

    Attributes
    ----------
    layers
        Transformer layers, ``l``.
    hidden
        Hidden size, ``h``; the MLP is ``4 h`` wide.
    sequence
        Tokens per sequence, ``s``.
    vocabulary
        Rows of the token embedding, ``V``.
    batch
        Sequences per replica, ``b``.
    tensor_parallel
        NPUs that share one replica, ``t``; 1 is pure data parallelism.
    """

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    batch: int
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        """Refuse a degree of parallelism that does not divide the matrices."""
        if self.hidden % self.tensor_parallel or self.vocabulary % self.tensor_parallel:
            raise ValueError("tensor_parallel must divide hidden and vocabulary")

    @property
    def parameters(self) -> int:
        """Counted parameters of the whole model, ``12 l h^2 + V h``."""
        return (12 * self.layers * self.hidden + self.vocabulary) * self.hidden


GPT_3 = Transformer(96, 12_288, 2_048, 51_200, batch=16, tensor_parallel=16)
"""GPT-3 175B (Brown et al. 2020, arXiv 2005.14165, Table 2.1); vocabulary 50,257, padded."""

MSFT_1T = Transformer(128, 25_600, 2_048, 51_200, batch=8, tensor_parallel=128)
"""The 1008B row of Narayanan et al., SC'21 (arXiv 2104.04473), Table 1.

Rajbhandari et al. 2021 (ZeRO-Infinity, arXiv 2104.07857, Table 1) list the same depth and a
hidden size of 25K for a 1T model. The 160 heads do not split evenly over 128 NPUs; the work is
divided as if they did.
"""

TURING_NLG = Transformer(78, 4_256, 1_024, 50_257, batch=8)
"""Turing-NLG 17.2B (Microsoft Research blog, 10 February 2020); vocabulary of GPT-2."""


def transformer(shape: Transformer) -> Workload:
    """Derive a transformer's workload.

    Parameters
    ----------
    shape
        The model and its layout.

    Notes
    -----
    Parameters and forward multiply-adds per NPU, with ``T = b s`` tokens:

    =========  =============  =================  ===================
    row        parameters     with weights       between activations
    =========  =============  =================  ===================
    embedding  ``V h / t``    0 (a lookup)       0
    attention  ``4 h^2 / t``  ``4 T h^2 / t``    ``2 T s h / t``
    mlp        ``8 h^2 / t``  ``8 T h^2 / t``    0
    logits     tied           ``T V h / t``      0
    =========  =============  =================  ===================

    The last column is attention's scores and context, not halved for the causal mask, as in
    Narayanan et al. (SC'21, appendix). Both operands are activations, so their backward pass,
    twice the forward, is counted under the input gradient.

    Tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053, Section 3) all-reduces ``T h``
    values after the forward pass of each attention, MLP and embedding row, and after the input
    gradient of each attention, MLP and logits row. The cross-entropy's all-reduces of a few
    values per token are left out.

    The logits share the embedding's weights. Their gradient is complete only when the backward
    pass reaches the embedding, so it is all-reduced, and the weights updated, in that row.
    A vocabulary-parallel NPU finds ``1 / t`` of the tokens in its slice on average.
    """
    t, h = shape.tensor_parallel, shape.hidden
    tokens = shape.batch * shape.sequence
    activations = tokens * h
    table = shape.vocabulary * h // t

    def tensor_parallel_phase(time_ns: int) -> Phase:
        return all_reduce(activations, time_ns) if t > 1 else Phase(time_ns)

    def block(name: str, parameters: int, attention_flops: int = 0) -> Layer:
        weight_flops = 2 * tokens * parameters
        return Layer(
            name,
            tensor_parallel_phase(compute_ns(weight_flops + attention_flops)),
            tensor_parallel_phase(compute_ns(weight_flops + 2 * attention_flops)),
            all_reduce(parameters, compute_ns(weight_flops)),
            update_ns(parameters),
        )

    def blocks() -> Iterator[Layer]:
        for k in range(1, shape.layers + 1):
            scores_and_context = 4 * activations * shape.sequence // t
            yield block(f"attention_{k}", 4 * h * h // t, scores_and_context)
            yield block(f"mlp_{k}", 8 * h * h // t)

    gather_ns, scatter_ns = lookup_times(activations // t, activations)
    embedding = Layer(
        "embedding",
        tensor_parallel_phase(gather_ns),
        Phase(),
        all_reduce(table, scatter_ns),
        update_ns(table),
    )
    logits_ns = compute_ns(2 * tokens * table)
    logits = Layer(
        "logits", Phase(logits_ns), tensor_parallel_phase(logits_ns), Phase(logits_ns), update_ns=0
    )
    layers = (embedding, *blocks(), logits)
    assert sum(x.weight_gradient.size for x in layers) * t == VALUE_BYTES * shape.parameters
    policy = f"HYBRID_TRANSFORMER model_parallel_NPU_group: {t}" if t > 1 else "DATA"
    return Workload(policy, layers)


@dataclass(frozen=True)
class Convolution:
    """A square convolution.

    Attributes
    ----------
    name
        Row name.
    kernel
        Edge of the kernel, pixels.
    inputs, outputs
        Channels.
    edge
        Edge of the output, pixels.
    """

    name: str
    kernel: int
    inputs: int
    outputs: int
    edge: int

    @property
    def weights(self) -> int:
        """Weights, ``kernel^2 inputs outputs``; the bias is left out."""
        return self.kernel**2 * self.inputs * self.outputs

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per image: every weight is used at every output pixel."""
        return self.edge**2 * self.weights


RESNET_50_STAGES = ((2, 3, 64, 56), (3, 4, 128, 28), (4, 6, 256, 14), (5, 3, 512, 7))
"""Stage number, blocks, bottleneck width and output edge (He et al. 2015, Table 1)."""

RESNET_50_PARAMETERS = 25_502_912
"""Weights of the 53 convolutions (23,454,912) and of the fully connected layer (2,048,000)."""


def resnet_50_convolutions() -> Iterator[Convolution]:
    """Yield ResNet-50's convolutions and, as a 1x1 convolution, its fully connected layer.

    Notes
    -----
    He et al. 2015 (arXiv 1512.03385), Table 1, for 224 x 224 images and 1,000 classes. A block
    is 1x1, 3x3, 1x1, four times wider at its end. The first block of a stage has a projection
    shortcut and, from the second stage on, halves the edge in its first 1x1, as in the paper.
    """
    yield Convolution("conv1", 7, 3, 64, 112)
    inputs = 64
    for stage, blocks, width, edge in RESNET_50_STAGES:
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            yield Convolution(f"{name}_reduce", 1, inputs, width, edge)
            yield Convolution(f"{name}_spatial", 3, width, width, edge)
            yield Convolution(f"{name}_expand", 1, width, 4 * width, edge)
            if block == 1:
                yield Convolution(f"{name}_shortcut", 1, inputs, 4 * width, edge)
            inputs = 4 * width
    yield Convolution("fc", 1, inputs, 1_000, 1)


def resnet_50(batch: int = 32) -> Workload:
    """Derive ResNet-50's data-parallel workload.

    Parameters
    ----------
    batch
        Images per NPU.
    """
    convolutions = tuple(resnet_50_convolutions())
    assert sum(c.weights for c in convolutions) == RESNET_50_PARAMETERS
    layers = (
        data_parallel_layer(
            c.name, batch * c.multiply_adds, c.weights, has_input_gradient=c is not convolutions[0]
        )
        for c in convolutions
    )
    return Workload("DATA", tuple(layers))


DLRM_FEATURES = 64
"""Sparse features, one table and one lookup per sample each."""

DLRM_WIDTH = 64
"""Embedding dimension."""

DLRM_BOTTOM = (1_600, *[1_024] * 6, DLRM_WIDTH)
"""Widths of the bottom MLP, input first."""

DLRM_TOP = ((1 + DLRM_FEATURES) * DLRM_WIDTH, *[2_048] * 11, 1)
"""Widths of the top MLP: its 4,160 inputs are the 65 vectors, concatenated."""

DLRM_MLP_PARAMETERS = 57_411_584
"""Weights of both MLPs, 6,946,816 + 50,464,768."""


def dlrm(batch: int = 512) -> Workload:
    """Derive DLRM's workload: tables split over all NPUs, MLPs replicated.

    Parameters
    ----------
    batch
        Samples per NPU.

    Notes
    -----
    DLRM (Naumov et al. 2019, arXiv 1906.00091) in the size used in ASTRA-sim and LIBRA studies.
    An all-to-all carries ``batch * features * width`` embedding values per NPU to the samples,
    another one their gradients back. With balanced tables each NPU serves as many lookups as it
    asks for. The optimiser touches the rows that were looked up, counted as distinct.
    Interaction by concatenation takes no FLOP. The policy names the row of the last bottom layer,
    counted from 0.
    """
    values = batch * DLRM_FEATURES * DLRM_WIDTH
    gather_ns, scatter_ns = lookup_times(values, values)
    size = VALUE_BYTES * values
    embedding = Layer(
        "embedding",
        Phase(gather_ns, "ALLTOALL", size),
        Phase(0, "ALLTOALL", size),
        Phase(scatter_ns),
        update_ns(values),
    )

    def mlp(name: str, widths: Iterable[int]) -> Iterator[Layer]:
        for k, (inputs, outputs) in enumerate(pairwise(widths), start=1):
            weights = inputs * outputs
            yield data_parallel_layer(
                f"{name}_{k}",
                batch * weights,
                weights,
                has_input_gradient=(name, k) != ("bottom", 1),
            )

    mlps = (*mlp("bottom", DLRM_BOTTOM), *mlp("top", DLRM_TOP))
    reduced = sum(layer.weight_gradient.size for layer in mlps)
    assert reduced == VALUE_BYTES * DLRM_MLP_PARAMETERS
    last_bottom = len(DLRM_BOTTOM) - 1
    return Workload(f"HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: {last_bottom}", (embedding, *mlps))


WORKLOADS: Mapping[str, Callable[[], Workload]] = {
    "gpt-3.txt": lambda: transformer(GPT_3),
    "msft-1t.txt": lambda: transformer(MSFT_1T),
    "turing-nlg.txt": lambda: transformer(TURING_NLG),
    "resnet-50.txt": resnet_50,
    "dlrm.txt": dlrm,
}
"""File name to derivation."""


def derive() -> dict[str, str]:
    """Return the text of every example workload by file name."""
    return {name: workload().text() for name, workload in WORKLOADS.items()}


def main(arguments: list[str]) -> None:
    """Write every example workload into the directory given, or into the package."""
    if len(arguments) > 1:
        raise SystemExit("usage: derive_workloads.py [DIR]")
    directory = Path(arguments[0]) if arguments else DEFAULT_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in derive().items():
        (directory / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
