"""Why a result is what it is, in sentences: what limits the step and what more would bring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from libra.collectives import Contention
from libra.design import Objective, Robustness
from libra.units import GB_PER_S, format_money, format_time

if TYPE_CHECKING:
    from libra.breakdown import Gain
    from libra.result import Result
    from libra.shadow import ShadowPrice

__all__ = ["explain_result"]


def explain_result(result: Result) -> tuple[str, ...]:
    """Sentences on what limits a result, the most important first."""
    lines: list[str] = []
    for workload in result.workloads:
        prefix = f"{workload.name}: " if len(result.workloads) > 1 else ""
        if workload.step_time == float("inf"):
            names = [
                name
                for name, busy in zip(result.design.network.names, workload.busy, strict=True)
                if busy == float("inf")
            ]
            lines.append(
                f"{prefix}never ends: {_join(names)} carries traffic but has no bandwidth."
            )
            continue
        share = workload.compute / workload.step_time if workload.step_time else 1.0
        lines.append(f"{prefix}compute takes {share:.1%} of the critical path.")
        groups: dict[tuple[str, ...], float] = defaultdict(float)
        for item in workload.collectives:
            groups[item.limited_by] += item.time
        for names_, time in sorted(groups.items(), key=lambda g: -g[1]):
            together = " together" if len(names_) > 1 else ""
            lines.append(
                f"{prefix}{format_time(time)} ({time / workload.step_time:.2%}) of exposed "
                f"communication is limited by {_join(names_)}{together}."
            )
    lines += _idle(result)
    lines += _approximated(result)
    lines += [_gain(gain, result) for gain in result.gains]
    lines += [_worth(price, result) for price in result.shadow_prices if price.value]
    lines += _whole_parts(result)
    lines += _between_parts(result)
    return tuple(line for line in lines if line)


def _idle(result: Result) -> list[str]:
    unused = [
        name
        for d, name in enumerate(result.design.network.names)
        if all(w.busy[d] == 0 for w in result.workloads)
    ]
    if not unused:
        return []
    verb = "carries" if len(unused) == 1 else "carry"
    return [f"{_join(unused)} {verb} no traffic of these workloads: bandwidth there is idle."]


def _gain(gain: Gain, result: Result) -> str:
    """What more bandwidth in a dimension saves; empty if next to nothing."""
    share = gain.saved / result.step_time if result.step_time else 0.0
    if share < 5e-6:
        return ""
    return f"{gain.more / GB_PER_S:g} more GB/s in {gain.dimension} saves {share:.3%} of the step."


def _whole_parts(result: Result) -> list[str]:
    """How far whole parts stay behind bandwidths that could be split at will."""
    value, best = result.objective_value, result.continuous_objective
    if best is None or not best > 0:
        return []
    return [
        f"Whole lanes and parts make {_goal(result)[0]} {max(value / best - 1, 0):.3%} "
        "larger than bandwidths that could be split at will."
    ]


def _between_parts(result: Result) -> list[str]:
    """Which given bandwidths are not on offer, and the nearest that are."""
    lines, design = [], result.design
    for name, table, given in zip(
        design.network.names, design.pricing.tables, result.bandwidth.tolist(), strict=True
    ):
        if table is None or table.index(given) is not None:
            continue
        above = int(np.searchsorted(table.bandwidth, given))
        near = [f"{b / GB_PER_S:g}" for b in table.bandwidth[max(above - 1, 0) : above + 1]]
        lines.append(
            f"{name} cannot be built with {given / GB_PER_S:g} GB/s: its lanes and parts come next "
            f"to it at {_join(near)} GB/s."
        )
    return lines


def _approximated(result: Result) -> list[str]:
    """Say where collectives are taken to queue whole and no simulation stands beside it."""
    overlapped = [
        w.name for w in result.design.workloads if w.graph.collectives and not w.graph.is_chain
    ]
    queue = result.design.collectives.contention is Contention.QUEUE
    if not overlapped or not queue or result.simulations is not None:
        return []
    return [
        "Collectives that overlap and share links are taken to queue whole, in program order; "
        "--simulate shows what queueing chunk by chunk changes."
    ]


_GOALS = {
    Objective.TIME: ("the step time", "faster"),
    Objective.TIME_COST: ("time x cost", "better per dollar"),
    Objective.COST: ("the network's cost", "cheaper"),
    Objective.WORST_TIME: ("the largest slowdown", "better for the slowest workload"),
}
_ROBUST = {
    Robustness.EXPECTED: (
        "the expected step time",
        "faster on average",
        "A step is expected to take",
    ),
    Robustness.WORST: ("the worst step time", "faster at worst", "The worst step takes"),
    Robustness.REGRET: (
        "the largest regret",
        "closer to the best at worst",
        "No scenario takes more than",
    ),
}


def _goal(result: Result) -> tuple[str, str]:
    """What a result makes small, and what no other bandwidths are."""
    if result.scenarios and result.design.objective is Objective.TIME:
        return _ROBUST[result.design.robustness][:2]
    return _GOALS[result.design.objective]


def _robust_value(result: Result) -> str:
    if result.design.robustness is Robustness.REGRET:
        return f"{result.objective_value:.6g} times the least it could"
    return format_time(result.objective_value)


_STEPS = {
    "GB/s": (1.0, "1 GB/s"),
    "USD": (1e6, "1 million USD"),
    "W": (1e3, "1 kW"),
    "s": (1e-3, "1 ms"),
    "x": (0.01, "0.01"),
}


def _worth(price: ShadowPrice, result: Result) -> str:
    """What one more unit of a constraint's right side brings; empty if next to nothing."""
    assert price.value is not None
    step, name = _STEPS[price.slack_unit]
    relative = price.value * step / result.objective_value if result.objective_value else 0.0
    if abs(relative) < 1e-7:
        return ""
    verb = "lowers" if relative < 0 else "raises"
    what = _goal(result)[0]
    return (
        f"{name} more on the right of '{price.constraint}' {verb} {what} by "
        f"{abs(relative):.2g} of it ({abs(relative):.4%})."
    )


def _join(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names) or "latency"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def answer_sentence(result: Result) -> str:
    """The result in one sentence."""
    answer = f"One step takes {format_time(result.step_time)}"
    if result.gap is None:
        return f"{answer} at these bandwidths."
    objective = result.design.objective
    if objective in (Objective.TIME_COST, Objective.COST):
        answer += f" at a network cost of {format_money(result.network_cost)}"
    if objective is Objective.WORST_TIME:
        slowest = f"{result.objective_value:.6g} times its own best"
        answer = f"The slowest workload takes {slowest}"
    margin = "" if result.gap < 1e-12 else f" by more than {result.gap:.1e} of it"
    goal = _goal(result)[1]
    if result.scenarios and objective is Objective.TIME:
        answer = f"{_ROBUST[result.design.robustness][2]} {_robust_value(result)}"
    return f"{answer}. Proven: under these constraints no bandwidths are {goal}{margin}."
