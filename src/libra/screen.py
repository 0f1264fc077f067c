"""Results, designs and presets as tables on a terminal; plain text when it is none."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from libra.explain import answer_sentence, explain_result
from libra.fitting_table import FittingTable, new_table
from libra.units import GB_PER_S, format_bytes, format_money, format_power, format_time

if TYPE_CHECKING:
    from libra.price_range import PriceRange
    from libra.result import Result, Solver

__all__ = ["render", "result_table"]

_PLAIN_WIDTH = 100
_BAR = 12


def render(what: RenderableType, *, color: bool = False) -> str:
    """Text of a renderable, without colour unless asked."""
    buffer = io.StringIO()
    console = Console(
        emoji=False,
        file=buffer,
        width=_PLAIN_WIDTH,
        force_terminal=color,
        no_color=not color,
        highlight=False,
    )
    console.print(what)
    return buffer.getvalue().rstrip("\n")


def print_to(stream_console: Console, what: RenderableType) -> None:
    """Print to a console, at least as wide as the tables need when it is no terminal."""
    if not stream_console.is_terminal:
        stream_console.width = _PLAIN_WIDTH
    stream_console.print(what, highlight=False, crop=stream_console.is_terminal)


def bar(share: float) -> str:
    """Bar of a share between 0 and 1, in text."""
    full = round(max(0.0, min(1.0, share)) * _BAR)
    return "█" * full + "·" * (_BAR - full)


def result_table(result: Result) -> RenderableType:
    """Everything a person wants of a result on one screen."""
    design = result.design
    head = Text(f"{design.network.shape}, {design.network.npus:,} NPUs", style="bold")
    parts: list[RenderableType] = [head, Text(answer_sentence(result)), _dimension_table(result)]
    parts += [_figures(result), _workload_table(result)]
    if any(w.collectives for w in result.workloads):
        parts.append(_collective_table(result))
    if result.shadow_prices:
        parts.append(_constraint_table(result))
    if design.discrete:
        parts.append(_bill_table(result))
    if result.scenarios:
        parts.append(_scenario_table(result))
    if result.price_ranges is not None:
        parts.append(_price_table(result.price_ranges))
    parts.append(Text("What limits it", style="bold"))
    parts += [Text(f"  {line}") for line in explain_result(result)]
    parts += [Text(f"Warning: {line}", style="yellow") for line in design.warnings]
    if result.solver is not None:
        parts.append(Text(_solver_line(result.solver), style="dim"))
    return Group(*parts)


def _solver_line(solver: Solver) -> str:
    programs = f"{solver.iterations} cone program{'s' * (solver.iterations != 1)}"
    cuts = f"{solver.cuts} cut{'s' * (solver.cuts != 1)}"
    return f"Solved in {solver.seconds * 1e3:.1f} ms: {programs}, {cuts}."


def _dimension_table(result: Result) -> FittingTable:
    table = new_table(
        [
            ("Dimension", "left"),
            ("Block", "left"),
            ("Bandwidth GB/s", "right"),
            ("Share", "right"),
            ("", "left"),
            ("Cost", "right"),
            ("Busy", "right"),
            ("of step", "right"),
        ],
        spare=("", "Share", "Cost"),
    )
    design, total = result.design, float(result.bandwidth.sum())
    weights = [w.weight for w in design.workloads]
    costs = design.pricing.costs(result.bandwidth)
    for d, dimension in enumerate(design.network.dimensions):
        share = result.bandwidth[d] / total if total > 0 else 0.0
        busy = sum(k * w.busy[d] for k, w in zip(weights, result.workloads, strict=True))
        table.add_row(
            escape(design.network.names[d]),
            f"{dimension.topology.code}({dimension.size})",
            f"{result.bandwidth[d] / GB_PER_S:,.4f}",
            f"{share:.1%}",
            bar(share),
            format_money(float(costs[d])),
            format_time(busy),
            f"{busy / result.step_time:.1%}" if result.step_time > 0 else "",
        )
    table.add_section()
    table.add_row(
        "total", "", f"{total / GB_PER_S:,.4f}", "", "", format_money(result.network_cost)
    )
    return table


def _figures(result: Result) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("Step time", format_time(result.step_time))
    if result.gap is not None:
        table.add_row("Proven gap", f"{result.gap:.1e}")
    if result.schedule_bound is not None:
        open_gap = 1 - result.schedule_bound / result.objective_value
        text = f"at most {open_gap:.2%} better with any numbers of chunks and any orders"
        table.add_row("Schedules", text)
    energy = result.energy_cost
    of_which = f", of which energy {format_money(energy)}" if energy else ""
    table.add_row("Network cost", format_money(result.network_cost) + of_which)
    if result.network_power is not None:
        table.add_row("Network power", format_power(result.network_power))
    each = result.baseline / GB_PER_S
    same = bool((each == each[0]).all())
    against = f"{each[0]:,.4g} GB/s in each dimension"
    if not same:
        against = ", ".join(f"{b:,.4g}" for b in each)
    table.add_row("Speed-up", f"{result.speedup:.3f}x over {against}")
    for workload, simulation in zip(result.workloads, result.simulations or (), strict=False):
        off = simulation.time / workload.step_time - 1
        text = f"{format_time(simulation.time)}, {off:+.3%} to the model ({workload.name})"
        table.add_row("Simulated", Text(text))
    return table


def _workload_table(result: Result) -> FittingTable:
    table = new_table(
        [
            ("Workload", "left"),
            ("Step time", "right"),
            ("Compute", "right"),
            ("Exposed communication", "right"),
            ("Compute share", "right"),
            ("Compute idle", "right"),
        ],
        spare=("Compute share", "Compute idle"),
    )
    for w in result.workloads:
        share = w.compute / w.step_time if w.step_time > 0 else 1.0
        table.add_row(
            escape(w.name),
            format_time(w.step_time),
            format_time(w.compute),
            format_time(w.exposed_communication),
            f"{share:.1%}",
            format_time(w.idle),
        )
    return table


_MOST_COLLECTIVES = 12


def _collective_table(result: Result) -> FittingTable:
    """What the exposed communication consists of, the longest first."""
    table = new_table(
        [
            ("Collective", "left"),
            ("Size", "right"),
            ("Group", "left"),
            ("Count", "right"),
            ("Chunks", "right"),
            ("Time", "right"),
            ("of step", "right"),
            ("Limited by", "left"),
        ],
        spare=("Chunks", "of step", "Group"),
    )
    several = len(result.workloads) > 1
    items = [(w, c) for w in result.workloads for c in w.collectives]
    items.sort(key=lambda item: -item[1].time)
    for w, c in items[:_MOST_COLLECTIVES]:
        name = f"{w.name}: {c.collective.kind.value}" if several else c.collective.kind.value
        table.add_row(
            escape(name),
            format_bytes(c.collective.size),
            c.collective.group.name,
            f"{c.count:g}",
            "many" if c.chunks is None else str(c.chunks),
            format_time(c.time),
            f"{c.time / w.step_time:.2%}",
            escape(" and ".join(c.limited_by) or "latency"),
        )
    if len(items) > _MOST_COLLECTIVES:
        table.add_row(f"… {len(items) - _MOST_COLLECTIVES} more")
    return table


def _constraint_table(result: Result) -> FittingTable:
    priced = any(p.value is not None for p in result.shadow_prices)
    columns = [("Constraint", "left"), ("Slack", "right"), ("", "left")]
    if priced:
        columns.append(("Objective per unit", "right"))
    table = new_table(columns)
    for p in result.shadow_prices:
        state = "violated" if not p.met else "binds" if p.value and abs(p.slack) < 1e-6 else ""
        row = [escape(p.constraint), f"{_without_rounding(p.slack):,.4g} {p.slack_unit}", state]
        if priced:
            row.append("" if p.value is None else f"{p.value:.3g} {p.unit}")
        table.add_row(*row)
    return table


def _bill_table(result: Result) -> FittingTable:
    """Bill of materials."""
    columns = [("Bill of materials", "left"), ("", "left"), ("Count", "right")]
    columns += [("GB/s each", "right"), ("Price each", "right"), ("Price", "right")]
    powered = result.network_power is not None
    columns += [("Power", "right")] if powered else []
    table = new_table(columns, spare=("Price each", "GB/s each"))
    for item in result.bill:
        price, power = item.price, item.power
        row = [
            escape(item.dimension),
            escape(item.part),
            f"{item.count:,}",
            f"{item.bandwidth / GB_PER_S:,.4g}",
            "" if price is None else format_money(price / item.count),
            "included" if price is None else format_money(price),
        ]
        table.add_row(*row, *(["" if power is None else format_power(power)] if powered else []))
        if item.note:
            table.add_row("", escape(f"({item.note})"))
    return table


_MOST_SCENARIOS = 20


def _scenario_table(result: Result) -> FittingTable:
    """What the bandwidths achieve in each scenario, the worst regret first."""
    columns = [("Scenario", "left"), ("Share", "right"), ("Step time", "right")]
    columns += [("Best alone", "right"), ("Regret", "right"), ("Regret of nominal design", "right")]
    table = new_table(columns, spare=("Share", "Best alone"))
    ordered = sorted(result.scenarios, key=lambda s: -(s.regret or 0.0))
    for s in ordered[:_MOST_SCENARIOS]:
        table.add_row(
            escape(s.name),
            f"{s.share:.1%}",
            format_time(s.step_time),
            "no limit" if s.best is None else format_time(s.best),
            _regret(s.regret),
            _regret(s.nominal_regret) if s.nominal_allowed else "breaks a limit",
        )
    if len(ordered) > _MOST_SCENARIOS:
        table.add_row(f"… {len(ordered) - _MOST_SCENARIOS} more")
    return table


def _regret(ratio: float | None) -> str:
    return "" if ratio is None else f"{max(ratio - 1, 0):.3%}"


def _price_table(ranges: Sequence[PriceRange]) -> FittingTable:
    """How far each price may move."""
    columns = [("Price", "left"), ("", "right"), ("stays from", "right"), ("to", "right")]
    table = new_table(columns)
    for r in ranges:
        unit, scale = ("USD", 1.0) if r.part == "npu" else ("USD/(GB/s)", 1e9)
        ends = [
            "0" if factor == 0 else "any" if factor == float("inf") else
            f"{r.price * factor * scale:,.4g} ({factor:.2f}x)"
            for factor in (r.low, r.high)
        ]  # fmt: skip
        table.add_row(escape(r.part), f"{r.price * scale:,.4g} {unit}", *ends)
    return table


def _without_rounding(slack: float) -> float:
    """Slack in GB/s or USD; what is far below a byte per second or a cent is 0."""
    return 0.0 if abs(slack) < 1e-9 else slack


def check_table(summary: dict[str, object]) -> RenderableType:
    """Print form of `libra.check.summarize_design`."""
    parts: list[RenderableType] = [
        Text(f"{summary['network']}, {summary['npus']:,} NPUs", style="bold")
    ]
    details = _rows(summary["dimension_details"])
    latency = any(item["latency_s"] for item in details)
    columns = [("Dimension", "left"), ("Block", "left"), ("Size", "right"), ("Tier", "left")]
    columns += [("Latency of a hop", "right")] if latency else []
    choices = any(item["choices_GBps"] for item in details)
    columns += [("On offer, GB/s", "left")] if choices else []
    powered = any(item["power_w_per_GBps"] is not None for item in details)
    columns += [("USD per GB/s, all NPUs", "right")]
    columns += [("W per GB/s", "right")] if powered else []
    dimensions = new_table(columns, spare=("Tier", "Size"))
    for item in details:
        dimensions.add_row(
            escape(str(item["name"])),
            str(item["topology"]) + (f", radix {item['radix']}" if item["radix"] else ""),
            str(item["size"]),
            escape(str(item["tier"])),
            *([format_time(float(str(item["latency_s"])))] if latency else []),
            *([_offered(item["choices_GBps"])] if choices else []),
            f"{item['price_usd_per_GBps']:,.2f}",
            *([f"{item['power_w_per_GBps']:,.2f}"] if powered else []),
        )
    parts.append(dimensions)
    for workload in _rows(summary["workloads"]):
        parts.append(_traffic_table(workload))
        if "parameters" in workload:
            parts.append(_model_lines(workload))
    settings = Table.grid(padding=(0, 2))
    for key in ("objective", "training_loop", "collective_model"):
        if summary[key] is None:
            continue
        settings.add_row(key.replace("_", " ").capitalize(), str(summary[key]))
    constraints = summary["constraints"]
    assert isinstance(constraints, list)
    settings.add_row("Constraints", escape("\n".join(constraints) or "none"))
    scenarios = summary["scenarios"]
    if isinstance(scenarios, dict):
        settings.add_row("Scenarios", escape(_scenario_line(scenarios)))
    parts.append(settings)
    warnings = summary["warnings"]
    assert isinstance(warnings, list)
    parts += [Text(f"Warning: {line}", style="yellow") for line in warnings]
    return Group(*parts)


def _traffic_table(workload: dict[str, object]) -> FittingTable:
    """Collectives of a workload as it was understood."""
    table = new_table(
        [
            ("Collective", "left"),
            ("Size", "right"),
            ("Count", "right"),
            ("Group", "left"),
            ("Members along each dimension", "left"),
            ("Size counts", "left"),
        ],
        spare=("Group", "Size counts"),
        title=f"{escape(str(workload['name']))}: {workload['tasks']:,} tasks, compute "
        f"{format_time(float(str(workload['compute_s'])))}",
    )
    for c in _rows(workload["collectives"]):
        extents = c["extents"]
        assert isinstance(extents, list)
        table.add_row(
            str(c["kind"]),
            format_bytes(float(str(c["bytes"]))),
            f"{c['count']:g}",
            str(c["group"]),
            " x ".join(map(str, extents)),
            str(c["size_counts"]),
        )
    return table


def _model_lines(workload: dict[str, Any]) -> RenderableType:
    """Parameters, FLOPs and memory of a workload that is a model."""
    lines = Table.grid(padding=(0, 2))
    total, active = workload["parameters"], workload["active_parameters"]
    lines.add_row("Parameters", f"{total:,}" + (f", {active:,} active" if active < total else ""))
    again = workload["recomputed_flops_per_step"]
    more = f", and {again:.4g} computed again" if again else ""
    lines.add_row("FLOPs of a step", f"{workload['flops_per_step']:.4g}{more}")
    memory = workload["bytes_per_npu"]
    words = ", ".join(f"{key} {format_bytes(size)}" for key, size in memory.items() if size)
    lines.add_row("Memory of an NPU", f"{words} (stage {workload['fullest_stage']})")
    return lines


def _offered(choices: object) -> str:
    """Bandwidths that can be had [GB/s], the first and last of many."""
    if not isinstance(choices, list):
        return "any"
    each = [f"{b:g}" for b in choices]
    return ", ".join(each if len(each) <= 4 else [*each[:2], "…", each[-1]])


def _scenario_line(scenarios: Mapping[str, Any]) -> str:
    cases = [f"{case['name']} ({case['share']:.1%})" for case in scenarios["cases"]]
    more = f", … {len(cases) - _MOST_SCENARIOS} more" if len(cases) > _MOST_SCENARIOS else ""
    return f"{scenarios['minimize']} over {', '.join(cases[:_MOST_SCENARIOS])}{more}"


def _rows(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value
