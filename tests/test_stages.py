"""Visits of one chunk in the simulation against bytes and latencies of the model.

The two are derived apart: messages here, closed forms there. They agree for all-reduce,
reduce-scatter, all-gather, all-to-all, broadcast and point-to-point in all blocks and groups, but

- a switch that reduces, not the outermost of the group: the buffer goes up once, and the own part
  once more when it is multicast; the model counts the buffer only.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from helpers import GB, collective, divisors, network, random_collective, random_network

from libra.collectives import (
    AllToAll,
    CollectiveKind,
    CollectiveModel,
    Contention,
    EfficiencyPoint,
    dimension_bytes,
    dimension_latency,
)
from libra.simulate import stages_of

CASES = [(n, e, k) for n in (2, 3, 4, 6, 8, 12) for e in divisors(n)[1:] for k in divisors(n // e)]
BLOCKS = ["RI", "FC", "SW"]


def visited(item, net, model, bandwidth, chunks=1):
    """Time that one chunk spends in each dimension [s]."""
    found = np.zeros(len(net.sizes))
    for stage in stages_of(item, net, model, bandwidth, chunks):
        found[stage.link[0]] += stage.time
    return found


def derived(item, net, model, bandwidth, chunks=1):
    bytes_ = dimension_bytes(item, net, model)
    return bytes_ / chunks / bandwidth + dimension_latency(item, net, model)


def differences(block, kind, cases=CASES, latency=1e-4, **fields):
    """Cases in one dimension where simulation and model differ, with their ratio."""
    model, bandwidth = CollectiveModel(endpoint_delay=1e-6, **fields), np.array([GB])
    found = {}
    for n, e, k in cases:
        net = network(f"{block}({n})", latency=[latency])
        item = collective(kind, 1e6, (e,), (k,))
        ratio = (visited(item, net, model, bandwidth) / derived(item, net, model, bandwidth))[0]
        if abs(ratio - 1) > 1e-12:
            found[n, e, k] = ratio
    return found


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather", "point-to-point"])
def test_one_dimension(block, kind):
    assert differences(block, kind) == {}


CLOSED = [case for case in CASES if case[1] * case[2] == case[0]]


@pytest.mark.parametrize(
    ("block", "how"),
    [("RI", "pairwise"), ("RI", None), *itertools.product(["FC", "SW"], [*AllToAll, None])],
)
def test_all_to_all(block, how):
    cases = CLOSED if block == "RI" else CASES
    assert differences(block, "all-to-all", cases, all_to_all=how) == {}
    assert differences(block, "all-to-all", CASES, latency=0.0, all_to_all=how) == {}


def test_all_to_all_on_part_of_a_ring_waits_for_the_same_hops():
    assert differences("RI", "all-to-all") == {}


def test_direct_all_to_all_on_a_ring():
    assert differences("RI", "all-to-all", CLOSED, all_to_all="direct") == {}


@pytest.mark.parametrize("block", ["RI", "SW"])
def test_broadcast(block):
    assert differences(block, "broadcast") == {}


def test_broadcast_in_a_fully_connected_block():
    assert differences("FC", "broadcast") == {}


def random_case(seed, *, in_network=False):
    """Network with latencies and efficiencies, group collective, bandwidths."""
    rng = np.random.default_rng(seed)
    while True:
        net = random_network(rng, int(rng.integers(1, 5)))
        item = random_collective(rng, net)
        ring = any(
            d.topology.code == "RI" and e > 1 and e * k != d.size
            for d, e, k in zip(net.dimensions, item.group.extents, item.group.strides, strict=True)
        )
        if item.kind is CollectiveKind.BROADCAST:
            continue
        if item.kind is not CollectiveKind.ALL_TO_ALL or not ring:
            break
    dimensions = [
        dataclasses.replace(
            d,
            latency=float(rng.choice([0, 1e-5])),
            efficiency=float(rng.choice([1, 0.5])),
            in_network=in_network and d.topology.code == "SW",
        )
        for d in net.dimensions
    ]
    bandwidth = np.exp(rng.uniform(np.log(5), np.log(400), len(dimensions))) * GB
    return dataclasses.replace(net, dimensions=tuple(dimensions)), item, bandwidth


@pytest.mark.parametrize("seed", range(200))
def test_several_dimensions(seed):
    net, item, bandwidth = random_case(seed)
    model = CollectiveModel(endpoint_delay=1e-6 * (seed % 2))
    expected = derived(item, net, model, bandwidth, chunks=4)
    assert visited(item, net, model, bandwidth, chunks=4) == pytest.approx(expected, rel=1e-12)


def test_several_dimensions_by_the_paper():
    """No phi, hops or latency on either side (point-to-point, which the paper lacks, aside)."""
    for seed in range(100):
        net, item, bandwidth = random_case(seed)
        if item.kind is not CollectiveKind.POINT_TO_POINT:
            model = CollectiveModel("libra")
            expected = derived(item, net, model, bandwidth)
            assert visited(item, net, model, bandwidth) == pytest.approx(expected, rel=1e-12)


def test_messages_by_the_paper_take_the_whole_dimension():
    assert differences_by_the_paper() == []


def differences_by_the_paper():
    model, item = CollectiveModel("libra"), collective("point-to-point", 1e6, (2,))
    found = []
    for block in BLOCKS:
        net, bandwidth = network(f"{block}(4)"), np.array([GB])
        if visited(item, net, model, bandwidth) != pytest.approx(
            derived(item, net, model, bandwidth)
        ):
            found.append(block)
    return found


def test_a_switch_that_reduces():
    net = network("RI(4)_SW(8)", latency=[1e-6] * 2, in_network=[False, True])
    item, model = collective("all-reduce", 32e6, (4, 8)), CollectiveModel()
    bandwidth = np.array([2, 1]) * GB
    assert visited(item, net, model, bandwidth) == pytest.approx([24e-3 + 6e-6, 8e-3 + 2e-6])
    assert derived(item, net, model, bandwidth) == pytest.approx([24e-3 + 6e-6, 8e-3 + 2e-6])


def test_a_switch_that_reduces_inside_others_scatters_and_gathers():
    """9 of 8 parts by the simulation, the buffer once by the model."""
    net = network("SW(8)_RI(4)", in_network=[True, False])
    item, model, bandwidth = (
        collective("all-reduce", 8e6, (8, 4)),
        CollectiveModel(),
        np.full(2, GB),
    )
    assert visited(item, net, model, bandwidth) == pytest.approx([9e-3, 1.5e-3])
    assert derived(item, net, model, bandwidth) == pytest.approx([8e-3, 1.5e-3])


def test_efficiencies_by_size_slow_the_simulation():
    curve = {CollectiveKind.ALL_REDUCE: (EfficiencyPoint(1e6, 0.5),)}
    assert differences("RI", "all-reduce", efficiency=curve) == {}


def test_contention_does_not_change_visits():
    net, bandwidth = network("RI(4)_SW(8)"), np.array([2, 1]) * GB
    item = collective("all-reduce", 32e6, (4, 8))
    alone, shared = (
        stages_of(item, net, CollectiveModel(contention=c), bandwidth, 2) for c in Contention
    )
    assert alone == shared
    assert [s.link for s in alone] == [(0, 0), (1, 0), (0, 0)]
