"""ASTRA-sim 2 configurations of a network, and the times of its analytical simulator.

The simulator's conventions, which differ from libra's:

- its "GB/s" are 2^30 bytes/s;
- ``bandwidth`` is that of an NPU in the dimension on rings and switches; in a fully connected block
  with the ``direct`` algorithm that of one link, 1/(n - 1) of it;
- collectives span whole dimensions (``involved_dim``): a dimension that groups share is split into
  the factors that they span, each with the bandwidth that its groups reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.collectives import (
    AllToAll,
    Collective,
    CollectiveKind,
    CollectiveModel,
    reachable_fraction,
)
from libra.errors import FieldError
from libra.formats.chakra_write import comm_size
from libra.network import Dimension, Network, Topology
from libra.placement import whole_group
from libra.simulate import Messages, Stage, message_rows, row_time, simulate_graph
from libra.workload.graph import chain_graph

__all__ = [
    "SimulatorDimension",
    "SimulatorNetwork",
    "collective_cycles",
    "memory_configuration",
    "message_cycles",
    "network_configuration",
    "simulator_network",
    "system_configuration",
]

GB = 2.0**30
"""Bytes per second in what the simulator calls GB/s."""
_NAMES = {
    Topology.RING: "Ring",
    Topology.FULLY_CONNECTED: "FullyConnected",
    Topology.SWITCH: "Switch",
}
_MESSAGES = {
    "ring": Messages.RING,
    "direct": Messages.DIRECT,
    "direct1": Messages.PAIRWISE,
    "halvingDoubling": Messages.HALVING_DOUBLING,
}
_TICK = 1e-9


@dataclass(frozen=True)
class SimulatorDimension:
    """One dimension as the simulator is told.

    Attributes
    ----------
    topology : Topology
    size : int
    bandwidth : float
        ``bandwidth`` of the configuration [bytes/s].
    latency : float
        Of a hop [s].
    algorithm, all_to_all : str
        Implementations of collectives.
    origin : int
        Dimension of the design that it is or is part of.
    stride : int
        Distance of its neighbours in that dimension.
    """

    topology: Topology
    size: int
    bandwidth: float
    latency: float
    algorithm: str
    all_to_all: str
    origin: int
    stride: int


@dataclass(frozen=True)
class SimulatorNetwork:
    """A network as the simulator is told.

    Attributes
    ----------
    dimensions : tuple of SimulatorDimension
        Innermost first; NPU ids are those of the design.
    chunks : int
        Parts that each collective is cut into.
    endpoint_delay : int
        [ns]
    remarks : tuple of str
        Where it cannot say what the design says.
    """

    dimensions: tuple[SimulatorDimension, ...]
    chunks: int
    endpoint_delay: int
    remarks: tuple[str, ...] = ()

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return math.prod(d.size for d in self.dimensions)

    def involved(self, collective: Collective) -> list[bool]:
        """``involved_dim`` of a collective."""
        group = collective.group
        return [
            group.extents[d.origin] > 1
            and group.strides[d.origin] <= d.stride
            and d.stride * d.size <= group.strides[d.origin] * group.extents[d.origin]
            for d in self.dimensions
        ]


def simulator_network(
    network: Network,
    collectives: Iterable[Collective],
    model: CollectiveModel,
    bandwidth: NDArray[np.float64],
    chunks: int,
) -> SimulatorNetwork:
    """Network of a design in the simulator's terms.

    Parameters
    ----------
    network : Network
    collectives : iterable of Collective
        What runs on it; their groups say how dimensions are split.
    model : CollectiveModel
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    chunks : int
        Parts that each collective is cut into.

    Raises
    ------
    FieldError
        If groups share a dimension in a way that no split says.
    """
    found = [c for c in collectives if c.kind is not CollectiveKind.POINT_TO_POINT]
    dimensions: list[SimulatorDimension] = []
    for d, dimension in enumerate(network.dimensions):
        spans = {(c.group.strides[d], c.group.extents[d]) for c in found if c.group.extents[d] > 1}
        kinds = {c.kind for c in found if c.group.extents[d] > 1}
        for stride, size in _factors(network.names[d], dimension.size, spans):
            dimensions.append(
                _simulated(dimension, d, stride, size, float(bandwidth[d]), kinds, model)
            )
    return SimulatorNetwork(
        tuple(dimensions),
        chunks,
        max(1, round(model.endpoint_delay * 1e9)),
        _remarks(network, found, model, spans_whole=_spanned(dimensions, found)),
    )


def _factors(name: str, size: int, spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Strides and sizes that split a dimension so that each span is some of them."""
    cuts = sorted({1, size} | {s for s, _ in spans} | {s * e for s, e in spans})
    if any(b % a for a, b in pairwise(cuts)) or cuts[-1] > size:
        shown = ", ".join(f"{e} members {s} apart" for s, e in sorted(spans))
        raise FieldError(
            "groups",
            f"the groups share {name} of {size} members in a way that the simulator's dimensions "
            f"cannot say, got {shown}. Export with comm groups: --comm-groups.",
        )
    return [(a, b // a) for a, b in pairwise(cuts)]


def _simulated(
    dimension: Dimension,
    origin: int,
    stride: int,
    size: int,
    bandwidth: float,
    kinds: set[CollectiveKind],
    model: CollectiveModel,
) -> SimulatorDimension:
    """A dimension, or the part of one with some stride and size."""
    topology = dimension.topology
    published = model.compat is not None
    direct = topology is Topology.FULLY_CONNECTED and not published
    pairwise = model.all_to_all is AllToAll.PAIRWISE or topology is not Topology.FULLY_CONNECTED
    exchange = "direct1" if pairwise or published else "direct"
    if direct and exchange == "direct1" and CollectiveKind.ALL_TO_ALL in kinds:
        if kinds != {CollectiveKind.ALL_TO_ALL}:
            raise FieldError(
                ("collectives", "all_to_all"),
                "in a fully connected block the simulator's bandwidth is that of a link for direct "
                "collectives and of an NPU for a pairwise all-to-all, got both kinds. Use direct.",
            )
        direct = False
    effective = bandwidth if published else bandwidth * dimension.efficiency
    if not published:
        effective *= reachable_fraction(dimension, size, stride)
    latency = 0.0 if published else dimension.latency
    if topology is Topology.RING:
        latency *= stride
    return SimulatorDimension(
        topology,
        size,
        effective / (size - 1) if direct else effective,
        latency,
        {
            Topology.RING: "ring",
            Topology.FULLY_CONNECTED: "ring" if published else "direct",
            Topology.SWITCH: "halvingDoubling",
        }[topology],
        exchange,
        origin,
        stride,
    )


def _spanned(dimensions: Sequence[SimulatorDimension], found: Sequence[Collective]) -> bool:
    """Whether no group spans several parts of one dimension."""
    for collective in found:
        for d, extent in enumerate(collective.group.extents):
            parts = [s for s in dimensions if s.origin == d]
            if extent > 1 and not any(s.size == extent for s in parts):
                return False
    return True


def _remarks(
    network: Network, found: Sequence[Collective], model: CollectiveModel, *, spans_whole: bool
) -> tuple[str, ...]:
    remarks = []
    if not spans_whole:
        remarks.append(
            "Some groups span several of the parts that a dimension is split into: the simulator "
            "runs them part by part, libra as one."
        )
    if any(d.in_network for d in network.dimensions):
        remarks.append("The simulator's switches do not reduce (`in_network`).")
    if model.efficiency:
        remarks.append("Efficiencies by size (`collectives.efficiency`) are left out.")
    rings = [d for d, n in enumerate(network.dimensions) if n.topology is Topology.RING]
    if any(
        c.kind is CollectiveKind.ALL_TO_ALL and any(c.group.extents[d] > 1 for d in rings)
        for c in found
    ):
        remarks.append(
            "The simulator's all-to-all on a ring (`direct1`) does not load the links of the hops "
            "between, so it is faster there than libra's model."
        )
    if any(c.kind is CollectiveKind.BROADCAST for c in found):
        remarks.append("The simulator replays a broadcast by its recorded duration: here 1 ns.")
    if model.algorithm.value != "multi-rail":
        remarks.append(
            f"The design's collectives are {model.algorithm.value}; the simulator is set to its "
            "fixed order (multi-rail)."
        )
    return tuple(remarks)


def network_configuration(network: SimulatorNetwork) -> str:
    """Text of ``network.yml``."""

    def row(key: str, values: Iterable[str], remark: str) -> str:
        return f"{key}: [{', '.join(values)}]{remark}\n"

    parts = network.dimensions
    return (
        row("topology", (_NAMES[d.topology] for d in parts), "  # innermost first")
        + row("npus_count", (str(d.size) for d in parts), "")
        + row("bandwidth", (f"{d.bandwidth / GB:.10g}" for d in parts), "  # 2^30 bytes/s")
        + row("latency", (f"{d.latency * 1e9:.10g}" for d in parts), "  # ns a hop")
    )


def system_configuration(network: SimulatorNetwork) -> dict[str, Any]:
    """Content of ``system.json``."""
    algorithm = [d.algorithm for d in network.dimensions]
    return {
        "scheduling-policy": "LIFO",
        "endpoint-delay": network.endpoint_delay,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": network.chunks,
        "all-reduce-implementation": algorithm,
        "all-gather-implementation": algorithm,
        "reduce-scatter-implementation": algorithm,
        "all-to-all-implementation": [d.all_to_all for d in network.dimensions],
        "collective-optimization": "localBWAware",
        # So fast that reducing costs no time; with the peak, operations become nanoseconds.
        "local-mem-bw": 1_000_000_000,
        "boost-mode": 0,
        "roofline-enabled": 1,
        "peak-perf": 1,
    }


def memory_configuration() -> dict[str, Any]:
    """Content of ``memory.json``: no remote memory."""
    return {"memory-type": "NO_MEMORY_EXPANSION"}


def collective_cycles(collective: Collective, network: SimulatorNetwork) -> int:
    """Time of a collective that runs alone, by the simulator's rules [ns].

    Parameters
    ----------
    collective : Collective
    network : SimulatorNetwork

    Notes
    -----
    Rules as in `libra.simulate`, with the simulator's own algorithms, whole nanoseconds for each
    message and whole bytes for each chunk.
    """
    if collective.kind is CollectiveKind.BROADCAST:
        return 1
    used = [
        d
        for d, involved in enumerate(network.involved(collective))
        if involved and network.dimensions[d].size > 1
    ]
    size = comm_size(collective)
    chunk = size // network.chunks
    if collective.kind is not CollectiveKind.ALL_GATHER and chunk < network.npus:
        chunk = network.npus
        size = network.chunks * chunk
    if chunk == 0:
        raise FieldError(
            "chunks",
            f"the simulator cannot cut an all-gather's shard of {size} bytes, got {network.chunks} "
            "chunks. Use fewer: --chunks.",
        )
    gathered = collective.group.size if collective.kind is CollectiveKind.ALL_GATHER else 1
    stages = _stages(collective.kind, float(chunk * gathered), used, network)
    alone = whole_group(_named(network), "all", [0])
    graph = chain_graph([0.0], [Collective(collective.kind, 1.0, alone)])
    simulation = simulate_graph(graph, [stages], [-(-size // chunk)])
    return round(simulation.time * 1e9)


def _named(network: SimulatorNetwork) -> Network:
    return Network(tuple(Dimension(d.topology, max(2, d.size), "pod") for d in network.dimensions))


def _stages(
    kind: CollectiveKind, data: float, used: Sequence[int], network: SimulatorNetwork
) -> list[Stage]:
    """Visits of one chunk to the dimensions in use."""
    sizes = []
    for d in used:
        sizes.append(data)
        if kind is not CollectiveKind.ALL_TO_ALL:
            data /= network.dimensions[d].size
    up = [(d, CollectiveKind.REDUCE_SCATTER, s) for d, s in zip(used, sizes, strict=True)]
    down = [(d, CollectiveKind.ALL_GATHER, s) for d, _, s in reversed(up)]
    visits = {
        CollectiveKind.ALL_TO_ALL: [(d, kind, s) for d, _, s in up],
        CollectiveKind.REDUCE_SCATTER: up,
        CollectiveKind.ALL_GATHER: down,
        CollectiveKind.ALL_REDUCE: [*up[:-1], (used[-1], kind, sizes[-1]), *down[1:]],
    }[kind]
    return [Stage((d, 0), _visit(network, d, what, size)) for d, what, size in visits]


def _visit(network: SimulatorNetwork, d: int, kind: CollectiveKind, data: float) -> float:
    """Time of one chunk in one dimension [s]."""
    dimension = network.dimensions[d]
    word = dimension.all_to_all if kind is CollectiveKind.ALL_TO_ALL else dimension.algorithm
    rows = message_rows(_MESSAGES[word], kind, data, dimension.size)
    if dimension.topology is not Topology.RING:
        rows = [(1, size) for _, size in rows]
    hop = dimension.latency * (2 if dimension.topology is Topology.SWITCH else 1)
    endpoint = network.endpoint_delay * 1e-9
    return row_time(rows, dimension.bandwidth, hop, endpoint, _TICK)


def message_cycles(collective: Collective, network: SimulatorNetwork) -> int:
    """Time of a message between neighbours, by the simulator's rules [ns].

    It crosses one dimension: ``hops x latency + bytes / bandwidth``, in whole nanoseconds.
    """
    group = collective.group
    total = 0.0
    for d, (extent, stride) in enumerate(zip(group.extents, group.strides, strict=True)):
        if extent == 1:
            continue
        parts = [p for p in network.dimensions if p.origin == d and p.stride <= stride]
        part = parts[-1]
        hops = {Topology.RING: stride // part.stride, Topology.SWITCH: 2}.get(part.topology, 1)
        total += hops * part.latency + comm_size(collective) / part.bandwidth
    return math.floor(total * 1e9 + 1e-6)
