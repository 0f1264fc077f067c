"""Collectives: what each dimension carries and waits for.

A collective of m bytes runs on a `Group` with extents e_d. The hierarchical algorithm
(reduce-scatter up the dimensions, all-gather down) sends in dimension d, with P_d = prod of e_i for
i < d, [m is the buffer each NPU holds before a reduce-scatter or all-reduce, after an all-gather]

====================================  =====================================
reduce-scatter, all-gather            (m / P_d) (e_d - 1) / e_d
all-reduce                            twice that; m / P_d if the switch reduces
all-to-all                            m (e_d - 1) / e_d; on a ring the hops count
broadcast                             that of an all-reduce, m / P_d in the outermost dimension
point-to-point                        m where the peers differ
====================================  =====================================

A group that takes only part of a dimension may reach only a fraction phi of its bandwidth (see
`reachable_fraction`), and a message reaches only a fraction of what it could (``efficiency``), so
the bytes are divided by both. How long the collective takes is in `libra.pieces`.

References
----------
.. [1] Won et al., "LIBRA", ISPASS 2024, arXiv 2109.11762, section IV.
.. [2] Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19(1), 2005: bytes and steps of ring, halving-doubling and pairwise collectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from libra.efficiency import (
    CollectiveKind,
    EfficiencyCurves,
    EfficiencyPoint,
    efficiency_at,
    require_rising,
)
from libra.errors import FieldError
from libra.network import Dimension, Network, Topology
from libra.placement import Group
from libra.units import TIME

__all__ = [
    "Algorithm",
    "AllToAll",
    "Collective",
    "CollectiveKind",
    "CollectiveModel",
    "Compatibility",
    "Contention",
    "EfficiencyPoint",
    "dimension_bytes",
    "dimension_efficiency",
    "dimension_latency",
    "reachable_fraction",
    "size_efficiency",
]


class Algorithm(StrEnum):
    """How a collective's chunks use the dimensions.

    ``MULTI_RAIL``: every chunk visits the dimensions in the same order, the busiest one decides.
    ``BALANCED``: a runtime scheduler gives chunks different orders so that the dimensions finish
    together (Themis, Rashidi et al., ISCA 2022). ``IDEAL``: the bound that no schedule can beat,
    which synthesised collectives approach (TACOS, Won et al., MICRO 2024).
    """

    MULTI_RAIL = "multi-rail"
    BALANCED = "balanced"
    IDEAL = "ideal"


class Compatibility(StrEnum):
    """Formulas of another tool: ``LIBRA`` lets a partial group use the whole dimension."""

    LIBRA = "libra"


class Contention(StrEnum):
    """Whether collectives that share a dimension wait for each other, in program order."""

    QUEUE = "queue"
    NONE = "none"


class AllToAll(StrEnum):
    """Messages of an all-to-all: all at once over all links, or one after the other."""

    DIRECT = "direct"
    PAIRWISE = "pairwise"


RETURNING = (CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST)
"""Collectives that go up the dimensions and come back."""


@dataclass(frozen=True)
class CollectiveModel:
    """How collectives are run and timed.

    Attributes
    ----------
    compat : Compatibility or None
        None: partial groups use the links they reach and an all-to-all on a ring pays for its hops.
        ``libra``: the formulas of the paper [1]_, in which a partial group keeps the whole
        bandwidth of a dimension, hops cost nothing and there is no latency.
    algorithm : Algorithm
        How chunks use the dimensions.
    chunks : int or None
        Equal parts that a collective is cut into and pipelined over the dimensions; None: the best
        count for each collective (without latency, arbitrarily many).
    all_to_all : AllToAll or None
        How an all-to-all sends its messages; None: all at once in a fully connected block, one
        after the other on rings and switches.
    endpoint_delay : float
        Time that an NPU needs for each message besides the network [s].
    efficiency : mapping of CollectiveKind to tuple of EfficiencyPoint
        Fraction of the nominal bandwidth that a kind reaches, by size: linear in log size between
        the points, constant outside them.
    contention : Contention
        Whether collectives that share a dimension queue.
    flat_rings : bool
        Rings through all members, as NCCL's: what leaves a node was not reduced in it before, so
        that a reduce-scatter sends (P_d e_d - 1) / (P_d e_d) in the place of (e_d - 1) / e_d.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    compat: Compatibility | None = None
    algorithm: Algorithm = Algorithm.MULTI_RAIL
    chunks: int | None = None
    all_to_all: AllToAll | None = None
    endpoint_delay: Annotated[float, TIME] = 0.0
    efficiency: EfficiencyCurves = field(default_factory=dict)
    contention: Contention = Contention.QUEUE
    flat_rings: bool = False

    def __post_init__(self) -> None:
        for name, words in (
            ("algorithm", Algorithm),
            ("all_to_all", AllToAll),
            ("contention", Contention),
            ("compat", Compatibility),
        ):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else words(value))
        if self.compat is not None and (
            self.chunks is not None
            or self.efficiency
            or self.endpoint_delay
            or self.all_to_all is not None
            or self.flat_rings
            or self.algorithm is not Algorithm.MULTI_RAIL
        ):
            raise FieldError(
                "compat",
                f"the paper's formulas have no chunks, delays, efficiencies or other algorithms, "
                f"got {self.compat.value} with some. Remove compat or the others.",
            )
        if self.chunks is not None and self.chunks < 1:
            raise FieldError(
                "chunks", f"a collective has at least 1 chunk, got {self.chunks}. Or write auto."
            )
        if self.flat_rings and self.algorithm is not Algorithm.MULTI_RAIL:
            raise FieldError(
                "flat_rings",
                f"only multi-rail collectives are rings, got {self.algorithm.value}. Remove "
                "flat_rings.",
            )
        require_rising("efficiency", self.efficiency)


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
        object.__setattr__(self, "kind", CollectiveKind(self.kind))
        if not (np.isfinite(self.size) and self.size > 0):
            raise FieldError(
                "size",
                f"a collective's size must be finite and positive, got {self.size!r}. "
                "Give bytes, or leave the collective out.",
            )


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
    """Bytes that a collective costs each dimension, over the fraction of bandwidth it reaches.

    Parameters
    ----------
    collective : Collective
        The collective; its group has one extent for each dimension.
    network : Network
        The network.
    model : CollectiveModel
        Whether partial groups and hops count, and efficiencies.

    Returns
    -------
    ndarray, shape (dimensions,)
        b_d / (phi_d efficiency_d) [bytes]: the dimension is busy for that over B_d.

    Notes
    -----
    The table at the head of this module.

    Examples
    --------
    >>> from libra.network import Dimension, Topology
    >>> net = Network((Dimension(Topology.RING, 4, "node"), Dimension(Topology.SWITCH, 8, "pod")))
    >>> ar = Collective(CollectiveKind.ALL_REDUCE, 64e6, Group("all", (4, 8), (1, 1)))
    >>> dimension_bytes(ar, net, CollectiveModel())
    array([96000000., 28000000.])
    """
    result = np.zeros(len(network.dimensions))
    inner = 1
    group = collective.group
    used = [d for d, e in enumerate(group.extents) if e > 1]
    for d in used:
        dimension, e, k = network.dimensions[d], group.extents[d], group.strides[d]
        share = _share(collective.kind, dimension, e, inner, d == used[-1], model.flat_rings)
        if model.compat is None:
            share = _on_links(share, collective.kind, dimension, e, k)
            share /= dimension_efficiency(collective, dimension, d)
        result[d] = share
        inner *= e
    return result * (collective.size / size_efficiency(collective, model))


_RINGS = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)


def _share(
    kind: CollectiveKind,
    dimension: Dimension,
    extent: int,
    inner: int,
    outermost: bool,
    flat: bool,
) -> float:
    """Bytes sent in a dimension per byte of buffer, with P_d = inner."""
    ring = extent * inner if flat and kind in _RINGS else extent
    part = (ring - 1) / ring
    match kind:
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER:
            return part / inner
        case CollectiveKind.ALL_REDUCE:
            return (1 if dimension.in_network else 2 * part) / inner
        case CollectiveKind.BROADCAST:
            return (1 if outermost else 2 * part) / inner
        case CollectiveKind.ALL_TO_ALL:
            return part
        case CollectiveKind.POINT_TO_POINT:
            return 1.0


def _on_links(
    share: float, kind: CollectiveKind, dimension: Dimension, extent: int, stride: int
) -> float:
    """Bytes in units of the dimension's whole bandwidth, given the links that can carry them."""
    if kind is CollectiveKind.ALL_TO_ALL and dimension.topology is Topology.RING:
        return _ring_all_to_all(dimension, extent, stride)
    if kind is CollectiveKind.POINT_TO_POINT:
        links = {
            Topology.RING: 2 * stride,
            Topology.FULLY_CONNECTED: dimension.size - 1,
            Topology.SWITCH: 1,
        }
        return share * links[dimension.topology]
    return share / reachable_fraction(dimension, extent, stride)


def size_efficiency(collective: Collective, model: CollectiveModel) -> float:
    """Fraction of the nominal bandwidth that a collective of its kind and size reaches."""
    points = model.efficiency.get(collective.kind)
    if not points:
        return 1.0
    return efficiency_at(points, collective.size, collective.group.size)


def dimension_efficiency(collective: Collective, dimension: Dimension, d: int) -> float:
    """Fraction of the bandwidth of dimension d that a collective's kind reaches there.

    The buffer that comes to the dimension is m / P_d of a collective that gathers or reduces on
    the way, and m of an all-to-all or a point-to-point message.

    Returns
    -------
    float
        In (0, 1]: by the dimension's ``efficiency_by_size`` for the kind, else its ``efficiency``.
    """
    points = dimension.efficiency_by_size.get(collective.kind)
    if points is None:
        return dimension.efficiency
    whole = (CollectiveKind.ALL_TO_ALL, CollectiveKind.POINT_TO_POINT)
    inner = 1 if collective.kind in whole else math.prod(collective.group.extents[:d])
    return efficiency_at(points, collective.size / inner, collective.group.extents[d])


def dimension_latency(
    collective: Collective, network: Network, model: CollectiveModel
) -> NDArray[np.float64]:
    r"""Time that one chunk of a collective waits in each dimension besides sending its bytes.

    A message takes ``hops x latency + endpoint delay``, and the NPU delays once more at the end of
    each way; a switch is two hops for each of its tiers, the neighbour on a strided ring as many as
    the stride. The messages one after the other are

    - ring: e - 1; fully connected: 1 (direct); switch: log2 e (halving or doubling), for a
      reduce-scatter or an all-gather; twice that for an all-reduce, but 1 if the switch reduces;
    - all-to-all: e - 1 over 1, 2, … hops (pairwise), or 1 over the farthest (direct);
    - broadcast: as an all-reduce, without the way back in the outermost dimension;
    - point-to-point: 1.

    Returns
    -------
    ndarray, shape (dimensions,)
        [s]; zeros with ``compat: libra``.
    """
    result = np.zeros(len(network.dimensions))
    if model.compat is not None:
        return result
    group = collective.group
    used = [d for d, e in enumerate(group.extents) if e > 1]
    for d in used:
        dimension = network.dimensions[d]
        outermost = d == used[-1]
        messages, hops = _messages(
            collective.kind, dimension, group.extents[d], group.strides[d], model, outermost
        )
        ends = 2 if collective.kind in RETURNING and not outermost else 1
        result[d] = hops * dimension.latency + (messages + ends) * model.endpoint_delay
    return result


def _messages(
    kind: CollectiveKind,
    dimension: Dimension,
    extent: int,
    stride: int,
    model: CollectiveModel,
    outermost: bool,
) -> tuple[int, int]:
    """Messages one after the other and the hops they cross together."""
    topology = dimension.topology
    hop = {
        Topology.RING: stride,
        Topology.FULLY_CONNECTED: 1,
        Topology.SWITCH: 2 * dimension.switch_tiers,
    }[topology]
    one_way = {
        Topology.RING: extent - 1,
        Topology.FULLY_CONNECTED: 1,
        Topology.SWITCH: (extent - 1).bit_length(),
    }[topology]
    match kind:
        case CollectiveKind.ALL_REDUCE if dimension.in_network:
            return 1, hop
        case CollectiveKind.ALL_REDUCE:
            return 2 * one_way, 2 * one_way * hop
        case CollectiveKind.BROADCAST:
            ways = 1 if outermost else 2
            return ways * one_way, ways * one_way * hop
        case CollectiveKind.POINT_TO_POINT:
            return 1, hop
        case CollectiveKind.ALL_TO_ALL:
            return _all_to_all_messages(dimension, extent, hop, model.all_to_all)
        case _:
            return one_way, one_way * hop


def _all_to_all_messages(
    dimension: Dimension, extent: int, hop: int, how: AllToAll | None
) -> tuple[int, int]:
    ring = dimension.topology is Topology.RING
    closed = ring and extent * hop == dimension.size
    distances = [min(k, extent - k) if closed else k if ring else 1 for k in range(1, extent)]
    if how is None:
        direct = dimension.topology is Topology.FULLY_CONNECTED
    else:
        direct = how is AllToAll.DIRECT
    if direct:
        return 1, max(distances) * hop
    return extent - 1, sum(distances) * hop


def distinct(collectives: Iterable[Collective]) -> tuple[tuple[Collective, ...], NDArray[np.int64]]:
    """Distinct collectives in order of first use, and the index of each given one among them."""
    index: dict[Collective, int] = {}
    where = [index.setdefault(c, len(index)) for c in collectives]
    return tuple(index), np.array(where, dtype=np.int64)
