"""Step graphs of Chakra traces: groups, queues, messages and collectives across NPUs."""

import itertools
import json
import random

import numpy as np
import pytest
from chakra_helpers import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    COLLECTIVE,
    COMPUTE,
    REDUCE_SCATTER,
    collective,
    compute,
    node,
    receive,
    send,
    stream,
    write_design,
    write_traces,
)
from helpers import network
from hypothesis import given
from hypothesis import strategies as st

from libra.collectives import CollectiveKind
from libra.errors import InputError
from libra.evaluate import evaluate_design
from libra.formats.chakra_groups import group_of_members, pair_of
from libra.formats.chakra_npus import group_lists
from libra.jit import compiled
from libra.load import load_design
from libra.optimize import optimize_design
from libra.placement import Group
from libra.workload.graph import predecessor_rows
from libra.workload.list_schedule import (
    _lowest_first,
    followers_of,
    list_schedule,
    lowest_first,
)

GB = 1e9
NET = network("RI(4)_SW(2)")


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def build(nodes, groups=None, options="", **parts):
        if isinstance(nodes, dict):
            name = write_traces(".", [nodes[k] for k in sorted(nodes)])
        else:
            name = "w.et"
            (tmp_path / name).write_bytes(stream(nodes))
        words = [options] if options else []
        if groups is not None:
            (tmp_path / "g.json").write_text(json.dumps(groups))
            words.append("comm_groups: g.json")
        extra = f"    chakra: {{{', '.join(words)}}}\n" if words else ""
        return load_design(write_design(".", name, extra=extra, **parts))

    return build


def refusal(load, *arguments, **parts):
    with pytest.raises(InputError) as caught:
        load(*arguments, **parts)
    (line,) = str(caught.value).splitlines()
    return line


def step(design, *bandwidth):
    return evaluate_design(design, [b * GB for b in bandwidth]).step_time


# --- groups ------------------------------------------------------------------------------------


@given(st.data())
def test_regular_parts_are_found(data):
    """A sub-grid of any extents and strides, anywhere, is found from its members alone."""
    sizes = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    net = network("_".join(f"SW({n})" for n in sizes))
    lines, extents, strides = [], [], []
    for n in sizes:
        stride = data.draw(st.integers(1, n - 1))
        extent = data.draw(st.integers(1, (n - 1) // stride + 1))
        first = data.draw(st.integers(0, n - 1 - (extent - 1) * stride))
        lines.append([first + k * stride for k in range(extent)])
        extents.append(extent)
        strides.append(stride if extent > 1 else 1)
    units = np.cumprod([1, *sizes[:-1]])
    members = [int(np.dot(at, units)) for at in itertools.product(*lines)]
    random.Random(1).shuffle(members)
    found = group_of_members(members, net)
    assert (found.extents, found.strides) == (tuple(extents), tuple(strides))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([0, 1, 3], "along a they are not equally spaced, got [0, 1, 3]"),
        ([0, 1, 4], "they span 2 x 2 positions but are 3"),
        ([0, 5], "they span 2 x 2 positions but are 2"),
        ([0, 8], "the network has NPUs 0 to 7, got 8"),
    ],
)
def test_irregular_parts_are_named(members, why):
    assert group_of_members(members, NET) == why


def test_an_irregular_group_is_refused_by_name(load):
    nodes = [collective(1, ALL_REDUCE, 100, pg_name="9")]
    assert refusal(load, nodes, {"9": [0, 1, 3]}) == (
        "w.et: process group '9' [0, 1, 3] is no regular part of RI(4)_SW(2): along node they are "
        "not equally spaced, got [0, 1, 3]. Correct the comm groups or the network's shape."
    )


def test_pairs():
    assert pair_of(0, 3, NET) == Group("pair", (2, 1), (1, 1))  # around the ring
    assert pair_of(0, 6, NET) == Group("pair", (2, 2), (2, 1))


@given(st.sampled_from([((2, 1), (2, 1)), ((2, 2), (1, 1)), ((4, 1), (1, 1)), ((1, 2), (1, 1))]))
def test_group_lists_tile_the_network(shape):
    group = Group("g", *shape)
    numbers = group_lists(group, NET)
    for number in np.unique(numbers):
        found = group_of_members(np.flatnonzero(numbers == number), NET)
        assert (found.extents, found.strides) == shape
    assert len(np.unique(numbers)) * group.size == NET.npus


# --- sizes, kinds and times --------------------------------------------------------------------


def test_sizes_and_kinds(load):
    kinds = (ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, 8, 1)
    design = load([collective(k, kind, 1000) for k, kind in enumerate(kinds)])
    found = {c.kind: c.size for c in design.workloads[0].graph.collectives}
    assert found == {
        CollectiveKind.ALL_REDUCE: 1000,
        CollectiveKind.ALL_GATHER: 8000,  # the shard of 8 NPUs
        CollectiveKind.BROADCAST: 1000,
        CollectiveKind.ALL_TO_ALL: 1000,
        CollectiveKind.REDUCE_SCATTER: 1000,
    }
    assert design.workloads[0].graph.total_counts.tolist() == [1, 1, 2, 1, 2]


def test_what_sends_nothing_is_said(load):
    nodes = [
        compute(0, 5),
        collective(1, ALL_REDUCE, 0),
        collective(2, ALL_REDUCE, 10, pg_name="1"),
        node(3, COLLECTIVE, comm_type=BARRIER),
    ]
    design = load(nodes, {"1": [3]})
    assert design.workloads[0].graph.collectives == ()
    assert list(design.warnings[:2]) == [
        "w: 1 of its collectives send nothing, the first in node 1 'n1': comm_size is 0.",
        "w: 1 of its collectives send nothing, the first in node 2 'n2': the group alone has one "
        "NPU.",
    ]
    assert "communicates nothing" in design.warnings[2]


def test_durations_are_microseconds_unless_said(load):
    nodes = [compute(0, 120), collective(1, 0, 8)]
    assert load(nodes).workloads[0].graph.total_fixed == pytest.approx(120e-6)
    nanoseconds = load(nodes, options="durations: ns")
    assert nanoseconds.workloads[0].graph.total_fixed == pytest.approx(120e-9)


def test_durations_that_look_like_nanoseconds_are_asked_about(load):
    design = load([compute(0, 700_000_000), collective(1, 0, 8)])
    assert design.warnings == (
        "w: its computations take 700.0 s a step. If a converter wrote nanoseconds where the "
        "schema has microseconds, say chakra: {durations: ns}.",
    )


def test_the_exact_time_goes_before_microseconds(load):
    design = load([compute(0, 12, libra_seconds=12.345e-6, num_ops=5), collective(1, 0, 8)])
    assert design.workloads[0].graph.total_fixed == 12.345e-6


def test_roofline(load):
    """Bound by operations, by bytes; a load moves bytes only."""
    nodes = [
        compute(0, 0, num_ops=10**9, tensor_size=10),
        compute(1, 0, num_ops=10, tensor_size=10**6),
        node(2, 2, tensor_size=2 * 10**6),
        compute(3, 7, num_ops=10**9),
        collective(4, 0, 8),
    ]
    graph = load(nodes, options="peak: 1 TFLOP/s, memory: 1 GB/s").workloads[0].graph
    assert graph.fixed == pytest.approx([1e-3, 1e-3, 2e-3, 7e-6, 0])


# --- queues ------------------------------------------------------------------------------------


def test_one_computation_and_one_communication_at_a_time(load):
    """Two computations, then two all-gathers that nothing but the queue orders."""
    nodes = [
        compute(0, 10),
        compute(1, 20),
        collective(2, ALL_GATHER, 1_000_000, [0], involved_dim=[True, False]),
        collective(3, ALL_GATHER, 1_000_000, [0], involved_dim=[False, True]),
    ]
    design = load(nodes)
    ring, switch = 3e6 / 50e9, 1e6 / 20e9  # 3/4 of 4 MB, 1/2 of 2 MB
    assert step(design, 50, 20) == pytest.approx(10e-6 + ring + switch, rel=1e-9)


def test_the_host_has_a_queue_of_its_own(load):
    nodes = [
        compute(0, 10, is_cpu_op=True),
        compute(1, 30),
        node(2, COLLECTIVE, us=10, is_cpu_op=True),  # the launch of a collective
        collective(3, ALL_REDUCE, 8, [1]),
    ]
    assert step(load(nodes), 1e6, 1e6) == pytest.approx(30e-6, rel=1e-3)
    nodes[1].data_deps.append(2)
    assert step(load(nodes), 1e6, 1e6) == pytest.approx(50e-6, rel=1e-3)


def test_the_lowest_id_goes_first(load):
    """Both are ready; what follows the lower one decides the step."""
    nodes = [compute(5, 10), compute(4, 20), collective(6, ALL_REDUCE, 8, [4]), compute(7, 30, [6])]
    assert step(load(nodes), 1e6, 1e6) == pytest.approx(60e-6, rel=1e-3)
    assert load(nodes).workloads[0].graph.labels == ("n4", "n5", "n6", "n7")


@given(st.integers(0, 10_000))
def test_orders_of_one_npu_agree(seed):
    """Without communication, running the queue is always taking the lowest that is possible."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    rank = rng.permutation(count)
    waits = [np.flatnonzero((rank < rank[i]) & (rng.random(count) < 0.2)) for i in range(count)]
    start = np.cumsum([0, *map(len, waits)])
    flat = np.concatenate([*waits, np.zeros(0, np.int64)]).astype(np.int64)
    run = list_schedule(rng.uniform(1, 2, count), [0] * count, start, flat)
    assert run.order.tolist() == lowest_first(start, flat).tolist()
    assert (run.start[run.order][1:] == run.end[run.order][:-1]).all()


def test_queue_of_a_schedule_by_hand():
    """Two NPUs; the collective of both begins when the second is free."""
    start, waits = np.array([0, 0, 0, 1, 2, 3]), np.array([0, 1, 2])
    run = list_schedule([3, 5, 4, 4, 1], [0, 2, 1, 3, 0], start, waits, [-1, -1, 0, 0, -1])
    assert run.start.tolist() == [0, 0, 5, 5, 9]
    assert run.end.tolist() == [3, 5, 9, 9, 10]


# --- several NPUs ------------------------------------------------------------------------------


def alike(nodes):
    return dict.fromkeys(range(8), nodes)


def test_npus_that_are_alike_are_one(load):
    nodes = [compute(0, 10), collective(1, ALL_REDUCE, 8_000_000, [0])]
    many, one = load(alike(nodes)), load(nodes)
    assert many.workloads[0].graph.tasks == 2
    assert many.workloads[0].npu_places is None
    assert step(many, 50, 20) == step(one, 50, 20)


def test_groups_of_other_names_are_alike(load):
    groups = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
    traces = {k: [collective(0, ALL_REDUCE, 800, pg_name=str(1 + k // 4))] for k in range(8)}
    assert load(traces, groups).workloads[0].graph.tasks == 1


def ring_step(npu, size=1_000_000):
    """Each sends to the next and waits for the one before."""
    return [
        compute(0, 10),
        send(1, (npu + 1) % 8, size, [0]),
        receive(2, (npu - 1) % 8, size),
        compute(3, 10, [2]),
    ]


def test_messages_wait_for_their_sender(load):
    design = load({k: ring_step(k) for k in range(8)}, shape="RI(8)", tiers="[node]")
    assert design.workloads[0].graph.tasks == 4
    assert step(design, 50) == pytest.approx(20e-6 + 1e6 / 25e9, rel=1e-9)  # one of two links


def test_npus_that_are_not_alike(load):
    """On two dimensions every fourth message crosses the switch, too."""
    design = load({k: ring_step(k) for k in range(8)})
    assert design.workloads[0].npu_places.tolist() == [0, 1, 2, 3] * 2
    slow = 10e-6 + max(1e6 / 25e9, 1e6 / 5e9) + 10e-6
    assert step(design, 50, 5) == pytest.approx(slow, rel=1e-9)
    assert optimize_design(design).gap <= 1e-6


def pipeline(npu, batches=3):
    """Two stages of four NPUs: the first computes and sends, the second receives and computes."""
    nodes = []
    for k in range(batches):
        if npu < 4:
            nodes += [compute(3 * k, 10), send(3 * k + 1, npu + 4, 2_000_000, [3 * k], tag=k)]
        else:
            nodes += [
                receive(3 * k, npu - 4, 2_000_000, tag=k),
                compute(3 * k + 1, 30, [3 * k]),
            ]
    return [*nodes, collective(99, ALL_REDUCE, 4_000_000, [nodes[-1].id], involved_dim=[1, 0])]


def test_stages(load):
    traces = {k: pipeline(k) for k in range(8)}
    for nodes in traces.values():
        for a in nodes[-1].attr:
            if a.name == "involved_dim":
                a.bool_list.ClearField("values")
                a.bool_list.values.extend([True, False])
    design = load(traces)
    assert design.workloads[0].npu_places.tolist() == [0] * 4 + [1] * 4
    first = 10e-6 + 2e6 / 100e9
    expected = first + 3 * 30e-6 + 4e6 * 1.5 / 100e9
    assert step(design, 100, 100) == pytest.approx(expected, rel=1e-9)


def test_a_collective_waits_for_all_its_members(load):
    """NPUs 0 to 3 compute longer; the all-reduce of all eight begins after the slowest."""
    traces = {
        k: [compute(0, 50 if k < 4 else 10), collective(1, ALL_REDUCE, 8_000_000, [0])]
        for k in range(8)
    }
    for k in range(4, 8):
        traces[k] += [compute(2, 7, [1])]
    design = load(traces)
    alone = step(load([collective(1, ALL_REDUCE, 8_000_000)]), 50, 20)
    assert step(design, 50, 20) == pytest.approx(50e-6 + alone + 7e-6, rel=1e-9)
    assert optimize_design(design).gap <= 1e-6


def test_files_of_npus(load, tmp_path):
    traces = alike([compute(0, 10), collective(1, 0, 8)])
    load(traces)
    where = "d.yaml:5: workloads[0].trace: "
    (tmp_path / "w.5.et").unlink()
    missing = "the trace of NPU 5 is missing, got 7 files 'w.*.et' for 8 NPUs. Add it, or correct the network's shape."
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value) == where + missing
    (tmp_path / "w.5.et").write_bytes(stream(traces[0]))
    (tmp_path / "w.8.et").write_bytes(stream(traces[0]))
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value) == (
        where + "there are traces of more NPUs than the network has, got NPU 8 of 8. Correct the "
        "network's shape, or remove them."
    )
    assert refusal(load, traces, shape="RI(4)_SW(4)").startswith(where + "the trace of NPU 9 is")


def changed(npu, nodes, base=None):
    """The ring with the trace of one NPU changed."""
    base = base or {k: ring_step(k) for k in range(8)}
    return base | {npu: nodes}


GATHER = [collective(0, ALL_REDUCE, 80), collective(1, ALL_GATHER, 80)]
MISMATCHES = [
    (changed(3, ring_step(3)[:1] + ring_step(3)[2:]), "w.4.et: node 2 'n2': unmatched receive from NPU 3 to NPU 4 with tag 0, NPU 3 sends 0 such, got 1. Add its partner, or correct the tag."),
    (changed(3, [*ring_step(3)[:2], compute(2, 5), compute(3, 5)]), "w.2.et: node 1 'n1': unmatched send from NPU 2 to NPU 3 with tag 0, NPU 3 receives 0 such, got 1. Add its partner, or correct the tag."),
    (changed(3, ring_step(3, 5)), "w.2.et: node 1 'n1' and node 2 'n2' of NPU 3 are one message of different sizes, got 1000000 and 5 bytes. Correct one."),
    (changed(3, [send(0, 99, 10)]), "w.3.et: node 0 'n0': comm_dst is an NPU from 0 to 7, got 99. Correct it."),
    (changed(3, [node(0, 5, comm_size=5)]), "w.3.et: node 0 'n0': comm_dst is an NPU from 0 to 7, got nothing. Correct it."),
    (changed(3, [send(0, 4, 10, comm_src=2)]), "w.3.et: node 0 'n0': comm_src is another NPU than the file's, 3, got 2. Correct it, or the order of the files."),
    (changed(3, GATHER[::-1][:1], alike(GATHER)), "w.0.et: collective 1 of a group is not the same on all its NPUs, got node 0 'n0' on NPU 0 and node 1 'n1' on NPU 3. Correct one."),
    (changed(3, GATHER[:1], alike(GATHER)), "w.0.et: collective 2 of a group is not the same on all its NPUs, got node 1 'n1' on NPU 0 and nothing on NPU 3. Correct one."),
    (changed(3, [compute(0, 5)], alike(GATHER)), "w.0.et: node 0 'n0': not all NPUs of its group run it, got 7 of 8. Give all NPUs' traces."),
]  # fmt: skip


@pytest.mark.parametrize(("traces", "message"), MISMATCHES, ids=range(len(MISMATCHES)))
def test_npus_that_do_not_fit_each_other(load, traces, message):
    assert refusal(load, traces) == message


def test_a_deadlock_across_npus_is_a_cycle(load):
    """Each waits for the other's message before it sends its own."""
    traces = {k: [receive(0, k ^ 1, 8, tag=1), send(1, k ^ 1, 8, [0], tag=1)] for k in range(8)}
    assert "nodes wait for each other, so that none can start, got node" in refusal(load, traces)


def test_members_of_a_group(load):
    traces = alike([collective(0, ALL_REDUCE, 80, pg_name="1")])
    assert refusal(load, traces, {"1": [0, 1, 2, 3]}) == (
        "w.4.et: node 0 'n0': NPU 4 is no member of its process group, got [0, 1, 2, 3]. Correct "
        "the comm groups or the file names."
    )


OPTIONS = [
    ("peak: 3", "d.yaml:6: workloads[0].chakra.peak: a rate of operations needs a unit, got 3. Write a rate of operations with its unit, e.g. '989 TFLOP/s'."),
    ("peak: 0 TFLOP/s, memory: 1 TB/s", "d.yaml:6: workloads[0].chakra.peak: a rate is positive, got 0. Correct it."),
    ("peak: 3 TFLOP/s", "d.yaml:6: workloads[0].chakra.memory: peak and memory make the roofline together, got only the other. Add memory: 2 TB/s or the like."),
    ("durations: ms", "d.yaml:6: workloads[0].chakra.durations: unknown value, got 'ms'. Use one of: us, ns."),
    ("groups: g.json", "d.yaml:6: workloads[0].chakra.groups: unknown key, got 'groups'. Did you mean 'comm_groups'?"),
    ("comm_groups: no.json", "d.yaml:6: workloads[0].chakra.comm_groups: cannot be read (No such file or directory), got 'no.json'. Check the name."),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options(load, options, message):
    assert refusal(load, [compute(0, 1)], options=options) == message


def test_what_a_trace_says_itself(load, tmp_path):
    nodes = [compute(0, 1), collective(1, 0, 8)]
    load(nodes)
    text = (tmp_path / "d.yaml").read_text()
    text = text.replace("'w.et'\n", "'w.et'\n    parallel: {tp: 8}\n")
    (tmp_path / "d.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value) == (
        "d.yaml:6: workloads[0].parallel: a Chakra trace has its own groups and order, got parallel "
        "as well. Remove it."
    )


GROUP_FILES = [
    ("[1]", "g.json: is a mapping of groups to NPUs, got [1]. Write {\"1\": [0, 1]}."),
    ('{"1": [0, 0]}', "g.json: process group '1' is a list of NPUs, each once, got [0, 0]. Correct it."),
    ('{"1": ["a"]}', "g.json: process group '1' is a list of NPUs, each once, got ['a']. Correct it."),
    ("{", "g.json: is no JSON, got 'Expecting property name enclosed in double quotes'. Mend it."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), GROUP_FILES)
def test_comm_groups_that_are_refused(load, tmp_path, text, message):
    nodes = [collective(0, 0, 8, pg_name="1")]
    load(nodes, {"1": [0, 1]})
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value).startswith(message)


def test_all_kinds_of_a_design_go_on(load):
    """Checked, optimised, simulated, and as a table."""
    from libra.check import summarize_design
    from libra.evaluate import simulate_result

    design = load({k: [*ring_step(k), collective(9, ALL_REDUCE, 80_000, [3])] for k in range(8)})
    summary = summarize_design(design)
    assert {c["kind"] for c in summary["workloads"][0]["collectives"]} == {
        "all-reduce",
        "point-to-point",
    }
    result = simulate_result(optimize_design(design))
    assert result.simulations[0].time == pytest.approx(result.step_time, rel=0.05)
    assert COMPUTE == 4


def test_the_compiled_order_is_the_plain_one():
    """Ids in any order, a cycle, and nodes that nobody waits for."""
    rng = np.random.default_rng(5)
    for count in (1, 7, 400):
        rank = rng.permutation(count)
        pairs = rng.integers(0, count, (2, 3 * count))
        later = np.where(rank[pairs[0]] > rank[pairs[1]], pairs[0], pairs[1])
        earlier = pairs.sum(axis=0) - later
        kept = later != earlier
        if count == 7:
            later, earlier, kept = earlier, later, np.ones_like(kept)
        start, waits = predecessor_rows(later[kept], earlier[kept], count)
        follower_start, followers = followers_of(start, waits)
        plain = _lowest_first(np.diff(start), follower_start, followers)
        fast = compiled(_lowest_first)(np.diff(start), follower_start, followers)
        assert plain.tolist() == fast.tolist()
        assert (len(plain) == count) == (count != 7)


def test_compute_speed_counts_for_traces(load, tmp_path):
    nodes = [compute(0, 120), collective(1, ALL_REDUCE, 8)]
    load(nodes)
    text = (tmp_path / "d.yaml").read_text()
    (tmp_path / "d.yaml").write_text(text.replace("'w.et'\n", "'w.et'\n    compute_speed: 2\n"))
    assert load_design("d.yaml").workloads[0].graph.total_fixed == pytest.approx(60e-6)
