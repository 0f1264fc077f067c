"""Which NPU runs which place of a step graph, and whom its messages reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError
from libra.formats.chakra import NodeType
from libra.formats.chakra_lower import LoweredNode
from libra.network import Network
from libra.placement import Group
from libra.workload.graph import StepGraph

__all__ = ["group_lists", "message_peers", "places_of_npus"]

Ints = NDArray[np.int64]


def places_of_npus(
    graph: StepGraph,
    network: Network,
    groups: Mapping[str, Group],
    known: Ints | None,
) -> Ints:
    """Place of each NPU in a graph, shape (npus,).

    Parameters
    ----------
    graph : StepGraph
    network : Network
    groups : mapping of str to Group
        Whose ``pp`` group says the stage of each NPU.
    known : ndarray of int or None
        Where traces said it.

    Raises
    ------
    FieldError
        If the graph has several places and nothing says whose they are.
    """
    if known is not None:
        return known
    if graph.places is None or not graph.places.any():
        return np.zeros(network.npus, dtype=np.int64)
    if "pp" not in groups:
        raise FieldError(
            "groups",
            f"the step runs in {int(graph.places.max()) + 1} places, but nothing says which NPUs "
            "they are, got no pp group. Give the workload's NPUs.",
        )
    group = groups["pp"]
    stage, unit = np.zeros(network.npus, dtype=np.int64), 1
    coordinates = _coordinates(network)
    for d, (extent, stride) in enumerate(zip(group.extents, group.strides, strict=True)):
        stage += unit * (coordinates[d] // stride % extent)
        unit *= extent
    return stage


def _coordinates(network: Network) -> list[Ints]:
    rest = np.arange(network.npus)
    found = []
    for size in network.sizes:
        found.append(rest % size)
        rest = rest // size
    return found


def message_peers(
    nodes: Sequence[Sequence[LoweredNode]], network: Network, places: Ints
) -> list[list[Ints | None]]:
    """For each place and node: the other end of its message for every NPU, or None.

    Each message goes from every NPU of its place to a different NPU of the other place, as far
    away as its group says.

    Raises
    ------
    FieldError
        If there is no such assignment.
    """
    found: list[list[Ints | None]] = [[None] * len(row) for row in nodes]
    receives = {
        node.tag: (place, k)
        for place, row in enumerate(nodes)
        for k, node in enumerate(row)
        if node.type is NodeType.RECEIVE
    }
    cache: dict[tuple[Group, int, int], Ints] = {}
    for place, row in enumerate(nodes):
        for k, node in enumerate(row):
            if node.type is not NodeType.SEND:
                continue
            assert node.collective is not None
            key = (node.collective.group, place, node.peer)
            if key not in cache:
                cache[key] = _targets(*key, network, places)
            found[place][k] = cache[key]
            other, at = receives[node.tag]
            back = np.full(network.npus, -1, dtype=np.int64)
            senders = np.flatnonzero(places == place)
            back[cache[key][senders]] = senders
            found[other][at] = back
    return found


def _targets(group: Group, place: int, other: int, network: Network, places: Ints) -> Ints:
    """Where the messages of a place's NPUs go, for every NPU."""
    npus = np.arange(network.npus)
    coordinates = _coordinates(network)
    for steps in _directions(group):
        target, unit = np.zeros_like(npus), 1
        for d, size in enumerate(network.sizes):
            target += unit * ((coordinates[d] + steps[d]) % size)
            unit *= size
        here = target[places == place]
        if (places[here] == other).all() and len(np.unique(here)) == len(here):
            return target
    raise FieldError(
        "groups",
        f"no NPUs are as far apart as the messages from place {place} to place {other} go, got "
        f"extents {group.extents} with strides {group.strides}. Correct the groups.",
    )


def _directions(group: Group) -> Iterator[tuple[int, ...]]:
    ways = [
        (0,) if extent == 1 else (stride, -stride)
        for extent, stride in zip(group.extents, group.strides, strict=True)
    ]
    yield from product(*ways)


def group_lists(group: Group, network: Network) -> Ints:
    """Group number of every NPU for one kind of group, shape (npus,); members share a number."""
    number, unit = np.zeros(network.npus, dtype=np.int64), 1
    for size, extent, stride, at in zip(
        network.sizes, group.extents, group.strides, _coordinates(network), strict=True
    ):
        # What is left of a position without its place among the members.
        inner, outer = at % stride, at // (stride * extent)
        number += unit * (inner + stride * outer)
        unit *= size
    return number
