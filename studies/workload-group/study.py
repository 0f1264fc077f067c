"""One network for a group of workloads against a network made for each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
from pages import Table, file_block

from libra.design import Design, Objective
from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import Memory, optimize_design
from libra.plots.theme import GREY, WIDTH, inline, styled
from libra.yaml_source import Override

FILE = Path(__file__).parent / "group-4d.yaml"
LEEWAY = 1.2


def figures() -> dict[str, Any]:
    """Slowdown of each workload on the network of each other, and on those for the group."""
    reader, memory = DesignReader(FILE), Memory()
    group = reader.read([])
    alone = {w.name: _alone(group, w.name) for w in group.workloads}
    best = {name: optimize_design(design, memory) for name, design in alone.items()}
    total = sum(best["gpt-3"].bandwidth)
    networks = {f"made for {name}": result.bandwidth for name, result in best.items()}
    networks["shared equally"] = [total / 4] * 4
    networks["least sum of times"] = optimize_design(
        replace(group, objective=Objective.TIME), memory
    ).bandwidth
    worst = optimize_design(group, memory)
    networks["least slowdown"] = worst.bandwidth
    cheap = optimize_design(reader.read([*_cheapest(list(alone))]), memory)
    networks["cheapest within 20 %"] = cheap.bandwidth
    rows = [
        {
            "network": network,
            "bandwidth": [b / 1e9 for b in bandwidth],
            "slowdown": {
                name: evaluate_design(design, bandwidth).step_time / best[name].step_time
                for name, design in alone.items()
            },
            "cost": evaluate_design(group, bandwidth).network_cost,
        }
        for network, bandwidth in networks.items()
    ]
    at = {row["network"]: row for row in rows}
    found: dict[str, Any] = {"rows": rows, "file": file_block(FILE), "count": len(alone)}
    found["bandwidths"] = Table(
        {
            "network": "",
            **{f"{name}, GB/s": ".1f" for name in group.network.names},
            "cost, M USD": ".1f",
            "largest slowdown": ".2f",
        },
        [
            [r["network"], *r["bandwidth"], r["cost"] / 1e6, max(r["slowdown"].values())]
            for r in rows
        ],
    )
    for key, network in (
        ("worst", "least slowdown"),
        ("sum", "least sum of times"),
        ("equal", "shared equally"),
    ):
        found[key] = max(at[network]["slowdown"].values()) - 1
    found["limited_by"] = _names(at["least slowdown"]["slowdown"])
    found["sum_hits"] = _names(at["least sum of times"]["slowdown"])
    found["least_foreign"], found["most_foreign"] = (
        pick(max(at[f"made for {name}"]["slowdown"].values()) for name in alone) - 1
        for pick in (min, max)
    )
    found["workloads"] = len(alone)
    found["worse_than_equal"] = sum(
        max(at[f"made for {name}"]["slowdown"].values()) - 1 > found["equal"] for name in alone
    )
    found["saved"] = 1 - cheap.network_cost / worst.network_cost
    found["cheap_cost"], found["worst_cost"] = cheap.network_cost / 1e6, worst.network_cost / 1e6
    return found


def _alone(group: Design, name: str) -> Design:
    """Design of one of the workloads alone, for time."""
    chosen = tuple(w for w in group.workloads if w.name == name)
    return replace(group, workloads=chosen, objective=Objective.TIME)


def _cheapest(names: list[str]) -> list[Override]:
    """The cheapest network on which no workload is slowed down by more than the leeway."""
    limits = ["total <= 300 GB/s", *(f"slowdown({name}) <= {LEEWAY}" for name in names)]
    return [Override("constraints", f"[{', '.join(limits)}]"), Override("objective", "cost")]


def _names(slowdowns: dict[str, float]) -> str:
    """Workloads that suffer most, within 0.1 %."""
    most = max(slowdowns.values())
    *others, last = [name for name, x in slowdowns.items() if x > 0.999 * most]
    return f"{', '.join(others)} and {last}" if others else last


def chart(figures: dict[str, Any]) -> Any:
    """Slowdown of each workload on each network, as a table of colours."""
    rows = [
        {"network": row["network"], "workload": name, "slowdown": slowdown}
        for row in figures["rows"]
        for name, slowdown in row["slowdown"].items()
    ]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    base = alt.Chart(inline(rows), width=WIDTH, height=alt.Step(30)).encode(
        x=alt.X(
            "workload:N",
            sort=workloads,
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0, grid=False),
        ),
        y=alt.Y("network:N", sort=networks, title=None, axis=alt.Axis(grid=False)),
    )
    color = alt.Color(
        "slowdown:Q",
        title="slowdown",
        scale=alt.Scale(type="log", scheme="oranges", domain=[1, 3]),
        legend=alt.Legend(values=[1, 1.5, 2, 3], format=".1f", gradientLength=200),
    )
    text = base.mark_text().encode(
        text=alt.Text("slowdown:Q", format=".2f"),
        color=alt.condition("datum.slowdown > 2", alt.value("white"), alt.value("#1c2128")),
    )
    return styled(base.mark_rect(stroke=GREY, strokeWidth=0.5).encode(color=color) + text)
