"""How long a collective takes: the largest of pieces that are affine in reciprocals of bandwidths.

    tau(B) = max_p ( alpha_p + sum_h C_ph / (H_h . B) ),   alpha, C, H >= 0,

which is convex in B. With t_d the bytes of dimension d (over the fraction of it that they reach),
L_d the latency of a chunk there, and c chunks that follow each other through the dimensions:

- multi-rail: sum_d (L_d + t_d / (c B_d)) + (c - 1) max_d (L_d + t_d / (c B_d)), a pipeline whose
  slowest stage sets the pace: one piece a dimension;
- balanced: chunks take the dimensions in different orders, so that only sets of dimensions matter:
  the rest of the time besides one chunk's way is, for every set S of dimensions,
  (1 - 1/c) m f(S) / (sum_S phi_d B_d), with f(S) the bytes that S carries at least (below);
- ideal: m f(S) / (sum_S phi_d B_d) for every S, and no chunk fill.

f(S). Give the dimensions of S the last places in the order, which leaves them the least to do.
With Q = prod of e_d over S and N members in all, m Q / N bytes of an NPU's buffer reach S, and
reducing and gathering them there takes f(S) = 2 (Q - 1) / N of m, half of it for a reduce-scatter
or all-gather. No schedule sends less through S. The orders of dimensions are the vertices of the
contra-polymatroid { v : v(S) >= f(S) }, since f is supermodular; so a mix of orders whose loads
fit, v_d <= t phi_d B_d, exists if and only if t sum_S phi_d B_d >= m f(S) for all S (Edmonds
1970). A perfectly balanced schedule therefore reaches the bound, up to chunk fill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from libra.collectives import (
    Algorithm,
    Collective,
    CollectiveKind,
    CollectiveModel,
    dimension_bytes,
    dimension_latency,
)
from libra.errors import FieldError
from libra.network import Network

__all__ = ["Pieces", "best_chunks", "collective_pieces"]

Floats = NDArray[np.float64]

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


def collective_pieces(
    collective: Collective, network: Network, model: CollectiveModel, chunks: int | None
) -> Pieces:
    """Pieces of the time of a collective.

    Parameters
    ----------
    collective : Collective
    network : Network
    model : CollectiveModel
        Its algorithm, latencies and efficiencies.
    chunks : int or None
        Number of chunks; None: what no number of chunks can beat (without latency, the limit of
        many).

    Returns
    -------
    Pieces
        At least one.
    """
    traffic = dimension_bytes(collective, network, model)
    latency = dimension_latency(collective, network, model)
    return _ALGORITHMS[model.algorithm](collective, network, traffic, latency, chunks)


def multi_rail(
    collective: Collective,
    network: Network,
    traffic: Floats,
    latency: Floats,
    chunks: int | None,
) -> Pieces:
    """Chunks in one order: a pipeline with the dimensions as its stages."""
    used = np.flatnonzero(traffic)
    forms = np.eye(len(traffic))[used]
    slowest = np.diag(traffic[used])
    wait = np.full(len(used), latency.sum())
    if chunks is None:
        return Pieces(wait, slowest, forms)
    rest = 1 - 1 / chunks
    coefficient = np.tile(traffic[used] / chunks, (len(used), 1)) + rest * slowest
    return Pieces(wait + (chunks - 1) * latency[used], coefficient, forms)


def balanced(
    collective: Collective,
    network: Network,
    traffic: Floats,
    latency: Floats,
    chunks: int | None,
) -> Pieces:
    """Chunks in the orders that balance the dimensions; reductions only, others as multi-rail."""
    used = np.flatnonzero(traffic)
    if collective.kind not in _REDUCTIONS or len(used) < 2:
        return multi_rail(collective, network, traffic, latency, chunks)
    bound = _cut_bound(collective, network, traffic)
    if chunks is None:
        return Pieces(np.full(len(bound.alpha), latency.sum()), bound.coefficient, bound.forms)
    rest = (1 - 1 / chunks) * bound.coefficient
    ways = np.tile(traffic[used] / chunks, (len(rest), 1))
    forms = np.vstack([np.eye(len(traffic))[used], bound.forms])
    wait = latency.sum() + (chunks - 1) * _set_latency(bound.forms, latency)
    return Pieces(wait, np.hstack([ways, rest]), forms)


def ideal(
    collective: Collective,
    network: Network,
    traffic: Floats,
    latency: Floats,
    chunks: int | None,
) -> Pieces:
    """What no schedule can beat; latency once, no chunk fill."""
    used = np.flatnonzero(traffic)
    if collective.kind not in _REDUCTIONS or len(used) < 2:
        return multi_rail(collective, network, traffic, latency, None)
    bound = _cut_bound(collective, network, traffic)
    return Pieces(np.full(len(bound.alpha), latency.sum()), bound.coefficient, bound.forms)


def _cut_bound(collective: Collective, network: Network, traffic: Floats) -> Pieces:
    """One piece m f(S) / (sum_S phi_d B_d) for every set S of the group's dimensions.

    phi_d, with the efficiency, is what the traffic of multi-rail was divided by.
    """
    if any(d.in_network for d in network.dimensions):
        raise FieldError(
            "collectives.algorithm",
            "balanced and ideal collectives are not defined for switches that reduce, got "
            "in_network: true. Use multi-rail.",
        )
    extents = collective.group.extents
    used = [d for d, e in enumerate(extents) if e > 1]
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


def _set_latency(forms: Floats, latency: Floats) -> Floats:
    """Latency per chunk that a set of dimensions cannot avoid: the least of them, as a bound."""
    result: Floats = np.where(forms > 0, latency, np.inf).min(axis=1)
    return result


_ALGORITHMS: dict[Algorithm, Callable[..., Pieces]] = {
    Algorithm.MULTI_RAIL: multi_rail,
    Algorithm.BALANCED: balanced,
    Algorithm.IDEAL: ideal,
}

_COUNTS = tuple(sorted({round(2 ** (k / 2)) for k in range(27)}))


def best_chunks(
    collective: Collective, network: Network, model: CollectiveModel, bandwidth: Floats
) -> int | None:
    """Number of chunks that makes a collective fastest at given bandwidths.

    Returns
    -------
    int or None
        One of 1, 2, 3, 4, 6, 8, 11, 16, … 8192 (steps of the square root of 2, within which the
        time changes by less than 2 %); None without latency, where more chunks are always better.
    """
    latency = dimension_latency(collective, network, model)
    if not latency.any():
        return None
    best, least = 1, np.inf
    for count in _COUNTS:
        p = collective_pieces(collective, network, model, count)
        time = float((p.alpha + p.coefficient @ (1 / (p.forms @ bandwidth))).max())
        if time < least:
            best, least = count, time
    return best
