"""What runs beside computations, and how tokens reach their experts: by hand and by enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers import collective

from libra.collectives import CollectiveModel
from libra.network import Dimension, Network, Topology
from libra.placement import Group
from libra.timing import build_timing, critical_path
from libra.workload.blocks import FeedForward, MixtureOfExperts
from libra.workload.slot_graph import Ahead, Ending, Segment, SlotKind, slot_graph
from libra.workload.slots import schedule_slots
from libra.workload.training_plan import TokenDispatch
from libra.workload.transformer_collectives import block_collectives

NETWORK = Network((Dimension(Topology.SWITCH, 2, "node"),))
A, B, C = (collective("all-gather", size, (2,)) for size in (2e9, 4e9, 6e9))
"""At 1 GB/s 1, 2 and 3 s."""


def seconds(*segments):
    """Time of a forward and a backward slot of the same segments, on one stage, with queues."""
    kinds = [SlotKind(segments)]
    slots = schedule_slots(1, 1, 1)
    names = [("",) * len(segments)]
    graph = slot_graph(slots, kinds, np.zeros(2, int), [Ending()], names, np.zeros(2, int))
    timing = build_timing(graph, NETWORK, CollectiveModel())
    return critical_path(timing, np.array([1e9])).time


@pytest.mark.parametrize("compute", [1.0, 3.0, 10.0])
def test_what_runs_beside_a_computation_waits_for_it_only_as_long_as_links_are_taken(compute):
    """The blocking collective needs the links that the other has during the computation."""
    beside = Segment(compute, blocking=((A, 1.0),), beside=((C, 1.0),))
    assert seconds(beside) == pytest.approx(2 * (max(compute, 3) + 1))
    after = Segment(compute, blocking=((A, 1.0), (C, 1.0)))
    assert seconds(after) == pytest.approx(2 * (compute + 4))


@pytest.mark.parametrize(("compute", "slot"), [(1.0, 9), (2.0, 10), (10.0, 33)])
def test_weights_come_ahead_and_gradients_leave_beside_the_next_segment(compute, slot):
    """Of three segments, each with weights (2 s) before it and gradients (1 s) after it.

    On the links G1 G2 R1 G3 R2 R3. With 1 s of computation the links are always taken. With 2 s
    they idle while the third is computed, for 1 s, as R2 takes the other. With 10 s both travel
    beside computations, but for the first weights and the last gradients.
    """
    each = Segment(compute, gather=((B, 1.0),), reduce=((A, 1.0),), ahead=Ahead.ONE)
    assert seconds(each, each, each) == pytest.approx(2 * slot)
    late = replace(each, ahead=Ahead.NOT)
    assert seconds(late, late, late) == pytest.approx(6 * (2 + compute + 1))


def test_gradients_do_not_hold_up_a_computation_that_blocks_later():
    """Gradients of one segment travel beside the next one's computation, then it may block."""
    first = Segment(1.0, blocking=((A, 1.0),), reduce=((C, 1.0),))
    second = Segment(5.0, blocking=((A, 1.0),))
    # Compute 1, block 1, compute 5 beside the gradients' 3, block 1; both slots alike.
    assert seconds(first, second) == pytest.approx(2 * (1 + 1 + 5 + 1))


def visited(experts, active, places):
    """Mean number of places that hold one of a token's experts, over all choices of them."""
    choices = list(itertools.combinations(range(experts), active))
    return np.mean([len({e * places // experts for e in c}) for c in choices])


@pytest.mark.parametrize(("experts", "active"), [(8, 2), (8, 4), (16, 3)])
def test_deduplicated_tokens_cross_a_dimension_once(experts, active):
    mixture = MixtureOfExperts(experts, active, FeedForward(64, gated=True))
    model, block, plan, groups = expert_run(mixture, (4, 2))
    size = plan.memory.activations.tokens * model.hidden * plan.communication
    (_, whole, times) = block_collectives(model, block, plan, groups).forward[-1]
    assert (whole.size, times) == (pytest.approx(size * active), 2)
    once = replace(plan, dispatch=TokenDispatch.DEDUPLICATED)
    found = block_collectives(model, block, once, groups).forward[-2:]
    assert [c.group.extents for _, c, _ in found] == [(1, 2), (4, 1)]
    for (_, exchange, n), places in zip(found, (2, 8), strict=True):
        assert n == 2
        assert exchange.size == pytest.approx(size * visited(experts, active, places))


def expert_run(mixture, extents):
    """A model of blocks with experts, a plan and groups, experts dealt out over a network."""
    from libra.models import load_model
    from libra.workload.activations import ActivationPlan
    from libra.workload.memory import MemoryPlan
    from libra.workload.training_plan import TrainingPlan

    model = load_model("mixtral-8x7b")
    block = replace(model.runs[0].block, feed_forward=mixture)
    run = ActivationPlan(1, 128)
    members = int(np.prod(extents))
    plan = TrainingPlan(MemoryPlan(run, dp=members, ep=members))
    alone = Group("tp", (1, 1), (1, 1))
    groups = {"tp": alone, "cp": alone, "ep": Group("ep", extents, (1, 1))}
    return model, block, plan, groups
