"""A runtime scheduler that balances dimensions: used on a network made without it, and with it."""

from __future__ import annotations

from typing import Any

from drawing import bars, framed
from pages import Table

from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.presets import example_folder
from libra.result import Result
from libra.units import format_time
from libra.yaml_source import Override

WORKLOADS = ("turing-nlg", "gpt-3", "msft-1t", "resnet-50", "dlrm")
READERS = {name: DesignReader(example_folder() / f"{name}-4d.yaml") for name in WORKLOADS}
TOTAL = 300
SETTINGS = {
    "free": [],
    # Those of the reference implementation's multiple_constraints (dim1 = 500, dim3 + dim4 = 200 of
    # 1,000 GB/s, dim1 >= dim2 >= dim3: github.com/astra-sim/libra inputs/constraints), to scale.
    "limited": [
        "chiplet == 150 GB/s",
        "chiplet >= package",
        "package >= node",
        "node + pod == 60 GB/s",
    ],
}
FIXED, BALANCED = "multi-rail", "balanced"
SAME, SLACK = 1.001, 1.01
"""Step times, over the least, that count as the least, and as good enough to save money."""
BOTH = (
    "{minimize: regret, cases: ["
    + ", ".join(
        f"{{name: {a}, set: {{collectives: {{algorithm: {a}}}}}}}" for a in (FIXED, BALANCED)
    )
    + "]}"
)


def figures() -> dict[str, Any]:
    """Design each workload's network without, with, and for both; run it without and with."""
    rows = [_row(setting, name) for setting in SETTINGS for name in WORKLOADS]
    at = {(row["setting"], row["workload"]): row for row in rows}
    found: dict[str, Any] = {"rows": rows, "total": TOTAL}
    found["times"] = Table(
        {
            "limits": "",
            "workload": "",
            "equal split, fixed order": format_time,
            "scheduler on it": ".3f",
            "best for the fixed order": format_time,
            "scheduler on that": ".3f",
            "best with the scheduler": ".3f",
            "one network for both, at worst": ".3f",
        },
        [
            [
                row["setting"],
                row["workload"],
                row["equal"],
                row["equal"] / row["equal_after"],
                row["fixed"],
                1 + row["gain_after"],
                1 + row["gain_codesigned"],
                row["regret"],
            ]
            for row in rows
        ],
    )
    found["costs"] = Table(
        {
            "limits": "",
            "workload": "",
            "fixed order, M USD": ".2f",
            "with the scheduler, M USD": ".2f",
            "saved": ".0%",
        },
        [
            [
                row["setting"],
                row["workload"],
                row["cost"] / 1e6,
                row["cost_with"] / 1e6,
                _saved(row),
            ]
            for row in rows
        ],
    )
    ratios = [row["equal"] / row["equal_after"] for row in rows if row["setting"] == "free"]
    found |= {"least_on_equal": min(ratios), "most_on_equal": max(ratios)}
    found["msft_on_equal"] = at["free", "msft-1t"]["equal"] / at["free", "msft-1t"]["equal_after"]
    for (setting, name), row in at.items():
        key = f"{name.replace('-', '_')}_{setting}"
        found |= {f"{key}_{what}": row[f"gain_{what}"] for what in ("after", "codesigned")}
        found[f"{key}_saved"] = _saved(row)
    nothing = [r for r in rows if r["setting"] == "free" and r["gain_codesigned"] < 1e-4]
    found["nothing_to_gain"] = len(nothing)
    found["most_regret"] = max(row["regret"] for row in rows) - 1
    return found


def _saved(row: dict[str, Any]) -> float:
    """Part of the cost that the scheduler saves; not below 0 by what rounding leaves."""
    return max(1 - float(row["cost_with"] / row["cost"]), 0.0)


def _row(setting: str, workload: str) -> dict[str, Any]:
    """Times and costs of one workload under one set of limits."""
    limits = [f"total == {TOTAL} GB/s", *SETTINGS[setting]]
    fixed, balanced = (_load(workload, limits, algorithm=a) for a in (FIXED, BALANCED))
    fastest, codesigned = optimize_design(fixed), optimize_design(balanced)
    # Many networks may be the fastest for the fixed order; of these, the cheapest would be built.
    built = _cheapest(workload, limits, SAME * fastest.step_time, FIXED)
    both = optimize_design(_load(workload, limits, scenarios=BOTH))
    equal = [TOTAL * 1e9 / 4] * 4
    row = {
        "setting": setting,
        "workload": workload,
        "equal": evaluate_design(fixed, equal).step_time,
        "equal_after": evaluate_design(balanced, equal).step_time,
        "fixed": fastest.step_time,
        "gain_after": built.step_time / evaluate_design(balanced, built.bandwidth).step_time - 1,
        "gain_codesigned": fastest.step_time / codesigned.step_time - 1,
        "regret": both.objective_value,
    }
    limits[0] = f"total <= {TOTAL} GB/s"
    for key, algorithm in (("cost", FIXED), ("cost_with", BALANCED)):
        cheapest = _cheapest(workload, limits, SLACK * fastest.step_time, algorithm)
        row[key] = cheapest.network_cost
    return row


def _cheapest(workload: str, limits: list[str], seconds: float, algorithm: str) -> Result:
    """Cheapest network with a step time of at most so many seconds."""
    rows = [*limits, f"time({workload}) <= {seconds!r} s"]
    return optimize_design(_load(workload, rows, algorithm=algorithm, objective="cost"))


def _load(workload: str, limits: list[str], **settings: str) -> Any:
    """The shipped 4D design of a workload under other limits and settings."""
    overrides = [Override("constraints", f"[{', '.join(limits)}]")]
    if "algorithm" in settings:
        overrides.append(Override("collectives", f"{{algorithm: {settings.pop('algorithm')}}}"))
    overrides += [Override(path, value) for path, value in settings.items()]
    return READERS[workload].read(overrides)


def chart(figures: dict[str, Any]) -> Any:
    """Step times relative to the network made for the fixed order, and run so."""
    kinds = {
        "made without, run with the scheduler": "gain_after",
        "made and run with the scheduler": "gain_codesigned",
    }
    panels = []
    for setting in SETTINGS:
        rows = [
            {"workload": row["workload"], "kind": kind, "gain": round(row[key], 6)}
            for row in figures["rows"]
            if row["setting"] == setting
            for kind, key in kinds.items()
        ]
        title = f"Against the best network for the fixed order, {setting} split"
        panels.append(bars(rows, ("gain", "faster by"), "workload", "kind", title, form=".1%"))
    return framed(*panels)
