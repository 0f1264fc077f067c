"""Cards on what a result rests on: timeline, scenarios, prices, bill, design, how to repeat it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from libra import __version__
from libra.check import summarize_design
from libra.cost import Curve, PowerList, PriceList, curve_steps
from libra.presets import list_presets
from libra.report.figures import Figures
from libra.report.html import Html, card, join, not_shown, table, tag
from libra.report.items import Item
from libra.units import GB_PER_S, format_money, format_power, format_time

__all__ = [
    "bill_card",
    "design_card",
    "prices_card",
    "ranges_card",
    "reproduce_card",
    "scenario_card",
    "timeline_card",
]


def timeline_card(item: Item, key: str, figures: Figures) -> Html:
    """When everything runs, and a close-up where the whole is too dense."""
    title, name = "Timeline", f"{key}-timeline"
    if item.result is None:
        return card(title, not_shown(f"{item.reason}."), key=name)
    if "timeline" not in figures:
        return card(title, not_shown("the step never ends."), key=name)
    parts = [figures["timeline"]()]
    if "close" in figures:
        parts += [tag("h4", "Close-up of the middle"), figures["close"]()]
    return card(title, *parts, key=name)


def scenario_card(item: Item, key: str, figures: Figures) -> Html:
    """What the bandwidths achieve in each scenario."""
    title, name = "Scenarios", f"{key}-scenarios"
    found = item.data.get("scenarios") or ()
    if not found:
        return card(title, not_shown("the design has no scenarios."), key=name)
    rows = [
        [
            s["name"],
            f"{s['share']:.1%}",
            format_time(s["step_time_s"]),
            "no limit" if s["best_s"] is None else format_time(s["best_s"]),
            _regret(s["regret"]),
            _regret(s["nominal_regret"]) if s.get("nominal_allowed", True) else "breaks a limit",
        ]
        for s in sorted(found, key=lambda s: -(s["regret"] or 0.0))
    ]
    head = ["Scenario", "Share", "Step time", "Best alone", "Regret", "Regret without scenarios"]
    shown = table(head, rows, caption="Scenarios, the worst regret first")
    return card(title, figures["scenario"](), shown, key=name)


def _regret(ratio: float | None) -> str:
    """Regret in per cent; nothing where the scenario alone has no best."""
    return "" if ratio is None else f"{max(ratio - 1, 0):.3%}"


def prices_card(item: Item, key: str) -> Html:
    """Prices, power and what the model assumes, with sources."""
    title, name = "Prices and assumptions", f"{key}-prices"
    if item.result is None:
        return card(title, not_shown(f"{item.reason}."), key=name)
    design = item.result.design
    parts = [tag("h4", "Prices"), _price_table(design.prices, "USD/(GB/s)", "Prices")]
    parts.append(tag("p", *_price_notes(design.prices)))
    parts.append(tag("h4", "Power"))
    if design.power is None:
        parts.append(not_shown("the design has no power figures."))
    else:
        parts.append(_price_table(design.power, "W/(GB/s)", "Power"))
        doubt = design.power.unconfirmed
        unread = f" Not confirmed by a source: {', '.join(doubt)}." if doubt else ""
        parts.append(tag("p", f"Source: {design.power.source}.{unread}"))
        if (item.data.get("design") or {}).get("settings", {}).get("power") == "default":
            parts.append(_preset_sources("power"))
    summary = summarize_design(design)
    rows: list[list[str | None]] = [
        ["Objective", str(summary["objective"])],
        ["Training loop, if a workload has none of its own", str(summary["training_loop"])],
        ["Collectives", str(summary["collective_model"])],
    ]
    rows += [
        [f"Workload {w['name']}", f"{w['source'] or 'made in Python'}; {w['tasks']:,} tasks"]
        for w in summary["workloads"]
    ]
    parts.append(tag("h4", "Assumptions"))
    parts.append(table(["What", "As understood"], rows, caption="Assumptions"))
    return card(title, *parts, key=name)


def _preset_sources(kind: str) -> Html:
    """Source of each number of the default list."""
    rows = [[row["name"], row["value"], row["source"]] for row in list_presets(kind)]
    return tag(
        "details",
        tag("summary", "Source of each figure"),
        table(["Figure", "Value", "Source"], rows, caption="Sources of the default list"),
    )


def _price_table(figures: PriceList | PowerList, unit: str, caption: str) -> Html:
    rows = [
        [tier, *(_curve(getattr(parts, part)) for part in ("link", "switch", "nic"))]
        for tier, parts in figures.tiers.items()
    ]
    if not rows:
        return not_shown("no tier has a figure of its own.")
    return table(
        ["Tier", "Link", "Switch", "NIC"],
        rows,
        caption=f"{caption} in {unit} of an NPU's bandwidth",
    )


def _curve(curve: Curve | None) -> str:
    """Figure of a part, or its steps."""
    if curve is None:
        return "none"
    return ", then ".join(
        f"{rate * GB_PER_S:,.4g}" + ("" if limit == np.inf else f" up to {limit / GB_PER_S:g} GB/s")
        for limit, rate in curve_steps(curve)
    )


def _price_notes(prices: PriceList) -> list[str]:
    notes = [f"Source: {prices.source}. Direct links are counted {prices.direct_links.value}."]
    if prices.npu:
        notes.append(f" An NPU costs {format_money(prices.npu)}.")
    if prices.energy is not None:
        notes.append(f" A watt costs {format_money(prices.energy.per_watt)} over the years.")
    return notes


def ranges_card(item: Item, key: str) -> Html:
    """How far prices may move."""
    title, name = "Price ranges", f"{key}-ranges"
    found = item.data.get("price_ranges")
    if found is None:
        reason = "they were not asked for; libra optimize DESIGN --price-ranges 1 adds them."
        return card(title, not_shown(reason), key=name)
    if not found:
        return card(title, not_shown("no price decides."), key=name)
    head = [k.replace("_", " ") for k in found[0]]
    rows = [[_plain(v) for v in entry.values()] for entry in found]
    caption = "How far each price may move, alone, while the answer stays"
    return card(title, table(head, rows, caption=caption), key=name)


def _plain(value: Any) -> str:
    if value is None:
        return "any"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def bill_card(item: Item, key: str) -> Html:
    """Bill of materials."""
    title, name = "Bill of materials", f"{key}-bill"
    found = item.data.get("bill_of_materials") or ()
    if not found:
        return card(title, not_shown("the network has no parts."), key=name)
    powered = any(b["power_w"] is not None for b in found)
    head = ["Dimension", "Part", "Count", "GB/s each", "Price each", "Price"]
    rows = [
        [
            b["dimension"],
            f"{b['part']} ({b['note']})" if b["note"] else b["part"],
            f"{b['count']:,}",
            f"{b['bandwidth_GBps']:,.4g}",
            "" if b["unit_price_usd"] is None else format_money(b["unit_price_usd"]),
            "included" if b["price_usd"] is None else format_money(b["price_usd"]),
        ]
        + ([_power(b)] if powered else [])
        for b in found
    ]
    shown = table([*head, "Power"] if powered else head, rows, caption="Parts of the network")
    note = "Of bandwidths that are no whole lanes, an NPU is taken to have one port to a switch."
    return card(title, shown, tag("p", note, class_="note"), key=name)


def _power(item: Mapping[str, Any]) -> str:
    return "" if item["power_w"] is None else format_power(item["power_w"])


def design_card(item: Item, key: str) -> Html:
    """The design itself."""
    title, name = "The design", f"{key}-design"
    settings = (item.data.get("design") or {}).get("settings")
    if not settings:
        reason = "the result does not hold the text of its design (made in Python, or an old file)."
        return card(title, not_shown(reason), key=name)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)
    return card(title, tag("pre", tag("code", text), tabindex="0"), key=name)


def reproduce_card(item: Item, key: str) -> Html:
    """What to run to get the same."""
    title, name = "How to reproduce", f"{key}-reproduce"
    file = (item.data.get("design") or {}).get("file") or ""
    status, solver = item.data["status"], item.data.get("solver")
    lines = [
        tag("p", "Save the design above as design.yaml beside its traces, then run:")
        if file
        else tag("p", "The design was made in Python; with it as design, run:")
    ]
    each = ",".join(f"{b!r}" for b in item.data["bandwidth_GBps"])
    if file:
        command = "libra optimize design.yaml" if status == "optimal" else ""
        command = command or f"libra evaluate design.yaml --bandwidth {shlex.quote(each)}"
        lines.append(
            tag(
                "pre",
                tag("code", f"pip install libra-fabric=={__version__}\n{command}"),
                tabindex="0",
            )
        )
        lines.append(tag("p", f"The design was read from {file}."))
    else:
        call = "libra.optimize_design(design)" if status == "optimal" else "libra.evaluate_design"
        lines.append(tag("pre", tag("code", call), tabindex="0"))
    tools = f"libra {__version__}, Python {platform.python_version()}"
    took = ""
    if solver is not None:
        took = (
            f" The result took {solver['iterations']} cone programs, {solver['cuts']} cuts and "
            f"{format_time(solver['seconds'])}."
        )
    lines.append(tag("p", f"This page was written by {tools}.{took}", class_="note"))
    return card(title, join(lines), key=name)
