"""Collectives: the bytes that each dimension carries and the pieces of the time they take.

A collective of m bytes runs on a `Group` with extents e_d. The hierarchical multi-rail algorithm
(reduce-scatter up the dimensions, all-gather down) sends in dimension d, with P_d = prod of e_i for
i < d, [m is the buffer each NPU holds before a reduce-scatter or all-reduce, after an all-gather]

====================================  =====================================
reduce-scatter, all-gather            (m / P_d) (e_d - 1) / e_d
all-reduce                            twice that; m / P_d if the switch reduces
all-to-all                            m (e_d - 1) / e_d; on a ring the hops count
====================================  =====================================

A group that takes only part of a dimension may reach only a fraction phi of its bandwidth (see
`reachable_fraction`), so the bytes are divided by phi. Its time is the largest of "pieces"

    tau(B) = max_p ( alpha_p + sum_h C_ph / (H_h . B) ),   alpha, C, H >= 0,

which is convex in B. Multi-rail with many chunks: H is the identity, one piece a dimension.

References
----------
.. [1] Won et al., "LIBRA", ISPASS 2024, arXiv 2109.11762, section IV.
.. [2] Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19(1), 2005: the bytes of ring and halving-doubling collectives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError
from libra.network import Dimension, Network, Topology
from libra.placement import Group

__all__ = [
    "Collective",
    "CollectiveKind",
    "CollectiveModel",
    "Compatibility",
    "Pieces",
    "collective_pieces",
    "dimension_bytes",
    "reachable_fraction",
]


class CollectiveKind(StrEnum):
    """What a collective does, by its name in the field."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"


class Compatibility(StrEnum):
    """Formulas of another tool: ``LIBRA`` lets a partial group use the whole dimension."""

    LIBRA = "libra"


@dataclass(frozen=True)
class CollectiveModel:
    """How collectives are run and timed.

    Attributes
    ----------
    compat : Compatibility or None
        None: partial groups use the links they reach and an all-to-all on a ring pays for its hops.
        ``libra``: the formulas of the paper [1]_, in which a partial group keeps the whole
        bandwidth of a dimension and hops cost nothing.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    compat: Compatibility | None = None


@dataclass(frozen=True)
class Collective:
    """One distinct collective.

    Attributes
    ----------
    kind : CollectiveKind
        What it does.
    size : float
        m [bytes]: the buffer of each NPU before a reduce-scatter, all-reduce or all-to-all, and
        after an all-gather.
    group : Group
        Who takes part.
    """

    kind: CollectiveKind
    size: float
    group: Group

    def __post_init__(self) -> None:
        if not (np.isfinite(self.size) and self.size > 0):
            raise FieldError(
                "size",
                f"a collective's size must be finite and positive, got {self.size!r}. "
                "Give bytes, or leave the collective out.",
            )


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

    alpha: NDArray[np.float64]
    coefficient: NDArray[np.float64]
    forms: NDArray[np.float64]


def reachable_fraction(dimension: Dimension, extent: int, stride: int) -> float:
    """Fraction phi of an NPU's bandwidth in a dimension that a group can use.

    - switch: 1 (any member reaches any other at full rate);
    - fully connected, g of n members: (g - 1) / (n - 1), the links that lead to other members;
    - ring, all n members: 1 (both directions carry half of the traffic each);
    - ring, g members with stride k that close the ring (g k = n): 1 / k, since each link carries
      the flows of the k groups that run at once;
    - ring, other parts: 1 / (2 k), since the wrap-around is missing: one logical ring over a line
      sends all its bytes along every link of one direction.

    Parameters
    ----------
    dimension : Dimension
        The dimension.
    extent : int
        Members of the group along it, g, at least 2.
    stride : int
        Distance between neighbouring members along it, k.

    Returns
    -------
    float
        phi, in (0, 1].

    Examples
    --------
    >>> from libra.network import Dimension, Topology
    >>> reachable_fraction(Dimension(Topology.FULLY_CONNECTED, 8, "package"), 4, 1)
    0.42857142857142855
    >>> reachable_fraction(Dimension(Topology.RING, 8, "package"), 4, 1)
    0.5
    """
    match dimension.topology:
        case Topology.SWITCH:
            return 1.0
        case Topology.FULLY_CONNECTED:
            return (extent - 1) / (dimension.size - 1)
        case Topology.RING:
            return 1 / stride if extent * stride == dimension.size else 1 / (2 * stride)


def _ring_all_to_all(dimension: Dimension, extent: int, stride: int) -> float:
    """Bytes per byte of buffer that an all-to-all sends on a ring, with every hop counted.

    Shortest paths on the closed ring of g members load each direction's link with floor(g^2/4)/(2g)
    of the buffer, on half of the bandwidth; on a line its middle link carries floor(g^2/4)/g. Each
    of the k strided groups that share the links adds as much. In units of the whole bandwidth:
    """
    closed = extent * stride == dimension.size
    load = (extent * extent // 4) / extent
    return stride * load * (1 if closed else 2)


def dimension_bytes(
    collective: Collective, network: Network, model: CollectiveModel
) -> NDArray[np.float64]:
    """Bytes that a collective costs each dimension, divided by the fraction it can use.

    Parameters
    ----------
    collective : Collective
        The collective; its group has one extent for each dimension.
    network : Network
        The network.
    model : CollectiveModel
        Whether partial groups and hops count.

    Returns
    -------
    ndarray, shape (dimensions,)
        Bytes b_d / phi_d [bytes]: the dimension is busy for b_d / phi_d / B_d.

    Notes
    -----
    The table at the head of this module.

    Examples
    --------
    >>> from libra.network import Dimension, Topology
    >>> from libra.placement import Group
    >>> net = Network((Dimension(Topology.RING, 4, "node"), Dimension(Topology.SWITCH, 8, "pod")))
    >>> ar = Collective(CollectiveKind.ALL_REDUCE, 64e6, Group("all", (4, 8), (1, 1)))
    >>> dimension_bytes(ar, net, CollectiveModel())
    array([96000000., 28000000.])
    """
    result = np.zeros(len(network.dimensions))
    inner = 1
    group, compat = collective.group, model.compat is Compatibility.LIBRA
    for d, (dimension, e, k) in enumerate(
        zip(network.dimensions, group.extents, group.strides, strict=True)
    ):
        if e == 1:
            continue
        phi = 1.0 if compat else reachable_fraction(dimension, e, k)
        share = (e - 1) / e
        match collective.kind:
            case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER:
                result[d] = share / inner / phi
            case CollectiveKind.ALL_REDUCE:
                result[d] = (1 if dimension.in_network else 2 * share) / inner / phi
            case CollectiveKind.ALL_TO_ALL if dimension.topology is Topology.RING and not compat:
                result[d] = _ring_all_to_all(dimension, e, k)
            case CollectiveKind.ALL_TO_ALL:
                result[d] = share / phi
        inner *= e
    return result * collective.size


def collective_pieces(collective: Collective, network: Network, model: CollectiveModel) -> Pieces:
    """Pieces of the time of a collective: multi-rail with many chunks, the busiest dimension.

    Parameters
    ----------
    collective, network, model
        As for `dimension_bytes`.

    Returns
    -------
    Pieces
        One piece b_d / (phi_d B_d) for each dimension that the group extends along.
    """
    traffic = dimension_bytes(collective, network, model)
    used = np.flatnonzero(traffic)
    identity = np.eye(len(traffic))
    return Pieces(np.zeros(len(used)), np.diag(traffic[used]), identity[used])


def distinct(collectives: Iterable[Collective]) -> tuple[tuple[Collective, ...], NDArray[np.int64]]:
    """Distinct collectives in order of first use, and the index of each given one among them."""
    index: dict[Collective, int] = {}
    where = [index.setdefault(c, len(index)) for c in collectives]
    return tuple(index), np.array(where, dtype=np.int64)
