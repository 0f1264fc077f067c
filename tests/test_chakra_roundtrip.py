"""ET → libra → ET gives the same graph; workloads of libra keep their time."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from chakra_helpers import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COMPUTE,
    REDUCE_SCATTER,
    collective,
    compute,
    node,
    receive,
    send,
    write_design,
    write_traces,
)
from helpers import network
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from libra.collectives import CollectiveModel
from libra.errors import InputError
from libra.export import export_chakra
from libra.load import load_design
from libra.optimize import optimize_design
from libra.presets import example_folder
from libra.timing import build_timing, critical_path

REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "chakra"
NET = network("RI(4)_SW(2)", tiers=["node", "pod"])
GROUPS = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7], "3": [0, 4], "4": [1, 5], "5": [2, 6], "6": [3, 7]}
GROUPS |= {"7": [0, 1], "8": [2, 3], "9": [4, 5], "10": [6, 7]}


def same_graph(one, other):
    for name in (
        "fixed",
        "count_start",
        "count_index",
        "count_value",
        "predecessor_start",
        "predecessor",
    ):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert one.collectives == other.collectives
    assert (one.places is None) == (other.places is None)
    assert one.places is None or one.places.tolist() == other.places.tolist()
    assert one.labels == other.labels


def again(design, folder, *, one=False):
    """The design's workload exported, and imported from what was written."""
    target = Path(folder) / "again"
    shutil.rmtree(target, ignore_errors=True)
    (workload,) = design.workloads
    export_chakra(workload, design.network, target, one=one)
    entry = {"name": workload.name, "trace": f"{workload.name}{'' if one else '.*'}.et"}
    if (target / "comm_groups.json").exists():
        entry["chakra"] = {"comm_groups": "comm_groups.json"}
    data = {
        k: design.settings[k] for k in ("network", "constraints", "prices") if k in design.settings
    }
    (target / "d.yaml").write_text(yaml.safe_dump(data | {"workloads": [entry]}))
    return load_design(target / "d.yaml")


@st.composite
def spmd(draw):
    """Any graph, the same on all NPUs, its groups under their own names."""
    count = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from("ccmab"), min_size=count, max_size=count))
    rank = draw(st.permutations(range(count)))
    waits = [
        [j for j in range(count) if rank[j] < rank[i] and draw(st.booleans())] for i in range(count)
    ]
    ids = draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count, unique=True))
    names = draw(st.lists(st.sampled_from([1, 3, 7, 0]), min_size=count, max_size=count))
    values = draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count))
    group_of = {
        1: lambda r: 1 + r // 4,
        3: lambda r: 3 + r % 4,
        7: lambda r: 7 + r // 2,
        0: lambda r: 0,
    }

    def trace(npu):
        nodes = []
        for k in range(count):
            after = [ids[j] for j in waits[k]]
            name = str(group_of[names[k]](npu))
            match kinds[k]:
                case "c":
                    nodes.append(compute(ids[k], values[k], after))
                case "m":
                    nodes.append(
                        node(
                            ids[k],
                            COMPUTE,
                            after=after,
                            us=values[k],
                            is_cpu_op=False,
                            libra_seconds=values[k] / 7e6,
                        )
                    )
                case "a":
                    nodes.append(
                        collective(
                            ids[k],
                            (ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER)[k % 3],
                            values[k],
                            after,
                            pg_name=name,
                        )
                    )
                case "b":
                    nodes.append(collective(ids[k], ALL_GATHER, values[k], after, pg_name=name))
        return nodes

    return {npu: trace(npu) for npu in range(8)}


@st.composite
def stages(draw):
    """Two halves of the network that exchange messages, with collectives of each and of both."""
    steps = draw(
        st.lists(st.sampled_from(["down", "up", "all", "own", "work"]), min_size=1, max_size=8)
    )
    times = draw(st.lists(st.integers(1, 1000), min_size=2 * len(steps), max_size=2 * len(steps)))

    def trace(npu):
        first, nodes, last = npu < 4, [], []
        for k, step in enumerate(steps):
            number = 10 * k
            if step == "work" or (step == "own" and first):
                nodes.append(compute(number, times[2 * k + (not first)], last))
            elif step == "own":
                nodes.append(collective(number, ALL_REDUCE, 1000 * (k + 1), last, pg_name="2"))
            elif step == "all":
                nodes.append(collective(number, ALL_REDUCE, 500 * (k + 1), last))
            elif (step == "down") == first:
                nodes.append(send(number, (npu + 4) % 8, 10_000 + k, last, tag=k))
            else:
                nodes.append(receive(number, (npu + 4) % 8, 10_000 + k, last, tag=k))
            last = [number]
        return nodes

    return {npu: trace(npu) for npu in range(8)}


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example writes many files
)
@given(st.one_of(spmd(), stages()))
def test_generated_graphs_come_back_the_same(tmp_path, traces):
    for old in tmp_path.glob("*.et"):
        old.unlink()
    name = write_traces(tmp_path, [traces[k] for k in range(8)])
    (tmp_path / "g.json").write_text(json.dumps(GROUPS))
    design = load_design(write_design(tmp_path, name, extra="    chakra: {comm_groups: g.json}\n"))
    back = again(design, tmp_path)
    same_graph(design.workloads[0].graph, back.workloads[0].graph)
    places = [d.workloads[0].npu_places for d in (design, back)]
    assert (places[0] is None) == (places[1] is None)
    assert places[0] is None or places[0].tolist() == places[1].tolist()


def times(design, seed=0, model=None):
    rng = np.random.default_rng(seed)
    timing = build_timing(design.workloads[0].graph, design.network, model or design.collectives)
    return [
        critical_path(timing, rng.uniform(5e9, 200e9, len(design.network.sizes))).time
        for _ in range(5)
    ]


@pytest.mark.parametrize("name", ["gpt-3-3d", "resnet-50-3d", "dlrm-3d"])
def test_examples_keep_their_time(tmp_path, name):
    """Chains; sizes become whole bytes and times whole nothing."""
    design = load_design(example_folder() / f"{name}.yaml")
    graph = design.workloads[0].graph
    assert graph.is_chain
    back = again(design, tmp_path, one=True)
    assert times(back) == pytest.approx(times(design), rel=1e-9)


PIPELINE = """\
network: {shape: RI(4)_FC(2)_SW(4), tiers: [package, node, pod]}
workloads:
  - name: p
    trace: t.txt
    parallel: {tp: 4, pp: 4, dp: 2}
    training_loop: %s
    pipeline: {micro_batches: 8, activation: 3 MB, virtual_stages: %d}
constraints: [total <= 300 GB/s]
"""


@pytest.mark.parametrize(("loop", "virtual"), [("1f1b", 1), ("interleaved", 2)])
def test_pipelines_keep_their_time(tmp_path, loop, virtual):
    """All stages, messages between all NPUs; the queues of a trace never make it faster."""
    line = "l%d -1 100000 ALLREDUCE 4000000 150000 ALLREDUCE 4000000 120000 ALLREDUCE 9000000 500\n"
    (tmp_path / "t.txt").write_text("".join(line % k for k in range(8)))
    (tmp_path / "d.yaml").write_text(PIPELINE % (loop, virtual))
    design = load_design(tmp_path / "d.yaml")
    back = again(design, tmp_path)
    stage = back.workloads[0].npu_places
    assert np.bincount(stage).tolist() == [8, 8, 8, 8]
    original, returned = times(design), times(back)
    assert all(b >= a * (1 - 1e-9) for a, b in zip(original, returned, strict=True))
    # Messages wait for collectives of their NPU there, which the interleaved schedule overlaps.
    assert max(b / a for a, b in zip(original, returned, strict=True)) < (1.05, 1.5)[virtual - 1]
    same_graph(back.workloads[0].graph, again(back, tmp_path / "second").workloads[0].graph)


def test_chunks_of_a_workload_stay_whole(tmp_path):
    """A broken count cannot be said in a trace."""
    design = load_design(example_folder() / "gpt-3-3d.yaml")
    graph = design.workloads[0].graph
    half = dataclasses.replace(graph, count_value=graph.count_value * 0.5)
    workload = dataclasses.replace(design.workloads[0], graph=half)
    with pytest.raises(
        InputError, match=r"^gpt-3: a trace runs a collective a whole number of times"
    ):
        export_chakra(workload, design.network, tmp_path)


# --- every file of the reference ---------------------------------------------------------------

outside = pytest.mark.skipif(not REFERENCE.exists(), reason=f"needs {REFERENCE}")
ROOFLINE = {"peak": "300 TFLOP/s", "memory": "2 TB/s"}
SETS = [
    ("all_gather/8npus_1MB/all_gather.*.et", "RI(4)_SW(2)", {}, 1),
    ("all_reduce/8npus_1MB/all_reduce.*.et", "RI(8)", {}, 1),
    ("custom_ring_allreduce_8npus_1MB/custom_allreduce.*.et", "RI(8)", {}, 35),
    ("custom_ring_allreduce_8npus_1MB/custom_allreduce.*.et", "RI(4)_SW(2)", {}, 140),
    ("generated_dp2_tp2/w.*.et", "RI(2)_SW(2)", ROOFLINE, 364),
    ("generated_dp4_tp2_pp2/w.*.et", "RI(4)_FC(2)_SW(2)", ROOFLINE, 704),
    ("generated_dp4_tp2_pp2/w.*.et", "FC(16)", ROOFLINE, 704),
]  # fmt: skip


@outside
@pytest.mark.parametrize(("trace", "shape", "options", "tasks"), SETS)
def test_every_trace_of_the_reference_comes_back(tmp_path, trace, shape, options, tasks):
    groups = (REFERENCE / trace).parent / "w.json"
    options = options | ({"comm_groups": str(groups)} if groups.exists() else {})
    tiers = ["package", "node", "pod"][: shape.count("(")]
    entry = {"name": "w", "trace": str(REFERENCE / trace)} | (
        {"chakra": options} if options else {}
    )
    data = {
        "network": {"shape": shape, "tiers": tiers},
        "workloads": [entry],
        "constraints": ["total <= 300 GB/s"],
    }
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(data))
    design = load_design(tmp_path / "d.yaml")
    assert design.workloads[0].graph.tasks == tasks
    assert optimize_design(design).gap <= 1e-6
    same_graph(design.workloads[0].graph, again(design, tmp_path).workloads[0].graph)


@outside
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pytorch_trace_0.0.4.json", "is a recorded host trace, which has no communicator sizes"),
        ("small_chakra.0.json", "a communication needs comm_size, the bytes it sends, got nothing"),
    ],
)
def test_recorded_traces_ask_for_sizes(tmp_path, name, reason):
    with pytest.raises(InputError, match=reason) as caught:
        load_design(write_design(tmp_path, REFERENCE / name, shape="RI(8)", tiers="[node]"))
    assert len(str(caught.value).splitlines()) == 1


@outside
def test_no_file_of_the_reference_is_left_out():
    named = {trace.split("/")[0] for trace, *_ in SETS}
    files = {p.relative_to(REFERENCE).parts[0] for p in REFERENCE.rglob("*") if p.is_file()}
    assert files - named == {"pytorch_trace_0.0.4.json", "small_chakra.0.json"}


def test_model_has_default_queue():
    assert CollectiveModel().contention.value == "queue"
