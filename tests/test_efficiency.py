"""Efficiency of a dimension by kind, size and members: model, simulation, optimum, refusals."""

import dataclasses

import numpy as np
import pytest
from collective_helpers import collective_time, random_bandwidth
from helpers import chain_graph, collective, design, graph, network, optimum
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.collectives import CollectiveKind, CollectiveModel, dimension_bytes
from libra.efficiency import EfficiencyPoint, efficiency_at
from libra.errors import FieldError
from libra.network import Network
from libra.simulate import simulate_graph, stages_of

RISING = (EfficiencyPoint(1e6, 0.25), EfficiencyPoint(1e8, 0.75))
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")


def curved(shape, curves, **fields):
    """Network whose dimensions have curves, one mapping of kind to points each."""
    plain = network(shape, **fields)
    dimensions = [
        dataclasses.replace(d, efficiency_by_size=c)
        for d, c in zip(plain.dimensions, curves, strict=True)
    ]
    return Network(tuple(dimensions))


def test_the_buffer_that_comes_to_a_dimension_counts():
    """4 x 8: of 40 MB an eighth dimension gets 10 MB, where the curve is at one half."""
    net = curved("RI(4)_SW(8)", [{}, {CollectiveKind.ALL_REDUCE: RISING}])
    found = dimension_bytes(collective("all-reduce", 4e7, (4, 8)), net, CollectiveModel())
    assert found == pytest.approx([1.5 * 4e7, 2 * 7 / 8 / 4 * 4e7 / 0.5])


def test_all_of_an_all_to_all_comes_to_every_dimension():
    net = curved("SW(4)_SW(8)", [{}, {CollectiveKind.ALL_TO_ALL: RISING}])
    found = dimension_bytes(collective("all-to-all", 1e7, (4, 8)), net, CollectiveModel())
    assert found == pytest.approx([0.75e7, 7 / 8 * 1e7 / 0.5])


def test_a_curve_takes_the_place_of_the_plain_efficiency():
    net = curved("SW(4)", [{CollectiveKind.ALL_GATHER: RISING}], efficiency=[0.9])
    model = CollectiveModel()
    gather = dimension_bytes(collective("all-gather", 1e7, (4,)), net, model)
    scatter = dimension_bytes(collective("reduce-scatter", 1e7, (4,)), net, model)
    assert gather == pytest.approx([0.75e7 / 0.5])
    assert scatter == pytest.approx([0.75e7 / 0.9])


@pytest.mark.parametrize(
    ("size", "members", "fraction"),
    [(1e6, 2, 0.2), (1e7, 2, 0.3), (1e8, 2, 0.4), (1e6, 8, 0.4), (1e7, 8, 0.6), (1e7, 4, 0.45),
     (1e7, 1, 0.3), (1e7, 64, 0.6)],
)  # fmt: skip
def test_members_have_curves(size, members, fraction):
    points = tuple(
        EfficiencyPoint(s, f, n)
        for n, low, high in ((2, 0.2, 0.4), (8, 0.4, 0.8))
        for s, f in ((1e6, low), (1e8, high))
    )
    assert efficiency_at(points, size, members) == pytest.approx(fraction)
    net = curved("SW(64)", [{CollectiveKind.ALL_GATHER: points}])
    if members > 1:
        part = collective("all-gather", size, (members,), (1,))
        found = dimension_bytes(part, net, CollectiveModel())
        assert found == pytest.approx([size * (members - 1) / members / fraction])


def test_a_kind_may_have_members_of_the_whole_group():
    points = (EfficiencyPoint(1.0, 0.2, 2), EfficiencyPoint(1.0, 0.8, 8))
    model = CollectiveModel(efficiency={CollectiveKind.ALL_GATHER: points})
    found = dimension_bytes(collective("all-gather", 1e6, (2, 2)), network("SW(2)_SW(4)"), model)
    assert found == pytest.approx([0.5e6 / 0.5, 0.25e6 / 0.5])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from([1, 4, 16]))
def test_simulation_and_model_agree(seed, kind, chunks):
    rng = np.random.default_rng(seed)
    curve = tuple(
        EfficiencyPoint(s, float(f))
        for s, f in zip((1e5, 1e7, 1e9), rng.uniform(0.1, 1, 3), strict=True)
    )
    net = curved("SW(4)_SW(8)", [{CollectiveKind(kind): curve}, {CollectiveKind(kind): RISING}])
    item = collective(kind, float(10 ** rng.uniform(5, 9)), (4, 8))
    model = CollectiveModel(chunks=chunks)
    bandwidth = random_bandwidth(rng, net)
    one = chain_graph([0.0], [item])
    visits = stages_of(item, net, model, bandwidth, chunks)
    simulated = simulate_graph(one, [visits], [chunks]).time
    assert simulated == pytest.approx(collective_time(item, net, model, bandwidth), rel=1e-6)


def test_a_design_with_curves_is_optimised():
    net = curved("SW(4)_SW(8)", [{CollectiveKind.ALL_REDUCE: RISING}] * 2)
    work = graph([0.01], [collective("all-reduce", 1e8, (4, 8))], [{0: 1.0}], [[]])
    result = optimum(design(net, work, ["total <= 100 GB/s"]))
    small = 0.25 + 0.5 * np.log(25e6 / 1e6) / np.log(100)
    traffic = np.array([1.5e8 / 0.75, 7 / 4 * 25e6 / small])
    assert result.bandwidth == pytest.approx(traffic / traffic.sum() * 100e9, rel=1e-4)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "needs points of rising size, got []. Sort them, one a size."),
        (
            (RISING[1], RISING[0]),
            "needs points of rising size, got [100000000.0, 1000000.0]. Sort them, one a size.",
        ),
        (
            (EfficiencyPoint(1e6, 0.5, 8), EfficiencyPoint(1e6, 0.5, 2)),
            "needs points of rising size, got [1000000.0, 1000000.0]. Sort them, one a size and "
            "number of members.",
        ),
        (
            (EfficiencyPoint(1e6, 0.5), EfficiencyPoint(1e6, 0.5, 2)),
            "is for any number of members and for 2, got both. Give all points members, or none.",
        ),
    ],
)
def test_refuses_curves(points, message):
    with pytest.raises(FieldError) as error:
        curved("SW(4)", [{CollectiveKind.ALL_GATHER: points}])
    assert error.value.message == message
    assert error.value.field_name == "efficiency_by_size.all-gather"


def test_refuses_members_that_are_none():
    with pytest.raises(FieldError) as error:
        EfficiencyPoint(1e6, 0.5, 1)
    assert error.value.message == "must be 2 or more, got 1. Leave it out for any number."
