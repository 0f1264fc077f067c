"""Charts of one result, drawn while the text of its page is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from libra.plots import rows as plot_rows
from libra.plots.of_results import (
    bandwidth_bars,
    scenario_dots,
    sensitivity_bars,
    step_bars,
    utilisation_bars,
)
from libra.plots.of_timelines import timeline_bars
from libra.plots.timeline_rows import segments_of
from libra.report.charts import Figure, start_figure
from libra.report.items import Item
from libra.result import Result
from libra.units import format_time

__all__ = ["Figures", "start_figures"]

Figures = Mapping[str, Figure]
"""Figures by the words that `start_figures` names."""

_CLOSE = 40
"""Stretches of work that a close-up of a timeline shows."""


def start_figures(item: Item, key: str) -> Figures:
    """Start to draw all charts of a result.

    Parameters
    ----------
    item : Item
    key : str
        Different for each item of a page.

    Returns
    -------
    mapping
        ``bandwidth``, ``sensitivity``, ``step`` and ``use``; ``scenario`` if there are any;
        ``timeline`` if the step is known and ends, ``close`` if the timeline has a close-up.
    """
    data = item.data
    figures = {
        "bandwidth": start_figure(
            bandwidth_bars(plot_rows.baseline_rows(data if item.result is None else item.result)),
            f"{key}-bandwidth-chart",
            "Bandwidth of each dimension beside the baselines",
        ),
        "sensitivity": start_figure(
            sensitivity_bars(data),
            f"{key}-sensitivity-chart",
            "What more bandwidth and higher limits would save",
        ),
        "step": start_figure(
            step_bars(data),
            f"{key}-step-chart",
            "Step time by part, and exposed communication by collective and dimension",
            "What several dimensions limit together is shared among them evenly.",
        ),
        "use": start_figure(
            utilisation_bars(data),
            f"{key}-use-chart",
            "Share of the step in which compute and each dimension are in use",
        ),
    }
    if item.result is not None and np.isfinite(item.result.step_time):
        figures |= _timelines(item.result, key)
    if data.get("scenarios"):
        name = f"{key}-scenario-chart"
        figures["scenario"] = start_figure(scenario_dots(data), name, "Regret of each scenario")
    return figures


def _timelines(result: Result, key: str) -> dict[str, Figure]:
    """The step as a whole, and a close-up where the whole is too dense."""
    whole = start_figure(
        timeline_bars(result, still=True),
        f"{key}-timeline-chart",
        "Timeline of the step, critical path on top",
        "The critical path is on top. Where work is too dense to be drawn piece by piece, the "
        "height says how much of the time a lane is in use. Each task runs as early as it can.",
    )
    window = _close_up(result)
    if window is None:
        return {"timeline": whole}
    close = start_figure(
        timeline_bars(result, window, still=True),
        f"{key}-close-chart",
        "Close-up of the timeline",
        f"Close-up from {format_time(window[0])} to {format_time(window[1])}.",
    )
    return {"timeline": whole, "close": close}


def _close_up(result: Result) -> tuple[float, float] | None:
    """Window around the middle of the first workload's step with few pieces of work in it."""
    found = segments_of(result.timings[0], result.bandwidth)
    if len(found.start) <= 3 * _CLOSE or len(result.design.workloads) > 1:
        return None
    middle = int(np.searchsorted(found.start, result.paths[0].time / 2))
    first = max(0, middle - _CLOSE // 2)
    last = min(len(found.start) - 1, first + _CLOSE)
    low, high = float(found.start[first]), float(found.start[last])
    return (low, high) if high > low else None
