"""What given bandwidths achieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm
from libra.design import Design, best_schedules, time_design
from libra.errors import FieldError, InputError
from libra.optimize import find_targets, optimize_design
from libra.result import Result, make_result
from libra.robust import robust_value, scenario_results
from libra.shadow import limit_prices, shadow_prices
from libra.simulate import simulate_graph, stages_of
from libra.timing import critical_path

Floats = NDArray[np.float64]

__all__ = ["evaluate_design", "simulate_result"]

MANY_CHUNKS = 64
"""Chunks that a collective is simulated with where the model takes arbitrarily many."""


def evaluate_design(design: Design, bandwidth: Sequence[float]) -> Result:
    """Step time, cost and bottlenecks of a design at given bandwidths.

    Parameters
    ----------
    design : Design
        The problem; its constraints are reported, not enforced.
    bandwidth : sequence of float, shape (dimensions,)
        [bytes/s], not negative.

    Returns
    -------
    Result
        With ``status`` ``evaluated``; bound, gap and multipliers are None.

    Raises
    ------
    InputError
        If the number of bandwidths is not that of the dimensions, or one is negative or not finite,
        or is not on offer where parts have prices of their own.
    """
    try:
        given = np.array(bandwidth, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"bandwidth: must be numbers in bytes/s, got {bandwidth!r}. Write 500 GB/s as 500e9."
        ) from None
    dimensions = len(design.network.dimensions)
    if given.shape != (dimensions,):
        raise InputError(
            f"bandwidth: needs one for each of the {dimensions} dimensions of "
            f"{design.network.shape}, got {given.size}. Give {dimensions}, innermost first."
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise InputError(
            f"bandwidth: must be finite and not negative, got {list(bandwidth)}. Correct it."
        )
    _require_on_offer(design, given)
    targets = find_targets(design)
    nominal = replace(design, scenarios=())
    result = make_result(
        nominal,
        best_schedules(nominal, given),
        given,
        status="evaluated",
        references=targets.references,
        shadow=shadow_prices(design, given, None, None),
    )
    timings = result.timings
    if design.scenarios:
        timings = time_design(design, best_schedules(design, given))
    times = np.array([critical_path(timing, given).time for timing in timings])
    limits = limit_prices(design, targets.seconds, times, None)
    result = replace(result, design=design, shadow_prices=result.shadow_prices + limits)
    if not design.scenarios:
        return result
    assert targets.best is not None
    alone = optimize_design(nominal).bandwidth
    found = scenario_results(design, times, targets.best, alone)
    value = robust_value(design, found, design.mean_pricing.cost(given))
    return replace(result, objective_value=value, scenarios=found)


def _require_on_offer(design: Design, bandwidth: Floats) -> None:
    """Refuse bandwidths that have no price because no part on offer has them.

    Raises
    ------
    InputError
        Names the dimension and the nearest parts.
    """
    for d, table in enumerate(design.pricing.tables):
        if table is not None and table.own and table.index(float(bandwidth[d])) is None:
            near = table.bandwidth[np.abs(table.bandwidth - bandwidth[d]).argsort()[:3]]
            offered = ", ".join(f"{b / 1e9:g}" for b in np.sort(near))
            raise InputError(
                f"bandwidth: no part on offer for {design.network.names[d]} has this bandwidth, so "
                f"it has no price, got {bandwidth[d] / 1e9:g} GB/s. The nearest are {offered} GB/s."
            )


def simulate_result(result: Result) -> Result:
    """Result with a simulation of each workload's step, chunk by chunk, as a second opinion.

    Parameters
    ----------
    result : Result
        Optimal or evaluated.

    Returns
    -------
    Result
        The same with `simulations`.

    Raises
    ------
    InputError
        If collectives are not multi-rail: the simulation serves chunks in one order only.

    Notes
    -----
    See `libra.simulate` for the rules. Collectives that share a dimension queue whatever
    ``contention`` says, chunk by chunk.
    """
    design = result.design
    model, network = design.collectives, design.network
    if model.algorithm is not Algorithm.MULTI_RAIL:
        raise InputError(
            f"--simulate: chunks are simulated in one order of dimensions, got collectives that "
            f"are {model.algorithm.value}. Use multi-rail."
        )
    if not (result.bandwidth[_used(result)] > 0).all():
        raise InputError(
            "--simulate: a dimension with traffic has no bandwidth, got 0 GB/s. Give it some."
        )
    simulations = []
    for workload, schedules in zip(design.workloads, result.schedules, strict=True):
        chunks = [s.chunks or MANY_CHUNKS for s in schedules]
        stages = [
            stages_of(c, network, model, result.bandwidth, n)
            for c, n in zip(workload.graph.collectives, chunks, strict=True)
        ]
        try:
            simulations.append(simulate_graph(workload.graph, stages, chunks))
        except FieldError as error:
            raise InputError(f"{workload.name}: {error.message}") from None
    return replace(result, simulations=tuple(simulations))


def _used(result: Result) -> NDArray[np.bool_]:
    used: NDArray[np.bool_] = np.any([np.array(w.busy) > 0 for w in result.workloads], axis=0)
    return used
