"""Shapes, names, placement; groups tile the network, checked NPU by NPU."""

import itertools
import math
from collections import Counter

import pytest
from helpers import divisors, network
from hypothesis import given
from hypothesis import strategies as st

from libra.errors import FieldError
from libra.network import Dimension, Network, Topology, parse_shape
from libra.placement import nest_groups, place_groups, whole_group

RI, FC, SW = Topology.RING, Topology.FULLY_CONNECTED, Topology.SWITCH


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ("RI(4)_FC(8)_RI(4)_SW(32)", ((RI, 4), (FC, 8), (RI, 4), (SW, 32))),
        ("sw(2)", ((SW, 2),)),
        ("Ring(3)_FullyConnected(4)_Switch(5)", ((RI, 3), (FC, 4), (SW, 5))),
    ],
)
def test_shapes(shape, blocks):
    assert parse_shape(shape) == blocks


@pytest.mark.parametrize("shape", ["", "RI", "RI()", "RI(4)FC(8)", "XY(4)", "RI(4.5)", "RI(4)_"])
def test_refuses_shapes(shape):
    with pytest.raises(ValueError, match="got"):
        parse_shape(shape)


@given(st.lists(st.tuples(st.sampled_from(Topology), st.integers(2, 99)), min_size=1, max_size=6))
def test_a_network_prints_the_shape_it_was_made_of(blocks):
    net = Network(tuple(Dimension(t, n, "x") for t, n in blocks))
    assert parse_shape(net.shape) == tuple(blocks)
    assert net.npus == math.prod(n for _, n in blocks)
    assert len(set(net.names)) == len(blocks)


@pytest.mark.parametrize(
    ("tiers", "names", "expected"),
    [
        (("chiplet", "node", "pod"), ("", "", ""), ("chiplet", "node", "pod")),
        (("node", "node", "pod"), ("", "", ""), ("dim1", "dim2", "pod")),
        (("node", "node", "pod"), ("", "rail", ""), ("node", "rail", "pod")),
        (("node", "x", "pod"), ("", "node", ""), ("dim1", "node", "pod")),
        (("node", "node", "node"), ("dim1", "b", ""), ("dim1", "b", "node")),
    ],
)
def test_names(tiers, names, expected):
    assert network("RI(2)_FC(3)_SW(4)", tiers, name=names).names == expected


@pytest.mark.parametrize(
    "names", [("x", "x", ""), ("dim2", "", ""), ("", "", "dim1"), ("total", "", ""), ("9", "", "")]
)
def test_refuses_names(names):
    with pytest.raises(FieldError):
        network("RI(2)_FC(3)_SW(4)", name=names)


@pytest.mark.parametrize("tiers", [("total", "b"), ("cost", "b"), ("dim2", "b")])
def test_a_tier_never_shadows_another_name(tiers):
    try:
        names = network("RI(2)_SW(4)", tiers).names
    except FieldError:
        return
    assert not {"total", "cost"} & set(names)
    assert names[0] != "dim2"


PLACEMENTS = [
    ([4, 8, 4, 32], {"tp": 16, "dp": 256}, {"tp": (4, 4, 1, 1), "dp": (1, 2, 4, 32)}),
    ([16, 8, 32], {"tp": 128, "dp": 32}, {"tp": (16, 8, 1), "dp": (1, 1, 32)}),
    ([4, 8], {"tp": 1, "dp": 32}, {"tp": (1, 1), "dp": (4, 8)}),
    ([4, 8], {"tp": 32, "dp": 1}, {"tp": (4, 8), "dp": (1, 1)}),
    ([2, 8, 8], {"tp": 4, "pp": 4, "dp": 8}, {"tp": (2, 2, 1), "pp": (1, 4, 1), "dp": (1, 1, 8)}),
]


@pytest.mark.parametrize(("sizes", "degrees", "expected"), PLACEMENTS)
def test_placement(sizes, degrees, expected):
    assert place_groups(sizes, degrees) == expected


@pytest.mark.parametrize(
    ("sizes", "degrees", "message"),
    [
        ([4, 8], {"tp": 3, "dp": 8}, "multiply to 24"),
        ([4, 8], {"tp": 64, "dp": 1}, "multiply to 64"),
        ([4, 6], {"tp": 3, "dp": 8}, "does not fit"),
        ([4, 6], {"tp": 6, "dp": 4}, "tp 6 does not fit"),
        ([2, 3, 4], {"tp": 4, "dp": 6}, "does not fit"),
        ([6, 4], {"tp": 4, "dp": 6}, "does not fit"),
    ],
)
def test_refuses_degrees_that_do_not_divide(sizes, degrees, message):
    with pytest.raises(ValueError, match=message):
        place_groups(sizes, degrees)


def test_strides_are_the_extents_of_the_groups_inside():
    net = network("RI(4)_FC(8)_RI(4)_SW(32)")
    groups = nest_groups(net, place_groups(net.sizes, {"tp": 16, "dp": 256}))
    assert groups["tp"].strides == (1, 1, 1, 1)
    assert groups["dp"].strides == (4, 4, 1, 1)
    assert (groups["tp"].size, groups["dp"].size) == (16, 256)


@pytest.mark.parametrize(
    ("extents", "field"),
    [
        ({"tp": [4], "dp": [1, 8]}, "tp"),
        ({"tp": [4, 0], "dp": [1, 8]}, "tp"),
        ({"tp": [4, 1], "dp": [2, 8]}, "dp"),
        ({"tp": [3, 1], "dp": [1, 8]}, "tp"),
        ({"tp": [2, 1], "dp": [1, 8]}, ""),
    ],
)
def test_refuses_groups_that_do_not_fill_the_network(extents, field):
    with pytest.raises(FieldError) as caught:
        nest_groups(network("RI(4)_SW(8)"), extents)
    assert caught.value.field_name == field


def members(net, group):
    """Which group each NPU is in, and its rank there, from extents and strides."""
    for npu in itertools.product(*map(range, net.sizes)):
        digits = [
            (x % k, x // k % e, x // k // e)
            for x, e, k in zip(npu, group.extents, group.strides, strict=True)
        ]
        yield tuple((low, high) for low, _, high in digits), tuple(rank for _, rank, _ in digits)


@st.composite
def placements(draw):
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=4))
    whole = draw(st.integers(0, len(sizes) - 1))
    part = draw(st.sampled_from(divisors(sizes[whole])))
    tp = math.prod(sizes[:whole]) * part
    expected = (*sizes[:whole], part, *[1] * (len(sizes) - whole - 1))
    return sizes, tp, expected


@given(placements())
def test_placed_groups_tile_the_network(case):
    sizes, tp, expected = case
    net = network("_".join(f"SW({n})" for n in sizes))
    placed = place_groups(sizes, {"tp": tp, "dp": net.npus // tp})
    assert placed["tp"] == expected
    groups = nest_groups(net, placed)
    of = {role: list(members(net, group)) for role, group in groups.items()}
    for role, group in groups.items():
        sizes_found = Counter(name for name, _ in of[role])
        assert set(sizes_found.values()) == {group.size}
        assert len(set(of[role])) == net.npus, "no two NPUs have one group and rank"
    ranks = {
        (tp_rank, dp_rank) for (_, tp_rank), (_, dp_rank) in zip(of["tp"], of["dp"], strict=True)
    }
    assert len(ranks) == net.npus, "each pair of ranks belongs to one NPU"


def test_whole_group():
    group = whole_group(network("RI(4)_FC(8)_SW(2)"), "others", [1, 2])
    assert (group.extents, group.strides, group.size) == ((1, 8, 2), (1, 1, 1), 16)
