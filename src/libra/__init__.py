"""libra: the per-dimension bandwidths of an AI-training network that are best, with proof.

>>> import libra
>>> design = libra.load_design("gpt-3-4d.yaml")  # doctest: +SKIP
>>> print(libra.optimize_design(design))  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from libra.design import Design, Workload
    from libra.errors import InfeasibleError, InputError, LibraError, SolverError, UnboundedError
    from libra.evaluate import evaluate_design, simulate_result
    from libra.explore.run import explore_space
    from libra.frontier import FrontierPoint, time_cost_frontier
    from libra.load import load_design
    from libra.network import Network
    from libra.optimize import optimize_design
    from libra.report import write_report
    from libra.result import Result
    from libra.workload.graph import GraphBuilder, StepGraph

__version__ = "0.1.0"

_HOME = {
    "Design": "design",
    "Workload": "design",
    "Result": "result",
    "Network": "network",
    "GraphBuilder": "workload.graph",
    "StepGraph": "workload.graph",
    "evaluate_design": "evaluate",
    "simulate_result": "evaluate",
    "explore_space": "explore.run",
    "FrontierPoint": "frontier",
    "time_cost_frontier": "frontier",
    "load_design": "load",
    "optimize_design": "optimize",
    "write_report": "report",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "LibraError": "errors",
    "SolverError": "errors",
    "UnboundedError": "errors",
}

__all__ = [
    "Design",
    "FrontierPoint",
    "GraphBuilder",
    "InfeasibleError",
    "InputError",
    "LibraError",
    "Network",
    "Result",
    "SolverError",
    "StepGraph",
    "UnboundedError",
    "Workload",
    "evaluate_design",
    "explore_space",
    "load_design",
    "optimize_design",
    "simulate_result",
    "time_cost_frontier",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used, so that ``import libra`` costs nothing."""
    if name in _HOME:
        return getattr(import_module(f"libra.{_HOME[name]}"), name)
    raise AttributeError(f"module 'libra' has no attribute {name!r}")
