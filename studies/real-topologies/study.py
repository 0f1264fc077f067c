"""Networks of real systems: the same bandwidth, or the same money, spent in the best way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from drawing import bars, framed
from pages import Table, file_block

from libra.design import Design, Workload
from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.result import Result
from libra.units import format_time
from libra.yaml_source import Override

HERE = Path(__file__).parent
SYSTEMS = {
    "dgx-a100": "DGX A100",
    "dgx-h100": "DGX H100",
    "meta-24k": "Meta 24k H100",
    "tpu-v4": "TPU v4",
    "trn2": "Trn2",
    "frontier": "Frontier",
}

SWITCHED = {"dgx-a100", "dgx-h100", "meta-24k"}
"""Nodes of eight GPUs on a switch; the others have direct links first."""


def figures() -> dict[str, Any]:
    """Step times on each system as it is, and at the best splits of the same total or cost."""
    rows = [row for key in SYSTEMS for row in _rows(key)]
    at = {(row["key"], row["workload"]): row for row in rows}
    found: dict[str, Any] = {"rows": rows, "file": file_block(HERE / "frontier.yaml")}
    found["times"] = Table(
        {
            "system": "",
            "NPUs": ",d",
            "workload": "",
            "step": format_time,
            "communication": ".0%",
            "same total, faster by": ".0%",
            "same cost, faster by": ".0%",
        },
        [
            [
                *(row[k] for k in ("system", "npus", "workload", "real", "share")),
                row["total"],
                row["cost"],
            ]
            for row in rows
        ],
    )
    found["splits"] = Table(
        {
            "system": "",
            "dimensions": "",
            "workload": "",
            "has, GB/s": "",
            "best, same total": "",
            "best, same cost": "",
        },
        [
            [row[k] for k in ("system", "names", "workload", "has", "best_total", "best_cost")]
            for row in rows
        ],
    )
    for name, chosen in (("switched", SWITCHED), ("direct", set(SYSTEMS) - SWITCHED)):
        for workload in ("gpt-3", "msft-1t"):
            gains = [at[key, workload]["cost"] for key in chosen]
            what = f"{name}_{workload.replace('-', '_')}"
            found |= {f"least_{what}": min(gains), f"most_{what}": max(gains)}
    found["frontier_has"] = at["frontier", "gpt-3"]["real_split"][-1]
    found["frontier_wants"] = at["frontier", "msft-1t"]["cost_split"][-1]
    return found


def _rows(key: str) -> list[dict[str, Any]]:
    """One row a workload of a system."""
    reader = DesignReader(HERE / f"{key}.yaml")
    design = reader.read([])
    real = design.baseline
    assert real is not None
    cost = evaluate_design(design, real).network_cost
    afford = reader.read([Override("constraints", f"[cost <= {cost!r} USD]")])
    rows = []
    for workload in design.workloads:
        now = evaluate_design(_alone(design, workload), real)
        total, money = (optimize_design(_alone(d, workload)) for d in (design, afford))
        rows.append(
            {
                "key": key,
                "system": SYSTEMS[key],
                "npus": design.network.npus,
                "names": " / ".join(design.network.names),
                "workload": workload.name,
                "real": now.step_time,
                "share": 1 - now.workloads[0].compute / now.step_time,
                "total": now.step_time / total.step_time - 1,
                "cost": now.step_time / money.step_time - 1,
                "has": _split(now),
                "best_total": _split(total),
                "best_cost": _split(money),
                "real_split": [b / 1e9 for b in now.bandwidth],
                "cost_split": [b / 1e9 for b in money.bandwidth],
            }
        )
    return rows


def _alone(design: Design, workload: Workload) -> Design:
    return replace(design, workloads=(workload,))


def _split(result: Result) -> str:
    return " / ".join(f"{b / 1e9:.1f}" for b in result.bandwidth)


def chart(figures: dict[str, Any]) -> Any:
    """Gain of the best splits over what each system has."""
    kinds = {"total": "same total bandwidth", "cost": "same cost"}
    panels = []
    for workload in ("gpt-3", "msft-1t"):
        rows = [
            {"system": row["system"], "kind": kind, "gain": row[key]}
            for row in figures["rows"]
            if row["workload"] == workload
            for key, kind in kinds.items()
        ]
        title = f"{workload}: best split against the system's own"
        panels.append(bars(rows, ("gain", "faster by"), "system", "kind", title, form=".0%"))
    return framed(*panels)
