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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_accelerators import TARGET, format_json

from libra.accelerator_yaml import quantity_text
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

KINDS = ("attention", "attention_memory", "elementwise", "optimizer", "kernel_overhead")
FITS = {
    "a100-80gb": (
        ("korthikanti-2022-table5", "megatron-sc21-table1", "vtrain-multi", "llm-foundry"),
        (*KINDS, "collectives", "messages"),
    ),
    "h100": (("llm-foundry",), (*KINDS, "matmul")),
    "b200": (("simumax-b200",), KINDS),
}
"""Sets that are fitted and what is fitted to them, by accelerator.

Matrix products of A100 and B200 were measured one by one, those of H100 only at their best shape.
Between nodes of DGX A100 one number was printed, the largest; other clusters were measured.
"""

MATMULS = (OperatorKind.MATMUL, OperatorKind.GROUPED_MATMUL)
SAME = {"a100-80gb": ("a100-40gb",), "h100": ("h200",)}
"""Accelerators with the same chip and another memory, which take the numbers over."""


def fitted_numbers(
    name: str, fit: FittedTraining, rows: Sequence[PreparedRow], names: Sequence[str]
) -> dict[str, Any]:
    """What calibration.json says of an accelerator."""
    chip = fit.accelerator
    sets = ", ".join(dict.fromkeys(p.row.set for p in rows))
    source = f"fitted to training steps of {name}: {fit.residuals}; {sets}"
    kinds: dict[str, Any] = {}
    for kind, efficiency in chip.efficiency.items():
        if kind in MATMULS and "matmul" not in names:
            continue
        keys = ["compute", "memory", "half_m", "half_n", "half_k"]
        if kind in MATMULS:
            keys.remove("memory")
        elif kind is not OperatorKind.ATTENTION:
            keys = ["memory"]
        numbers = {key: getattr(efficiency, key) for key in keys if getattr(efficiency, key)}
        kinds[kind.value] = numbers | {"source": source}
    overhead = quantity_text(chip.kernel_overhead, TIME)
    return {"efficiency": kinds, "kernel_overhead": overhead, "source": source}


def network_numbers(fit: FittedTraining, rows: Sequence[PreparedRow]) -> dict[str, Any]:
    """What calibration.json says of the dimension between nodes of DGX A100."""
    outer = [p for p in rows if p.between.any()]
    sets = ", ".join(dict.fromkeys(p.row.set for p in outer))
    message = _rounded(PRINTED * fit.between.messages)
    fitted = {
        "efficiency": _rounded(PRINTED * fit.between.collectives),
        "efficiency_by_size": {"point-to-point": [{"size": "1 MB", "fraction": message}]},
        "source": f"{PRINTED:g}, the largest that NVIDIA prints, times fractions fitted to the "
        f"training steps of {sets}",
    }
    return {"dgx-a100": {"pod": fitted}}


PRINTED = 0.96
"""Efficiency between nodes of dgx-a100 in presets/networks.yaml."""


def bare_row(row: TrainingRow) -> TrainingRow:
    """Row whose cluster lacks what was fitted here before."""
    if row.cluster.name != "dgx-a100":
        return row
    pod = replace(row.cluster.dimensions[-1], efficiency=PRINTED, efficiency_by_size={})
    return replace(
        row, cluster=replace(row.cluster, dimensions=(*row.cluster.dimensions[:-1], pod))
    )


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
    for name, (sets, names) in FITS.items():
        mine = [r for r in rows if r.accelerator.name == name]
        fitted, held = split_rows([r for r in mine if r.set in sets])
        others = [r for r in mine if r.set not in sets]
        prepared = {row.id: prepare_row(bare_row(row)) for row in mine}
        chosen = [prepared[row.id] for row in fitted]
        fit = fit_training(chosen, mine[0].accelerator, names)
        print(f"{name}: {fit.between}")
        for label, part in (("fitted", fitted), ("held out", held), ("not fitted", others)):
            print(*report(label, part, fit, prepared), sep="\n")
        accelerators[name] = fitted_numbers(name, fit, chosen, names)
        for other in SAME.get(name, ()):
            accelerators[other] = accelerators[name]
        if "collectives" in names:
            networks |= network_numbers(fit, chosen)
    if arguments.write:
        data = json.loads(TARGET.read_text("utf-8"))
        data["training"] = {"accelerators": accelerators, "networks": networks}
        TARGET.write_text(format_json(data), encoding="utf-8")


if __name__ == "__main__":
    main()
