"""Fit latencies and efficiencies of a cluster to measured collectives.

The time of a collective is that of `libra.pieces`. Of one dimension d everything but
its latency and its efficiency by size is known once the dimensions inside of it have been fitted.

1. Latency: small collectives only wait. Each measured time, less what the other dimensions wait, is
   a number of hops. Kinds and numbers of members differ in the time of one; the latency is the
   least of their medians, and no more than any larger measurement has time for: what a kind takes
   longer its efficiency can say, what a latency takes too long nothing can make up for.
2. Efficiency: each larger measurement implies the fraction of the bandwidth with which the model
   gives exactly its time. The curve of each kind is the piecewise linear function of log size and
   log members, through nodes a factor of 4 and of 2 apart, that is closest to them: least absolute
   deviations of the logarithm, each times the part of its time that the bytes took.

Where only the all-reduce was measured, its curve holds for its halves, the reduce-scatter and the
all-gather, unless a switch reduces.

References
----------
.. [1] Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
   Computing 20(3), 1994: latency and asymptotic bandwidth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.cluster import Cluster
from libra.collectives import RETURNING, Collective, CollectiveKind, dimension_latency
from libra.efficiency import EfficiencyPoint
from libra.errors import FieldError
from libra.fitting import Residuals, fit_parameters, residuals_of
from libra.network import Network
from libra.pieces import Schedule, best_schedule, collective_pieces
from libra.placement import Group

__all__ = [
    "CollectiveMeasurement",
    "FittedCluster",
    "fit_cluster",
    "predict_times",
]

Floats = NDArray[np.float64]

SMALL = 32 * 1024
"""Largest buffer [bytes] whose collective is taken to wait only."""

FIRST_NODE, NODE_RATIO = 4096.0, 4.0
"""Sizes of the nodes of a curve: 4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB, 4 MiB, …"""

LEAST_FRACTION = 1e-4

_LEAST_WEIGHT = 0.01
"""Weight of a measurement that does nothing but wait."""

_BEND, _DIFFERENCE = 0.1, 1e-3
"""Weights of smoothness against a relative deviation of one measurement; the first is the one with
which every other size of the published collectives predicts the sizes between best."""


@dataclass(frozen=True)
class CollectiveMeasurement:
    """A collective that somebody timed.

    Attributes
    ----------
    kind : CollectiveKind
        What it does.
    size : float
        Buffer m [bytes], the full one of an all-gather or reduce-scatter (as nccl-tests counts).
    extents : tuple of int
        Members along each dimension of the cluster.
    time : float
        [s].
    label : str
        Which set of measurements it belongs to.
    """

    kind: CollectiveKind
    size: float
    extents: tuple[int, ...]
    time: float
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", CollectiveKind(self.kind))
        for key in ("size", "time"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise FieldError(
                    key, f"must be finite and positive, got {value!r}. Leave the measurement out."
                )
        if max(self.extents, default=1) < 2:
            raise FieldError(
                "extents", f"needs 2 members or more, got {self.extents}. Leave it out."
            )


def predict_times(cluster: Cluster, measurements: Iterable[CollectiveMeasurement]) -> Floats:
    """Times that the cluster's model gives for the measured collectives [s]."""
    return np.array([_time(cluster, item) for item in measurements])


def _part(cluster: Cluster, item: CollectiveMeasurement) -> tuple[Collective, Network, Floats]:
    """Collective, network with dimensions that are large enough for it, and its bandwidths."""
    network = Network(
        tuple(
            replace(dimension, size=max(extent, dimension.size))
            for extent, dimension in zip(item.extents, cluster.dimensions, strict=True)
        )
    )
    group = Group("measured", item.extents, (1,) * len(item.extents))
    return Collective(item.kind, item.size, group), network, np.array(cluster.bandwidth)


def _time(cluster: Cluster, item: CollectiveMeasurement) -> float:
    collective, network, bandwidth = _part(cluster, item)
    model = cluster.collectives
    if sum(extent > 1 for extent in item.extents) == 1 and model.chunks is None:
        # Cutting it would only add latency.
        schedule = Schedule(1, model.algorithm)
    else:
        schedule = best_schedule(collective, network, model, bandwidth)
    pieces = collective_pieces(collective, network, model, schedule)
    return float((pieces.alpha + pieces.coefficient @ (1 / (pieces.forms @ bandwidth))).max())


@dataclass(frozen=True)
class FittedCluster:
    """A cluster with fitted latencies and efficiencies.

    Attributes
    ----------
    cluster : Cluster
        With them.
    residuals : dict of str to Residuals
        Of collectives larger than `SMALL`, by label; ``all`` for all of them.
    """

    cluster: Cluster
    residuals: dict[str, Residuals]


def fit_cluster(
    cluster: Cluster, measurements: Sequence[CollectiveMeasurement], *, least_size: float = 0.0
) -> FittedCluster:
    """Fit the latency and the efficiency by size of each dimension that was measured.

    Parameters
    ----------
    cluster : Cluster
        Bandwidths, topologies and in-network reduction are kept; so are latency and efficiencies of
        dimensions and kinds without a measurement of their own.
    measurements : sequence of CollectiveMeasurement
        Those that stay inside a dimension fit it; those that cross fit the outermost one they use.
    least_size : float
        Residuals are of buffers of at least that [bytes].

    Returns
    -------
    FittedCluster

    Raises
    ------
    FieldError
        ``measurements``: there are none. ``collectives``: the formulas of another tool, which have
        neither latency nor efficiency.
    """
    if not measurements:
        raise FieldError("measurements", "there is none to fit, got 0. Add some.")
    if cluster.collectives.compat is not None:
        raise FieldError(
            "collectives",
            f"compat has neither latency nor efficiency, got {cluster.collectives.compat.value}. "
            "Remove compat.",
        )
    outermost = defaultdict(list)
    for item in measurements:
        outermost[max(d for d, e in enumerate(item.extents) if e > 1)].append(item)
    for d in sorted(outermost):
        cluster = _with_dimension(cluster, d, latency=_fit_latency(cluster, d, outermost[d]))
        cluster = _fit_curves(cluster, d, outermost[d])
    labels = defaultdict(list)
    for item in measurements:
        if item.size >= max(least_size, SMALL):
            labels["all"].append(item)
            labels[item.label].append(item)
    residuals = {
        label: residuals_of(predict_times(cluster, items), np.array([i.time for i in items]))
        for label, items in labels.items()
    }
    return FittedCluster(cluster, residuals)


def _with_dimension(cluster: Cluster, d: int, **fields: object) -> Cluster:
    dimensions = list(cluster.dimensions)
    dimensions[d] = replace(dimensions[d], **fields)  # type: ignore[arg-type]
    return replace(cluster, dimensions=tuple(dimensions))


def _fit_latency(cluster: Cluster, d: int, items: Sequence[CollectiveMeasurement]) -> float:
    """Latency of a hop of dimension d; the present one if no small collective was measured.

    An all-reduce that the switch could reduce is left out: libraries send small ones another way.
    """
    small, most = defaultdict(list), math.inf
    for item in items:
        if cluster.dimensions[d].in_network and item.kind in RETURNING:
            continue
        hop = _implied_latency(cluster, d, item)
        if item.size <= SMALL:
            small[item.kind, item.extents].append(hop)
        else:
            most = min(most, hop)
    least = min((float(np.median(hops)) for hops in small.values()), default=None)
    if least is None:
        return cluster.dimensions[d].latency
    return float(f"{min(least, most):.3g}")


def _implied_latency(cluster: Cluster, d: int, item: CollectiveMeasurement) -> float:
    """Latency of a hop of dimension d if the collective did nothing but wait."""
    collective, network, _ = _part(_with_dimension(cluster, d, latency=0.0), item)
    others = float(dimension_latency(collective, network, cluster.collectives).sum())
    collective, network, _ = _part(_with_dimension(cluster, d, latency=1.0), item)
    hops = float(dimension_latency(collective, network, cluster.collectives).sum()) - others
    return max(item.time - others, 0.0) / hops


def _fit_curves(cluster: Cluster, d: int, items: Sequence[CollectiveMeasurement]) -> Cluster:
    """Efficiency by size and members of dimension d for each measured kind."""
    implied = defaultdict(list)
    for item in items:
        if item.size > SMALL:
            whole = (CollectiveKind.ALL_TO_ALL, CollectiveKind.POINT_TO_POINT)
            inner = 1 if item.kind in whole else math.prod(item.extents[:d])
            collective, network, _ = _part(cluster, item)
            wait = float(dimension_latency(collective, network, cluster.collectives).sum())
            weight = max(1 - wait / item.time, _LEAST_WEIGHT)
            fraction = implied_fraction(cluster, d, item)
            implied[item.kind].append((item.size / inner, item.extents[d], fraction, weight))
    curves = dict(cluster.dimensions[d].efficiency_by_size)
    for kind, rows in implied.items():
        curves[kind] = fit_curve(*np.array(rows, dtype=float).T)
    if CollectiveKind.ALL_REDUCE in implied and not cluster.dimensions[d].in_network:
        for kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER):
            if kind not in implied:
                curves[kind] = curves[CollectiveKind.ALL_REDUCE]
    return _with_dimension(cluster, d, efficiency_by_size=curves)


def implied_fraction(cluster: Cluster, d: int, item: CollectiveMeasurement) -> float:
    """Efficiency of dimension d with which the model gives exactly the measured time.

    Returns
    -------
    float
        By bisection of the logarithm, since more efficiency is never slower; 1 if even the whole
        bandwidth is too slow, `LEAST_FRACTION` if even that is too fast.
    """

    def time(logarithm: float) -> float:
        curve = {item.kind: (EfficiencyPoint(1.0, math.exp(logarithm)),)}
        return _time(_with_dimension(cluster, d, efficiency_by_size=curve), item)

    low, high = math.log(LEAST_FRACTION), 0.0
    if time(high) >= item.time:
        return 1.0
    if time(low) <= item.time:
        return LEAST_FRACTION
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if time(middle) > item.time else (low, middle)
    return math.exp((low + high) / 2)


def fit_curve(
    sizes: Floats, members: Floats, fractions: Floats, weights: Floats
) -> tuple[EfficiencyPoint, ...]:
    """Piecewise linear curves of log size and log members that are closest to fractions.

    Parameters
    ----------
    sizes, members, fractions, weights : ndarray, shape (measurements,)
        Buffers [bytes], members, the fractions that they reach, in (0, 1], and what a deviation of
        their logarithm counts.

    Returns
    -------
    tuple of EfficiencyPoint
        By members, then size; without the points that the others give within 1 %. For one number
        of members, points for any.
    """
    grid, counts = _nodes(sizes), _counts(members)
    by_size = _hats(np.log(sizes), np.log(grid))
    by_members = _hats(np.log(members), np.log(counts))
    hats = (by_members[:, :, None] * by_size[:, None, :]).reshape(len(sizes), -1)
    smoothness = _smoothness(len(counts), len(grid))

    def deviation(x: Floats) -> Floats:
        fitted = np.log(hats @ np.exp(x)) - np.log(fractions)
        return np.concatenate([fitted * weights, smoothness @ x])

    start = np.log(_local_mean(hats, by_size, fractions))
    values = np.exp(fit_parameters(deviation, start)).reshape(len(counts), len(grid))
    points = []
    for count, row in zip(counts, values, strict=True):
        clipped = np.clip(row, LEAST_FRACTION, 1.0)
        kept = _needed(np.log(grid), clipped)
        named = 0 if len(counts) == 1 else int(count)
        points += [EfficiencyPoint(float(grid[k]), float(f"{clipped[k]:.3g}"), named) for k in kept]
    return tuple(points)


def _nodes(sizes: Floats) -> Floats:
    """Nodes of the size grid with a measurement within half of their distance."""
    count = math.ceil(math.log(sizes.max() / FIRST_NODE, NODE_RATIO)) + 1
    grid = FIRST_NODE * NODE_RATIO ** np.arange(max(count, 1))
    near = np.abs(np.log(grid[:, None] / sizes)).min(axis=1) <= math.log(NODE_RATIO) / 2 + 1e-9
    return grid[near] if near.any() else np.array([float(np.median(sizes))])


def _counts(members: Floats) -> Floats:
    """Measured numbers of members that are powers of 2, or all if there is none."""
    measured = np.unique(members)
    powers = measured[np.log2(measured) % 1 == 0]
    return powers if len(powers) else measured


def _hats(x: Floats, nodes: Floats) -> Floats:
    """Weight of each node in the linear interpolation at each x, shape (x, nodes)."""
    return np.array([np.interp(x, nodes, row) for row in np.eye(len(nodes))]).T


def _local_mean(hats: Floats, by_size: Floats, fractions: Floats) -> Floats:
    """Mean of the fractions around each node; of all numbers of members where it has none."""
    weight = hats.sum(axis=0)
    everywhere = by_size.T @ fractions / by_size.sum(axis=0)
    mean = np.tile(everywhere, len(weight) // len(everywhere))
    own = weight > 1e-6
    mean[own] = (hats.T @ fractions)[own] / weight[own]
    return mean


def _smoothness(counts: int, sizes: int) -> Floats:
    """Rows that ask, a little, for no bends over sizes and no differences between members.

    They decide where measurements do not: at nodes without any, and between two nodes whose only
    measurements lie half-way.
    """
    index = np.arange(counts * sizes).reshape(counts, sizes)
    rows = []
    for row in index:
        for k in range(1, sizes - 1):
            rows.append((row[[k - 1, k, k + 1]], _BEND * np.array([1.0, -2.0, 1.0])))
    for column in index.T:
        for k in range(1, counts):
            rows.append((column[[k - 1, k]], _DIFFERENCE * np.array([1.0, -1.0])))
    matrix = np.zeros((len(rows), counts * sizes))
    for line, (nodes, values) in zip(matrix, rows, strict=True):
        line[nodes] = values
    return matrix


def _needed(x: Floats, values: Floats) -> list[int]:
    """Points between which linear interpolation gives the others within 1 %."""
    kept = list(range(len(x)))
    for k in range(1, len(x) - 1):
        rest = [j for j in kept if j != k]
        if np.all(np.abs(np.interp(x, x[rest], values[rest]) / values - 1) <= 0.01):
            kept = rest
    return kept
