"""Charts of results, frontiers and sweeps, as altair charts.

The rows of a chart are made in `libra.plots.rows` and `libra.plots.timeline_rows`, and drawn in the
other modules. A ``plot_*`` function returns a chart that a notebook shows; `save_chart` writes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from libra.plots.of_explorations import plot_coordinates, plot_exploration, plot_heat_map
    from libra.plots.of_frames import plot_candidates, plot_validation
    from libra.plots.of_results import (
        plot_bandwidths,
        plot_comparison,
        plot_result,
        plot_scenarios,
        plot_sensitivities,
        plot_step_time,
        plot_utilisation,
    )
    from libra.plots.of_series import plot_frontier, plot_sweep
    from libra.plots.of_timelines import plot_timeline
    from libra.plots.save import save_chart

_HOME = {
    "plot_bandwidths": "of_results",
    "plot_candidates": "of_frames",
    "plot_comparison": "of_results",
    "plot_coordinates": "of_explorations",
    "plot_exploration": "of_explorations",
    "plot_frontier": "of_series",
    "plot_heat_map": "of_explorations",
    "plot_result": "of_results",
    "plot_scenarios": "of_results",
    "plot_sensitivities": "of_results",
    "plot_step_time": "of_results",
    "plot_sweep": "of_series",
    "plot_timeline": "of_timelines",
    "plot_utilisation": "of_results",
    "plot_validation": "of_frames",
    "save_chart": "save",
}

__all__ = [
    "plot_bandwidths",
    "plot_candidates",
    "plot_comparison",
    "plot_coordinates",
    "plot_exploration",
    "plot_frontier",
    "plot_heat_map",
    "plot_result",
    "plot_scenarios",
    "plot_sensitivities",
    "plot_step_time",
    "plot_sweep",
    "plot_timeline",
    "plot_utilisation",
    "plot_validation",
    "save_chart",
]


def __getattr__(name: str) -> Any:
    """Import a plot where it is first used: altair takes half a second to load."""
    if name in _HOME:
        return getattr(import_module(f"libra.plots.{_HOME[name]}"), name)
    raise AttributeError(f"module 'libra.plots' has no attribute {name!r}")
