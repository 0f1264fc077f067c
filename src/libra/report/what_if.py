"""What the page needs to time a step at any bandwidths as exactly as ``libra evaluate`` does.

The time of a collective is the least over its schedules of the largest of pieces. Each piece is
``a + b c + sum_f (k_f + d_f / c) / (forms_f . B)`` in the number of chunks c (see `libra.pieces`),
so that two numbers of chunks give it for all. Tasks and predecessors are those of the step graph
with its queues; a chain is the sum of its tasks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm, Collective, CollectiveModel
from libra.constraints import LinearConstraint
from libra.design import Design
from libra.network import Network
from libra.pieces import Pieces, Schedule, allowed_schedules, collective_pieces, work_of_sets
from libra.pricing import Pricing
from libra.result import Result
from libra.timing import Path, StepTiming
from libra.units import BANDWIDTH, GB_PER_S, MONEY, POWER, format_bytes

__all__ = ["MOST_TASKS", "what_if_model"]

MOST_TASKS = 20_000
"""Tasks of a step graph that a page holds; of a larger one it holds the critical path."""

Floats = NDArray[np.float64]


def what_if_model(result: Result) -> dict[str, Any]:
    """Plain data from which ``step_model.js`` computes times, costs and constraints.

    Bandwidths are in bytes/s, times in seconds, money in USD, power in watts.
    """
    design = result.design
    return {
        "dimensions": list(design.network.names),
        "constraintNames": _constraint_names(design.network),
        "optimal": result.status == "optimal",
        "bandwidth": result.bandwidth.tolist(),
        "choices": [
            None if table is None else table.bandwidth.tolist() for table in design.pricing.tables
        ],
        "sliders": _slider_ranges(result.bandwidth),
        "workloads": [
            _workload(design, k, timing, path)
            for k, (timing, path) in enumerate(
                zip(result.timings[: len(design.workloads)], result.paths, strict=True)
            )
        ],
        "pricing": _pricing(design.pricing),
        "fixedCost": design.fixed_cost,
        "objective": design.objective.value,
        "rows": [_row(row) for row in design.rows if math.isfinite(row.bound)],
        "limits": _limits(result),
    }


def _constraint_names(network: Network) -> list[str]:
    """What a constraint calls each dimension."""
    return [
        name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII) else f"dim{d + 1}"
        for d, name in enumerate(network.names)
    ]


def _slider_ranges(bandwidth: Floats) -> list[list[float]]:
    """Ends of the sliders, which are logarithmic: around the result and around an equal share."""
    equal = float(bandwidth.sum()) / len(bandwidth) or GB_PER_S
    return [
        [min(b / 10, equal / 4) if b else equal / 100, max(4 * b, 2 * equal)]
        for b in bandwidth.tolist()
    ]


def _workload(design: Design, k: int, timing: StepTiming, path: Path) -> dict[str, Any]:
    workload, graph = design.workloads[k], timing.graph
    exact = graph.is_chain or graph.tasks <= MOST_TASKS
    forms: dict[bytes, int] = {}
    collectives = [
        _collective(c, design.network, design.collectives, forms) for c in graph.collectives
    ]
    width = len(design.network.dimensions)
    return {
        "name": workload.name,
        "weight": workload.weight,
        "exact": exact,
        "tasks": graph.tasks,
        "collectives": collectives,
        "forms": [np.frombuffer(form).tolist() for form in forms],
        "traffic": timing.step_traffic.tolist() if graph.collectives else [0.0] * width,
        "spread": _spread(timing) if any("sets" in c for c in collectives) else None,
        "graph": _graph(timing) if exact and not graph.is_chain else None,
        "path": _path(graph.total_fixed, graph.total_counts)
        if graph.is_chain
        else _path(path.fixed, path.counts),
    }


def _spread(timing: StepTiming) -> dict[str, Any]:
    """How often each NPU that differs runs each collective, and what these carry in fixed order."""
    return {
        "counts": np.unique(timing.place_counts, axis=0).tolist(),
        "traffic": timing.traffic.tolist(),
    }


def _path(fixed: float, counts: Floats) -> dict[str, Any]:
    return {"fixed": float(fixed), "counts": counts.tolist()}


def _graph(timing: StepTiming) -> dict[str, Any]:
    """Tasks of a graph; distinct times once, and how many tasks back each predecessor is."""
    graph = timing.graph
    values, index = np.unique(graph.fixed, return_inverse=True)
    owner = np.repeat(np.arange(graph.tasks), np.diff(graph.predecessor_start))
    return {
        "values": values.tolist(),
        "fixed": index.tolist(),
        "counted": np.diff(graph.count_start).tolist(),
        "countIndex": graph.count_index.tolist(),
        "countValue": graph.count_value.tolist(),
        "awaited": np.diff(graph.predecessor_start).tolist(),
        "back": (owner - graph.predecessor).tolist(),
    }


def _collective(
    collective: Collective, network: Network, model: CollectiveModel, forms: dict[bytes, int]
) -> dict[str, Any]:
    orders, counts = allowed_schedules(collective, network, model)
    sets = None if orders == [Algorithm.MULTI_RAIL] else work_of_sets(collective, network, model)
    return {
        "name": f"{collective.kind.value} {format_bytes(collective.size)}, {collective.group.name}",
        "chunks": [c or 0 for c in counts],
        "orders": [
            _pieces(
                [
                    collective_pieces(collective, network, model, Schedule(c, order))
                    for c in (counts[:1] if len(counts) == 1 else (1, 2))
                ],
                forms,
            )
            for order in orders
        ],
        **({} if sets is None else _sets(orders, sets)),
    }


def _sets(orders: Sequence[Algorithm], sets: Pieces) -> dict[str, Any]:
    """For orders that spread the work: what each set of dimensions, as bits, must carry."""
    bits = (sets.forms > 0) @ (1 << np.arange(sets.forms.shape[1]))
    return {
        "evenly": [order is not Algorithm.MULTI_RAIL for order in orders],
        "filled": [order is Algorithm.BALANCED for order in orders],
        "sets": bits.tolist(),
        "work": np.diag(sets.coefficient).tolist(),
        "reach": sets.forms.max(axis=0).tolist(),
    }


def _pieces(samples: list[Any], forms: dict[bytes, int]) -> list[Any]:
    """Pieces ``[a, b, [f, k, d, …]]`` from those of one number of chunks, or of one and of two."""
    first, last = samples[0], samples[-1]
    slope = last.alpha - first.alpha
    if len(samples) == 1:
        base, inverse = first.coefficient, np.zeros_like(first.coefficient)
        start = first.alpha
    else:
        inverse = 2 * (first.coefficient - last.coefficient)
        base, start = first.coefficient - inverse, first.alpha - slope
    columns = [forms.setdefault(form.tobytes(), len(forms)) for form in first.forms]
    return [
        [
            float(start[p]),
            float(slope[p]),
            [
                x
                for f in np.flatnonzero((base[p] != 0) | (inverse[p] != 0)).tolist()
                for x in (columns[f], float(base[p, f]), float(inverse[p, f]))
            ],
        ]
        for p in range(len(start))
    ]


def _pricing(pricing: Pricing) -> dict[str, Any]:
    return {
        "owner": pricing.owner.tolist(),
        "width": [w if math.isfinite(w) else None for w in pricing.width.tolist()],
        "price": pricing.price.tolist(),
        "power": pricing.power.tolist() if pricing.knows_power else None,
        "tables": [
            None
            if table is None or not table.own
            else {
                "bandwidth": table.bandwidth.tolist(),
                "price": table.cost.tolist(),
                "power": table.power.tolist(),
            }
            for table in pricing.tables
        ],
    }


_KINDS = {BANDWIDTH.name: "bandwidth", MONEY.name: "cost", POWER.name: "power"}


def _row(row: LinearConstraint) -> dict[str, Any]:
    return {
        "text": row.text,
        "kind": _KINDS[row.kind.name],
        "coefficients": row.coefficients.tolist(),
        "relation": row.relation,
        "bound": row.bound,
        "multiple": row.multiple,
    }


def _limits(result: Result) -> list[dict[str, Any]]:
    """Time limits in seconds; one relative to a workload's own best needs to know that."""
    names = [w.name for w in result.design.workloads]
    found = []
    for limit in result.design.time_limits:
        at, seconds = names.index(limit.workload), limit.held
        if limit.relative:
            if result.slowdowns is None or not math.isfinite(result.slowdowns[at]):
                continue
            seconds *= result.workloads[at].step_time / result.slowdowns[at]
        found.append({"text": limit.text, "workload": at, "seconds": seconds})
    return found
