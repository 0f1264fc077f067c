"""When ASTRA-sim's analytical simulator ends a step, by its rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libra.collectives import Collective
from libra.formats.astra_sim_config import SimulatorNetwork, collective_cycles, message_cycles
from libra.formats.chakra import NodeType
from libra.formats.chakra_lower import LoweredNode
from libra.formats.chakra_write import nanoseconds
from libra.workload.graph import predecessor_rows
from libra.workload.list_schedule import list_schedule

__all__ = ["expected_cycles"]


def expected_cycles(nodes: Sequence[Sequence[LoweredNode]], network: SimulatorNetwork) -> int:
    """When the last NPU ends, by the simulator's rules [ns].

    An NPU runs one computation and one communication at a time, the lowest id first; a collective's
    time is that of it alone (`libra.formats.astra_sim_config.collective_cycles`).

    Parameters
    ----------
    nodes : sequence of sequence of LoweredNode
        Of each place.
    network : SimulatorNetwork
    """
    offset = np.cumsum([0, *map(len, nodes)]).tolist()
    times: dict[tuple[NodeType, Collective | None], int] = {}
    durations, resource, later, earlier = [], [], [], []
    sends: dict[int, int] = {}
    for place, row in enumerate(nodes):
        for k, node in enumerate(row):
            key = (node.type, node.collective)
            if node.type is NodeType.COMPUTE:
                durations.append(nanoseconds(node.seconds))
            else:
                if key not in times:
                    times[key] = _communication_cycles(node, network)
                durations.append(times[key])
            communicates = node.type is not NodeType.COMPUTE
            receives = node.type is NodeType.RECEIVE
            resource.append(-1 if receives else 2 * place + communicates)
            later += [offset[place] + k] * len(node.after)
            earlier += [offset[place] + a for a in node.after]
            if node.type is NodeType.SEND:
                sends[node.tag] = offset[place] + k
    for place, row in enumerate(nodes):
        for k, node in enumerate(row):
            if node.type is NodeType.RECEIVE:
                later.append(offset[place] + k)
                earlier.append(sends[node.tag])
    start, predecessor = predecessor_rows(
        np.array(later, dtype=np.int64), np.array(earlier, dtype=np.int64), offset[-1]
    )
    return round(np.nanmax(list_schedule(durations, resource, start, predecessor).end))


def _communication_cycles(node: LoweredNode, network: SimulatorNetwork) -> int:
    assert node.collective is not None
    if node.type is NodeType.COLLECTIVE:
        return collective_cycles(node.collective, network)
    return 0 if node.type is NodeType.RECEIVE else message_cycles(node.collective, network)
