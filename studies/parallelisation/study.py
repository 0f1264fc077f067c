"""MSFT-1T: every split into tensor and data parallelism, each with its own best network."""

from __future__ import annotations

import importlib.util
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drawing import framed, lines, stacks
from pages import ROOT, Table

from libra.errors import InputError
from libra.evaluate import evaluate_design
from libra.explore.run import explore_space
from libra.explore.space import load_space
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.result import Result
from libra.yaml_source import Override

FOLDER = Path(__file__).parent
SPLITS = (8, 16, 32, 64, 128, 256)
SIZES = (4, 8, 4, 32)
NPUS = math.prod(SIZES)
BATCH = 512
BATCHES = (512, 1024, 2048, 4096)
DIMENSIONS = ("chiplet", "package", "node", "pod")


def figures() -> dict[str, Any]:
    """Optimise the network of every split, move each network under every split, try placements."""
    _check_tables()
    reader = DesignReader(FOLDER / "design.yaml")
    own = {tp: optimize_design(reader.read(_split(tp))) for tp in SPLITS}
    paper = {
        tp: optimize_design(reader.read([*_split(tp), Override("collectives", "{compat: libra}")]))
        for tp in SPLITS
    }
    equal = {tp: _timed(own[tp], [1e12 / len(SIZES)] * len(SIZES)) for tp in SPLITS}
    moved = {tp: _timed(own[tp], own[128].bandwidth) for tp in SPLITS}
    placed = {tp: _best_placement(reader, tp) for tp in SPLITS}
    best = min(SPLITS, key=lambda tp: own[tp].step_time)
    best_equal = min(SPLITS, key=equal.__getitem__)
    found: dict[str, Any] = {
        "batch": BATCH,
        "best": best,
        "best_dp": NPUS // best,
        "best_time": own[best].step_time,
        "best_equal": best_equal,
        "best_equal_time": equal[best_equal],
        "best_moved": min(SPLITS, key=moved.__getitem__),
        "best_moved_time": min(moved.values()),
        "best_paper": min(SPLITS, key=lambda tp: paper[tp].step_time),
        "start": equal[128],
        "network_alone": equal[128] / own[128].step_time,
        "split_alone": equal[128] / equal[best_equal],
        "both": equal[128] / own[best].step_time,
        "in_turn": moved[min(SPLITS, key=moved.__getitem__)] / own[best].step_time - 1,
        "placement_gain": max(own[tp].step_time / placed[tp][0] for tp in SPLITS) - 1,
        "placement_of": max(SPLITS, key=lambda tp: own[tp].step_time / placed[tp][0]),
        "pod_least": min(own[tp].bandwidth[3] for tp in SPLITS) / 1e9,
        "pod_most": max(own[tp].bandwidth[3] for tp in SPLITS) / 1e9,
        "chiplet_least": min(own[tp].bandwidth[0] for tp in SPLITS) / 1e9,
        "chiplet_most": max(own[tp].bandwidth[0] for tp in SPLITS) / 1e9,
        "compute": own[best].workloads[0].compute,
    }
    found["times"] = [
        {"tp": tp, "series": series, "seconds": seconds}
        for series, times in (
            ("equal bandwidths", equal),
            ("network for TP 128", moved),
            ("own network", {tp: own[tp].step_time for tp in SPLITS}),
            ("own network, best placement", {tp: placed[tp][0] for tp in SPLITS}),
        )
        for tp, seconds in times.items()
    ]
    found["shares"] = [
        {"tp": tp, "dimension": name, "bandwidth": float(value) / 1e9}
        for tp in SPLITS
        for name, value in zip(DIMENSIONS, own[tp].bandwidth, strict=True)
    ]
    found["table"] = _table(own, paper, equal, moved, placed)
    found |= _batches(reader)
    found |= _explored()
    return found


def _split(tp: int, members: Sequence[int] = (), trace: str = "") -> list[Override]:
    """Settings of a split: its table, and its members along each dimension, innermost first."""
    members = members or _innermost(tp)
    rest = [size // g for size, g in zip(SIZES, members, strict=True)]
    groups = f"{{tp: {list(members)}, dp: {rest}}}"
    settings = {"trace": trace or f"tp-{tp}.csv", "groups": groups}
    return [Override(f"workloads.msft-1t.{key}", value) for key, value in settings.items()]


def _innermost(tp: int) -> tuple[int, ...]:
    """Members along each dimension of a group that fills the innermost dimensions first."""
    members = []
    for size in SIZES:
        members.append(math.gcd(tp, size))
        tp //= members[-1]
    return tuple(members)


def _timed(result: Result, bandwidth: Any) -> float:
    return evaluate_design(result.design, list(bandwidth)).step_time


def _placements(tp: int) -> Iterator[tuple[int, ...]]:
    """Members of tensor parallelism along each dimension, in every way that divides them."""
    choices = [[2**k for k in range(8) if size % 2**k == 0] for size in SIZES]
    return (g for g in itertools.product(*choices) if math.prod(g) == tp)


def _best_placement(reader: DesignReader, tp: int) -> tuple[float, tuple[int, ...]]:
    """Step time and placement of the best of all placements, each on its own best network."""
    found = [
        (optimize_design(reader.read(_split(tp, members))).step_time, members)
        for members in _placements(tp)
    ]
    return min(found)


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
                own[tp].step_time,
                ", ".join(f"{b / 1e9:.0f}" for b in own[tp].bandwidth),
                " x ".join(map(str, placed[tp][1])),
                placed[tp][0],
                paper[tp].step_time,
            ]
            for tp in SPLITS
        ],
    )


def _batches(reader: DesignReader) -> dict[str, Any]:
    """Best split by the batch: tables of other batches, written into a folder of their own."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for batch in BATCHES:
            times = {}
            for tp in SPLITS:
                table = Path(folder) / f"tp-{tp}-of-{batch}.csv"
                table.write_text(layer_table(tp, batch), "utf-8")
                result = optimize_design(reader.read(_split(tp, trace=str(table))))
                times[tp] = result.step_time
            best = min(times, key=times.__getitem__)
            rows.append((batch, best, times[best], times[128] / times[best] - 1))
    columns = {
        "sequences": ",d",
        "best TP": "d",
        "step, s": ".2f",
        "TP 128 is slower by": ".1%",
    }
    return {"batches": Table(columns, rows), "last_batch_best": rows[-1][1]}


def _explored() -> dict[str, Any]:
    """What `libra explore space.yaml` finds."""
    with tempfile.TemporaryDirectory() as folder:
        summary = explore_space(
            load_space(FOLDER / "space.yaml"), Path(folder) / "out", prune=False
        )
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
    """Layer table of a split for the sequences of a step, by `tools/derive_workloads.py`."""
    tool = _derivation()
    shape = replace(tool.MSFT_1T, tensor_parallel=tp, batch=batch * tp // NPUS)
    layers = tool.transformer(shape).layers
    lines = [
        "name,forward,input_gradient,weight_gradient,update,forward_collective,"
        "input_gradient_collective,weight_gradient_collective,count"
    ]
    for layer, count in ((layers[0], 1), (layers[1], 128), (layers[2], 128), (layers[-1], 1)):
        phases = (layer.forward, layer.input_gradient, layer.weight_gradient)
        times = [f"{ns} ns" for ns in (*(p.time_ns for p in phases), layer.update_ns)]
        sent = [
            f"all-reduce {phase.size} B {group}" if phase.size else ""
            for phase, group in zip(phases, ("tp", "tp", "dp"), strict=True)
        ]
        lines.append(",".join([layer.name, *times, *sent, str(count)]))
    return "\n".join(lines) + "\n"


def _derivation() -> Any:
    """The tool that derives the shipped workloads; a folder of scripts is no package."""
    import sys

    name = "derive_workloads"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _check_tables() -> None:
    """Refuse tables that are not what the formulas give."""
    for tp in SPLITS:
        path = FOLDER / f"tp-{tp}.csv"
        if path.read_text("utf-8") != layer_table(tp, BATCH):
            raise InputError(
                f"studies/parallelisation/{path.name}: is not what the formulas give. Write "
                f"layer_table({tp}, {BATCH}) of study.py there."
            )


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
