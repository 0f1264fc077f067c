"""Derive the example workloads from libra's models.

Each file is an ASTRA-sim 1.0 text workload: what one NPU computes, and what it hands to the
network, in one training iteration of 4,096 NPUs. `EXAMPLES` is all that they depend on besides
libra's models and its A100; ``docs/workloads.md`` explains what counts and compares with what was
published.

Usage: ``python tools/derive_workloads.py [DIR]``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libra.accelerators import load_accelerator
from libra.formats.astra_sim_write import layers_text
from libra.models import load_model
from libra.placement import Group
from libra.workload.activations import ActivationPlan
from libra.workload.data_parallel import DATA_PARALLEL_MODELS, DLRM_BOTTOM, data_parallel_rows
from libra.workload.layer_rows import fold_gradients, time_rows, transformer_rows
from libra.workload.layers import Layer
from libra.workload.memory import MemoryPlan, StateBytes
from libra.workload.training_plan import TrainingPlan

NPUS = 4096
DEFAULT_DIRECTORY = Path(__file__).parents[1] / "src/libra/examples/workloads"
STATES = StateBytes(weights=2, gradients=2, optimizer=12)
"""16-bit weights and gradients; Adam with a 32-bit weight and two moments."""


@dataclass(frozen=True)
class Example:
    """A published training run.

    Attributes
    ----------
    model : str
        As `libra.models` and `libra.workload.data_parallel` call it.
    batch : int
        Sequences, images or samples of an iteration in each replica, in one micro-batch.
    sequence : int
        Tokens of a sequence; 1: there are none.
    tp : int
        Tensor-parallel degree; the rest of the NPUs is data parallel.
    policy : str
        First line of the file.
    """

    model: str
    batch: int
    sequence: int = 1
    tp: int = 1
    policy: str = "DATA"


EXAMPLES: Mapping[str, Example] = {
    "gpt-3.txt": Example(
        "gpt-3-175b", 16, 2048, 16, "HYBRID_TRANSFORMER model_parallel_NPU_group: 16"
    ),
    "msft-1t.txt": Example(
        "msft-1t", 8, 2048, 128, "HYBRID_TRANSFORMER model_parallel_NPU_group: 128"
    ),
    "turing-nlg.txt": Example("turing-nlg-17b", 8, 1024),
    "resnet-50.txt": Example("resnet-50", 32),
    "dlrm.txt": Example(
        "dlrm", 512, policy=f"HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: {len(DLRM_BOTTOM) - 1}"
    ),
}
"""Batches are those that the published byte counts imply."""


def example_layers(
    example: Example, *, blocks: int | None = None, one_bucket: bool = False
) -> list[Layer]:
    """Layers of an example.

    Parameters
    ----------
    example : Example
    blocks : int, optional
        So many blocks of a transformer; all unless given.
    one_bucket : bool
        All gradients are reduced as one.
    """
    replicas = NPUS // example.tp
    run = ActivationPlan(
        example.batch, example.sequence, tp=example.tp, distribute_saved_activations=True
    )
    memory = MemoryPlan(run, dp=replicas, states=STATES)
    plan = TrainingPlan(memory, communication=2, gradient=2)
    groups = {"tp": Group("tp", (example.tp,), (1,)), "dp": Group("dp", (replicas,), (1,))}
    if example.model in DATA_PARALLEL_MODELS:
        rows = data_parallel_rows(example.model, plan, groups["dp"], vectors=False)
    else:
        rows = transformer_rows(load_model(example.model), plan, groups, blocks)
    layers = time_rows(rows, plan, load_accelerator("a100-80gb"))
    return fold_gradients(layers) if one_bucket else layers


def derive() -> dict[str, str]:
    """Return the text of every example workload by file name."""
    return {name: layers_text(e.policy, example_layers(e)) for name, e in EXAMPLES.items()}


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
