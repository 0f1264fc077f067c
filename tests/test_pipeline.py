"""Pipelines: bubble formulas, Megatron's order, sends between neighbours, splits of layers."""

import itertools
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from helpers import GB, NO_QUEUES, collective, network
from loop_helpers import loop_graph, random_groups, random_layers

from libra.collectives import CollectiveKind, CollectiveModel
from libra.errors import FieldError
from libra.placement import Group
from libra.timing import build_timing, critical_path
from libra.workload.layers import Layer, Phase
from libra.workload.pipeline import Pipeline, pipeline_graph, split_layers

TINY = 1e-9  # bytes of an activation that costs nothing


def pipeline(stages, micro_batches, virtual_stages=1, activation=TINY):
    group = Group("pp", (stages,), (1,))
    return Pipeline(group, (stages,), micro_batches, activation, virtual_stages)


def layer(forward=1.0, backward=2.0, **fields):
    return Layer("x", Phase(forward), Phase(backward / 2), Phase(backward / 2), **fields)


def step_time(found, net, bandwidth=GB):
    timing = build_timing(found, net, NO_QUEUES)
    return critical_path(timing, np.full(len(net.sizes), bandwidth)).time


def slots(found, stage):
    """What a stage runs, e.g. F0, B0 for micro-batches; with parts: 4F0."""
    for label, place in zip(found.labels, found.places, strict=True):
        if place == stage and (match := re.fullmatch(r"part (\d+) (\w+) (\d+)", label)):
            part, way, micro_batch = match.groups()
            if way != "send":
                yield int(part), way[0].upper(), int(micro_batch)


# --- closed forms ------------------------------------------------------------------------------

EQUAL = [(p, m) for p in (2, 3, 4, 8) for m in (p, 2 * p, 4 * p)]


@pytest.mark.parametrize(("stages", "micro_batches"), [*EQUAL, (4, 1), (4, 2), (4, 7), (8, 3)])
@pytest.mark.parametrize(("f", "b"), [(1.0, 2.0), (1.0, 1.0), (3.0, 0.5)])
def test_bubble_of_one_forward_one_backward(stages, micro_batches, f, b):
    """Narayanan et al., SC'21: m (f + b) of work and (P - 1) (f + b) of bubble."""
    found = pipeline_graph([layer(f, b)] * stages, pipeline(stages, micro_batches))
    expected = (micro_batches + stages - 1) * (f + b)
    assert step_time(found, network(f"SW({stages})")) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("virtual", [2, 3, 4])
@pytest.mark.parametrize(("stages", "micro_batches"), EQUAL)
def test_bubble_of_the_interleaved_schedule(stages, micro_batches, virtual):
    """The bubble shrinks by the number of parts on a stage."""
    layers = [layer(1.0, 2.0)] * (stages * virtual)
    found = pipeline_graph(layers, pipeline(stages, micro_batches, virtual))
    expected = 3.0 * (micro_batches * virtual + stages - 1)
    assert step_time(found, network(f"SW({stages})")) == pytest.approx(expected, rel=1e-9)


def test_a_slow_stage_sets_the_pace():
    """4 micro-batches through stages of 1, 5, 1: a forward in, all of the slow one, a backward out."""
    layers = [layer(f, f) for f in (1.0, 5.0, 1.0)]
    found = pipeline_graph(layers, pipeline(3, 4))
    assert step_time(found, network("SW(3)")) == pytest.approx(1 + 4 * 10 + 1, rel=1e-9)


def test_sends_delay_the_first_and_the_last_micro_batch():
    """One micro-batch: there and back over P - 1 borders, 1 ms each."""
    found = pipeline_graph([layer()] * 4, pipeline(4, 1, activation=1e6))
    assert step_time(found, network("SW(4)")) == pytest.approx(12 + 6 * 1e-3, rel=1e-12)


# --- order -------------------------------------------------------------------------------------


def test_order_of_one_forward_one_backward():
    """Warm-up of P - 1 - stage forwards, then one each, then what is left."""
    found = pipeline_graph([layer()] * 4, pipeline(4, 6))
    words = {s: " ".join(f"{way}{k}" for _, way, k in slots(found, s)) for s in (0, 2, 3)}
    assert words[0] == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"
    assert words[2] == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5"
    assert words[3] == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"


def megatron(stages, micro_batches, virtual, stage):
    """Order of forward_backward_pipelining_with_interleaving of NVIDIA's Megatron-LM, as its paper."""
    total = micro_batches * virtual
    warm = min((stages - stage - 1) * 2 + (virtual - 1) * stages, total)
    if micro_batches == stages:
        warm = total

    def slot(k, way):
        chunk = k % (stages * virtual) // stages
        chunk = chunk if way == "F" else virtual - 1 - chunk
        within = k // (stages * virtual) * stages + k % stages
        return chunk * stages + stage, way, within

    yield from (slot(k, "F") for k in range(warm))
    for k in range(total - warm):
        yield slot(warm + k, "F")
        yield slot(k, "B")
    yield from (slot(k, "B") for k in range(total - warm, total))


@pytest.mark.parametrize(
    ("stages", "virtual", "rounds"), [(2, 2, 3), (4, 2, 2), (4, 3, 1), (3, 2, 4)]
)
def test_order_of_the_interleaved_schedule(stages, virtual, rounds):
    found = pipeline_graph(
        [layer()] * (stages * virtual), pipeline(stages, stages * rounds, virtual)
    )
    for stage in range(stages):
        assert list(slots(found, stage)) == list(megatron(stages, stages * rounds, virtual, stage))


def test_sizes_of_graphs():
    """A slot each way for each micro-batch and part; a send for each but the ends."""
    for stages, micro_batches, virtual in ((4, 6, 1), (2, 4, 3)):
        parts = stages * virtual
        found = pipeline_graph([layer()] * parts, pipeline(stages, micro_batches, virtual))
        assert found.tasks == 2 * micro_batches * parts + 2 * micro_batches * (parts - 1)
        assert len(found.labels) == found.tasks
        assert Counter(found.places.tolist()).keys() == set(range(stages))


# --- sends -------------------------------------------------------------------------------------


def senders(found):
    """Groups that each stage sends in."""
    sends = defaultdict(set)
    for k, label in enumerate(found.labels):
        if " send " in label:
            for j in found.count_index[found.count_start[k] : found.count_start[k + 1]]:
                item = found.collectives[j]
                assert item.kind is CollectiveKind.POINT_TO_POINT
                sends[int(found.places[k])].add((item.group.extents, item.group.strides))
    return dict(sends)


def test_neighbours_of_a_line():
    found = pipeline_graph([layer()] * 4, pipeline(4, 4, activation=5e6))
    assert senders(found) == {stage: {((2,), (1,))} for stage in range(4)}
    assert {c.size for c in found.collectives} == {5e6}


def test_the_last_stage_sends_to_the_first_when_interleaved():
    """One hop on the closed ring, three on part of a longer dimension."""
    closed = pipeline_graph([layer()] * 8, pipeline(4, 4, 2))
    assert senders(closed) == {stage: {((2,), (1,))} for stage in range(4)}
    part = Pipeline(Group("pp", (4,), (2,)), (16,), 4, TINY, 2)
    found = senders(pipeline_graph([layer()] * 8, part))
    assert found == {
        0: {((2,), (2,)), ((2,), (6,))},
        1: {((2,), (2,))},
        2: {((2,), (2,))},
        3: {((2,), (2,)), ((2,), (6,))},
    }


def test_stages_over_two_dimensions():
    """2 stages in the inner dimension with stride 4, 4 in the outer: 0 1 | 2 3 | 4 5 | 6 7."""
    group = Group("pp", (2, 4), (4, 1))
    found = senders(pipeline_graph([layer()] * 8, Pipeline(group, (8, 4), 2, TINY)))
    within, across = ((2, 1), (4, 1)), ((2, 2), (4, 1))
    assert found[0] == {within}  # forward to 1
    assert found[1] == {across, within}  # forward to 2, back to 0
    assert found[7] == {within}  # back to 6


def test_a_pair_on_one_stage_sends_nothing():
    found = pipeline_graph([layer()] * 3, pipeline(1, 3, 3))
    assert found.collectives == ()
    assert not any("send" in label for label in found.labels)


# --- splits ------------------------------------------------------------------------------------


def slowest(pieces):
    return max(
        sum(p.forward.compute + p.input_gradient.compute + p.weight_gradient.compute for p in piece)
        for piece in pieces
    )


@pytest.mark.parametrize("seed", range(60))
def test_splits_are_the_best(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    parts = int(rng.integers(1, count + 1))
    times = rng.choice([rng.random(count), rng.integers(0, 4, count)])
    layers = [layer(float(t), float(t)) for t in times]
    found = split_layers(layers, parts)
    assert [x for piece in found for x in piece] == layers
    assert len(found) == parts
    assert min(map(len, found)) >= 1
    best = min(
        slowest([layers[a:b] for a, b in itertools.pairwise((0, *cuts, count))])
        for cuts in itertools.combinations(range(1, count), parts - 1)
    )
    assert slowest(found) == pytest.approx(best, rel=1e-9)


# --- gradients ---------------------------------------------------------------------------------

DP = collective("all-reduce", 1e9, (4, 1))
TP = collective("all-gather", 1e6, (2, 1))


def test_gradients_are_reduced_once_and_weights_updated():
    """Inside a slot only the tensor-parallel collectives block; those of gradients come last."""
    layers = [
        Layer(f"l{k}", Phase(1.0, TP), Phase(1.0, TP), Phase(1.0, DP), 0.25) for k in range(4)
    ]
    group = Group("pp", (1, 2), (1, 1))
    found = pipeline_graph(layers, Pipeline(group, (8, 2), 6, TINY))
    counts = dict(zip(found.collectives, found.total_counts, strict=True))
    assert counts[DP] == 4
    assert counts[TP] == 6 * 4 * 2
    assert found.total_fixed == 6 * 4 * 3 + 4 * 0.25
    assert [label for label in found.labels if "stage" in label] == [
        f"stage {s} {word}" for s in (0, 1) for word in ("gradients", "update")
    ]


@pytest.mark.parametrize("seed", range(10))
def test_one_stage_and_micro_batch_is_no_overlap(seed):
    rng = np.random.default_rng(seed)
    net = network("RI(4)_FC(8)")
    layers = random_layers(rng, random_groups(rng, net), 4)
    found = pipeline_graph(layers, Pipeline(Group("pp", (1, 1), (1, 1)), net.sizes, 1, TINY))
    bandwidth, model = np.array([200, 50]) * GB, CollectiveModel()
    one, other = (
        critical_path(build_timing(g, net, model), bandwidth).time
        for g in (found, loop_graph(layers, "no-overlap"))
    )
    assert one == pytest.approx(other, rel=1e-12)


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stages": 4, "micro_batches": 6, "virtual_stages": 2}, "multiple of the 4 stages"),
        ({"stages": 4, "micro_batches": 0}, "at least 1"),
        ({"stages": 4, "micro_batches": 4, "virtual_stages": 0}, "at least 1"),
        ({"stages": 4, "micro_batches": 4, "activation": 0.0}, "more than 0 bytes"),
    ],
)
def test_refuses_pipelines(fields, words):
    with pytest.raises(FieldError, match=words):
        pipeline(**fields)


def test_refuses_fewer_layers_than_parts():
    with pytest.raises(FieldError, match="7 layers cannot fill 8 parts"):
        pipeline_graph([layer()] * 7, pipeline(4, 4, 2))
