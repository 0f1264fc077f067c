"""Whole lanes: all combinations, and the mixed-integer linear program of all lanes at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from others.step import Answer, Step

__all__ = ["enumerate_lanes", "solve_milp"]

Floats = NDArray[np.float64]

_GAP = 1e-6


def enumerate_lanes(step: Step, limit: float) -> Answer:
    """Best of all combinations of lanes that meet the total, which leaves the last no choice."""
    *first, last = step.lanes
    grid = np.meshgrid(*first, indexing="ij")
    every = np.stack([axis.ravel() for axis in grid], axis=1)
    rest = step.total - every.sum(axis=1)
    nearest = last[np.abs(rest[:, None] - last).argmin(axis=1)]
    meets = np.abs(rest - nearest) < 1e-9 * step.total
    every = np.column_stack([every, nearest])[meets]
    traffic, counts = step.merged()
    times = np.full(len(every), step.graph.total_fixed)
    for load, count in zip(traffic, counts, strict=True):
        times += count * (load / every).max(axis=1)
    values = times * (every @ step.price) if step.product else times
    best = int(values.argmin())
    return Answer(
        "solved",
        every[best],
        float(values[best]),
        proven=True,
        remark=f"{len(every):,} combinations",
    )


def solve_milp(step: Step, limit: float) -> Answer:
    """Least time: a variable for each lane and for the time of each collective."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    traffic, counts = step.merged()
    scale = step.path(step.equal).time
    lanes, number = sum(map(len, step.lanes)), len(traffic)
    one, share, slow = (np.zeros((len(step.lanes), lanes + number)) for _ in range(3))
    at = 0
    for d, lane in enumerate(step.lanes):
        here = slice(at, at + len(lane))
        one[d, here], share[d, here], slow[d, here] = 1.0, lane / step.total, step.total / lane
        at += len(lane)
    load = traffic / (step.total * scale)
    times = [
        np.eye(lanes + number)[lanes + j] - load[j, d] * slow[d]
        for j in range(number)
        for d in range(len(step.lanes))
        if load[j, d] > 0
    ]
    found = milp(
        np.concatenate([np.zeros(lanes), counts]),
        integrality=np.concatenate([np.ones(lanes), np.zeros(number)]),
        bounds=Bounds(0, np.concatenate([np.ones(lanes), np.full(number, np.inf)])),
        constraints=[
            LinearConstraint(one, 1, 1),
            LinearConstraint(share.sum(axis=0, keepdims=True), 1, 1),
            LinearConstraint(np.array(times), 0, np.inf),
        ],
        options={"time_limit": limit, "mip_rel_gap": _GAP},
    )
    if found.x is None:
        return Answer("failed", remark=f"HiGHS says: {found.message}")
    bound = step.graph.total_fixed + scale * float(found.mip_dual_bound)
    done = found.status == 0
    return Answer("solved" if done else "time limit", share @ found.x * step.total, bound, done)
