"""Random layer tables on random networks, and their steps by model and simulation."""

import numpy as np
from helpers import GB, divisors, random_network

from libra.collectives import Algorithm, Collective, CollectiveKind
from libra.pieces import Schedule
from libra.placement import nest_groups, place_groups
from libra.simulate import simulate_graph, stages_of
from libra.timing import build_timing, critical_path
from libra.workload.layers import Layer, Phase
from libra.workload.pipeline import Pipeline, pipeline_graph
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph

LOOPS = [
    ("no-overlap", ""),
    ("tp-dp-overlap", ""),
    ("gradient-overlap", ""),
    ("astra-sim", "HYBRID_TRANSFORMER"),
    ("astra-sim", "DATA"),
    ("astra-sim", "HYBRID_DLRM"),
]


def random_groups(rng, net):
    """Groups tp and dp that fill the network."""
    while True:
        tp = int(rng.choice(divisors(net.npus)))
        try:
            placed = place_groups(net.sizes, {"tp": tp, "dp": net.npus // tp})
        except ValueError:
            continue
        return nest_groups(net, placed)


def random_layers(rng, groups, count):
    """Layers with random compute and collectives of the groups tp (forward, input) and dp."""
    kinds = ["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]

    def phase(name):
        item = None
        if groups[name].size > 1 and rng.random() < 0.7:
            kind = CollectiveKind(rng.choice(kinds))
            item = Collective(kind, float(10 ** rng.uniform(6, 8.5)), groups[name])
        return Phase(float(rng.exponential(1e-3)), item)

    return [
        Layer(
            f"l{k}",
            phase("tp"),
            phase("tp"),
            phase("dp"),
            update=float(rng.choice([0, 1e-4])),
            recomputation=phase("tp") if rng.random() < 0.3 else None,
        )
        for k in range(count)
    ]


def random_step(seed):
    """Network, layers and bandwidths."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(1, 5)))
    layers = random_layers(rng, random_groups(rng, net), int(rng.integers(2, 7)))
    return net, layers, np.exp(rng.uniform(np.log(20), np.log(500), len(net.sizes))) * GB


def loop_graph(layers, kind, policy="", bucket=0.0):
    loop = TrainingLoop(LoopKind(kind), bucket)
    return build_graph(layers, loop, policy=policy, last_bottom=1)


def modelled(found, net, model, bandwidth):
    """Step time by the convex model, with as many chunks as the collective model says."""
    schedules = [Schedule(model.chunks, Algorithm.MULTI_RAIL)] * len(found.collectives)
    return critical_path(build_timing(found, net, model, schedules), bandwidth).time


def simulated(found, net, model, bandwidth):
    """What libra's simulation says of the step."""
    chunks = model.chunks
    stages = [stages_of(c, net, model, bandwidth, chunks) for c in found.collectives]
    return simulate_graph(found, stages, [chunks] * len(stages))


def random_pipeline(seed, virtual_stages):
    """Network, graph of a pipeline beside tensor and data parallelism, and bandwidths."""
    rng = np.random.default_rng(seed)
    while True:
        net = random_network(rng, int(rng.integers(1, 5)))
        stages = int(rng.choice([2, 3, 4]))
        if net.npus % stages:
            continue
        rest = net.npus // stages
        tp = int(rng.choice(divisors(rest)))
        try:
            placed = place_groups(net.sizes, {"tp": tp, "dp": rest // tp, "pp": stages})
        except ValueError:
            continue
        break
    groups = nest_groups(net, placed)
    layers = random_layers(rng, groups, stages * virtual_stages + int(rng.integers(0, 4)))
    found = pipeline_graph(
        layers,
        Pipeline(
            groups["pp"],
            net.sizes,
            stages * int(rng.integers(1, 4)),
            float(10 ** rng.uniform(5, 7.5)),
            virtual_stages,
        ),
    )
    return net, found, np.exp(rng.uniform(np.log(20), np.log(500), len(net.sizes))) * GB
