"""Frozen inputs: designs and spaces as text.

The workloads in ``benchmarks/inputs`` are copies of those that libra ships, so that the examples
can change and the inputs stay. The generators of other inputs are in `registry.graphs` and
`registry.loading`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["DESIGNS", "SPACES", "design_names", "write_design", "write_space"]

_WORKLOADS = Path(__file__).resolve().parents[1] / "inputs"

_SHAPES = {
    "3d": "{shape: RI(16)_FC(8)_SW(32), tiers: [package, node, pod]}",
    "4d": "{shape: RI(4)_FC(8)_RI(4)_SW(32), tiers: [chiplet, package, node, pod]}",
}
_JOBS = {
    "gpt-3": "{name: gpt-3, trace: workloads/gpt-3.txt, parallel: {tp: 16, dp: 256}}",
    "msft-1t": "{name: msft-1t, trace: workloads/msft-1t.txt, parallel: {tp: 128, dp: 32}}",
    "turing-nlg": "{name: turing-nlg, trace: workloads/turing-nlg.txt}",
    "resnet-50": "{name: resnet-50, trace: workloads/resnet-50.txt}",
    "dlrm": "{name: dlrm, trace: workloads/dlrm.txt}",
}


def _design(network: str, jobs: list[str], *more: str, total: str = "==") -> str:
    lines = [f"network: {network}", "workloads:", *(f"  - {job}" for job in jobs)]
    return "\n".join([*lines, f"constraints: [total {total} 1000 GB/s]", *more, ""])


_LATENCIES = """
  - {topology: ring, size: 4, tier: chiplet, latency: 20 ns}
  - {topology: fully-connected, size: 8, tier: package, latency: 200 ns}
  - {topology: ring, size: 4, tier: node, latency: 500 ns}
  - {topology: switch, size: 32, tier: pod, latency: 1 us}"""
_LISTED = """
  - {topology: ring, size: 4, tier: chiplet}
  - {topology: fully-connected, size: 8, tier: package}
  - {topology: ring, size: 4, tier: node}
  - {topology: switch, size: 32, tier: pod}"""
_LANES = """
  - {topology: ring, size: 4, tier: chiplet, lane: 5 GB/s, max_lanes: 160}
  - {topology: fully-connected, size: 8, tier: package, lane: 5 GB/s, max_lanes: 100}
  - {topology: ring, size: 4, tier: node, lane: 5 GB/s, max_lanes: 40}
  - {topology: switch, size: 32, tier: pod, lane: 5 GB/s, max_lanes: 20}"""
_CLUSTER = """
  - {topology: switch, size: 8, tier: node}
  - {topology: switch, size: 128, tier: pod}"""
_LLAMA = """model: llama-3-70b
    accelerator: h100
    parallel: {tp: 8, pp: 4, dp: 32, sequence_parallel: true, zero: 1}
    batch: {global: 1024, micro: 1, sequence: 8192}
    precision: bf16"""
_SCENARIOS = """\
scenarios:
  minimize: MINIMIZE
  samples:
    count: 10
    seed: 1
    vary: {workloads.gpt-3.weight: 1..3, network.pod.efficiency: 0.6..1}
"""
_COMPAT = "collectives: {compat: libra}"
_EIGHT = [_JOBS["gpt-3"].replace("gpt-3,", f"w{k}, weight: {k + 1},", 1) for k in range(8)]

DESIGNS: dict[str, str] = {
    **{
        f"{name}-{shape}": _design(network, [job])
        for name, job in _JOBS.items()
        for shape, network in _SHAPES.items()
    },
    # As the reference implementation has it: a partial group uses its dimensions wholly.
    **{
        f"reference-{name}-{shape}": _design(network, [_JOBS[name]], _COMPAT)
        for name in ("gpt-3", "msft-1t", "turing-nlg", "resnet-50")
        for shape, network in _SHAPES.items()
    },
    "gpt-3-4d-within": _design(_SHAPES["4d"], [_JOBS["gpt-3"]]).replace(
        "1000 GB/s]", "1000 GB/s, slowdown(gpt-3) <= 1.1]"
    ),
    "two-jobs-4d": _design(_SHAPES["4d"], [_JOBS["gpt-3"], _JOBS["dlrm"]]),
    "eight-jobs-4d": _design(_SHAPES["4d"], _EIGHT),
    "latency-4d": _design(_LATENCIES, [_JOBS["gpt-3"]]),
    "balanced-4d": _design(_SHAPES["4d"], [_JOBS["gpt-3"]], "collectives: {algorithm: balanced}"),
    "lanes-4d": _design(_LANES, [_JOBS["gpt-3"]], _COMPAT),
    "llama-3-70b-1f1b": _design(_CLUSTER, [_LLAMA]),
    **{
        f"scenarios-{how}": _design(
            _LISTED,
            [_JOBS["gpt-3"], _JOBS["dlrm"]],
            _SCENARIOS.replace("MINIMIZE", how),
        )
        for how in ("expected", "worst", "regret")
    },
    "trace": _design(_SHAPES["4d"], ["{trace: big.et}"], total="<="),
}

SPACES = {
    "space-64-npus": """\
npus: 64
network:
  tiers:
    - {tier: package, topologies: [ring, fully-connected], sizes: [2, 4]}
    - {tier: node, topologies: [switch, ring], sizes: [2, 4]}
    - {tier: pod, topologies: [switch], sizes: auto}
  dimensions: [2, 3]
workloads:
  - model: llama-3-8b
    accelerator: h100
    parallel: {tp: auto, pp: [1, 2, 4], sequence_parallel: true, zero: 1}
    batch: {global: 64, micro: 1, sequence: 4096}
    precision: bf16
    recomputation: selective
constraints: [total <= 500 GB/s]
objective: time
"""
}


def design_names() -> tuple[str, ...]:
    """Names of the designs and spaces, which need no generator."""
    return (*DESIGNS, *SPACES)


def write_design(name: str, folder: Path) -> Path:
    """Write a design, with its workloads beside it."""
    text = DESIGNS[name]
    for job in _JOBS:
        if f"workloads/{job}.txt" in text:
            (folder / "workloads").mkdir(exist_ok=True)
            shutil.copy(_WORKLOADS / f"{job}.txt", folder / "workloads")
    path = folder / "design.yaml"
    path.write_text(text, "utf-8")
    return path


def write_space(name: str, folder: Path) -> Path:
    """Write a space of designs."""
    path = folder / "space.yaml"
    path.write_text(SPACES[name], "utf-8")
    return path
