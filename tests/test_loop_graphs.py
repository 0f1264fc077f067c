"""Graphs of training loops: sizes, labels, and the queues added to them."""

import itertools

import numpy as np
import pytest
from helpers import GB, NO_QUEUES, collective, graph, network
from loop_helpers import LOOPS, loop_graph

from libra.collectives import CollectiveModel
from libra.queues import add_queues
from libra.timing import build_timing, critical_path
from libra.workload.layers import Layer, Phase

NET = network("RI(4)_FC(8)_SW(4)")
QUEUES = CollectiveModel()
TP = collective("all-reduce", 1e8, (4, 1, 1))
DP = collective("all-gather", 3e8, (1, 8, 4))
PAIR = [Layer(n, Phase(1.0, TP), Phase(2.0, TP), Phase(3.0, DP), 0.5) for n in ("a", "b")]


@pytest.mark.parametrize(
    ("kind", "policy", "tasks"),
    [
        # a task for each compute and each collective; 2 x 3 phases, updates
        ("no-overlap", "", 2 * (2 + 2 + 2 + 1)),
        ("tp-dp-overlap", "", 2 * (2 + 2 + 2 + 1)),
        ("gradient-overlap", "", 2 * (2 + 2 + 2 + 1)),
        # the update follows each collective
        ("astra-sim", "HYBRID_TRANSFORMER", 2 * 9),
        ("astra-sim", "DATA", 2 * (1 + 3) + 1),
        ("astra-sim", "HYBRID_DLRM", 2 * (1 + 3) + 1 + 2),
    ],
)
def test_sizes_of_graphs(kind, policy, tasks):
    found = loop_graph(PAIR, kind, policy)
    assert (found.tasks, len(found.labels)) == (tasks, tasks)
    assert set(found.collectives) <= {TP, DP}
    assert all(found.labels)


def test_labels():
    assert loop_graph(PAIR[:1], "no-overlap").labels == (
        "a forward",
        "a forward all-reduce",
        "a input gradient",
        "a input gradient all-reduce",
        "a weight gradient",
        "a weight gradient all-gather",
        "a update",
    )


def time_of(found):
    return critical_path(build_timing(found, NET, NO_QUEUES), np.full(3, GB)).time


@pytest.mark.parametrize(("kind", "policy"), LOOPS)
def test_loops_without_communication_only_compute(kind, policy):
    """Layer 0's input gradient is not computed by DATA and HYBRID_DLRM."""
    layers = [Layer(n, Phase(1.0), Phase(2.0), Phase(3.0), 0.5, Phase(0.25)) for n in ("a", "b")]
    expected = {"": 13.5, "HYBRID_TRANSFORMER": 12.5, "DATA": 10.0, "HYBRID_DLRM": 10.0}[policy]
    assert time_of(loop_graph(layers, kind, policy)) == pytest.approx(expected, rel=1e-14)


# --- queues ------------------------------------------------------------------------------------


def waits(found):
    start = found.predecessor_start
    return [found.predecessor[a:b].tolist() for a, b in itertools.pairwise(start)]


def test_queues_follow_the_program():
    """Tasks 1 and 3 share dimension b, 2 and 3 dimension c, 0 nothing."""
    items = [collective("all-gather", 1e6, e) for e in ((4, 1, 1), (1, 8, 1), (1, 1, 4), (1, 8, 4))]
    found = graph([0] * 4, items, [{k: 1} for k in range(4)], [[]] * 4)
    assert waits(add_queues(found, NET, QUEUES)) == [[], [], [], [1, 2]]
    assert waits(add_queues(found, NET, NO_QUEUES)) == [[]] * 4


def test_strides_in_a_fully_connected_block_do_not_share():
    for shape, expected in (
        ("FC(8)", [[], [], [0]]),
        ("RI(8)", [[], [0], [1]]),
        ("SW(8)", [[], [0], [1]]),
    ):
        net = network(shape)
        near, far = (collective("all-gather", 1e6, (e,), (k,)) for e, k in ((4, 1), (2, 4)))
        found = graph([0] * 3, [near, far], [{0: 1}, {1: 1}, {0: 1}], [[]] * 3)
        assert waits(add_queues(found, net, QUEUES)) == expected


def test_a_collective_that_no_task_runs_needs_no_queue():
    found = graph([1, 1, 1], [TP], [{}] * 3, [[]] * 3)
    assert waits(add_queues(found, NET, QUEUES)) == [[]] * 3
