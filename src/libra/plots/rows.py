"""Rows of the charts of a result: plain data in SI units, which the drawing step scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from libra.baselines import result_baselines
from libra.result import Result
from libra.units import GB_PER_S, format_bytes, format_time

__all__ = [
    "bandwidth_rows",
    "baseline_rows",
    "gain_rows",
    "part_rows",
    "plain_data",
    "price_rows",
    "scenario_rows",
    "step_rows",
    "utilisation_rows",
]

Rows = list[dict[str, Any]]
Data = Mapping[str, Any]

LATENCY = "latency"
COMPUTE = "compute"
EXPOSED = "exposed communication"
MOST_COLLECTIVES = 12

PRICE_STEPS = {
    "GB/s": (1.0, "1 GB/s"),
    "USD": (1e6, "1 million USD"),
    "W": (1e3, "1 kW"),
    "s": (1e-3, "1 ms"),
    "x": (0.01, "0.01"),
}
"""By how much a limit is moved to say what it is worth: in its unit, and in words."""


def plain_data(result: Result | Data) -> Data:
    """Plain data of a result, with the keys of ``libra optimize --json``."""
    return result.to_dict() if isinstance(result, Result) else result


def bandwidth_rows(designs: Sequence[tuple[str, Data]]) -> Rows:
    """Bandwidth of each dimension in each of some designs.

    Parameters
    ----------
    designs : sequence of (str, mapping)
        Name, and data with ``dimensions`` and ``bandwidth_GBps``.

    Returns
    -------
    list of dict
        ``dimension``, ``design``, ``bandwidth`` [bytes/s], ``order`` of the design.
    """
    return [
        {"dimension": dimension, "design": name, "bandwidth": value * GB_PER_S, "order": k}
        for k, (name, data) in enumerate(designs)
        for dimension, value in zip(data["dimensions"], data["bandwidth_GBps"], strict=True)
    ]


def baseline_rows(result: Result | Data) -> Rows:
    """Bandwidths of a result beside those of its baselines.

    From plain data alone the one baseline is that of the speed-up.
    """
    data = plain_data(result)
    name = "best" if data["status"] == "optimal" else "these bandwidths"
    designs: list[tuple[str, Data]] = [(name, data)]
    if isinstance(result, Result):
        others = [b.to_dict() for b in result_baselines(result)]
        designs += [(b["name"], {**b, "dimensions": data["dimensions"]}) for b in others]
    elif data.get("baseline_GBps"):
        base = {"dimensions": data["dimensions"], "bandwidth_GBps": data["baseline_GBps"]}
        designs.append(("baseline", base))
    return bandwidth_rows(designs)


def part_rows(data: Data) -> Rows:
    """Compute and exposed communication of each workload's step.

    Returns
    -------
    list of dict
        ``workload``, ``part``, ``time`` [s], ``share`` of the step; none of a step without end.
    """
    return [
        {"workload": w["name"], "part": part, "time": w[key], "share": w[key] / w["step_time_s"]}
        for w in data["workloads"]
        if _ends(w)
        for part, key in ((COMPUTE, "compute_s"), (EXPOSED, "exposed_communication_s"))
    ]


def step_rows(data: Data) -> Rows:
    """Exposed communication by collective and by what limits it, the longest collectives first.

    Time that several dimensions limit together is shared among them evenly.

    Returns
    -------
    list of dict
        ``workload``, ``collective``, ``limit`` (dimension or latency), ``time`` [s], ``total`` of
        the collective [s], ``label`` that says so, ``order`` of the collective.
    """
    items = [(w, c) for w in data["workloads"] if _ends(w) for c in w["collectives"] if c["time_s"]]
    items.sort(key=lambda item: -item[1]["time_s"])
    several = len(data["workloads"]) > 1
    rows = []
    for order, (w, c) in enumerate(items[:MOST_COLLECTIVES]):
        name = f"{c['count']:g} x {c['kind']} {format_bytes(c['bytes'])}, {c['group']}"
        name = f"{w['name']}: {name}" if several else name
        rows += _collective_rows(w, c, data["dimensions"], name, order)
    rest = items[MOST_COLLECTIVES:]
    if rest:
        time = sum(c["time_s"] for _, c in rest)
        rows.append(_step_row("", f"{len(rest)} others", "others", time, time, MOST_COLLECTIVES))
    return rows


def _collective_rows(w: Data, c: Data, dimensions: Sequence[str], name: str, order: int) -> Rows:
    limits = {LATENCY: c["latency_s"]} if c["latency_s"] else {}
    rest = c["time_s"] - c["latency_s"]
    if c["limited_by"]:
        limits |= dict.fromkeys(c["limited_by"], rest / len(c["limited_by"]))
    else:
        limits |= {d: t for d, t in zip(dimensions, c["by_dimension_s"], strict=True) if t}
    return [
        _step_row(w["name"], name, limit, time, c["time_s"], order)
        for limit, time in limits.items()
        if time > 0
    ]


def _step_row(
    workload: str, collective: str, limit: str, time: float, total: float, order: int
) -> dict[str, Any]:
    return {
        "workload": workload,
        "collective": collective,
        "limit": limit,
        "time": time,
        "total": total,
        "label": format_time(total),
        "order": order,
    }


def utilisation_rows(data: Data) -> Rows:
    """How much of each workload's step compute and each dimension are in use.

    Returns
    -------
    list of dict
        ``what`` (compute or a dimension), ``workload``, ``share`` (1: the whole step), ``busy`` [s]
    """
    rows = []
    for w in data["workloads"]:
        if not _ends(w):
            continue
        step = w["step_time_s"]
        parts = [(COMPUTE, step - w["idle_s"])]
        parts += zip(data["dimensions"], w["busy_s"], strict=True)
        rows += [
            {"what": what, "workload": w["name"], "share": busy / step, "busy": busy}
            for what, busy in parts
            if busy is not None and math.isfinite(busy)
        ]
    return rows


def gain_rows(data: Data) -> Rows:
    """What more bandwidth in each dimension alone saves.

    Returns
    -------
    list of dict
        ``dimension``, ``more`` [GB/s], ``saved`` [s], ``share`` of the step time, ``label``.
    """
    step = data["step_time_s"]
    return [
        {
            "dimension": g["dimension"],
            "more": g["more_GBps"],
            "saved": g["saved_s"],
            "share": g["saved_s"] / step if step else 0.0,
            "label": f"{g['dimension']} +{g['more_GBps']:g} GB/s",
        }
        for g in data.get("gains") or ()
    ]


def price_rows(data: Data) -> Rows:
    """What each constraint is worth: how much of the objective one step of its limit saves.

    Returns
    -------
    list of dict
        ``constraint``, ``step`` (in words), ``share`` of the objective saved, ``label``;
        none where there is no price.
    """
    value = data["objective_value"]
    rows = []
    for p in data["shadow_prices"]:
        if p["value"] is None or not value:
            continue
        size, words = PRICE_STEPS[p["slack_unit"]]
        rows.append(
            {
                "constraint": p["constraint"],
                "step": words,
                "share": -p["value"] * size / value,
                "label": f"{p['constraint']}  (per {words})",
            }
        )
    return rows


def scenario_rows(data: Data) -> Rows:
    """Regret of each scenario at the robust and at the nominal bandwidths, the worst first.

    Returns
    -------
    list of dict
        ``scenario``, ``design``, ``regret`` (0: as fast as it could be), ``time`` [s], ``order``.
        None of a scenario that has no regret since nothing limits what it could have alone.
    """
    found = sorted(data.get("scenarios") or (), key=lambda s: -(s["regret"] or 0.0))
    return [
        {
            "scenario": s["name"],
            "design": design,
            "regret": max(s[ratio] - 1, 0.0),
            "time": s[time],
            "order": order,
        }
        for order, s in enumerate(found)
        for design, ratio, time in (
            ("with scenarios", "regret", "step_time_s"),
            ("without scenarios", "nominal_regret", "nominal_step_time_s"),
        )
        if s[ratio] is not None
    ]


def _ends(workload: Data) -> bool:
    time = workload["step_time_s"]
    return time is not None and 0 < time < math.inf
