"""MSFT-1T: every split into tensor and data parallelism, each with its own best network."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drawing import framed, lines, stacks
from pages import ROOT, Table

from libra.collectives import Collective
from libra.evaluate import evaluate_design
from libra.explore.run import run_exploration
from libra.explore.space import load_space
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.result import Result
from libra.yaml_source import Override

FOLDER = Path(__file__).parent
SPLITS = (8, 16, 32, 64, 128, 256)
SIZES = (4, 8, 4, 32)
NPUS = math.prod(SIZES)
BLOCKS = 128
"""Alike, and nothing overlaps: the tables hold one, and the step is so many times as long."""

BATCH = 512
BATCHES = (512, 1024, 2048, 4096)
DIMENSIONS = ("chiplet", "package", "node", "pod")
Tables = dict[tuple[int, int], Path]
"""Layer table of each degree of tensor parallelism and number of sequences."""


def figures() -> dict[str, Any]:
    """Optimise the network of every split, move each network under every split, try placements."""
    reader = DesignReader(FOLDER / "design.yaml")
    with tempfile.TemporaryDirectory() as folder:
        tables = _write_tables(Path(folder))
        return _compared(reader, tables) | _batches(reader, tables) | _explored(Path(folder))


def _compared(reader: DesignReader, tables: Tables) -> dict[str, Any]:
    """Every split on equal bandwidths, on the network for TP 128, and on its own."""
    own = {tp: optimize_design(reader.read(_split(tables, tp))) for tp in SPLITS}
    compat = Override("collectives", "{compat: libra}")
    paper = {tp: optimize_design(reader.read([*_split(tables, tp), compat])) for tp in SPLITS}
    equal = {tp: _timed(own[tp], [1e12 / len(SIZES)] * len(SIZES)) for tp in SPLITS}
    moved = {tp: _timed(own[tp], own[128].bandwidth) for tp in SPLITS}
    placed = {tp: _best_placement(reader, tables, tp) for tp in SPLITS}
    times = {tp: _seconds(own[tp]) for tp in SPLITS}
    compute = {tp: BLOCKS * own[tp].workloads[0].compute for tp in SPLITS}
    best = min(SPLITS, key=times.__getitem__)
    best_placed = min(SPLITS, key=placed.__getitem__)
    misplaced = max(SPLITS, key=lambda tp: times[tp] / placed[tp][0])
    series = {
        "equal bandwidths": equal,
        "network for TP 128": moved,
        "own network": times,
        "own network, best placement": {tp: placed[tp][0] for tp in SPLITS},
    }
    return {
        "batch": BATCH,
        "best": best,
        "best_time": times[best],
        "best_moved": min(SPLITS, key=moved.__getitem__),
        "network_alone": equal[128] / times[128],
        "split_alone": equal[128] / min(equal.values()),
        "both": equal[128] / times[best],
        "in_turn": min(moved.values()) / times[best] - 1,
        "moved_gain": moved[128] / min(moved.values()) - 1,
        "best_placed": best_placed,
        "best_placed_time": placed[best_placed][0],
        "best_placed_members": " x ".join(map(str, placed[best_placed][1])),
        "misplaced": misplaced,
        "placement_gain": times[misplaced] / placed[misplaced][0] - 1,
        "pod_least": min(own[tp].bandwidth[3] for tp in SPLITS) / 1e9,
        "pod_most": max(own[tp].bandwidth[3] for tp in SPLITS) / 1e9,
        "chiplet_least": min(own[tp].bandwidth[0] for tp in SPLITS) / 1e9,
        "chiplet_most": max(own[tp].bandwidth[0] for tp in SPLITS) / 1e9,
        "compute": compute[best],
        "compute_least": min(compute.values()),
        "compute_most": max(compute.values()),
        "table": _table(own, paper, equal, moved, placed),
        "times": [
            {"tp": tp, "series": name, "seconds": seconds}
            for name, found in series.items()
            for tp, seconds in found.items()
        ],
        "shares": [
            {"tp": tp, "dimension": name, "bandwidth": float(value) / 1e9}
            for tp in SPLITS
            for name, value in zip(DIMENSIONS, own[tp].bandwidth, strict=True)
        ],
    }


def _write_tables(folder: Path) -> Tables:
    """Layer tables of all splits and batches."""
    tables = {}
    for tp, batch in itertools.product(SPLITS, BATCHES):
        tables[tp, batch] = folder / f"tp-{tp}-of-{batch}.csv"
        tables[tp, batch].write_text(layer_table(tp, batch), "utf-8")
    return tables


def _split(
    tables: Tables, tp: int, members: Sequence[int] = (), batch: int = BATCH
) -> list[Override]:
    """Settings of a split: its table, and its members along each dimension, innermost first."""
    members = members or _innermost(tp)
    rest = [size // g for size, g in zip(SIZES, members, strict=True)]
    groups = f"{{tp: {list(members)}, dp: {rest}}}"
    settings = {"trace": str(tables[tp, batch]), "groups": groups}
    return [Override(f"workloads.msft-1t.{key}", value) for key, value in settings.items()]


def _innermost(tp: int) -> tuple[int, ...]:
    """Members along each dimension of a group that fills the innermost dimensions first."""
    members = []
    for size in SIZES:
        members.append(math.gcd(tp, size))
        tp //= members[-1]
    return tuple(members)


def _timed(result: Result, bandwidth: Any) -> float:
    return _seconds(evaluate_design(result.design, list(bandwidth)))


def _seconds(result: Result) -> float:
    """Time of a step with all blocks."""
    return BLOCKS * result.step_time


def _placements(tp: int) -> Iterator[tuple[int, ...]]:
    """Members of tensor parallelism along each dimension, in every way that divides them."""
    choices = [[2**k for k in range(8) if size % 2**k == 0] for size in SIZES]
    return (g for g in itertools.product(*choices) if math.prod(g) == tp)


def _best_placement(reader: DesignReader, tables: Tables, tp: int) -> tuple[float, tuple[int, ...]]:
    """Step time and placement of the best of all placements, each on its own best network.

    Of equally good ones it is that which fills the dimensions it uses, then the innermost.
    """
    found = {
        members: _seconds(optimize_design(reader.read(_split(tables, tp, members))))
        for members in _placements(tp)
    }
    least = min(found.values())
    equal = [members for members, time in found.items() if time <= least * (1 + 1e-5)]
    best = max(equal, key=lambda members: (_filled(members), members))
    return found[best], best


def _filled(members: Sequence[int]) -> int:
    """Dimensions that tensor parallelism has whole, or leaves whole."""
    return sum(g in (1, size) for g, size in zip(members, SIZES, strict=True))


def _table(own: Any, paper: Any, equal: Any, moved: Any, placed: Any) -> Table:
    columns = {
        "TP x DP": "",
        "equal, s": ".2f",
        "for TP 128, s": ".2f",
        "own, s": ".2f",
        "chiplet, package, node, pod, GB/s": "",
        "TP along dimensions": "",
        "placed so, s": ".2f",
        "paper's formulas, s": ".2f",
    }
    return Table(
        columns,
        [
            [
                f"{tp} x {NPUS // tp}",
                equal[tp],
                moved[tp],
                _seconds(own[tp]),
                ", ".join(f"{b / 1e9:.0f}" for b in own[tp].bandwidth),
                " x ".join(map(str, placed[tp][1])),
                placed[tp][0],
                _seconds(paper[tp]),
            ]
            for tp in SPLITS
        ],
    )


def _batches(reader: DesignReader, tables: Tables) -> dict[str, Any]:
    """Best split by the batch."""
    rows = []
    for batch in BATCHES:
        times = {
            tp: _seconds(optimize_design(reader.read(_split(tables, tp, batch=batch))))
            for tp in SPLITS
        }
        best = min(times, key=times.__getitem__)
        rows.append((batch, best, times[best], times[128] / times[best] - 1))
    columns = {
        "sequences": ",d",
        "best TP": "d",
        "step, s": ".2f",
        "TP 128 is slower by": ".1%",
    }
    last = rows[-1][1]
    return {
        "batches": Table(columns, rows),
        "last_batch_best": last,
        "last_batch_from": min(batch for batch, best, *_ in rows if best == last),
    }


def _explored(folder: Path) -> dict[str, Any]:
    """What `libra explore space.yaml` finds."""
    summary = run_exploration(load_space(FOLDER / "space.yaml"), folder / "explored", prune=False)
    frame = summary.frame
    solved = sorted(
        (r for r in frame.to_dicts() if r["status"] == "solved"), key=lambda r: r["step_time_s"]
    )
    best, plain = (
        solved[0],
        min((r for r in solved if r["zero"] == 1), key=lambda r: r["step_time_s"]),
    )
    columns = {"TP": "d", "ZeRO stage": "d", "GB of 80": ".0f", "step, s": ".2f"}
    return {
        "refused": sum(summary.refused.values()),
        "candidates": len(frame),
        "explored": Table(
            columns,
            [(r["tp"], r["zero"], r["memory_bytes"] / 1e9, r["step_time_s"]) for r in solved],
        ),
        "explored_best": best["tp"],
        "explored_plain": plain["tp"],
        "explored_plain_slower": plain["step_time_s"] / best["step_time_s"] - 1,
    }


def layer_table(tp: int, batch: int) -> str:
    """Layer table of a block of a split, for the sequences of a step; as the shipped workloads."""
    tool = _derivation()
    example = replace(tool.EXAMPLES["msft-1t.txt"], tp=tp, batch=batch * tp // NPUS)
    lines = [
        "name,forward,input_gradient,weight_gradient,update,forward_collective,"
        "input_gradient_collective,weight_gradient_collective"
    ]
    for layer in tool.example_layers(example, blocks=1):
        phases = (layer.forward, layer.input_gradient, layer.weight_gradient)
        times = [f"{1e9 * t:.0f} ns" for t in (*(p.compute for p in phases), layer.update)]
        sent = ["" if p.collective is None else _sent(p.collective) for p in phases]
        lines.append(",".join([layer.name, *times, *sent]))
    return "\n".join(lines) + "\n"


def _sent(collective: Collective) -> str:
    return f"{collective.kind.value} {collective.size:.0f} B {collective.group.name}"


def _derivation() -> Any:
    """The tool that derives the shipped workloads; a folder of scripts is no package."""
    name = "derive_workloads"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def chart(figures: dict[str, Any]) -> Any:
    """Step times by split, and where each split's best network has its bandwidth."""
    x = ("tp", "tensor parallelism")
    return framed(
        lines(
            figures["times"],
            x,
            ("seconds", "step, s"),
            "series",
            "Step time of each split into tensor and data parallelism",
            log_x=True,
            height=240,
        ),
        stacks(
            figures["shares"],
            x,
            ("bandwidth", "GB/s of an NPU"),
            "dimension",
            "Each split's own best network",
        ),
    )
