"""Laws of collective times, for all algorithms, kinds, chunks, latencies and efficiencies."""

import dataclasses

import numpy as np
import pytest
from collective_helpers import collective_time, random_bandwidth, random_case
from helpers import GB, collective, network
from hypothesis import given
from hypothesis import strategies as st

from libra.collectives import Algorithm, CollectiveModel
from libra.network import Network
from libra.pieces import Schedule, best_schedule, dimension_times, work_of_sets
from libra.placement import Group

seeds = st.integers(0, 2**32 - 1)
algorithms = pytest.mark.parametrize("algorithm", list(Algorithm))
any_chunks = pytest.mark.parametrize("chunks", [None, 1, 4, 64])
MULTI, BALANCED, IDEAL = Algorithm


@algorithms
@any_chunks
@given(seed=seeds)
def test_more_bandwidth_is_never_slower(algorithm, chunks, seed):
    rng, net, item, model, low = random_case(seed, algorithm=algorithm, chunks=chunks)
    high = low * rng.choice([1, 1, 1.5, 4], len(low))
    for schedule in ("best", None, Schedule(chunks, algorithm)):
        before, after = (
            collective_time(item, net, model, b, schedule=schedule) for b in (low, high)
        )
        assert after <= before * (1 + 1e-12)


@algorithms
@any_chunks
@given(seed=seeds)
def test_convex_along_segments(algorithm, chunks, seed):
    """For any schedule; the best of several need not be."""
    rng, net, item, model, start = random_case(seed, algorithm=algorithm, chunks=chunks)
    end, part = random_bandwidth(rng, net), rng.uniform(0.05, 0.95)
    for schedule in (None, Schedule(chunks, algorithm), Schedule(chunks, MULTI)):
        a, b, between = (
            collective_time(item, net, model, x, schedule=schedule)
            for x in (start, end, (1 - part) * start + part * end)
        )
        assert between <= ((1 - part) * a + part * b) * (1 + 1e-12)


@algorithms
@any_chunks
@given(seed=seeds)
def test_pure_communication_halves_when_bandwidths_double(algorithm, chunks, seed):
    _, net, item, model, b = random_case(seed, latency=False, algorithm=algorithm, chunks=chunks)
    for schedule in ("best", None):
        once, twice = (collective_time(item, net, model, x, schedule=schedule) for x in (b, 2 * b))
        assert once == pytest.approx(2 * twice, rel=1e-14)


@pytest.mark.parametrize("algorithm", [BALANCED, IDEAL])
@given(seed=seeds)
def test_permuting_dimensions_permutes_the_cut_bound(algorithm, seed):
    rng, net, item, model, b = random_case(seed, latency=False, algorithm=algorithm)
    whole = collective(str(rng.choice(["all-reduce", "all-gather"])), item.size, net.sizes)
    order = rng.permutation(len(b))
    mixed = Network(tuple(net.dimensions[d] for d in order))
    moved = dataclasses.replace(whole, group=Group("g", tuple(mixed.sizes), (1,) * len(b)))
    expected = collective_time(whole, net, model, b, schedule=None)
    assert collective_time(moved, mixed, model, b[order], schedule=None) == pytest.approx(
        expected, rel=1e-12
    )


def three_algorithms(seed, chunks, **fields):
    """Times of multi-rail, balanced and ideal, each with its best schedule."""
    _, net, item, model, b = random_case(seed, chunks=chunks, **fields)
    return [
        collective_time(item, net, dataclasses.replace(model, algorithm=word), b)
        for word in Algorithm
    ]


@any_chunks
@given(seed=seeds)
def test_balanced_is_never_slower_than_multi_rail(chunks, seed):
    fixed, balanced, _ = three_algorithms(seed, chunks)
    assert balanced <= fixed * (1 + 1e-12)


@any_chunks
@given(seed=seeds)
def test_balanced_is_never_faster_than_ideal(chunks, seed):
    _, balanced, ideal = three_algorithms(seed, chunks, latency=False)
    assert ideal <= balanced * (1 + 1e-12)


# Slow first dimension, fast others: whose latencies hide behind the work of the first.
HIDDEN = network("RI(4)_RI(4)_RI(4)", latency=[1e-6] * 3)
SLOW_FIRST = np.array([1, 1000, 1000]) * GB
CUBE = collective("all-reduce", 1e6, (4, 4, 4))


def test_relaxed_multi_rail_is_a_bound_where_latency_hides():
    model = CollectiveModel()
    assert best_schedule(CUBE, HIDDEN, model, SLOW_FIRST) == Schedule(2, MULTI)
    bound, best = (
        collective_time(CUBE, HIDDEN, model, SLOW_FIRST, schedule=s) for s in (None, "best")
    )
    assert bound <= best * (1 + 1e-12)


def test_balanced_is_never_faster_than_ideal_where_latency_hides():
    """Multi-rail in 4 chunks takes 1.969 ms, no more than the ring of 64 needs; ideal 2.07 ms."""
    net = network("RI(64)_RI(2)", latency=[0, 6e-5])
    item, b = collective("all-reduce", 1e6, (64, 2)), np.array([1, 2 / 126]) * GB
    balanced, ideal = (
        collective_time(item, net, CollectiveModel(algorithm=word, chunks=4), b)
        for word in (BALANCED, IDEAL)
    )
    assert ideal <= balanced * (1 + 1e-12)


@any_chunks
def test_balanced_is_not_faster_than_ideal_in_random_cases_with_latency(chunks):
    for seed in range(200):
        _, balanced, ideal = three_algorithms(seed, chunks, latency=True)
        assert ideal <= balanced * (1 + 1e-12)


def gap_below(seed, algorithm, chunks, counts, **fields):
    """Least time over allowed schedules minus the relaxed time, over the latter."""
    _, net, item, model, b = random_case(seed, algorithm=algorithm, chunks=chunks, **fields)
    bound = collective_time(item, net, model, b, schedule=None)
    orders = {algorithm, MULTI} if algorithm is BALANCED else {algorithm}
    times = [
        collective_time(item, net, model, b, schedule=Schedule(n, order))
        for n in counts
        for order in orders
    ]
    return min(times) / bound - 1


COUNTS = (1, 2, 3, 5, 8, 16, 100, 3000)


@algorithms
@given(seed=seeds)
def test_relaxed_is_never_above_a_schedule_without_latency(algorithm, seed):
    assert gap_below(seed, algorithm, None, COUNTS, latency=False) >= -1e-12


@algorithms
@pytest.mark.parametrize("chunks", [1, 2, 4, 64])
@given(seed=seeds)
def test_relaxed_is_never_above_a_schedule_of_so_many_chunks(algorithm, chunks, seed):
    assert gap_below(seed, algorithm, chunks, [chunks]) >= -1e-12


@algorithms
def test_relaxed_is_never_above_a_schedule_with_latency(algorithm):
    for seed in range(400):
        assert gap_below(seed, algorithm, None, COUNTS, latency=True) >= -1e-12


# --- how much of its time a collective uses each dimension ---------------------------------------


@algorithms
@any_chunks
@given(seed=seeds)
def test_no_dimension_is_in_use_for_longer_than_the_collective_takes(algorithm, chunks, seed):
    _, net, item, model, b = random_case(seed, algorithm=algorithm, chunks=chunks)
    schedule = best_schedule(item, net, model, b)
    times = dimension_times(item, net, model, schedule, b)
    assert times.max() <= collective_time(item, net, model, b, schedule=schedule) * (1 + 1e-12)
    assert ((times > 0) == (np.array(item.group.extents) > 1)).all()


@given(seed=seeds)
def test_an_ideal_collective_uses_its_slowest_dimensions_all_the_time(seed):
    _, net, item, model, b = random_case(seed, latency=False, algorithm=IDEAL)
    times = dimension_times(item, net, model, Schedule(None, IDEAL), b)
    assert times.max() == pytest.approx(collective_time(item, net, model, b), rel=1e-12)


@given(seed=seeds)
def test_work_is_spread_feasibly_and_as_evenly_as_can_be(seed):
    """Every set carries what it must, all together no more, and no move of work would even it out.

    Work can move away from dimensions only while a set that holds them carries more than it must.
    """
    _, net, item, model, b = random_case(seed, algorithm=IDEAL)
    sets = work_of_sets(item, net, model)
    if sets is None:
        return
    times = dimension_times(item, net, model, Schedule(None, IDEAL), b)
    inside, must = sets.forms > 0, np.diag(sets.coefficient)
    carried = sets.forms @ (times * b)
    assert (carried >= must * (1 - 1e-12)).all()
    assert carried[inside.sum(axis=1).argmax()] == pytest.approx(must.max(), rel=1e-12)
    used = inside.any(axis=0)
    for level in set(times[used]):
        slowest = used & (times >= level * (1 - 1e-12))
        (k,) = np.flatnonzero((inside == slowest).all(axis=1))
        assert carried[k] == pytest.approx(must[k], rel=1e-9)


def test_spread_by_hand():
    """4 GB: in the fixed order 4 and 2 GB, 2 GB in a dimension that comes last, 6 GB in all."""
    net, item = network("SW(2)_SW(2)"), collective("all-reduce", 4e9, (2, 2))
    model = CollectiveModel(algorithm=BALANCED)

    def times(b, chunks=None):
        return dimension_times(item, net, model, Schedule(chunks, BALANCED), np.array(b) * GB)

    assert times([1, 1]) == pytest.approx([3, 3])
    assert times([1, 3]) == pytest.approx([2, 4 / 3])  # the first cannot pass on more
    assert times([2, 1]) == pytest.approx([2, 2])
    assert times([1, 0.2]) == pytest.approx([4, 10])  # the second must carry its 2 GB
    assert times([1, 1], 1) == pytest.approx([4, 2])  # a single chunk takes the fixed order
    assert times([1, 1], 2) == pytest.approx([3.5, 2.5])
    assert list(times([1, 0])) == [4, np.inf]
