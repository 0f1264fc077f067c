"""Section of one result: the answer, what if, and what the answer rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from libra.baselines import result_baselines
from libra.explain import answer_sentence, explain_result
from libra.network import parse_shape
from libra.report.details import (
    bill_card,
    design_card,
    prices_card,
    ranges_card,
    reproduce_card,
    scenario_card,
    timeline_card,
)
from libra.report.figures import Figures
from libra.report.html import Html, card, join, not_shown, table, tag
from libra.report.items import Item
from libra.report.what_if import MOST_TASKS
from libra.units import format_bytes, format_money, format_power, format_time

__all__ = ["item_section"]


def item_section(item: Item, key: str, figures: Figures, *, alone: bool) -> Html:
    """Everything about one result.

    Parameters
    ----------
    item : Item
    key : str
        Different for each item of a page.
    figures : mapping
        Of `start_figures`, with the same key.
    alone : bool
        Whether it is the only one, so that the page's title names it.
    """
    data = item.data
    npus = math.prod(size for _, size in parse_shape(data["network"]))
    head = f"{data['network']}, {npus:,} NPUs"
    warnings = [tag("p", f"Warning: {w}", class_="warning") for w in data.get("warnings") or ()]
    cards = [
        ("bandwidths", "Bandwidths", _bandwidth_card(item, key, figures)),
        ("limits", "What limits it", _limits_card(item, key, figures)),
        ("what-if", "What if", _what_if_card(item, key)),
        ("time", "Where the time goes", _time_card(item, key, figures)),
        ("timeline", "Timeline", timeline_card(item, key, figures)),
        ("scenarios", "Scenarios", scenario_card(item, key, figures)),
        ("prices", "Prices and assumptions", prices_card(item, key)),
        ("ranges", "Price ranges", ranges_card(item, key)),
        ("bill", "Bill of materials", bill_card(item, key)),
        ("design", "The design", design_card(item, key)),
        ("reproduce", "How to reproduce", reproduce_card(item, key)),
    ]
    links = [tag("li", tag("a", name, href=f"#{key}-{word}")) for word, name, _ in cards]
    return tag(
        "section",
        tag("h2", head if alone else f"{item.name}: {head}", id=key),
        tag("p", _answer(item), class_="answer"),
        *warnings,
        _figures(item),
        tag("nav", tag("ul", *links), aria_label=f"Parts of {item.name}"),
        *(content for _, _, content in cards),
        aria_labelledby=key,
    )


def _answer(item: Item) -> str:
    """The answer in one sentence."""
    if item.result is not None:
        return answer_sentence(item.result)
    step, gap = item.data["step_time_s"], item.data.get("gap")
    if step is None:
        return "The step never ends: a dimension with traffic has no bandwidth."
    proof = "" if gap is None else f" Proven: the objective is within {gap:.1e} of the best."
    return f"One step takes {format_time(step)}.{proof}"


def _figures(item: Item) -> Html:
    """Status, gap and the figures that decide."""
    data = item.data
    step, power = data["step_time_s"], data.get("network_power_w")
    shown: list[tuple[str, str, str]] = [
        ("Status", data["status"], f"objective {data.get('objective', 'time')}"),
        ("Step time", "no end" if step is None else format_time(step), _bound(data)),
    ]
    if data.get("gap") is not None:
        shown.append(
            (
                "Proven gap",
                f"{data['gap']:.1e}" if data["gap"] else "0",
                "of the objective, at most",
            )
        )
    shown.append(("Network cost", format_money(data["network_cost_usd"]), _energy(data)))
    shown.append(
        ("Network power", "not known" if power is None else format_power(power), _no_power(power))
    )
    if data.get("speedup_vs_baseline") is not None:
        each = data["baseline_GBps"]
        against = f"{each[0]:,.4g} GB/s each" if len(set(each)) == 1 else "the design's baseline"
        shown.append(("Speed-up", f"{data['speedup_vs_baseline']:.3f}x", f"over {against}"))
    cells = [
        tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))
        for name, value, note in shown
    ]
    return tag("dl", *cells, class_="figures")


def _bound(data: Mapping[str, Any]) -> str:
    bound = data.get("bound_s")
    return "" if bound is None else f"no less than {format_time(bound)}"


def _energy(data: Mapping[str, Any]) -> str:
    energy = data.get("energy_cost_usd") or 0.0
    return f"of which energy {format_money(energy)}" if energy else "NPUs not included"


def _no_power(power: float | None) -> str:
    return "the design has no power figures" if power is None else ""


_OUTPUTS = (
    ("total", "Total per NPU"),
    ("cost", "Network cost"),
    ("power", "Network power"),
    ("product", "Time x cost with NPUs"),
)


def _what_if_card(item: Item, key: str) -> Html:
    title, name = "What if", f"{key}-what-if"
    if item.result is None:
        return card(title, not_shown(f"{item.reason}."), key=name)
    result = item.result
    large = [
        w.name
        for w, t in zip(result.design.workloads, result.timings, strict=False)
        if not t.graph.is_chain and t.graph.tasks > MOST_TASKS
    ]
    note = (
        "Move a slider: the step is timed again in this page, along its whole task graph, as "
        "libra evaluate times it."
    )
    if large:
        note = (
            f"The task graph of {', '.join(large)} has more than {MOST_TASKS:,} tasks, too many "
            "for a page. It is timed along the critical path of the bandwidths above: at other "
            "bandwidths the step takes at least that long. libra evaluate gives the exact time."
        )
    if result.scenarios:
        note += " Times are those of the design without its scenarios."
    buttons = [
        tag("button", text, type="button", data_do=do)
        for do, text in (
            ("reset", "Reset to optimum" if item.data["status"] == "optimal" else "Reset"),
            ("equalise", "Equalise"),
            ("copyConstraints", "Copy as constraints"),
            ("copyLink", "Copy link to this state"),
        )
    ]
    time = tag("dd", tag("output", data_part="time"), tag("small", data_part="difference"))
    outputs = [tag("div", tag("dt", "Step time"), time, aria_live="polite")]
    outputs += [
        tag("div", tag("dt", text), tag("dd", tag("output", data_part=part)))
        for part, text in _OUTPUTS
    ]
    return card(
        title,
        tag("p", note, class_="note"),
        tag("noscript", tag("p", "This card needs JavaScript; all others do not.")),
        tag(
            "div",
            tag("div", class_="sliders"),
            tag("div", *buttons, class_="buttons"),
            tag("dl", *outputs, class_="figures"),
            tag("p", data_part="bottleneck"),
            tag("div", data_part="parts"),
            tag("h4", "Constraints"),
            tag("ul", data_part="rows", class_="checks"),
            tag("p", data_part="message", role="status"),
            tag("pre", data_part="copied", hidden=True, tabindex="0"),
            class_="what-if",
            data_key=key,
            data_model=f"{key}-model",
        ),
        key=name,
    )


def _bandwidth_card(item: Item, key: str, figures: Figures) -> Html:
    """Bandwidths beside the baselines."""
    data = item.data
    blocks = [f"{t.code}({n})" for t, n in parse_shape(data["network"])]
    total = sum(data["bandwidth_GBps"]) or 1.0
    costs = None
    if item.result is not None:
        costs = item.result.design.pricing.costs(item.result.bandwidth).tolist()
    rows: list[list[str | None]] = []
    for d, name in enumerate(data["dimensions"]):
        value = data["bandwidth_GBps"][d]
        row: list[str | None] = [name, blocks[d], f"{value:,.4f}", f"{value / total:.1%}"]
        rows.append(row + ([format_money(costs[d])] if costs else []))
    sums = ["total", "", f"{sum(data['bandwidth_GBps']):,.4f}", ""]
    rows.append([*sums, *([format_money(data["network_cost_usd"])] if costs else [])])
    head = ["Dimension", "Block", "GB/s per NPU", "Share", *(["Cost"] if costs else [])]
    shown = table(head, rows, caption="Bandwidth of each dimension")
    return card(
        "Bandwidths", shown, figures["bandwidth"](), _baselines(item), key=f"{key}-bandwidths"
    )


def _baselines(item: Item) -> Html:
    """Comparison with the baselines."""
    if item.result is None:
        return not_shown(f"step times of other baselines; {item.reason}.")
    step = item.result.step_time
    rows = [
        [
            b.name,
            ", ".join(f"{x / 1e9:,.4g}" for x in b.bandwidth.tolist()),
            format_time(b.step_time) if math.isfinite(b.step_time) else "no end",
            f"{b.step_time / step:.3f}x" if step else "",
            format_money(b.network_cost),
            "yes" if b.meets else "no",
        ]
        for b in result_baselines(item.result)
    ]
    head = ["Baseline", "GB/s", "Step time", "to this result", "Network cost", "Meets constraints"]
    note = (
        "Each baseline spreads the same total. By traffic: in proportion to the bytes that a step "
        "sends through each dimension."
    )
    return join([table(head, rows, caption="Baselines"), tag("p", note, class_="note")])


def _limits_card(item: Item, key: str, figures: Figures) -> Html:
    data = item.data
    lines = (
        tag("ul", *(tag("li", line) for line in explain_result(item.result)))
        if item.result is not None
        else not_shown(f"the explanation; {item.reason}.")
    )
    rows = [
        [
            p["constraint"],
            f"{p['slack'] if abs(p['slack']) > 1e-9 else 0:,.4g} {p['slack_unit']}",
            "" if p["value"] is None else f"{p['value']:.3g} {p['unit']}",
            "met" if p["met"] else "violated",
        ]
        for p in data["shadow_prices"]
    ]
    head = ["Constraint", "Slack", "Objective per unit", "State"]
    shown = (
        table(head, rows, caption="Constraints and their shadow prices")
        if rows
        else not_shown("the design has no constraints.")
    )
    return card("What limits it", lines, shown, figures["sensitivity"](), key=f"{key}-limits")


def _time_card(item: Item, key: str, figures: Figures) -> Html:
    data = item.data
    workloads = [
        [w["name"], *(_time(w.get(k)) for k in _TIMES)]
        + ([_time(w["simulated_s"])] if "simulated_s" in w else [])
        for w in data["workloads"]
    ]
    head = ["Workload", "Step time", "Compute", "Exposed communication", "Compute idle"]
    head += ["Simulated"] if workloads and len(workloads[0]) > len(head) else []
    parts = [
        table(head, workloads, caption="Workloads"),
        tag("h4", "By part"),
        figures["step"](),
        tag("h4", "In use during a step"),
        figures["use"](),
        _collectives(data),
    ]
    return card("Where the time goes", *parts, key=f"{key}-time")


_TIMES = ("step_time_s", "compute_s", "exposed_communication_s", "idle_s")


def _time(seconds: float | None) -> str:
    return "no end" if seconds is None else format_time(seconds)


_MOST_COLLECTIVES = 40


def _collectives(data: Mapping[str, Any]) -> Html:
    """Collectives on the critical path."""
    items = [(w["name"], c) for w in data["workloads"] for c in w["collectives"]]
    items = sorted(items, key=lambda i: -(i[1]["time_s"] or 0.0))
    rows = [
        [
            f"{c['kind']} {format_bytes(c['bytes'])}, {c['group']}",
            name,
            f"{c['count']:g}",
            "many" if c["chunks"] is None else str(c["chunks"]),
            _time(c["time_s"]),
            " and ".join(c["limited_by"]) or "latency",
        ]
        for name, c in items[:_MOST_COLLECTIVES]
    ]
    if not rows:
        return not_shown("no collective is on the critical path.")
    head = ["Collective", "Workload", "Count", "Chunks", "Time", "Limited by"]
    shown = table(head, rows, caption="Collectives on the critical path, the longest first")
    rest = len(items) - len(rows)
    return join([shown, tag("p", f"{rest} more are shorter.") if rest else None])
