"""Traffic of collectives: closed forms, a simulation link by link, and one with the data itself."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from helpers import KINDS, collective, divisors, network, random_collective, random_network

from libra.collectives import (
    Collective,
    CollectiveKind,
    CollectiveModel,
    Compatibility,
    dimension_bytes,
)
from libra.errors import FieldError
from libra.pieces import collective_pieces
from libra.placement import Group

DEFAULT, LIBRA = CollectiveModel(), CollectiveModel(Compatibility.LIBRA)
NET = "RI(4)_FC(8)_RI(4)_SW(32)"

# Bytes per byte of buffer on whole dimensions, typed as fractions.
WHOLE = {
    "reduce-scatter": [3 / 4, 7 / 32, 3 / 128, 31 / 4096],
    "all-gather": [3 / 4, 7 / 32, 3 / 128, 31 / 4096],
    "all-reduce": [3 / 2, 7 / 16, 3 / 64, 31 / 2048],
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("model", [DEFAULT, LIBRA])
def test_whole_dimensions(kind, model):
    found = dimension_bytes(collective(kind, 1.0, (4, 8, 4, 32)), network(NET), model)
    assert found == pytest.approx(WHOLE[kind], rel=1e-15)


@pytest.mark.parametrize(
    ("kind", "extents", "strides", "default", "libra"),
    [
        # a partial group reaches 3 of 7 links of FC(8), and half of a ring
        ("all-reduce", (4, 4, 1, 1), (1, 1, 1, 1), [1.5, 3 / 8 * 7 / 3, 0, 0], [1.5, 3 / 8, 0, 0]),
        ("all-reduce", (1, 2, 4, 32), (4, 4, 1, 1), [0, 7, 0.75, 31 / 128], [0, 1, 0.75, 31 / 128]),
        ("all-gather", (2, 1, 1, 1), (1, 1, 1, 1), [1, 0, 0, 0], [0.5, 0, 0, 0]),
        ("all-gather", (2, 1, 1, 1), (2, 1, 1, 1), [1, 0, 0, 0], [0.5, 0, 0, 0]),
        # hops: ring of 4, 4/4 of the buffer at full bandwidth
        (
            "all-to-all",
            (4, 8, 1, 32),
            (1, 1, 1, 1),
            [1, 7 / 8, 0, 31 / 32],
            [3 / 4, 7 / 8, 0, 31 / 32],
        ),
    ],
)
def test_partial_groups(kind, extents, strides, default, libra):
    item = collective(kind, 1.0, extents, strides)
    assert dimension_bytes(item, network(NET), DEFAULT) == pytest.approx(default, rel=1e-15)
    assert dimension_bytes(item, network(NET), LIBRA) == pytest.approx(libra, rel=1e-15)


def test_all_to_all_on_a_ring_of_16_exceeds_the_formula_by_its_hops():
    """4.27 times m (n-1)/n, as ../shared/reference/README.md has for a ring of 16."""
    item = collective("all-to-all", 1.0, (16,))
    ratio = dimension_bytes(item, network("RI(16)"), DEFAULT) / (15 / 16)
    assert ratio == pytest.approx(4.27, abs=5e-3)


@pytest.mark.parametrize("model", [DEFAULT, LIBRA])
def test_in_network_reduction_sends_the_buffer_once(model):
    net = network("RI(4)_SW(8)", in_network=[False, True])
    plain = network("RI(4)_SW(8)")
    for kind in KINDS:
        item = collective(kind, 64.0, (4, 8))
        found = dimension_bytes(item, net, model)
        if kind is CollectiveKind.ALL_REDUCE:
            assert found == pytest.approx([96, 16])
        else:
            assert (found == dimension_bytes(item, plain, model)).all()


def test_only_a_switch_reduces_in_the_network():
    with pytest.raises(FieldError, match="only a switch"):
        network("RI(4)", in_network=[True])


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf")])
def test_refuses_sizes(size):
    with pytest.raises(FieldError, match="finite and positive"):
        Collective(CollectiveKind.ALL_REDUCE, size, Group("g", (4,), (1,)))


def test_pieces_are_one_a_dimension_used():
    net = network(NET)
    item = collective("all-reduce", 1e9, (4, 1, 4, 1))
    pieces = collective_pieces(item, net, DEFAULT, None)
    bandwidth = np.array([3e9, 1e9, 7e9, 2e9])
    each = pieces.alpha + pieces.coefficient @ (1 / (pieces.forms @ bandwidth))
    expected = dimension_bytes(item, net, DEFAULT) / bandwidth
    assert sorted(each) == pytest.approx(sorted(expected[expected > 0]), rel=1e-14)


# --- second method: link by link ---------------------------------------------------------------


def groups_of(n, g, k):
    """All groups of g members with stride k that run at once on n members."""
    return [
        [low + k * m + k * g * high for m in range(g)]
        for low in range(k)
        for high in range(n // (g * k))
    ]


def walk(load, n, start, hops, direction, size):
    """Load the links of a ring along a path with some bytes."""
    for h in range(hops):
        load[(start + direction * h) % n, direction] += size


def ring_collective(n, g, k, size):
    """Loads of ring reduce-scatter: closed rings go both ways, others are folded over a line."""
    load = defaultdict(float)
    for group in groups_of(n, g, k):
        if g * k == n:
            for member in group:
                for direction in (1, -1):
                    walk(load, n, member, k, direction, size * (g - 1) / g / 2)
        else:
            for member in group[:-1]:
                walk(load, n, member, k, 1, size * (g - 1) / g)
            walk(load, n, group[-1], k * (g - 1), -1, size * (g - 1) / g)
    return load


def ring_all_to_all(n, g, k, size):
    """Loads of an all-to-all along shortest paths, ties split both ways."""
    load = defaultdict(float)
    for group in groups_of(n, g, k):
        for i, j in itertools.permutations(group, 2):
            ahead = (j - i) % n
            ways = [(hops, d) for hops, d in ((ahead, 1), (n - ahead, -1)) if 2 * hops <= n]
            for hops, direction in ways:
                walk(load, n, i, hops, direction, size / g / len(ways))
    return load


def direct(n, g, k, size):
    """Loads of a direct exchange: each ordered pair of members has a link."""
    load = defaultdict(float)
    for group in groups_of(n, g, k):
        for pair in itertools.permutations(group, 2):
            load[pair] += size / g
    return load


def uplinks(n, g, k, size):
    """Loads of the links from the members to a switch."""
    load = defaultdict(float)
    for (i, _), flow in direct(n, g, k, size).items():
        load[i] += flow
    return load


def simulated_bytes(block, n, g, k, kind):
    """Time x bandwidth of the busiest link, per byte of buffer."""
    if block == "RI":
        load = (ring_all_to_all if kind == "all-to-all" else ring_collective)(n, g, k, 1.0)
        links = 2
    elif block == "FC":
        load, links = direct(n, g, k, 1.0), n - 1
    else:
        load, links = uplinks(n, g, k, 1.0), 1
    return max(load.values()) * links * (2 if kind == "all-reduce" else 1)


GROUP_KINDS = ["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]
CASES = [(n, g, k) for n in (2, 3, 4, 6, 8, 12) for g in divisors(n)[1:] for k in divisors(n // g)]


@pytest.mark.parametrize("kind", GROUP_KINDS)
@pytest.mark.parametrize("block", ["RI", "FC", "SW"])
def test_traffic_is_that_of_the_busiest_link(block, kind):
    for n, g, k in CASES:
        found = dimension_bytes(
            collective(kind, 1.0, (g,), (k,)), network(f"{block}({n})"), DEFAULT
        )
        assert found[0] == pytest.approx(simulated_bytes(block, n, g, k, kind), rel=1e-12), (
            n,
            g,
            k,
        )


# --- second method: the data itself ------------------------------------------------------------


def lines(shape, axis):
    """Indices of the members along an axis, for each line of the grid."""
    others = [range(n) if a != axis else [0] for a, n in enumerate(shape)]
    for at in itertools.product(*others):
        yield [(*at[:axis], i, *at[axis + 1 :]) for i in range(shape[axis])]


def run_all_reduce(extents, rng):
    """Reduce-scatter up the dimensions, all-gather down; what each member ends with and sent."""
    length = int(np.prod(extents)) * 2
    have = {
        at: dict(enumerate(rng.normal(size=length)))
        for at in itertools.product(*map(range, extents))
    }
    total = sum(np.array(list(v.values())) for v in have.values())
    sent = {at: np.zeros((2, len(extents))) for at in have}
    for d, e in enumerate(extents):
        for line in lines(extents, d):
            keys = list(have[line[0]])
            parts = np.array_split(keys, e)
            for i, at in enumerate(line):
                sent[at][0, d] += sum(len(p) for j, p in enumerate(parts) if j != i)
            new = [{x: sum(have[at][x] for at in line) for x in part} for part in parts]
            have |= dict(zip(line, new, strict=True))
    scattered = {at: dict(v) for at, v in have.items()}
    for d in reversed(range(len(extents))):
        for line in lines(extents, d):
            merged = {x: v for at in line for x, v in have[at].items()}
            for at in line:
                sent[at][1, d] += len(have[at]) * (len(line) - 1)
            have |= {at: dict(merged) for at in line}
    return length, total, scattered, have, sent


@pytest.mark.parametrize("extents", [(4,), (2, 3), (3, 1, 4), (2, 4, 2), (2, 2, 3, 2)])
def test_hierarchical_all_reduce_sums_and_sends_what_the_formulas_say(extents):
    length, total, scattered, have, sent = run_all_reduce(extents, np.random.default_rng(0))
    owned = sorted(x for part in scattered.values() for x in part)
    assert owned == list(range(length)), "reduce-scatter leaves each element with one member"
    for part in have.values():
        assert [part[x] for x in range(length)] == pytest.approx(total, rel=1e-12)
    net = network("_".join(f"SW({max(e, 2)})" for e in extents))
    for row, kinds in ((0, ["reduce-scatter"]), (1, ["all-gather"]), (slice(None), ["all-reduce"])):
        expected = dimension_bytes(collective(kinds[0], length, extents), net, DEFAULT)
        for counts in sent.values():
            assert np.atleast_2d(counts[row]).sum(axis=0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("extents", [(4,), (2, 3), (3, 1, 4), (2, 2, 3)])
def test_all_to_all_delivers_and_sends_what_the_formula_says(extents):
    """One item from each member to each: it takes the dimensions in turn, as the groups allow."""
    members = list(itertools.product(*map(range, extents)))
    have = {at: [(at, to) for to in members] for at in members}
    sent = {at: np.zeros(len(extents)) for at in members}
    for d in range(len(extents)):
        arrived = {at: [] for at in members}
        for at, items in have.items():
            for start, to in items:
                arrived[(*at[:d], to[d], *at[d + 1 :])].append((start, to))
                sent[at][d] += to[d] != at[d]
        have = arrived
    for at in members:
        assert sorted(have[at]) == [(start, at) for start in members]
    net = network("_".join(f"FC({max(e, 2)})" for e in extents))
    expected = dimension_bytes(collective("all-to-all", len(members), extents), net, DEFAULT)
    for counts in sent.values():
        assert counts == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_the_paper_is_never_slower_than_the_links(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(1, 5)))
    item = random_collective(rng, net)
    ideal, reached = (dimension_bytes(item, net, model) for model in (LIBRA, DEFAULT))
    assert (ideal <= reached * (1 + 1e-15)).all()
    assert ((ideal > 0) == (np.array(item.group.extents) > 1)).all()


def test_the_paper_s_formulas_may_be_named_by_text():
    net, item = network("FC(8)"), collective("all-reduce", 1.0, (4,))
    found = dimension_bytes(item, net, CollectiveModel("libra"))
    assert found == pytest.approx(dimension_bytes(item, net, LIBRA))
