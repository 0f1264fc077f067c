"""How long a collective takes: the largest of pieces that are affine in reciprocals of bandwidths.

    tau(B) = max_p ( alpha_p + sum_h C_ph / (H_h . B) ),   alpha, C, H >= 0,

which is convex in B. Write a_d = L_d + t_d / (c B_d) for the time of one of c chunks in dimension
d: t_d the bytes of all chunks there (over the fraction of it that they reach), L_d the latency of
one.

- multi-rail, one way (reduce-scatter, all-gather, all-to-all): chunks follow each other through the
  dimensions, whose slowest sets the pace, sum_d a_d + (c - 1) max_d a_d;
- multi-rail, there and back (all-reduce, broadcast: a reduce-scatter up the dimensions and an
  all-gather down): for each dimension p neither the work that it has to do, nor the way of the
  chunk that turns last, can be avoided, max_p of c a_p + sum_{d<p} a_d and
  sum_{d != p} a_d + (c + 1)/2 a_p. First come, first served, it takes just that in one and two
  dimensions and nearly always in more, where chunks on their way back can be held up by others on
  theirs (the formula is then too low, by up to 15 % at 2 to 5 chunks, 3.5 % at 16, 0.7 % at 64:
  benchmarks/against_simulation.py);
- balanced: chunks take the dimensions in different orders, so that only sets S of dimensions
  matter, sum_d a_d + (1 - 1/c) max_S m f(S) / (sum_S phi_d B_d) + (c - 1) min_S L_d, unless the
  fixed order is faster;
- ideal: max_S m f(S) / (sum_S phi_d B_d), or sum_d L_d if that is longer, and no chunk fill.

f(S). Give the dimensions of S the last places in the order, which leaves them the least to do.
With Q = prod of e_d over S and N members in all, m Q / N bytes of an NPU's buffer reach S, and
reducing and gathering them there takes f(S) = 2 (Q - 1) / N of m, half of it for a reduce-scatter
or all-gather. No schedule sends less through S. The orders of dimensions are the vertices of the
contra-polymatroid { v : v(S) >= f(S) }, since f is supermodular; so a mix of orders whose loads
fit, v_d <= t phi_d B_d, exists if and only if t sum_S phi_d B_d >= m f(S) for all S (Edmonds
1970). A perfectly balanced schedule therefore reaches the bound, up to chunk fill.

Of the mixes that reach it, `dimension_times` takes the one that uses the dimensions most evenly
(the lexicographically optimal base, Fujishige 1980): the set S with the largest
f(S) / (sum_S phi_d B_d) is in use for that time, then the rest likewise for what S leaves to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from libra.collectives import (
    RETURNING,
    Algorithm,
    Collective,
    CollectiveKind,
    CollectiveModel,
    dimension_bytes,
    dimension_latency,
)
from libra.network import Network

__all__ = [
    "Pieces",
    "Schedule",
    "allowed_schedules",
    "best_schedule",
    "collective_pieces",
    "dimension_times",
    "work_of_sets",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_REDUCTIONS = {
    CollectiveKind.ALL_REDUCE: 2.0,
    CollectiveKind.REDUCE_SCATTER: 1.0,
    CollectiveKind.ALL_GATHER: 1.0,
}


@dataclass(frozen=True)
class Pieces:
    """Time of a collective as the largest of affine pieces in s_h = 1 / (H_h . B).

    Attributes
    ----------
    alpha : ndarray, shape (pieces,)
        Constant of each piece [s].
    coefficient : ndarray, shape (pieces, forms)
        C [bytes].
    forms : ndarray, shape (forms, dimensions)
        H [1], non-negative.
    """

    alpha: Floats
    coefficient: Floats
    forms: Floats


@dataclass(frozen=True)
class Schedule:
    """What is left to choose of how a collective runs.

    Attributes
    ----------
    chunks : int or None
        Number of chunks; None: arbitrarily many.
    order : Algorithm
        A balanced collective may keep the fixed order of multi-rail.
    """

    chunks: int | None
    order: Algorithm


def collective_pieces(
    collective: Collective,
    network: Network,
    model: CollectiveModel,
    schedule: Schedule | None = None,
) -> Pieces:
    """Pieces of the time of a collective.

    Parameters
    ----------
    collective : Collective
    network : Network
    model : CollectiveModel
        Its algorithm, latencies and efficiencies.
    schedule : Schedule or None
        None: what no schedule that the model allows can beat. Where it allows one only, that one.
        Balanced and ideal ones are not defined where a switch reduces (see `libra.design`).

    Returns
    -------
    Pieces
        At least one.
    """
    return _pieces(_load(collective, network, model), model, schedule)


def _load(collective: Collective, network: Network, model: CollectiveModel) -> _Load:
    return _Load(
        collective,
        dimension_bytes(collective, network, model),
        dimension_latency(collective, network, model),
    )


def _pieces(load: _Load, model: CollectiveModel, schedule: Schedule | None) -> Pieces:
    order = model.algorithm if schedule is None else schedule.order
    if order is not Algorithm.MULTI_RAIL and not load.reorders:
        order = Algorithm.MULTI_RAIL
    if order is Algorithm.IDEAL:
        return ideal(load)
    if schedule is None:
        relaxed = balanced_bound if order is Algorithm.BALANCED else multi_rail
        return relaxed(load, model.chunks)
    return (balanced if order is Algorithm.BALANCED else multi_rail)(load, schedule.chunks)


@dataclass(frozen=True, eq=False)
class _Load:
    """A collective with its bytes t_d (over what they reach) and latencies L_d by dimension."""

    collective: Collective
    traffic: Floats
    latency: Floats

    @property
    def used(self) -> Ints:
        """Dimensions that it extends along, innermost first."""
        return np.flatnonzero(self.traffic)

    @property
    def reorders(self) -> bool:
        """Whether the order of the dimensions makes a difference."""
        return self.collective.kind in _REDUCTIONS and len(self.used) > 1


def multi_rail(load: _Load, chunks: int | None) -> Pieces:
    """Chunks in one order; None: what no number of them can beat."""
    used = load.used
    traffic, latency = load.traffic[used], load.latency[used]
    forms, count = np.eye(len(load.traffic))[used], len(used)
    if chunks is None:
        return _any_chunks(load, traffic, latency, forms)
    if load.collective.kind in RETURNING:
        # Times a_d in dimension p's two pieces, rows p: before it once, itself c times; and all
        # others once, itself (c + 1) / 2 times.
        before = np.tri(count, count, -1)
        work = before + chunks * np.eye(count)
        turn = 1 + (chunks - 1) / 2 * np.eye(count)
        times = np.vstack([work, turn])
    else:
        times = 1 + (chunks - 1) * np.eye(count)
    return Pieces(times @ latency, times * (traffic / chunks), forms)


def _any_chunks(load: _Load, traffic: Floats, latency: Floats, forms: Floats) -> Pieces:
    """Pieces of multi-rail below those of every number of chunks, and without latency their limit.

    One way: sum_d L_d + t_p / B_p. There and back later chunks may hide the latencies beyond p, so
    that only sum_{d<=p} L_d + t_p / B_p and sum_d L_d + t_p / (2 B_p) are certain.
    """
    every = np.full(len(latency), latency.sum())
    if load.collective.kind not in RETURNING or not latency.any():
        return Pieces(every, np.diag(traffic), forms)
    alpha = np.concatenate([np.cumsum(latency), every])
    return Pieces(alpha, np.vstack([np.diag(traffic), np.diag(traffic / 2)]), forms)


def balanced(load: _Load, chunks: int | None) -> Pieces:
    """Chunks in the orders that balance the dimensions."""
    if chunks is None:
        return ideal(load)
    cut, latency = _cut_bound(load), load.latency
    used = load.used
    rest = (1 - 1 / chunks) * cut.coefficient
    way = np.tile(load.traffic[used] / chunks, (len(rest), 1))
    forms = np.vstack([np.eye(len(load.traffic))[used], cut.forms])
    wait = latency.sum() + (chunks - 1) * _least_latency(cut.forms, latency)
    return Pieces(wait, np.hstack([way, rest]), forms)


def balanced_bound(load: _Load, chunks: int | None) -> Pieces:
    """What neither the balanced nor the fixed order can beat.

    Either takes the way of one chunk, and for every set S its work after the first chunk has come
    to the innermost dimension of S.
    """
    if chunks is None:
        return ideal(load)
    used, cut, latency = load.used, _cut_bound(load), load.latency
    count, width = len(used), len(load.traffic)
    innermost = np.argmax(cut.forms[:, used] > 0, axis=1)
    before = np.arange(count) < innermost[:, None]
    way = np.vstack([before, np.ones(count)]) * (load.traffic[used] / chunks)
    wait = before @ latency[used] + chunks * _least_latency(cut.forms, latency)
    work = np.vstack([cut.coefficient, np.zeros(len(cut.alpha))])
    forms = np.vstack([np.eye(width)[used], cut.forms])
    return Pieces(np.append(wait, latency.sum()), np.hstack([way, work]), forms)


def ideal(load: _Load) -> Pieces:
    """What no schedule can beat: the work of each set of dimensions, the latency of one way."""
    cut, latency = _cut_bound(load), load.latency
    if not latency.any():
        return cut
    return Pieces(
        np.append(cut.alpha, latency.sum()),
        np.vstack([cut.coefficient, np.zeros(cut.coefficient.shape[1])]),
        cut.forms,
    )


def _cut_bound(load: _Load) -> Pieces:
    """One piece m f(S) / (sum_S phi_d B_d) for every set S of the group's dimensions.

    phi_d, with the efficiency, is what the traffic of multi-rail was divided by.
    """
    collective, traffic = load.collective, load.traffic
    extents, used = collective.group.extents, load.used
    times = _REDUCTIONS[collective.kind] * collective.size
    members = collective.group.size
    reach, inner = np.zeros(len(traffic)), 1.0
    for d in used:
        reach[d] = times * (extents[d] - 1) / (extents[d] * inner) / traffic[d]
        inner *= extents[d]
    coefficients, forms = [], []
    for count in range(1, len(used) + 1):
        for chosen in combinations(used, count):
            q = float(np.prod([extents[d] for d in chosen]))
            coefficients.append(times * (q - 1) / members)
            form = np.zeros(len(traffic))
            form[list(chosen)] = reach[list(chosen)]
            forms.append(form)
    return Pieces(np.zeros(len(forms)), np.diag(coefficients), np.array(forms))


def dimension_times(
    collective: Collective,
    network: Network,
    model: CollectiveModel,
    schedule: Schedule,
    bandwidth: Floats,
) -> Floats:
    """Time that each dimension is in use for a collective, without latency.

    Parameters
    ----------
    collective : Collective
    network : Network
    model : CollectiveModel
    schedule : Schedule
        How it runs. In the fixed order a dimension carries `libra.collectives.dimension_bytes`;
        balanced and ideal schedules spread the work of all chunks but the first evenly.
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]

    Returns
    -------
    ndarray, shape (dimensions,)
        [s]; none longer than the collective takes. Infinite where a needed bandwidth is 0.
    """
    load = _load(collective, network, model)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed: Floats = np.where(load.traffic > 0, load.traffic / bandwidth, 0.0)
    if schedule.order is Algorithm.MULTI_RAIL or not (load.reorders and np.isfinite(fixed).all()):
        return fixed
    evenly = _spread(_cut_bound(load), bandwidth)
    if schedule.order is Algorithm.IDEAL or schedule.chunks is None:
        return evenly
    return evenly + (fixed - evenly) / schedule.chunks


def work_of_sets(collective: Collective, network: Network, model: CollectiveModel) -> Pieces | None:
    """What each set S of dimensions must carry at least: one piece m f(S) / (sum_S phi_d B_d) each.

    None if the order of the dimensions makes no difference.
    """
    load = _load(collective, network, model)
    return _cut_bound(load) if load.reorders else None


def _spread(cut: Pieces, bandwidth: Floats) -> Floats:
    """Time that each dimension is in use where the work of all sets is spread evenly [s]."""
    inside = cut.forms > 0
    work = {row.tobytes(): w for row, w in zip(inside, np.diag(cut.coefficient), strict=True)}
    result, placed, done = np.zeros(len(bandwidth)), np.zeros(len(bandwidth), dtype=np.bool_), 0.0
    while True:
        apart = ~(inside & placed).any(axis=1)
        if not apart.any():
            return result
        more = np.array([work[(row | placed).tobytes()] - done for row in inside[apart]])
        times = more / (cut.forms[apart] @ bandwidth)
        chosen = inside[apart][int(times.argmax())]
        result[chosen] = times.max()
        placed = placed | chosen
        done = work[placed.tobytes()]


def _least_latency(forms: Floats, latency: Floats) -> Floats:
    """Latency per chunk that a set of dimensions cannot avoid: the least of them, as a bound."""
    result: Floats = np.where(forms > 0, latency, np.inf).min(axis=1)
    return result


_COUNTS = tuple(sorted({round(2 ** (k / 2)) for k in range(27)}))


def allowed_schedules(
    collective: Collective, network: Network, model: CollectiveModel
) -> tuple[list[Algorithm], tuple[int | None, ...]]:
    """Orders and numbers of chunks that a model leaves a collective to choose from.

    Open numbers of chunks are 1, 2, 3, 4, 6, 8, 11, 16, … 8192 (steps of the square root of 2,
    within which the time changes by less than 2 %), or any many without latency.
    """
    orders = [model.algorithm]
    if model.algorithm is Algorithm.BALANCED:
        orders.append(Algorithm.MULTI_RAIL)
    waits = model.endpoint_delay > 0 or any(d.latency > 0 for d in network.dimensions)
    if model.chunks is not None or not waits:
        return orders, (model.chunks,)
    # What the network delays need not delay this collective.
    return orders, _COUNTS if dimension_latency(collective, network, model).any() else (None,)


def best_schedule(
    collective: Collective, network: Network, model: CollectiveModel, bandwidth: Floats
) -> Schedule:
    """Schedule that makes a collective fastest at given bandwidths, of those the model allows.

    Without latency more chunks are always better.
    """
    orders, counts = allowed_schedules(collective, network, model)
    if len(orders) * len(counts) == 1:
        return Schedule(counts[0], orders[0])
    load = _load(collective, network, model)

    @cache
    def time(schedule: Schedule) -> float:
        p = _pieces(load, model, schedule)
        with np.errstate(divide="ignore"):
            return float((p.alpha + p.coefficient @ (1 / (p.forms @ bandwidth))).max())

    def best_of(order: Algorithm) -> Schedule:
        # Every piece is a + b c + d / c with b, d >= 0, so that the largest is convex in c.
        low, high = 0, len(counts) - 1
        while low < high:
            middle = (low + high) // 2
            here, next_ = Schedule(counts[middle], order), Schedule(counts[middle + 1], order)
            low, high = (low, middle) if time(here) <= time(next_) else (middle + 1, high)
        return Schedule(counts[low], order)

    return min(map(best_of, orders), key=time)
