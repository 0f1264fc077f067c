"""Tables of several solves: frontiers, sweeps, comparisons; on a terminal and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from libra.compare import Compared
from libra.fitting_table import new_table
from libra.frontier import FrontierPoint
from libra.sweep import Axis, SweepRow
from libra.units import GB_PER_S, format_money, format_power, format_time

__all__ = [
    "compare_table",
    "frontier_csv",
    "frontier_table",
    "sweep_csv",
    "sweep_table",
]


def frontier_table(names: Sequence[str], points: Sequence[FrontierPoint]) -> RenderableType:
    """Table of a frontier."""
    powered = any(p.network_power is not None for p in points)
    columns = [("Network cost", "right")] + [("Power", "right")] * powered
    columns += [("Step time", "right"), ("Gap", "right")]
    columns += [(escape(name), "right") for name in names]
    title = "Least step time at each limit; bandwidths in GB/s"
    table = new_table(columns, title, spare=("Gap",))
    for point in points:
        power = [format_power(point.network_power)] if point.network_power is not None else []
        table.add_row(
            format_money(point.network_cost),
            *power,
            format_time(point.step_time),
            f"{max(point.gap, 0):.0e}",
            *(f"{b / GB_PER_S:,.4g}" for b in point.bandwidth),
        )
    return table


def frontier_csv(names: Sequence[str], points: Sequence[FrontierPoint]) -> str:
    """Frontier as CSV, one row a point."""
    head = ["network_cost_usd", "step_time_s", "bound_s", "network_power_w"]
    rows = [
        [p.network_cost, p.step_time, p.bound, p.network_power, *(p.bandwidth / GB_PER_S).tolist()]
        for p in points
    ]
    return _csv([*head, *(f"{name}_GBps" for name in names)], rows)


def sweep_table(axes: Sequence[Axis], rows: Sequence[SweepRow]) -> RenderableType:
    """Table of a sweep."""
    solved = [row.result for row in rows if row.result is not None]
    names = solved[0].design.network.names if solved else ()
    same = all(result.design.network.names == names for result in solved)
    powered = any(result.network_power is not None for result in solved)
    last = [axis.path.split(".")[-1] for axis in axes]
    shown = [a.path if last.count(word) > 1 else word for a, word in zip(axes, last, strict=True)]
    columns = [(escape(word), "right") for word in shown]
    columns += [("Step time", "right"), ("Network cost", "right")]
    columns += [("Power", "right")] * powered + [("Speed-up", "right"), ("Gap", "right")]
    columns += [(escape(name), "right") for name in names] if same else [("GB/s", "left")]
    title = "Optimum for each value; bandwidths in GB/s"
    table = new_table(columns, title, spare=("Gap", "Speed-up"), keys=len(axes))
    for row in rows:
        values = [escape(value) for value in row.values]
        if row.result is None:
            table.add_row(*values, escape(row.status))
            continue
        result = row.result
        power = [] if result.network_power is None else [format_power(result.network_power)]
        bandwidths = [f"{b / GB_PER_S:,.4g}" for b in result.bandwidth]
        table.add_row(
            *values,
            format_time(result.step_time),
            format_money(result.network_cost),
            *(power or [""] * powered),
            f"{result.speedup:.3f}x",
            f"{max(result.gap or 0.0, 0.0):.0e}",
            *(bandwidths if same else [", ".join(bandwidths)]),
        )
    return table


def sweep_csv(axes: Sequence[Axis], rows: Sequence[SweepRow]) -> str:
    """Sweep as CSV, one row a solve; bandwidths of a dimension that a row lacks stay empty."""
    names: dict[str, None] = {}
    for row in rows:
        if row.result is not None:
            names |= dict.fromkeys(row.result.design.network.names)
    head = [*(axis.path for axis in axes), "status", "objective_value", "objective_bound"]
    head += ["step_time_s", "network_cost_usd", "network_power_w", "speedup_vs_baseline"]
    lines = []
    for row in rows:
        line: list[Any] = [*row.values, row.status]
        if row.result is not None:
            r = row.result
            line += [r.objective_value, r.objective_bound, r.step_time, r.network_cost]
            line += [r.network_power, r.speedup]
            own = dict(zip(r.design.network.names, (r.bandwidth / GB_PER_S).tolist(), strict=True))
            line += [own.get(name) for name in names]
        lines.append(line)
    return _csv([*head, *(f"{name}_GBps" for name in names)], lines)


_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("Step time", "step_time_s", format_time),
    ("Network cost", "network_cost_usd", format_money),
    ("Network power", "network_power_w", format_power),
)


def compare_table(found: Sequence[Compared]) -> RenderableType:
    """Things side by side, one a column; in brackets how many times the first one."""
    table = new_table([("", "left"), *((escape(c.name), "right") for c in found)])
    first = found[0]
    for label, key in (("Network", "network"), ("Objective", "objective"), ("Status", "status")):
        table.add_row(label, *(escape(str(c.data.get(key, ""))) for c in found))
    for label, key, form in _FIGURES:
        if any(c.data.get(key) is not None for c in found):
            table.add_row(label, *(_figure(c, first, key, form) for c in found))
    names = list(dict.fromkeys(name for c in found for name in c.data["dimensions"]))
    for name in names:
        table.add_row(f"{escape(name)} GB/s", *(_bandwidth(c, name) for c in found))
    workloads = list(dict.fromkeys(w["name"] for c in found for w in c.data["workloads"]))
    for name in workloads if len(workloads) > 1 else ():
        table.add_row(f"{escape(name)}, step", *(_step(c, name) for c in found))
    return table


def _figure(item: Compared, first: Compared, key: str, form: Callable[[float], str]) -> str:
    value = item.data.get(key)
    if value is None:
        return ""
    ratio = item.ratio(first, key)
    return form(value) if item is first or ratio is None else f"{form(value)} ({ratio:.3f}x)"


def _bandwidth(item: Compared, name: str) -> str:
    own = dict(zip(item.data["dimensions"], item.data["bandwidth_GBps"], strict=False))
    return f"{own[name]:,.4g}" if own.get(name) is not None else ""


def _step(item: Compared, name: str) -> str:
    times = {w["name"]: w["step_time_s"] for w in item.data["workloads"]}
    return format_time(times[name]) if times.get(name) is not None else ""


def _csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return buffer.getvalue()
