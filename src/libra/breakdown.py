"""Where the time of a step goes: compute, and communication by collective and dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Algorithm, Collective
from libra.design import Design
from libra.pieces import Schedule, dimension_times
from libra.timing import Path, StepTiming, critical_path
from libra.units import GB_PER_S

__all__ = ["CollectiveTime", "Gain", "WorkloadResult", "bandwidth_gains", "workload_result"]

Floats = NDArray[np.float64]

_TIE = 1e-4
"""Relative difference below which two dimensions limit a collective together."""


@dataclass(frozen=True)
class CollectiveTime:
    """One distinct collective on the critical path.

    Attributes
    ----------
    collective : Collective
        What it is.
    count : float
        How often it is on the path.
    time : float
        Time of all of them together [s].
    latency : float
        Part of the time that no bandwidth shortens [s].
    by_dimension : tuple of float
        Part of the time that each dimension's bandwidth accounts for [s]; with `latency` they sum
        to `time`.
    limited_by : tuple of str
        Dimensions whose bandwidth sets its time, within a ten-thousandth; none where latency is
        more than half of it.
    chunks : int or None
        Number of chunks; None: arbitrarily many.
    """

    collective: Collective
    count: float
    time: float
    latency: float
    by_dimension: tuple[float, ...]
    limited_by: tuple[str, ...]
    chunks: int | None


@dataclass(frozen=True)
class WorkloadResult:
    """One workload at the result's bandwidths.

    Attributes
    ----------
    name : str
        Its name.
    step_time : float
        [s]
    compute : float
        Compute on the critical path [s].
    exposed_communication : float
        Communication on the critical path [s]; with `compute` it sums to `step_time`.
    idle : float
        Time of the step in which the NPU that computes most computes nothing [s].
    busy : tuple of float
        Time each dimension is in use during a step [s], see `libra.pieces.dimension_times`. Of
        NPUs that differ (pipeline stages) the longest.
    collectives : tuple of CollectiveTime
        What the exposed communication consists of.
    """

    name: str
    step_time: float
    compute: float
    exposed_communication: float
    idle: float
    busy: tuple[float, ...]
    collectives: tuple[CollectiveTime, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --json``."""
        return {
            "name": self.name,
            "step_time_s": self.step_time,
            "compute_s": self.compute,
            "exposed_communication_s": self.exposed_communication,
            "idle_s": self.idle,
            "busy_s": list(self.busy),
            "collectives": [
                {
                    "kind": c.collective.kind.value,
                    "bytes": c.collective.size,
                    "count": c.count,
                    "group": c.collective.group.name,
                    "time_s": c.time,
                    "latency_s": c.latency,
                    "by_dimension_s": list(c.by_dimension),
                    "limited_by": list(c.limited_by),
                    "chunks": c.chunks,
                }
                for c in self.collectives
            ],
        }


def workload_result(
    name: str,
    timing: StepTiming,
    path: Path,
    bandwidth: Floats,
    design: Design,
    schedules: Sequence[Schedule],
) -> WorkloadResult:
    """Breakdown of a workload's critical path, found at given bandwidths."""
    names = design.network.names
    terms = timing.terms
    pieces, tau = terms.piece_times(bandwidth), terms.times(bandwidth)
    reach = terms.forms @ bandwidth
    collectives = []
    for j in np.flatnonzero(path.counts):
        span = slice(int(terms.start[j]), int(terms.start[j + 1]))
        active = span.start + np.flatnonzero(pieces[span] >= tau[j] * (1 - _TIE))
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(terms.coefficient[active] > 0, terms.coefficient[active] / reach, 0.0)
        latency = float(terms.alpha[active[0]])
        limiting = terms.forms[(parts >= 0.5 * parts.max(axis=1)[:, None]).any(axis=0)].any(axis=0)
        count = float(path.counts[j])
        collectives.append(
            CollectiveTime(
                collective=timing.graph.collectives[j],
                count=count,
                time=count * float(tau[j]),
                latency=count * latency,
                by_dimension=tuple(
                    (count * _by_dimension(parts[0], terms.forms, bandwidth)).tolist()
                ),
                limited_by=()
                if latency > tau[j] / 2
                else tuple(np.array(names)[limiting].tolist()),
                chunks=schedules[int(j)].chunks,
            )
        )
    return WorkloadResult(
        name,
        path.time,
        path.fixed,
        path.time - path.fixed,
        path.time - timing.graph.most_compute,
        tuple(_busy(timing, bandwidth, design, schedules).tolist()),
        tuple(collectives),
    )


def _busy(
    timing: StepTiming, bandwidth: Floats, design: Design, schedules: Sequence[Schedule]
) -> Floats:
    """Time each dimension is in use during a step [s]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(timing.traffic > 0, timing.traffic / bandwidth, 0.0)
    for j, schedule in enumerate(schedules):
        if schedule.order is not Algorithm.MULTI_RAIL:
            item, model = timing.graph.collectives[j], design.collectives
            each[j] = dimension_times(item, design.network, model, schedule, bandwidth)
    counts, ends = timing.place_counts, np.isfinite(each)
    times = counts @ np.where(ends, each, 0.0)
    times[(counts > 0) @ ~ends] = np.inf
    longest: Floats = times.max(axis=0)
    return longest


def _by_dimension(parts: Floats, forms: Floats, bandwidth: Floats) -> Floats:
    """Time of each form shared among its dimensions by what they contribute to H . B."""
    weights = forms * bandwidth
    total = weights.sum(axis=1, keepdims=True)
    shares = np.divide(weights, total, out=(forms > 0) / 1.0, where=total > 0)
    with np.errstate(invalid="ignore"):
        result: Floats = np.where(shares > 0, parts[:, None] * shares, 0.0).sum(axis=0)
    return result


@dataclass(frozen=True)
class Gain:
    """What more bandwidth in one dimension alone would bring.

    Attributes
    ----------
    dimension : str
        Its name.
    more : float
        One GB/s, or what the next choice has more [bytes/s].
    saved : float
        Step time that it saves, a weighted sum over the workloads [s].
    """

    dimension: str
    more: float
    saved: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --json``."""
        return {
            "dimension": self.dimension,
            "more_GBps": self.more / GB_PER_S,
            "saved_s": self.saved,
        }


def bandwidth_gains(
    design: Design, timings: Sequence[StepTiming], bandwidth: Floats, step_time: float
) -> tuple[Gain, ...]:
    """What one more GB/s, or the next choice, in each dimension saves; none where it has no next.

    The step is timed again at the larger bandwidth, with the same schedules.
    """
    if not np.isfinite(step_time):
        return ()
    found = []
    for d, table in enumerate(design.pricing.tables):
        more = GB_PER_S
        if table is not None:
            larger = table.bandwidth[table.bandwidth > bandwidth[d] * (1 + 1e-9)]
            if not len(larger):
                continue
            more = float(larger[0] - bandwidth[d])
        other = bandwidth.copy()
        other[d] += more
        time = sum(
            w.weight * critical_path(timing, other).time
            for w, timing in zip(design.workloads, timings, strict=True)
        )
        found.append(Gain(design.network.names[d], more, max(step_time - time, 0.0)))
    return tuple(found)
