"""Fit the latencies and efficiencies of the presets to published measurements.

    python tools/calibrate_accelerators.py FOLDER [--write]

FOLDER holds ``collectives.csv`` (columns: `libra.measurements`) and ``matmul.csv`` (accelerator,
precision, achieved_tflops, shape_MxNxK, source, notes). Prints the residuals by system; with
``--write`` replaces ``src/libra/presets/calibration.json``.

One fit serves a cluster, whatever the system. Measurements that are not fitted (`CHECKED`) are
predicted all the same: they are of hardware that the source does not name, of a framework's timer,
or of a fabric that was changed later.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from libra.accelerator_yaml import plain_curves, quantity_text
from libra.accelerators import load_accelerator, load_cluster
from libra.calibrate import fit_cluster, predict_times
from libra.calibrate_matmul import fit_matmul
from libra.cluster import Cluster
from libra.fitting import Residuals, residuals_of
from libra.measurements import CollectiveRow, place_row, read_collectives
from libra.network import Dimension
from libra.units import TIME
from libra.workload.compute import Precision, matmul

TARGET = Path(__file__).parents[1] / "src" / "libra" / "presets" / "calibration.json"
LEAST_SIZE = 1e6
"""Residuals are of buffers of at least 1 MB."""

ABOUT = (
    "Latencies and efficiencies of the presets, fitted to measurements: written by "
    "tools/calibrate_accelerators.py and tools/calibrate_training.py, do not edit. networks: by "
    "cluster and tier; accelerators: by name and kind of operator; training: what takes their "
    "place. JSON, because it is read in a fiftieth of the time of YAML."
)


@dataclass(frozen=True)
class Fit:
    """What the dimensions of a preset cluster are fitted to.

    Attributes
    ----------
    cluster : str
        Preset.
    tier : str
        Dimension.
    chosen : callable
        Whether a row is fitted.
    inner_of : str
        Preset whose dimensions inside of it are taken over.
    """

    cluster: str
    tier: str
    chosen: Callable[[CollectiveRow], bool]
    inner_of: str = ""


def _in_node(*gpus: str) -> Callable[[CollectiveRow], bool]:
    return lambda row: (
        row.columns["gpu"].startswith(gpus)
        and row.nodes == 1
        and "Galvatron" not in row.columns["source"]
    )


def _system(word: str) -> Callable[[CollectiveRow], bool]:
    return lambda row: row.columns["system"] == word


FITS = (
    Fit("dgx-a100", "node", _in_node("A100-SXM")),
    Fit("dgx-h100", "node", _in_node("H100-SXM")),
    Fit("dgx-h200", "node", _in_node("H200-SXM")),
    Fit("dgx-b200", "node", _in_node("B200")),
    Fit("dgx-b300", "node", _in_node("B300")),
    Fit("gb200-nvl72", "node", _in_node("GB200")),
    Fit("gb300-nvl72", "node", _in_node("GB300")),
    Fit("p4d-a100", "pod", _system("AWS 2x p4de.24xlarge"), "dgx-a100"),
    Fit("p5-h100", "pod", _system("AWS 2x p5.48xlarge"), "dgx-h100"),
    Fit("p6-b200", "pod", _system("AWS 4x p6-b200"), "dgx-b200"),
    Fit("gb200-nvl72", "pod", _system("CoreWeave GB200 NVL72 20 racks"), "gb200-nvl72"),
)

CHECKED = (
    ("dgx-a100", lambda row: "Galvatron" in row.columns["source"] and row.nodes == 1),
    ("p5-h100", _system("AWS 2x p5.48xlarge (EKS, older EFA)")),
    ("dgx-h100", _system("CoreWeave H100")),
    ("dgx-h100", lambda row: row.columns["system"].startswith("H100 cluster")),
    ("mi300x-node", _system("1x MI300X node")),
)
"""Clusters and rows that are predicted, but not fitted."""


def skip_reason(row: CollectiveRow) -> str:
    """Why a row is compared with nothing; empty if it is."""
    columns = row.columns
    if "NVLS off" in columns["algorithm"]:
        return "in-switch reduction turned off"
    if columns["gpu"].startswith("V100"):
        return "a hybrid cube mesh, which is no preset"
    if "hardware not named" in columns["system"]:
        return "hardware not named"
    if columns["gpu"].startswith("TPU"):
        return "one row, its bandwidth by a definition of its own"
    return ""


def fit_networks(rows: Sequence[CollectiveRow]) -> tuple[dict[str, Cluster], dict[str, Any]]:
    """Fitted clusters, and what calibration.json says of them."""
    clusters: dict[str, Cluster] = {}
    data: dict[str, Any] = defaultdict(dict)
    for fit in FITS:
        cluster = clusters.get(fit.cluster) or _bare(load_cluster(fit.cluster))
        d = [dimension.tier for dimension in cluster.dimensions].index(fit.tier)
        if fit.inner_of:
            inner = clusters[fit.inner_of].dimensions[:d]
            cluster = replace(cluster, dimensions=(*inner, *cluster.dimensions[d:]))
            data[fit.cluster] = data[fit.inner_of] | data[fit.cluster]
        chosen = [r for r in rows if fit.chosen(r) and not skip_reason(r)]
        items = [place_row(row, cluster) for row in chosen]
        fitted = fit_cluster(cluster, items, least_size=LEAST_SIZE)
        clusters[fit.cluster] = fitted.cluster
        origin = ", ".join(dict.fromkeys(row.columns["source"].split()[0] for row in chosen))
        source = f"fitted to {len(items)}; over 1 MB {fitted.residuals['all']}: {origin}"
        fields = _fitted(fitted.cluster.dimensions[d]) | {"source": source}
        data[fit.cluster] = data[fit.cluster] | {fit.tier: fields}
    return clusters, dict(data)


def _bare(cluster: Cluster) -> Cluster:
    """Cluster without what was fitted before."""
    bare = tuple(replace(dimension, efficiency_by_size={}) for dimension in cluster.dimensions)
    return replace(cluster, dimensions=bare)


def _fitted(dimension: Dimension) -> dict[str, Any]:
    """Keys of a dimension that were fitted."""
    data: dict[str, Any] = {}
    if dimension.latency:
        data["latency"] = quantity_text(dimension.latency, TIME)
    return data | {"efficiency_by_size": plain_curves(dimension.efficiency_by_size)}


def compare(rows: Sequence[CollectiveRow], clusters: Mapping[str, Cluster]) -> dict[str, Residuals]:
    """Residuals of all rows of at least 1 MB by cluster and system; ``all`` for all of them."""
    table: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row.size < LEAST_SIZE or skip_reason(row):
            continue
        name = cluster_of(row)
        if name:
            item = place_row(row, clusters[name])
            pair = (float(predict_times(clusters[name], [item])[0]), item.time)
            label = f"{name}: {row.columns['system']} ({row.columns['source'].split('/')[1]})"
            for key in ("all", label):
                table[key].append(pair)
    return {key: residuals_of(*np.array(pairs).T) for key, pairs in table.items()}


def cluster_of(row: CollectiveRow) -> str:
    """Preset cluster that a row is compared with; empty if there is none."""
    for fit in FITS:
        if fit.chosen(row):
            return fit.cluster
    return next((name for name, chosen in CHECKED if chosen(row)), "")


# --- matrix products ---------------------------------------------------------------------------

SEARCHED = {
    "a100-80gb": "NVIDIA A100 SXM",
    "h100": "NVIDIA H100 SXM",
    "h200": "NVIDIA H100 SXM",
    "b200": "NVIDIA B200 SXM",
    "b300": "NVIDIA B300 SXM",
    "gb200": "NVIDIA GB200 SXM",
    "mi300x": "AMD MI300X",
    "mi325x": "AMD MI325X",
    "mi355x": "AMD MI355X",
    "gaudi2": "Intel Gaudi 2",
    "gaudi3": "Intel Gaudi 3",
}
"""Best matrix product of a search over shapes, by accelerator."""


def fit_compute(path: Path) -> dict[str, Any]:
    """What calibration.json says of accelerators: their matrix products."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["precision"] == "bf16"]
    by_name = defaultdict(list)
    for row in rows:
        by_name[row["accelerator"]].append(row)
    kinds = {name: _searched(name, by_name[key][0]) for name, key in SEARCHED.items()}
    pcie = _fit(by_name["a100_pcie"], "a100-80gb")
    best = [float(by_name[f"NVIDIA A100 {form}"][0]["achieved_tflops"]) for form in ("SXM", "PCIe")]
    kinds["a100-80gb"] = pcie | {
        "compute": float(f"{pcie['compute'] * best[0] / best[1]:.3g}"),
        "source": f"{pcie['source']}; of the PCIe card, compute times {best[0]} / {best[1]}, the "
        "best of SXM over PCIe (github.com/stas00/ml-engineering @744d01e compute/accelerator)",
    }
    kinds["a100-40gb"] = kinds["a100-80gb"]
    kinds["b200"] = _fit(by_name["b200_bf16_ceperm"], "b200")
    tpu = _fit(by_name["Google TPU7x (Ironwood)"], "tpu-v7x", overhead=True, devices=2)
    start = tpu.pop("kernel_overhead")
    kinds["tpu-v7x"] = tpu
    data: dict[str, Any] = {}
    for name, matmuls in sorted(kinds.items()):
        grouped = matmuls | {"source": "as matmul, not measured by itself"}
        data[name] = {"efficiency": {"matmul": matmuls, "grouped-matmul": grouped}}
    data["tpu-v7x"] |= {"kernel_overhead": start, "source": tpu["source"]}
    return data


def _searched(name: str, row: Mapping[str, str]) -> dict[str, Any]:
    peak = load_accelerator(name).peak[Precision.BF16]
    compute = float(row["achieved_tflops"]) * 1e12 / peak
    source = (
        f"best of a search over shapes, {row['shape_MxNxK']}, {row['achieved_tflops']} TFLOP/s, an "
        f"upper bound for a model's shapes: {row['source']}"
    )
    return {"compute": float(f"{compute:.3g}"), "source": source}


def _fit(
    rows: Sequence[Mapping[str, str]], name: str, *, overhead: bool = False, devices: int = 1
) -> dict[str, Any]:
    """Efficiency of matrix products of an accelerator, or one of its equal devices."""
    chip = load_accelerator(name)
    device = replace(
        chip,
        peak={p: v / devices for p, v in chip.peak.items()},
        memory_bandwidth=chip.memory_bandwidth / devices,
        kernel_overhead=0.0,
    )
    operators, times = [], []
    for row in rows:
        m, n, k = (int(side) for side in row["shape_MxNxK"].split("x"))
        operator = matmul(m, n, k, result_bytes=4.0 if "out fp32" in row["notes"] else None)
        operators.append(operator)
        times.append(operator.flops / (float(row["achieved_tflops"]) * 1e12))
    fitted = fit_matmul(operators, times, device, overhead=overhead)
    numbers = {
        key: getattr(fitted.efficiency, key)
        for key in ("compute", "half_m", "half_n", "half_k")
        if getattr(fitted.efficiency, key)
    }
    part = f" of one of {devices} devices of a chip" if devices > 1 else ""
    data: dict[str, Any] = numbers | {
        "source": f"fitted to {fitted.residuals}{part}: {rows[0]['source']}"
    }
    if overhead:
        data["kernel_overhead"] = quantity_text(fitted.kernel_overhead, TIME)
    return data


def main() -> None:
    """Fit, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help=f"replace {TARGET.name}")
    arguments = parser.parse_args()
    rows, skipped = read_collectives(arguments.folder / "collectives.csv")
    clusters, networks = fit_networks(rows)
    for name, _ in CHECKED:
        clusters.setdefault(name, load_cluster(name))
    for label, residuals in sorted(compare(rows, clusters).items()):
        print(f"{label}: {residuals}")
    reasons: dict[str, int] = defaultdict(int)
    for reason in [s.reason for s in skipped] + [skip_reason(r) for r in rows]:
        reasons[reason] += 1
    reasons["no preset"] = sum(not skip_reason(r) and not cluster_of(r) for r in rows)
    for reason, count in sorted(reasons.items()):
        if reason and count:
            print(f"skipped {count}: {reason}")
    accelerators = fit_compute(arguments.folder / "matmul.csv")
    for name, fields in accelerators.items():
        print(f"{name}: {fields['efficiency']['matmul']}")
    if arguments.write:
        data = json.loads(TARGET.read_text("utf-8"))  # keeps what was fitted to training steps
        data |= {"about": ABOUT, "accelerators": accelerators, "networks": networks}
        TARGET.write_text(format_json(data), encoding="utf-8")


def format_json(data: Mapping[str, Any]) -> str:
    """Plain data as JSON, one line for a mapping that is not nested."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return re.sub(r"\{[^{}\[\]]*\}", lambda m: re.sub(r"\n\s*", " ", m[0]), text) + "\n"


if __name__ == "__main__":
    main()
