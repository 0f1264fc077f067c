"""Step graphs and their timing against path enumeration; laws of the step time."""

import dataclasses
import itertools

import numpy as np
import pytest
from helpers import (
    GB,
    NO_QUEUES,
    chain,
    collective,
    design,
    graph,
    network,
    random_design,
    random_graph,
    random_network,
    slow_time,
)
from hypothesis import given
from hypothesis import strategies as st

from libra.collectives import Algorithm, CollectiveModel
from libra.errors import FieldError
from libra.evaluate import evaluate_design
from libra.jit import compiled, faster
from libra.network import Network
from libra.timing import _walk, build_timing, critical_path
from libra.workload.graph import StepGraph, chain_graph

seeds = st.integers(0, 2**32 - 1)
AR = collective("all-reduce", 1e9, (4, 8))
AG = collective("all-gather", 3e8, (4, 1))


def valid(**changes):
    """Fields of a valid graph of three tasks, some of them changed."""
    ints = {
        "count_start": [0, 1, 1, 2],
        "count_index": [0, 1],
        "predecessor_start": [0, 0, 1, 3],
        "predecessor": [0, 0, 1],
    }
    fields = {"fixed": np.ones(3), "collectives": (AR, AG), "count_value": np.ones(2)}
    fields |= {name: np.array(values) for name, values in ints.items()}
    return fields | {name: np.asarray(values) for name, values in changes.items()}


def test_a_valid_graph():
    found = StepGraph(**valid())
    assert (found.tasks, found.is_chain, found.total_fixed) == (3, False, 3.0)
    assert found.total_counts.tolist() == [1, 1]
    assert found.count_task.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("fixed", []),
        ("fixed", [1.0, -1e-9, 1.0]),
        ("fixed", [1.0, np.nan, 1.0]),
        ("fixed", [1.0, np.inf, 1.0]),
        ("count_value", [1.0, -1.0]),
        ("count_value", [1.0, np.inf]),
        ("count_value", [1.0]),
        ("count_index", [0, 2]),
        ("count_index", [0, -1]),
        ("count_start", [0, 1, 2]),
        ("count_start", [0, 1, 1, 1]),
        ("count_start", [1, 1, 1, 2]),
        ("count_start", [0, 2, 1, 2]),
        ("predecessor_start", [0, 0, 1]),
        ("predecessor_start", [0, 2, 1, 3]),
        ("predecessor", [0, 0, 2]),  # waits for itself
        ("predecessor", [1, 0, 1]),  # a cycle of two
        ("predecessor", [0, 0, 3]),  # unknown
        ("predecessor", [0, -1, 1]),
    ],
)
def test_refuses_graphs(field, values):
    with pytest.raises(FieldError) as caught:
        StepGraph(**valid(**{field: values}))
    assert caught.value.field_name == field


def test_chains_are_known():
    assert chain_graph([1.0, 2.0, 3.0], [None, AR, AR]).is_chain
    assert chain_graph([1.0], [None]).is_chain
    assert graph([1, 1, 1], [], [{}] * 3, [[], [0], [1]]).is_chain
    for before in ([[], [0], [0]], [[], [], [1]], [[], [0], [0, 1]], [[], [], []], [[], [0], []]):
        assert not graph([1, 1, 1], [], [{}] * 3, before).is_chain


def test_a_chain_counts_its_distinct_collectives():
    found = chain_graph([1.0] * 4, [AR, None, AG, AR])
    assert found.collectives == (AR, AG)
    assert found.total_counts.tolist() == [2, 1]


def timing_of(net, found):
    return build_timing(found, net, NO_QUEUES)


def test_closed_form_of_overlap():
    """A fork: 2 s of compute beside an all-reduce; then an all-gather; then 1 s."""
    net = network("RI(4)_SW(8)")
    found = graph([0.5, 2, 0, 1], [AR, AG], [{}, {}, {0: 1}, {1: 2}], [[], [0], [0], [1, 2]])
    bandwidth = np.array([3e9, 1e8])
    ar = max(1.5e9 / 3e9, 7 / 16 * 1e9 / 1e8)
    ag = 3 / 4 * 3e8 / 3e9
    path = critical_path(timing_of(net, found), bandwidth)
    assert path.time == pytest.approx(0.5 + max(2, ar) + 2 * ag + 1, rel=1e-14)
    assert (path.fixed, path.counts.tolist()) == (1.5, [1, 2])
    wide = critical_path(timing_of(net, found), bandwidth * 10)
    assert (wide.fixed, wide.counts.tolist()) == (3.5, [0, 2])


def all_paths(found):
    """Every path from a task without predecessors to one without successors."""
    start, before = found.predecessor_start, found.predecessor
    paths = [[[i]] for i in range(found.tasks)]
    for i in range(found.tasks):
        earlier = before[start[i] : start[i + 1]]
        if len(earlier):
            paths[i] = [[*p, i] for q in earlier for p in paths[q]]
    return list(itertools.chain(*paths))


def random_case(seed, tasks=9):
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(1, 4)))
    found = random_graph(rng, net, int(rng.integers(1, tasks)), int(rng.integers(1, 4)))
    bandwidth = 10 ** rng.uniform(8, 11, len(net.sizes))
    return rng, net, found, timing_of(net, found), bandwidth


@given(seeds)
def test_longest_path_is_the_longest_of_all_paths(seed):
    _, net, found, timing, bandwidth = random_case(seed)
    tau = timing.terms.times(bandwidth)
    duration = found.fixed.copy()
    np.add.at(duration, found.count_task, found.count_value * tau[found.count_index])
    longest = max(sum(duration[i] for i in path) for path in all_paths(found))
    path = critical_path(timing, bandwidth)
    assert path.time == pytest.approx(longest, rel=1e-12)
    assert path.time == pytest.approx(path.fixed + path.counts @ tau, rel=1e-12)
    assert path.time == pytest.approx(slow_time(design(net, found), found, bandwidth), rel=1e-12)


@given(seeds)
def test_every_path_is_a_cut_for_all_bandwidths(seed):
    rng, _, _, timing, bandwidth = random_case(seed)
    path = critical_path(timing, bandwidth)
    for _ in range(10):
        other = bandwidth * 10 ** rng.normal(size=len(bandwidth))
        cut = path.fixed + path.counts @ timing.terms.times(other)
        assert critical_path(timing, other).time >= cut * (1 - 1e-12)


@given(seeds)
def test_step_time_is_convex_and_falls_with_bandwidth(seed):
    rng, _, _, timing, one = random_case(seed, tasks=30)
    other = one * 10 ** rng.normal(size=len(one))
    first, last = critical_path(timing, one).time, critical_path(timing, other).time
    for share in (0.1, 0.5, 0.9):
        between = critical_path(timing, (1 - share) * one + share * other).time
        assert between <= ((1 - share) * first + share * last) * (1 + 1e-12)
    for d in range(len(one)):
        more = one.copy()
        more[d] *= 3
        assert critical_path(timing, more).time <= first * (1 + 1e-12)


@given(seeds, st.floats(0.01, 100))
def test_pure_communication_scales_inversely(seed, factor):
    rng, net, found, _, bandwidth = random_case(seed)
    counts = dict.fromkeys(range(len(found.collectives)), 1.0)
    silent = graph(
        [0.0, 0.0], found.collectives, [counts, counts], [[], [0] * int(rng.integers(2))]
    )
    timing = timing_of(net, silent)
    once, again = (critical_path(timing, b).time for b in (bandwidth, bandwidth * factor))
    assert again == pytest.approx(once / factor, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_compiled_pass_equals_the_plain_one(seed):
    rng = np.random.default_rng(seed)
    tasks = 3000
    earlier = [
        np.unique(rng.integers(max(0, i - 20), i, int(rng.integers(0, 4)))) if i else []
        for i in range(tasks)
    ]
    start = np.cumsum([0, *map(len, earlier)])
    before = np.concatenate(earlier).astype(np.int64)
    fixed = rng.integers(0, 5, tasks).astype(float)  # many ties
    index = rng.integers(0, 3, tasks)
    counts, tau = rng.integers(1, 3, tasks).astype(float), np.array([1.0, 2.0, 0.5])
    arguments = (fixed, np.arange(tasks + 1), index, counts, start, before, tau)
    plain, machine = (
        _walk(*arguments, np.empty(tasks)),
        compiled(_walk)(*arguments, np.empty(tasks)),
    )
    assert plain[0] == machine[0]
    assert (plain[1] == machine[1]).all()
    end = np.zeros(tasks)
    for i, row in enumerate(earlier):
        end[i] = fixed[i] + counts[i] * tau[index[i]] + max((end[p] for p in row), default=0.0)
    assert plain[0] + plain[1] @ tau == end.max()


def test_the_compiler_is_called_once_it_repays_itself(monkeypatch):
    """A small graph never pays for it."""
    called = []
    monkeypatch.setattr("libra.jit.compiled", lambda f: called.append(f) or f)

    def loop():
        """Stand for an inner loop that has done nothing yet."""

    assert faster(loop, 1000) is loop
    assert not called
    faster(loop, 10**6)
    assert called == [loop]


def test_a_used_dimension_without_bandwidth_never_ends():
    net = network("RI(4)_SW(8)_SW(2)")
    used = collective("all-reduce", 1e9, (4, 8, 1))
    for found in (chain(used), graph([0, 0], [used], [{0: 1}, {0: 1}], [[], []])):
        timing = timing_of(net, found)
        assert critical_path(timing, np.array([1e9, 0, 1e9])).time == np.inf
        assert np.isfinite(critical_path(timing, np.array([1e9, 1e9, 0])).time)


@given(seeds)
def test_evaluated_results_add_up(seed):
    rng = np.random.default_rng(seed)
    d, bandwidth = random_design(rng, 3, is_chain=False, workloads=2)
    result = evaluate_design(d, bandwidth)
    times = [slow_time(d, w.graph, bandwidth) for w in d.workloads]
    weighted = sum(w.weight * t for w, t in zip(d.workloads, times, strict=True))
    assert result.step_time == pytest.approx(weighted, rel=1e-12)
    assert result.network_cost == pytest.approx(float(d.bandwidth_prices @ bandwidth), rel=1e-14)
    for w, time in zip(result.workloads, times, strict=True):
        assert w.step_time == pytest.approx(time, rel=1e-12)
        assert w.compute + w.exposed_communication == pytest.approx(time, rel=1e-12)
        assert sum(c.time for c in w.collectives) == pytest.approx(
            w.exposed_communication, rel=1e-9, abs=1e-12 * time
        )


def test_busy_times_count_all_collectives_and_limits_name_the_slowest():
    net = network("RI(4)_SW(8)")
    d = design(net, chain(AR, AG, AR, compute=1.0))
    (w,) = evaluate_design(d, [1 * GB, 1 * GB]).workloads
    assert w.busy == pytest.approx([2 * 1.5 + 0.75 * 0.3, 2 * 7 / 16], rel=1e-12)
    assert [(c.count, c.limited_by) for c in w.collectives] == [(2, ("a",)), (1, ("a",))]
    (w,) = evaluate_design(d, [24 * GB, 7 * GB]).workloads
    assert w.collectives[0].limited_by == ("a", "b")


@pytest.mark.parametrize("algorithm", list(Algorithm))
@given(seed=seeds)
def test_a_step_uses_no_dimension_for_longer_than_it_lasts(algorithm, seed):
    rng = np.random.default_rng(seed)
    d, inside = random_design(rng, 3)
    dimensions = [dataclasses.replace(x, in_network=False) for x in d.network.dimensions]
    model = CollectiveModel(algorithm=algorithm, chunks=[None, 1, 4][seed % 3])
    d = dataclasses.replace(d, network=Network(tuple(dimensions)), collectives=model)
    for w in evaluate_design(d, inside * np.exp(rng.normal(size=3))).workloads:
        assert max(w.busy) <= w.exposed_communication * (1 + 1e-12)


def test_a_collective_runs_more_than_zero_times():
    item = collective("all-reduce", 1e9, (4, 8))
    with pytest.raises(FieldError, match="must be finite and positive, got 0"):
        graph([1, 1], [item], [{0: 0.0}, {}], [[], []])
