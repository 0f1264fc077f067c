"""Communications of a trace → collectives on regular groups of a network.

Sizes in a trace: of an **all-gather the shard before gathering** (libra counts the gathered
buffer), of everything else the whole buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from libra.collectives import Collective, CollectiveKind
from libra.errors import shown
from libra.formats.chakra import NodeType, Trace
from libra.formats.chakra_wire import ABSENT, Column
from libra.network import Network
from libra.placement import Group, whole_group

__all__ = ["CollectiveTable", "Members", "group_of_members", "pair_of", "place_collectives"]

Ints = NDArray[np.int64]
Members = tuple[int, ...]

KINDS: Mapping[int, CollectiveKind] = {
    0: CollectiveKind.ALL_REDUCE,
    1: CollectiveKind.BROADCAST,  # a reduce is a broadcast backwards: the same bytes on the links
    2: CollectiveKind.ALL_GATHER,
    5: CollectiveKind.BROADCAST,
    6: CollectiveKind.ALL_TO_ALL,
    7: CollectiveKind.REDUCE_SCATTER,
    8: CollectiveKind.REDUCE_SCATTER,
}
"""What ``comm_type`` means."""
BARRIER = 9
_NOT_MODELLED = {3: "gather", 4: "scatter"}
WHOLE_NETWORK = ("", "0")
"""Names of the process group of all NPUs, unless the comm groups have it."""


@dataclass
class CollectiveTable:
    """The distinct collectives of all traces of a workload, in order of first use."""

    index: dict[Collective, int] = field(default_factory=dict)

    def add(self, collective: Collective) -> int:
        """Index of a collective."""
        return self.index.setdefault(collective, len(self.index))


def group_of_members(members: Sequence[int], network: Network) -> Group | str:
    """Extents and strides of a list of NPUs on a network, or why it is not regular.

    NPU ids count the innermost dimension fastest. The members must be the full product of equally
    spaced positions along each dimension.

    Parameters
    ----------
    members : sequence of int
        Distinct NPU ids.
    network : Network

    Examples
    --------
    >>> from libra.network import Dimension, Topology
    >>> net = Network((Dimension(Topology.RING, 4, "node"), Dimension(Topology.SWITCH, 8, "pod")))
    >>> group_of_members([0, 2, 16, 18], net)
    Group(name='node/2 + pod/2', extents=(2, 2), strides=(2, 4))
    """
    ids = np.array(members, dtype=np.int64)
    if ids.max() >= network.npus:
        return f"the network has NPUs 0 to {network.npus - 1}, got {ids.max()}"
    extents, strides = [], []
    for dimension, size in zip(network.names, network.sizes, strict=True):
        at = np.unique(ids % size)
        ids = ids // size
        steps = np.unique(np.diff(at))
        if len(steps) > 1:
            return f"along {dimension} they are not equally spaced, got {at.tolist()[:8]}"
        extents.append(len(at))
        strides.append(int(steps[0]) if len(steps) else 1)
    if np.prod(extents, dtype=np.float64) != len(members):
        shape = " x ".join(map(str, extents))
        return f"they span {shape} positions but are {len(members)}"
    return Group(_named(network, extents), tuple(extents), tuple(strides))


def _named(network: Network, extents: Sequence[int]) -> str:
    """Name of a group by the dimensions it spans, the same for groups that are alike."""
    parts = [
        name if extent == size else f"{name}/{extent}"
        for name, size, extent in zip(network.names, network.sizes, extents, strict=True)
        if extent > 1
    ]
    if len(parts) == len(extents) and not any("/" in part for part in parts):
        return "all"
    return " + ".join(parts) or "alone"


def pair_of(one: int, other: int, network: Network) -> Group:
    """Two NPUs that exchange a message, as a group."""
    extents, strides = [], []
    for size in network.sizes:
        (one, a), (other, b) = divmod(one, size), divmod(other, size)
        apart = min(abs(a - b), size - abs(a - b))
        extents.append(2 if apart else 1)
        strides.append(max(apart, 1))
    return Group("pair", tuple(extents), tuple(strides))


@dataclass(frozen=True, eq=False)
class Placed:
    """Collectives of a trace on a network.

    Attributes
    ----------
    collective : ndarray of int, shape (nodes,)
        Index into the `CollectiveTable`; -1: the node is no collective, or sends nothing.
    meeting : ndarray of int, shape (nodes,)
        Index into `meetings`; -1: the node is no collective of several NPUs.
    meetings : tuple
        Who takes part: the members, or the dimensions (as bits) that the group spans whole.
    silent : mapping of str to list of int
        Positions of collectives that send nothing, by the reason.
    """

    collective: Ints
    meeting: Ints
    meetings: tuple[Members | int, ...]
    silent: Mapping[str, list[int]]


def place_collectives(
    trace: Trace,
    network: Network,
    comm_groups: Mapping[str, Members] | None,
    table: CollectiveTable,
) -> Placed:
    """Collectives of a trace on a network.

    Parameters
    ----------
    trace : Trace
    network : Network
    comm_groups : mapping of str to tuple of int, or None
        Members of each process group; None: the design names no such file.
    table : CollectiveTable
        Gets the distinct collectives.

    Raises
    ------
    InputError
        If a group is unknown or irregular, or a collective not one that can be timed.
    """
    nodes = np.flatnonzero(is_communication(trace) & (trace.types == NodeType.COLLECTIVE))
    columns = [
        trace.column(Column.COMM_TYPE)[nodes],
        trace.column(Column.COMM_SIZE)[nodes],
        trace.group[nodes],
        trace.column(Column.DIMS)[nodes],
        trace.column(Column.DIMS_COUNT)[nodes],
    ]
    first, which = _distinct_rows(columns)
    found = np.full(len(first), -1, dtype=np.int64)
    meeting = np.full(len(first), -1, dtype=np.int64)
    meetings: dict[Members | int, int] = {}
    silent: dict[str, list[int]] = {}
    for k, row in enumerate(first.tolist()):
        position = int(nodes[row])
        group, members = _group(trace, position, network, comm_groups)
        kind, size = (int(column[row]) for column in columns[:2])
        _check_collective(trace, position, kind)
        if group.size > 1:
            meeting[k] = meetings.setdefault(members, len(meetings))
        reason = (
            f"the group {group.name} has one NPU"
            if group.size == 1
            else "comm_size is 0"
            if size == 0 and kind != BARRIER
            else ""
        )
        if reason:
            silent.setdefault(reason, []).extend(nodes[which == k].tolist())
        elif kind != BARRIER:
            gathered = group.size if kind == 2 else 1
            found[k] = table.add(Collective(KINDS[kind], float(size) * gathered, group))
    collective = np.full(trace.nodes, -1, dtype=np.int64)
    meets = np.full(trace.nodes, -1, dtype=np.int64)
    collective[nodes], meets[nodes] = found[which], meeting[which]
    return Placed(collective, meets, tuple(meetings), silent)


def is_communication(trace: Trace) -> NDArray[np.bool_]:
    """Whether each node communicates: not where it is the launch of such a node on the host."""
    on_host = (trace.column(Column.IS_CPU_OP) == 1) & (trace.column(Column.COMM_SIZE) == ABSENT)
    kinds = (NodeType.SEND, NodeType.RECEIVE, NodeType.COLLECTIVE)
    result: NDArray[np.bool_] = np.isin(trace.types, kinds) & ~on_host
    return result


def _distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """First of each distinct row in order of first use, and which of them each row is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + inverse, return_inverse=True)[1]
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[which]


def _check_collective(trace: Trace, position: int, kind: int) -> None:
    name = trace.describe(position)
    if kind in _NOT_MODELLED:
        trace.fail(
            f"{name}: a {_NOT_MODELLED[kind]} is not modelled, got comm_type {kind}. Use one of: "
            "all-reduce, reduce, all-gather, broadcast, all-to-all, reduce-scatter, barrier."
        )
    if kind not in KINDS and kind != BARRIER:
        got = "nothing" if kind == ABSENT else kind
        trace.fail(f"{name}: comm_type is a number from 0 to 9, got {got}. Correct it.")


def _group(
    trace: Trace,
    position: int,
    network: Network,
    comm_groups: Mapping[str, Members] | None,
) -> tuple[Group, Members | int]:
    """Group of a collective, and who takes part: members or dimensions."""
    dims, count = (int(trace.column(c)[position]) for c in (Column.DIMS, Column.DIMS_COUNT))
    dimensions = len(network.sizes)
    every = (1 << dimensions) - 1
    named = int(trace.group[position])
    name = trace.groups[named] if named >= 0 else ""
    if named >= 0 and comm_groups is not None and name in comm_groups:
        members = comm_groups[name]
        found = group_of_members(members, network)
        if isinstance(found, str):
            some = ", ".join(map(str, members[:8])) + (", …" if len(members) > 8 else "")
            trace.fail(
                f"process group {shown(name)} [{some}] is no regular part of {network.shape}: "
                f"{found}. Correct the comm groups or the network's shape."
            )
        return found, members
    if dims != ABSENT:
        all_true = dims == (1 << count) - 1  # which some write at a length of their own
        if count < dimensions or (count > dimensions and not all_true):
            trace.fail(
                f"{trace.describe(position)}: involved_dim has one entry for each of the network's "
                f"{dimensions} dimensions {network.shape}, got {count}. Correct one of the two."
            )
        used = dims & every
        spanned = [d for d in range(dimensions) if used >> d & 1]
        extents = [n if d in spanned else 1 for d, n in enumerate(network.sizes)]
        return whole_group(network, _named(network, extents), spanned), used
    if name not in WHOLE_NETWORK:
        if comm_groups is None:
            advice = "Give their members: chakra: {comm_groups: groups.json}."
            why = "the design names no comm groups"
        else:
            advice, why = "Add it there.", f"the comm groups have {len(comm_groups)} others"
        trace.fail(
            f"{trace.describe(position)}: unknown process group, {why}, got pg_name {shown(name)}. "
            f"{advice}"
        )
    return whole_group(network, "all", range(dimensions)), every
