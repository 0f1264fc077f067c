"""8,192 H100: lanes and NICs on offer under a limit on power, against bandwidths split at will."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
from drawing import framed
from pages import Table

from libra.design import Design
from libra.evaluate import evaluate_design
from libra.frontier import Against, time_frontier
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.plots.theme import GREY, MUTED, WIDTH, colors_of, inline, shapes_of
from libra.result import Result
from libra.yaml_source import Override

FOLDER = Path(__file__).parent
LANE = 25e9
LANES = range(1, 19)
NICS = {25: "200G", 50: "400G", 100: "800G"}
GPU_POWER = 700.0
"""Thermal design power of an H100 SXM [W] (github.com/stas00/ml-engineering, accelerators)."""

NPU = 25000.0
"""Price of a GPU with its share of the node [USD], an assumption; the study tries others."""

PRICES = range(0, 100_001, 500)
"""Prices of a GPU that are tried [USD]."""

MEASURED_POWER = 59570 / 512
"""Network of 512 H100 with its switches [W a GPU] (MLPerf Training v4.0, smc-ac-power)."""

SUPERPOD = (256, 256, 128)
"""Leaf, spine, core switches of a SuperPOD of 8,192 B200 (docs.nvidia.com/dgx-superpod)."""


def figures() -> dict[str, Any]:
    """Solve with parts and without, time every pair of parts, trace both frontiers."""
    reader = DesignReader(FOLDER / "design.yaml")
    design = reader.read()
    parts = optimize_design(design)
    free = optimize_design(reader.read(_at_will(reader)))
    pairs = _all_pairs(design)
    limit = 1e6
    allowed = [row for row in pairs if row["power"] <= limit]
    best = min(allowed, key=lambda row: row["time"])
    fastest_of = {
        nic: min((row for row in allowed if row["nic"] == nic), key=lambda row: row["time"])
        for nic in (25, 50)
    }
    built = next(row for row in pairs if row["lanes"] == 18 and row["nic"] == 50)
    above = min(
        (row for row in pairs if row["nic"] == 50 and row["power"] > limit),
        key=lambda row: row["power"],
    )
    frugal = min(pairs, key=lambda row: row["energy"])
    frontier = [
        row for row in sorted(pairs, key=lambda row: row["power"]) if _efficient(row, pairs)
    ]
    per_watt = [
        {"power": p.network_power, "time": p.step_time}
        for p in time_frontier(reader.read(_free_of_limit(reader)), 40, Against.POWER)
    ]
    rail_power = (built["power"] - 18 * LANE * design.pricing.power[0]) / 8192
    switches = sum(
        item.count for item in parts.bill if item.dimension == "rail" and "switch" in item.part
    )
    found: dict[str, Any] = {
        "time": parts.step_time,
        "lanes": round(parts.bandwidth[0] / LANE),
        "nic": NICS[round(parts.bandwidth[1] / 1e9)],
        "power": parts.network_power,
        "cost": parts.network_cost / 1e6,
        "pairs": len(pairs),
        "agrees": best["time"] / parts.step_time - 1,
        "free_time": free.step_time,
        "free_nvlink": free.bandwidth[0] / 1e9,
        "free_rail": free.bandwidth[1] / 1e9,
        "free_cost": free.network_cost / 1e6,
        "whole": parts.step_time / free.step_time - 1,
        "nearest_time": fastest_of[50]["time"],
        "nearest_lanes": fastest_of[50]["lanes"],
        "nearest_slower": fastest_of[50]["time"] / parts.step_time - 1,
        "nearest_saves": (parts.network_cost - fastest_of[50]["cost"]) / 1e6,
        "above_power": above["power"],
        "above_over": above["power"] / limit - 1,
        "above_lanes": above["lanes"],
        "above_gain": parts.step_time / above["time"] - 1,
        "above_cost": above["cost"] / 1e6,
        "above_saves": parts.network_cost / 1e6 - above["cost"] / 1e6,
        "built_time": built["time"],
        "built_power": built["power"] / 1e6,
        "built_cost": built["cost"] / 1e6,
        "limit_costs": parts.step_time / built["time"] - 1,
        "second_time": min(row["time"] for row in pairs),
        "second_gain": built["time"] / min(row["time"] for row in pairs) - 1,
        "second_power": min(pairs, key=lambda row: row["time"])["power"] / 1e6,
        "frugal_lanes": frugal["lanes"],
        "frugal_nic": NICS[frugal["nic"]],
        "frugal_energy": frugal["energy"] / 1e6,
        "limited_energy": best["energy"] / 1e6,
        "rail_power": rail_power,
        "measured_power": MEASURED_POWER,
        "switches": switches,
        "superpod": sum(SUPERPOD),
        "compute": parts.workloads[0].compute,
    }
    found["bill"] = _bill(parts)
    systems = _per_cost(reader, pairs, limit)
    found |= systems
    found["table"] = _table(parts, free, above, built, systems["solved"])
    found["frontier"] = [
        {"power": row["power"] / 1e6, "time": row["time"], "nic": NICS[row["nic"]]}
        for row in frontier
    ]
    found["curve"] = [{"power": row["power"] / 1e6, "time": row["time"]} for row in per_watt]
    found["marks"] = [
        {"power": row["power"] / 1e6, "time": row["time"], "what": what}
        for what, row in (
            (f"best below 1 MW: {best['lanes']} lanes, {NICS[best['nic']]}", best),
            ("as built: 18 lanes, 400G", built),
        )
    ]
    return found


def _at_will(reader: DesignReader) -> list[Override]:
    """Settings that take lanes and parts away."""
    dimensions = [dict(entry) for entry in reader.value("network")]
    for entry in dimensions:
        for key in ("lane", "max_lanes", "bandwidth_choices"):
            entry.pop(key, None)
    dimensions[0]["max_bandwidth"] = "450 GB/s"
    dimensions[1]["max_bandwidth"] = "100 GB/s"
    flow = ", ".join(
        "{" + ", ".join(f"{key}: {_text(value)}" for key, value in entry.items()) + "}"
        for entry in dimensions
    )
    return [Override("network", f"[{flow}]")]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _free_of_limit(reader: DesignReader) -> list[Override]:
    return [*_at_will(reader), Override("constraints", "[]")]


def _all_pairs(design: Design) -> list[dict[str, Any]]:
    """Every number of lanes with every NIC, timed."""
    rows = []
    for lanes in LANES:
        for nic in NICS:
            result = evaluate_design(design, [lanes * LANE, nic * 1e9])
            power = float(result.network_power or 0.0)
            rows.append(
                {
                    "lanes": lanes,
                    "nic": nic,
                    "time": result.step_time,
                    "power": power,
                    "cost": result.network_cost,
                    "energy": (power + 8192 * GPU_POWER) * result.step_time,
                }
            )
    return rows


def _per_cost(reader: DesignReader, pairs: list[dict[str, Any]], limit: float) -> dict[str, Any]:
    """Best time x cost of network and GPUs, and for which prices of a GPU it is which pair."""
    cases = {
        "time x network cost, below 1 MW": (0.0, []),
        "time x system cost, below 1 MW": (NPU, []),
        "time x system cost, no limit": (NPU, [Override("constraints", "[]")]),
    }
    solved = {
        name: optimize_design(
            reader.read(
                [
                    Override("objective", "time-cost"),
                    Override("prices.npu", f"{price} USD"),
                    *settings,
                ]
            )
        )
        for name, (price, settings) in cases.items()
    }
    alone, below, free = (_pair(result) for result in solved.values())
    allowed = [row for row in pairs if row["power"] <= limit]
    best = [(price, _pair_at(price, allowed), _pair_at(price, pairs)) for price in PRICES]
    all_lanes = [price for price, _, pair in best if pair == (LANES[-1], 50)]
    return {
        "solved": solved,
        "npu": NPU,
        "alone_lanes": alone[0],
        "alone_nic": NICS[alone[1]],
        "alone_time": solved["time x network cost, below 1 MW"].step_time,
        "system_lanes": below[0],
        "system_nic": NICS[below[1]],
        "system_from": min(price for price, pair, _ in best if pair == below),
        "system_to": max(price for price, pair, _ in best if pair == below),
        "dearest_lanes": best[-1][1][0],
        "dearest_nic": NICS[best[-1][1][1]],
        "unlimited_lanes": free[0],
        "unlimited_nic": NICS[free[1]],
        "all_lanes_from": min(all_lanes),
        "all_lanes_to": max(all_lanes),
    }


def _pair(result: Result) -> tuple[int, int]:
    """Lanes and NIC of a result."""
    return round(result.bandwidth[0] / LANE), round(result.bandwidth[1] / 1e9)


def _pair_at(price: float, rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Lanes and NIC of the least time x cost of network and GPUs at a price of a GPU [USD]."""
    best = min(rows, key=lambda row: row["time"] * (row["cost"] + 8192 * price))
    return best["lanes"], best["nic"]


def _efficient(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether no other row is faster at no more power."""
    return not any(o["time"] < row["time"] and o["power"] <= row["power"] for o in rows)


def _bill(result: Result) -> Table:
    columns = {
        "dimension": "",
        "part": "",
        "count": ",d",
        "GB/s each": ",.0f",
        "USD each": ",.0f",
        "M USD": ".1f",
        "kW": ".0f",
    }
    return Table(
        columns,
        [
            [
                item.dimension,
                item.part,
                item.count,
                item.bandwidth / 1e9,
                None if item.price is None else item.price / item.count,
                None if item.price is None else item.price / 1e6,
                None if item.power is None else item.power / 1e3,
            ]
            for item in result.bill
        ],
    )


def _table(
    parts: Result, free: Result, above: Any, built: Any, systems: dict[str, Result]
) -> Table:
    columns = {
        "network": "",
        "NVLink, GB/s": ".0f",
        "rail, GB/s": ".0f",
        "step, s": ".3f",
        "network, kW": ",.0f",
        "network, M USD": ".1f",
        "with GPUs, M USD": ".0f",
    }
    gpus = 8192 * NPU / 1e6

    def pair(name: str, row: Any) -> list[Any]:
        bandwidths = [row["lanes"] * LANE / 1e9, row["nic"]]
        cost = row["cost"] / 1e6
        return [name, *bandwidths, row["time"], row["power"] / 1e3, cost, gpus + cost]

    def solved(name: str, result: Result) -> list[Any]:
        power = float(result.network_power or 0.0)
        bandwidths = [float(b) / 1e9 for b in result.bandwidth]
        cost = result.network_cost / 1e6
        return [name, *bandwidths, result.step_time, power / 1e3, cost, gpus + cost]

    return Table(
        columns,
        [
            solved("split at will, below 1 MW", free),
            solved("whole parts, below 1 MW", parts),
            pair("least power above 1 MW with 400G", above),
            pair("18 lanes and 400G, no limit", built),
            *(solved(name, result) for name, result in systems.items()),
        ],
    )


def chart(figures: dict[str, Any]) -> Any:
    """Least step time at each power: parts on offer, and bandwidths split at will."""
    nics = list(NICS.values())
    x = alt.X("power:Q", title="power of the network, MW", scale=alt.Scale(domain=[0.4, 1.9]))
    y = alt.Y("time:Q", title="step, s", scale=alt.Scale(domain=[1.2, 2.4]))
    drawn = [row for row in figures["curve"] if row["power"] >= 0.4 and row["time"] <= 2.4]
    title = "Least step time of 8,192 H100 at each power of the network"
    curve = alt.Chart(inline(drawn), width=WIDTH, height=300, title=title)
    dots = alt.Chart(inline([row for row in figures["frontier"] if row["time"] <= 2.4]))
    names = alt.Chart(inline(figures["marks"]))
    own_title = "NIC of a GPU"
    return framed(
        curve.mark_line(color=GREY).encode(x=x, y=y)
        + dots.mark_point(filled=True, size=52, opacity=1).encode(
            x=x,
            y=y,
            color=alt.Color("nic:N", scale=colors_of(nics), sort=nics, title=own_title),
            shape=alt.Shape("nic:N", scale=shapes_of(nics), sort=nics, title=own_title),
        )
        + names.mark_text(align="left", dx=8, dy=-10).encode(x=x, y=y, text="what:N")
        + alt.Chart(inline([{"power": 0.66, "time": 1.5}]))
        .mark_text(align="right", dx=-6, color=MUTED)
        .encode(x=x, y=y, text=alt.value("split at will"))
    )
