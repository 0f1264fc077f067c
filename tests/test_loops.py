"""Training loops: step times by independent formulas and event simulations on small layer tables."""

import numpy as np
import pytest
from helpers import GB, NO_QUEUES, collective, network
from loop_helpers import loop_graph, random_groups, random_layers

from libra.collectives import CollectiveModel
from libra.errors import FieldError
from libra.pieces import collective_pieces
from libra.queues import links_of
from libra.timing import build_timing, critical_path
from libra.workload.layers import Layer, Phase
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph

NET = network("RI(4)_FC(8)_SW(4)")
BANDWIDTH = np.array([200.0, 70.0, 40.0]) * GB
QUEUES = CollectiveModel()


def table(seed, count=5):
    rng = np.random.default_rng(seed)
    return random_layers(rng, random_groups(rng, NET), count)


def tau(item):
    """Time of a collective alone, many chunks."""
    if item is None:
        return 0.0
    p = collective_pieces(item, NET, QUEUES)
    return float((p.alpha + p.coefficient @ (1 / (p.forms @ BANDWIDTH))).max())


def lasts(phase):
    return phase.compute + tau(phase.collective) if phase is not None else 0.0


def step_time(found, model=NO_QUEUES):
    return critical_path(build_timing(found, NET, model), BANDWIDTH).time


def forward_time(layers):
    return sum(lasts(layer.forward) for layer in layers)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("model", [NO_QUEUES, QUEUES])
def test_no_overlap_is_a_sum(seed, model):
    layers = table(seed)
    found = loop_graph(layers, "no-overlap")
    expected = sum(
        lasts(p)
        for layer in layers
        for p in (layer.forward, layer.input_gradient, layer.weight_gradient, layer.recomputation)
    ) + sum(layer.update for layer in layers)
    assert found.is_chain
    assert step_time(found, model) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_tp_dp_overlap_takes_the_longer_side_of_each_layer(seed):
    layers = table(seed)
    expected = forward_time(layers)
    for layer in layers:
        beside = tau(layer.input_gradient.collective)
        rest = lasts(layer.weight_gradient) + layer.update
        expected += lasts(layer.recomputation) + layer.input_gradient.compute + max(beside, rest)
    assert step_time(loop_graph(layers, "tp-dp-overlap")) == pytest.approx(expected, rel=1e-12)


# --- programs run by hand ----------------------------------------------------------------------


class Program:
    """A clock for compute; collectives beside it, in program order on links they share."""

    def __init__(self, queue):
        self.now, self.end, self.free, self.queue = 0.0, 0.0, {}, queue

    def compute(self, seconds):
        self.now += seconds
        self.end = max(self.end, self.now)

    def start(self, item, update=0.0):
        """When a collective, started now, and the update after it have ended."""
        if item is None:
            return self.now
        links = links_of(item, NET) if self.queue else ()
        done = max([self.now, *(self.free.get(link, 0.0) for link in links)]) + tau(item)
        self.free |= dict.fromkeys(links, done)
        self.end = max(self.end, done + update)
        return done + update

    def block(self, phase, update=0.0):
        if phase is not None:
            self.compute(phase.compute)
            self.now = max(self.now, self.start(phase.collective, update))
            self.end = max(self.end, self.now)


def run_gradient_overlap(layers, queue, bucket):
    program, waiting, size = Program(queue), [], 0.0
    for layer in layers:
        program.block(layer.forward)
    for k, layer in enumerate(reversed(layers)):
        program.block(layer.recomputation)
        program.block(layer.input_gradient)
        program.compute(layer.weight_gradient.compute)
        waiting.append(layer)
        size += layer.weight_gradient.collective.size
        if size >= bucket or k == len(layers) - 1:
            first = waiting[0].weight_gradient.collective
            whole = collective(first.kind, size, first.group.extents, first.group.strides)
            program.start(whole, sum(x.update for x in waiting))
            waiting, size = [], 0.0
    return program.end


def with_gradients(layers):
    """Layers that all end with an all-reduce of one group, of their own sizes."""
    return [
        Layer(
            layer.name,
            layer.forward,
            layer.input_gradient,
            Phase(
                layer.weight_gradient.compute,
                collective("all-reduce", 2e7 * (k + 1), (1, 4, 4), (1, 2, 1)),
            ),
            layer.update,
            layer.recomputation,
        )
        for k, layer in enumerate(layers)
    ]


@pytest.mark.parametrize("bucket", [0.0, 5e7, 1e12])
@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_gradient_overlap(seed, queue, bucket):
    layers = with_gradients(table(seed))
    found = loop_graph(layers, "gradient-overlap", bucket=bucket)
    expected = run_gradient_overlap(layers, queue, bucket)
    assert step_time(found, QUEUES if queue else NO_QUEUES) == pytest.approx(expected, rel=1e-12)
    reduced = [label for label in found.labels if label.endswith("weight gradient all-reduce")]
    # sizes 100, 80, 60, 40, 20 MB from the last layer on
    assert len(reduced) == {0.0: 5, 5e7: 4, 1e12: 1}[bucket]


def test_buckets_hold_one_kind_and_group():
    layers = [
        Layer(name, Phase(0.0), Phase(0.0), Phase(1.0, item), update=0.5)
        for name, item in [
            ("a", collective("all-reduce", 1e6, (4, 1, 1))),
            ("b", collective("all-reduce", 1e6, (4, 1, 1))),
            ("c", collective("all-gather", 1e6, (4, 1, 1))),
            ("d", None),
            ("e", collective("all-gather", 2e6, (4, 1, 1))),
        ]
    ]
    found = loop_graph(layers, "gradient-overlap", bucket=1e9)
    assert [(c.kind, c.size) for c in found.collectives] == [
        ("all-gather", 3e6),
        ("all-reduce", 2e6),
    ]
    assert found.total_fixed == 5 + 2.5


def run_transformer(layers, queue):
    program = Program(queue)
    for layer in layers:
        program.block(layer.forward, layer.update)
    for layer in reversed(layers):
        program.block(layer.recomputation, layer.update)
        program.compute(layer.input_gradient.compute)
        awaited = program.start(layer.input_gradient.collective, layer.update)
        program.compute(layer.weight_gradient.compute)
        program.start(layer.weight_gradient.collective, layer.update)
        program.now = max(program.now, awaited)
    return program.end


def run_data(layers, queue):
    program = Program(queue)
    program.compute(sum(layer.forward.compute for layer in layers))
    for k in reversed(range(len(layers))):
        program.compute(layers[k].weight_gradient.compute)
        program.start(layers[k].weight_gradient.collective, layers[k].update)
        if k:
            program.compute(layers[k].input_gradient.compute)
    return program.end


def run_dlrm(layers, queue, last_bottom=1):
    program, first = Program(queue), layers[0]
    program.compute(first.forward.compute)
    exchanged = program.start(first.forward.collective, first.update)
    program.compute(sum(layer.forward.compute for layer in layers[1 : last_bottom + 1]))
    program.now = max(program.now, exchanged)
    program.compute(sum(layer.forward.compute for layer in layers[last_bottom + 1 :]))
    for k in reversed(range(len(layers))):
        program.compute(layers[k].weight_gradient.compute)
        program.start(layers[k].weight_gradient.collective, layers[k].update)
        if k:
            program.compute(layers[k].input_gradient.compute)
        if k == last_bottom + 1:
            program.start(first.input_gradient.collective, first.update)
    return program.end


@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize(
    ("policy", "run"),
    [("HYBRID_TRANSFORMER", run_transformer), ("DATA", run_data), ("HYBRID_DLRM", run_dlrm)],
)
def test_loops_of_the_simulator(policy, run, queue):
    for seed in range(20):
        layers = table(seed)
        found = loop_graph(layers, "astra-sim", policy)
        assert step_time(found, QUEUES if queue else NO_QUEUES) == pytest.approx(
            run(layers, queue), rel=1e-12
        )


def test_unknown_policies_and_pipelines_are_refused():
    with pytest.raises(FieldError, match="MICRO"):
        loop_graph(table(0), "astra-sim", "MICRO")
    for kind in (LoopKind.ONE_F_ONE_B, LoopKind.INTERLEAVED):
        with pytest.raises(FieldError, match="no pipeline"):
            build_graph(table(0), TrainingLoop(kind))
    with pytest.raises(FieldError, match="only gradient-overlap has buckets"):
        TrainingLoop(LoopKind.NO_OVERLAP, 1e6)
