"""Several results side by side, and where their designs differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from libra.plots.of_results import bandwidth_bars
from libra.plots.rows import bandwidth_rows
from libra.report.charts import Figure, start_figure
from libra.report.html import Html, card, not_shown, table, tag
from libra.report.items import Item
from libra.units import format_money, format_power, format_time

__all__ = ["comparison_section", "setting_differences", "start_comparison"]

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("Step time", "step_time_s", format_time),
    ("Network cost", "network_cost_usd", format_money),
    ("Network power", "network_power_w", format_power),
)


def start_comparison(items: Sequence[Item]) -> Figure:
    """Start to draw the bandwidths of all results."""
    rows = bandwidth_rows([(item.name, item.data) for item in items])
    return start_figure(bandwidth_bars(rows), "compared-chart", "Bandwidths of the results")


def comparison_section(items: Sequence[Item], chart: Figure) -> Html:
    """Figures of all results, the first one as the measure, and what differs in the designs."""
    links = [tag("li", tag("a", item.name, href=f"#r{k + 1}")) for k, item in enumerate(items)]
    return tag(
        "section",
        tag("h2", "Side by side", id="compared"),
        tag("p", _sentence(items), class_="answer"),
        tag("nav", tag("ul", *links), aria_label="Results"),
        card("Results", _figures(items), chart(), key="compared-results"),
        card("Differences of the designs", _differences(items), key="compared-designs"),
        aria_labelledby="compared",
    )


def _sentence(items: Sequence[Item]) -> str:
    timed = [item for item in items if item.data["step_time_s"]]
    if not timed:
        return "No step ends."
    best = min(timed, key=lambda item: float(item.data["step_time_s"]))
    worst = max(timed, key=lambda item: float(item.data["step_time_s"]))
    if best is worst or best.data["step_time_s"] == worst.data["step_time_s"]:
        return f"All steps take {format_time(best.data['step_time_s'])}."
    ratio = worst.data["step_time_s"] / best.data["step_time_s"]
    return (
        f"{best.name} is fastest with {format_time(best.data['step_time_s'])} a step; "
        f"{worst.name} takes {ratio:.3f} times as long."
    )


def _figures(items: Sequence[Item]) -> Html:
    first = items[0]
    rows: list[list[str | None]] = [
        [label, *(str(item.data.get(key, "")) for item in items)]
        for label, key in (("Status", "status"), ("Objective", "objective"), ("Network", "network"))
    ]
    for label, key, form in _FIGURES:
        if any(item.data.get(key) is not None for item in items):
            rows.append([label, *(_figure(item, first, key, form) for item in items)])
    names = dict.fromkeys(name for item in items for name in item.data["dimensions"])
    for name in names:
        rows.append([f"{name}, GB/s", *(_bandwidth(item, name) for item in items)])
    head = ["", *(item.name for item in items)]
    return table(head, rows, caption="In brackets: how many times the first one")


def _figure(item: Item, first: Item, key: str, form: Callable[[float], str]) -> str:
    value, base = item.data.get(key), first.data.get(key)
    if value is None:
        return ""
    return form(value) if item is first or not base else f"{form(value)} ({value / base:.3f}x)"


def _bandwidth(item: Item, name: str) -> str:
    own = dict(zip(item.data["dimensions"], item.data["bandwidth_GBps"], strict=True))
    return f"{own[name]:,.4g}" if own.get(name) is not None else ""


def _differences(items: Sequence[Item]) -> Html:
    settings = [(item.data.get("design") or {}).get("settings") for item in items]
    if not all(settings):
        without = [i.name for i, s in zip(items, settings, strict=True) if not s]
        return not_shown(f"the file of {', '.join(without)} does not hold its design.")
    rows = setting_differences([s for s in settings if s])
    if not rows:
        return tag("p", "The designs are the same.")
    shown: list[list[str | None]] = [[path, *(v or "-" for v in values)] for path, values in rows]
    head = ["Setting", *(item.name for item in items)]
    return table(head, shown, caption="Settings that differ")


def setting_differences(
    settings: Sequence[Mapping[str, Any]],
) -> list[tuple[str, tuple[str | None, ...]]]:
    """Paths of the settings in which designs differ, with the value of each; None: it has none."""
    flat = [dict(_flatten(s)) for s in settings]
    paths = dict.fromkeys(path for one in flat for path in one)
    rows = [(path, tuple(one.get(path) for one in flat)) for path in paths]
    return [(path, values) for path, values in rows if len(set(values)) > 1]


def _flatten(value: Any, path: str = "") -> list[tuple[str, str]]:
    """Leaves of plain data, each with its path."""
    if isinstance(value, Mapping) and value:
        return [leaf for k, v in value.items() for leaf in _flatten(v, f"{path}.{k}".lstrip("."))]
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return [leaf for k, v in enumerate(value) for leaf in _flatten(v, f"{path}.{_key(v, k)}")]
    if isinstance(value, list):
        return [(path, "; ".join(map(str, value)))]
    return [(path, str(value))]


def _key(value: Any, k: int) -> str:
    """What an entry of a list is called: its name, or its number."""
    name = value.get("name") if isinstance(value, dict) else None
    return str(name) if name else str(k)
