"""Fit the efficiencies of the presets to measured training steps.

    python tools/calibrate_training.py MEASUREMENTS.csv [--write]

MEASUREMENTS.csv has the columns of ``libra validate``. A seeded half of the rows of an accelerator
is fitted: of each two rows of a set that follow each other, one. Prints the residuals of both
halves, and of the sets that were not fitted at all; with ``--write`` replaces the part ``training``
of ``src/libra/presets/calibration.json``. Run it after tools/calibrate_accelerators.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_accelerators import TARGET, format_json

from libra.accelerators import load_cluster
from libra.calibrate_training import (
    FittedTraining,
    PreparedRow,
    fit_training,
    predict_fitted,
    prepare_row,
)
from libra.fitting import residuals_of
from libra.training_rows import TrainingRow, read_training_rows, split_rows
from libra.units import TIME
from libra.workload.compute import OperatorKind

FITS = {
    "a100-80gb": (
        "korthikanti-2022-table5",
        "megatron-sc21-table1",
        "vtrain-multi",
        "llm-foundry",
    ),
    "h100": ("llm-foundry",),
    "b200": ("simumax-b200",),
}
"""Sets that are fitted, by accelerator."""

SAME = {"a100-80gb": ("a100-40gb",), "h100": ("h200",)}
"""Accelerators with the same chip and another memory, which take the numbers over."""


def fitted_numbers(name: str, fit: FittedTraining, rows: Sequence[PreparedRow]) -> dict[str, Any]:
    """What calibration.json says of an accelerator."""
    from libra.accelerator_yaml import quantity_text

    chip = fit.accelerator
    sets = ", ".join(dict.fromkeys(p.row.set for p in rows))
    source = f"fitted to training steps of {name}: {fit.residuals}; {sets}"
    kinds: dict[str, Any] = {}
    for kind, efficiency in chip.efficiency.items():
        keys = ["compute", "memory", "half_m", "half_n", "half_k"]
        if kind in (OperatorKind.MATMUL, OperatorKind.GROUPED_MATMUL):
            keys.remove("memory")
        elif kind is not OperatorKind.ATTENTION:
            keys = ["memory"]
        numbers = {key: getattr(efficiency, key) for key in keys if getattr(efficiency, key)}
        kinds[kind.value] = numbers | {"source": source}
    overhead = quantity_text(chip.kernel_overhead, TIME)
    return {"efficiency": kinds, "kernel_overhead": overhead, "source": source}


def network_numbers(fit: FittedTraining, rows: Sequence[PreparedRow]) -> dict[str, Any]:
    """What calibration.json says of the dimension between nodes of the accelerator's cluster."""
    accelerator = rows[0].row.accelerator
    assert accelerator.cluster is not None
    cluster = load_cluster(accelerator.cluster.name)
    outer = [p for p in rows if p.between.any()]
    if not outer or len(cluster.dimensions) < 2:
        return {}
    pod = cluster.dimensions[-1]
    if any(kind.value != "point-to-point" for kind in pod.efficiency_by_size):
        return {}  # its own measurements say more
    base = NOMINAL[cluster.name]
    sets = ", ".join(dict.fromkeys(p.row.set for p in outer))
    data: dict[str, Any] = {"efficiency": _rounded(base * fit.between.collectives)}
    if any(p.row.plan.memory.pp > 1 for p in outer):
        fraction = _rounded(base * fit.between.messages)
        data["efficiency_by_size"] = {"point-to-point": [{"size": "1 MB", "fraction": fraction}]}
    source = f"{base:g} of nccl-tests times a fraction fitted to training steps: {sets}"
    return {cluster.name: {pod.tier: data | {"source": source}}}


NOMINAL = {"dgx-a100": 0.96, "dgx-h100": 0.925, "dgx-b200": 0.95}
"""Efficiency between nodes in presets/networks.yaml, which the fitted fraction multiplies."""


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def report(label: str, rows: Sequence[TrainingRow], fit: FittedTraining,
           prepared: dict[str, PreparedRow]) -> Iterator[str]:  # fmt: skip
    """Residuals by set."""
    for name in dict.fromkeys(row.set for row in rows):
        mine = [row for row in rows if row.set == name]
        times = [predict_fitted(prepared[r.id], fit.accelerator, fit.between) for r in mine]
        yield f"  {label} {name}: {residuals_of(times, np.array([r.seconds for r in mine]))}"


def main() -> None:
    """Fit, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--write", action="store_true", help=f"replace a part of {TARGET.name}")
    arguments = parser.parse_args()
    rows, _ = read_training_rows(arguments.measurements)
    accelerators: dict[str, Any] = {}
    networks: dict[str, Any] = {}
    for name, sets in FITS.items():
        mine = [r for r in rows if r.accelerator.name == name]
        fitted, held = split_rows([r for r in mine if r.set in sets])
        others = [r for r in mine if r.set not in sets]
        prepared = {row.id: prepare_row(row) for row in mine}
        chosen = [prepared[row.id] for row in fitted]
        fit = fit_training(chosen, mine[0].accelerator)
        print(f"{name}: {fit.between}")
        for label, part in (("fitted", fitted), ("held out", held), ("not fitted", others)):
            print(*report(label, part, fit, prepared), sep="\n")
        accelerators[name] = fitted_numbers(name, fit, chosen)
        for other in SAME.get(name, ()):
            accelerators[other] = accelerators[name]
        networks |= network_numbers(fit, chosen)
    if arguments.write:
        data = json.loads(TARGET.read_text("utf-8"))
        data["training"] = {"accelerators": accelerators, "networks": networks}
        TARGET.write_text(format_json(data), encoding="utf-8")


if __name__ == "__main__":
    main()
