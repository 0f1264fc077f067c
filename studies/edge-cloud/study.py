"""Edge and cloud: federated averaging against split training, each on its own best network."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drawing import framed, lines
from pages import Table

from libra.errors import InputError
from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.models import load_model
from libra.optimize import optimize_design
from libra.result import Result
from libra.workload.cnn import CNNS
from libra.yaml_source import Override

FOLDER = Path(__file__).parent
SITE = 16
DEVICE = 1e12
CLOUD = 156e12 / SITE
"""Sustained rates [FLOP/s] of a device, and of the part of a site's A100 that a device has."""

VALUE = 2
"""Bytes of a weight and of an activation."""

BUILT = (125e6, 125e6 / SITE)
"""A port and a device's share of the uplink, 1 Gbit/s each [bytes/s]."""

STEPS = (1, 2, 4, 8, 16, 32, 64)
SPEEDS = (0.1e12, 0.3e12, DEVICE, 3e12)
FEDERATED = "all on the device"


@dataclass(frozen=True)
class Part:
    """A part of a model, between two places where it may be cut.

    Attributes
    ----------
    name : str
    flops : float
        Forward, of a device's batch.
    weights : float
    output : float
        Values that it hands on, of a device's batch.
    """

    name: str
    flops: float
    weights: float
    output: float


def figures() -> dict[str, Any]:
    """Optimise the network of every cut and number of local steps of both models."""
    reader = DesignReader(FOLDER / "design.yaml")
    models = {"ResNet-50": resnet(32), "BERT-large": bert(8, 128)}
    _check_tables(models["ResNet-50"])
    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(reader, Path(folder))
        rows = [
            _row(model, parts, cut, steps, rounds.solve(layer_table(parts, cut, steps)))
            for model, parts in models.items()
            for cut in range(1, len(parts) + 1)
            for steps in STEPS
        ]
        speeds = [_speed(models, speed, rounds) for speed in SPEEDS]
    columns = {"device, TFLOP/s": ".1f"}
    for model in models:
        columns |= {f"{model}: best": "", f"{model}, s": ".2f"}
    return {"rows": rows, "speeds": Table(columns, speeds)} | _found(rows, models)


@dataclass(frozen=True)
class Rounds:
    """What solves layer tables.

    Attributes
    ----------
    reader : DesignReader
    folder : Path
        Where the tables are written, each under a name of its own: a reader reads a file once.
    numbers : iterator of int
    """

    reader: DesignReader
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def solve(self, table: str) -> Result:
        """Best network for a table."""
        file = self.folder / f"round-{next(self.numbers)}.csv"
        file.write_text(table, "utf-8")
        trace = Override("workloads.training.trace", str(file))
        return optimize_design(self.reader.read([trace]))


def _speed(models: dict[str, list[Part]], device: float, rounds: Rounds) -> list[Any]:
    """Best place to cut each model at 16 local steps, for devices of a speed."""
    cells: list[Any] = [device / 1e12]
    for parts in models.values():
        times = {
            cut: rounds.solve(layer_table(parts, cut, 16, device)).step_time / 16
            for cut in range(1, len(parts) + 1)
        }
        best = min(times, key=times.__getitem__)
        cells += [_place(parts, best), times[best]]
    return cells


def _place(parts: Sequence[Part], cut: int) -> str:
    return FEDERATED if cut == len(parts) else f"cut after {parts[cut - 1].name}"


def resnet(images: int) -> list[Part]:
    """ResNet-50 by stages (He et al. 2015, arXiv 1512.03385, table 1); conv1 with its pooling."""
    stages: dict[str, list[Any]] = {}
    for layer in CNNS["resnet-50"]():
        stages.setdefault(layer.name.partition("_")[0], []).append(layer)
    parts = []
    for name, layers in stages.items():
        flops = sum(2 * x.edge**2 * x.inputs * x.outputs * x.pixels**2 for x in layers)
        pixels = 56 if name == "conv1" else layers[-1].pixels
        outputs = max(x.outputs for x in layers)
        weights = sum(x.parameters for x in layers)
        parts.append(Part(name, images * flops, weights, images * pixels**2 * outputs))
    return parts


def bert(sequences: int, length: int) -> list[Part]:
    """BERT-large in four quarters of six blocks; the embedding goes with the first."""
    model = load_model("bert-large")
    h, tokens, blocks = model.hidden, sequences * length, model.layers // 4
    parts = []
    for k in range(4):
        weights = blocks * 12 * h**2 + (model.vocabulary * h if k == 0 else 0)
        flops = blocks * tokens * (24 * h**2 + 4 * length * h)
        parts.append(Part(f"block {blocks * (k + 1)}", flops, weights, tokens * h))
    return parts


def layer_table(parts: Sequence[Part], cut: int, steps: int, device: float = DEVICE) -> str:
    """Layer table of a round: local steps on each device, then an average of its weights.

    Parameters
    ----------
    parts : sequence of Part
    cut : int
        So many parts are on the device, the others in the cloud.
    steps : int
        Of a round.
    device : float
        Sustained rate of a device [FLOP/s].
    """
    kept, sent = parts[:cut], VALUE * steps * parts[cut - 1].output
    average = f"all-reduce {VALUE * sum(p.weights for p in kept):.0f} B all"
    lines = [
        "name,forward,input_gradient,weight_gradient,forward_collective,"
        "input_gradient_collective,weight_gradient_collective",
        f"device,{_times(kept, device, steps)},,,{average}",
    ]
    if cut < len(parts):
        for name in ("edge", "cloud"):
            hop = f"point-to-point {sent:.0f} B {name}"
            lines.append(f"to {name},0 ms,0 ms,0 ms,{hop},{hop},")
        lines.append(f"server,{_times(parts[cut:], CLOUD, steps)},,,")
    return "\n".join(lines) + "\n"


def _times(parts: Sequence[Part], rate: float, steps: int) -> str:
    """Times of the three phases, each as long as the forward pass."""
    milliseconds = 1e3 * steps * sum(p.flops for p in parts) / rate
    return ",".join([f"{milliseconds:.3f} ms"] * 3)


def _check_tables(parts: Sequence[Part]) -> None:
    """Refuse example tables that are not what the formulas give."""
    for name, cut in (("split", 3), ("federated", len(parts))):
        if (FOLDER / f"{name}.csv").read_text("utf-8") != layer_table(parts, cut, 1):
            raise InputError(
                f"studies/edge-cloud/{name}.csv: is not what the formulas give. Write "
                f"layer_table(resnet(32), {cut}, 1) of study.py there."
            )


def _row(model: str, parts: Sequence[Part], cut: int, steps: int, result: Result) -> dict[str, Any]:
    at_end = cut == len(parts)
    return {
        "model": model,
        "place": _place(parts, cut),
        "cut": cut,
        "steps": steps,
        "time": result.step_time / steps,
        "edge": 8 * result.bandwidth[0] / 1e6,
        "uplink": 8 * SITE * result.bandwidth[1] / 1e6,
        "built": evaluate_design(result.design, BUILT).step_time / steps,
        "sent": VALUE * (0 if at_end else 2 * parts[cut - 1].output) / 1e6,
        "weights": VALUE * sum(p.weights for p in parts[:cut]) / 1e6,
    }


def _found(rows: Sequence[dict[str, Any]], models: dict[str, list[Part]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model, key in (("ResNet-50", "resnet"), ("BERT-large", "bert")):
        of = {(row["cut"], row["steps"]): row for row in rows if row["model"] == model}
        end = len(models[model])
        splits = [of[cut, steps] for cut in range(1, end) for steps in (1, 16)]
        best = {
            steps: min((of[cut, steps] for cut in range(1, end + 1)), key=lambda r: r["time"])
            for steps in STEPS
        }
        found |= {
            f"{key}_whole_first": of[end, 1]["time"],
            f"{key}_whole_last": of[end, STEPS[-1]]["time"],
            f"{key}_split_first": min(of[cut, 1]["time"] for cut in range(1, end)),
            f"{key}_split_last": min(of[cut, STEPS[-1]]["time"] for cut in range(1, end)),
            f"{key}_weights": of[end, 1]["weights"],
            f"{key}_sent_least": min(row["sent"] for row in splits),
            f"{key}_sent_most": max(row["sent"] for row in splits),
            f"{key}_gain": max(r["built"] / r["time"] for r in of.values()),
            f"{key}_federated_gain": of[end, 1]["built"] / of[end, 1]["time"] - 1,
            f"{key}_best": ", ".join(sorted({best[steps]["place"] for steps in STEPS})),
        }
    of = {(row["model"], row["cut"], row["steps"]): row for row in rows}
    found |= {
        "federated_port": of["BERT-large", 4, 1]["edge"],
        "federated_uplink": of["BERT-large", 4, 1]["uplink"],
        "split_port": of["ResNet-50", 1, 16]["edge"],
        "split_uplink": of["ResNet-50", 1, 16]["uplink"],
    }
    shown = [row for row in rows if row["steps"] in (1, 16)]
    found["table"] = Table(
        {
            "model": "",
            "cut": "",
            "MB sent": ".1f",
            "MB averaged": ".0f",
            "1 local, s": ".2f",
            "port, uplink": "",
            "16 local, s": ".2f",
            "port, uplink at 16": "",
        },
        [
            [
                one["model"],
                one["place"],
                one["sent"],
                one["weights"],
                *(
                    cell
                    for row in (one, many)
                    for cell in (row["time"], f"{row['edge']:.0f}, {row['uplink']:,.0f}")
                ),
            ]
            for one, many in zip(shown[::2], shown[1::2], strict=True)
        ],
    )
    return found


def chart(figures: dict[str, Any]) -> Any:
    """Time of a step against the number of local steps, and the uplink that it needs."""
    x = ("steps", "local steps between two averages")
    drawn = {
        ("ResNet-50", "cut after conv5"): "ResNet-50, cut after conv5",
        ("BERT-large", "cut after block 6"): "BERT-large, cut after block 6",
        ("BERT-large", FEDERATED): f"both, {FEDERATED}",
    }
    uplinks = [
        row | {"case": drawn[row["model"], row["place"]]}
        for row in figures["rows"]
        if (row["model"], row["place"]) in drawn
    ]
    times = [
        lines(
            [row for row in figures["rows"] if row["model"] == model],
            x,
            ("time", "step, s"),
            "place",
            f"{model}: time of a step, each on its own best network",
            log_x=True,
        )
        for model in ("ResNet-50", "BERT-large")
    ]
    title = "Uplink of a site in the best network of the same cost"
    return framed(*times, lines(uplinks, x, ("uplink", "Mbit/s"), "case", title, log_x=True))
