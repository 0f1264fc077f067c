"""What is written for ASTRA-sim, against its configurations and results; and for the command line."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from chakra_helpers import collective, compute, stream, write_design
from helpers import network

from libra.collectives import AllToAll, Collective, CollectiveKind, CollectiveModel
from libra.design import Workload
from libra.errors import InputError
from libra.export import ExportFormat, export_astra_sim, export_design, export_text
from libra.formats.astra_sim import parse_text_workload
from libra.formats.astra_sim_config import network_configuration, simulator_network
from libra.formats.astra_sim_cycles import expected_cycles
from libra.formats.chakra import Column, read_trace
from libra.formats.chakra_lower import lower_graph
from libra.load import load_design
from libra.placement import whole_group
from libra.presets import example_folder
from libra.timing import build_timing, critical_path
from libra.workload.graph import chain_graph

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
outside = pytest.mark.skipif(
    not (REFERENCE / "astra_sim" / "collectives.csv").exists(), reason=f"needs {REFERENCE}"
)
SHORT = {"Ring": "RI", "FC": "FC", "FullyConnected": "FC", "Switch": "SW"}
KINDS = {
    "AllReduce": "all-reduce",
    "ReduceScatter": "reduce-scatter",
    "AllGather": "all-gather",
    "AllToAll": "all-to-all",
}
LONG = {
    "Ring": "Ring",
    "FC": "FullyConnected",
    "FullyConnected": "FullyConnected",
    "Switch": "Switch",
}

# Rows of ../shared/reference/astra_sim/collectives.csv (own runs of github astra-sim/astra-sim).
COLUMNS = [
    "topology",
    "collective",
    "size_bytes",
    "comm_size_arg",
    "bw_npu_GBps",
    "bw_cfg",
    "latency_ns",
    "chunks",
    "impl",
    "impl_a2a",
    "sim_ns",
]
FOUR = "Ring(4)_FC(8)_Ring(4)_Switch(32)"
ROWS = [
    ("Ring(4)_FC(8)", "ReduceScatter", "67108864", "67108864", "150;150", "139.6983862;19.95691231", "500", "16", "ring;direct", "direct1;direct1", "366202"),
    ("Ring(4)_FC(8)", "AllReduce", "1073741824", "1073741824", "387.0967742;112.9032258", "360.5119644;15.02133185", "500", "64", "ring;direct", "direct1;direct1", "4353152"),
    (FOUR, "AllReduce", "67108864", "67108864", "75;75;75;75", "69.8491931;9.978456157;69.8491931;69.8491931", "500", "4", "ring;direct;ring;halvingDoubling", "direct1;direct1;direct1;direct1", "1354208"),
    (FOUR, "AllGather", "1073741824", "262144", "75;75;75;75", "69.8491931;9.978456157;69.8491931;69.8491931", "0", "1", "ring;direct;ring;halvingDoubling", "direct1;direct1;direct1;direct1", "14313075"),
    ("Switch(32)", "AllToAll", "1073741824", "1073741824", "500", "465.6612873", "500", "4", "halvingDoubling", "direct1", "2204476"),
]  # fmt: skip


def rows_of(name):
    with (REFERENCE / "astra_sim" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def net_of(row):
    blocks = re.findall(r"([A-Za-z]+)\((\d+)\)", row["topology"])
    shape = "_".join(f"{SHORT[word]}({size})" for word, size in blocks)
    latency = [float(row["latency_ns"]) * 1e-9] * len(blocks)
    return network(shape, latency=latency)


def exported(row):
    """Simulator's network and the collective of a row."""
    net = net_of(row)
    exchange = row["collective"] == "AllToAll"
    model = CollectiveModel(
        chunks=int(row["chunks"]),
        endpoint_delay=1e-9,
        all_to_all=AllToAll.PAIRWISE if exchange else None,
    )
    bandwidth = np.array([float(b) * 1e9 for b in row["bw_npu_GBps"].split(";")])
    every = whole_group(net, "all", range(len(net.sizes)))
    item = Collective(CollectiveKind(KINDS[row["collective"]]), float(row["size_bytes"]), every)
    return net, simulator_network(net, [item], model, bandwidth, int(row["chunks"])), item


def check_row(row):
    """Topology, sizes, bandwidths, latencies, algorithms, bytes; return the expected cycles."""
    net, seen, item = exported(row)
    data = yaml.safe_load(network_configuration(seen))
    blocks = re.findall(r"([A-Za-z]+)\((\d+)\)", row["topology"])
    assert data["topology"] == [LONG[word] for word, _ in blocks]
    assert data["npus_count"] == list(net.sizes)
    assert data["bandwidth"] == pytest.approx(
        [float(b) for b in row["bw_cfg"].split(";")], rel=1e-8
    )
    assert data["latency"] == [float(row["latency_ns"])] * len(blocks)
    if item.kind is CollectiveKind.ALL_TO_ALL:
        assert [d.all_to_all for d in seen.dimensions] == row["impl_a2a"].split(";")
    else:
        assert [d.algorithm for d in seen.dimensions] == row["impl"].split(";")
    (nodes,) = lower_graph(chain_graph([0.0], [item]))
    return expected_cycles([nodes], seen)


@pytest.mark.parametrize("values", ROWS)
def test_typed_configurations(values):
    row = dict(zip(COLUMNS, values, strict=True))
    assert abs(check_row(row) - int(row["sim_ns"])) <= 1


@outside
def test_configurations_of_all_collectives():
    """Each field of each row, and the cycles of all but the balanced ones."""
    rows = rows_of("collectives")
    assert len(rows) > 2000
    skipped = missed = 0
    for row in rows:
        if row["impl_a2a"] in ("ring", "direct") and row["collective"] == "AllToAll":
            skipped += 1  # single-dimension studies of other algorithms
            continue
        cycles = check_row(row)
        if row["model"] == "fixed-order":
            missed += abs(cycles - int(row["sim_ns"])) > 1 + 1e-9 * cycles
    assert skipped <= 24
    assert missed == 0


# --- whole folders -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


NODES = [
    compute(0, 120),
    collective(1, 0, 1 << 20, [0], involved_dim=[True, False]),
    compute(2, 80, [1], libra_seconds=80.1234e-6),
    collective(3, 2, 1 << 16, [2], involved_dim=[False, True]),
    compute(4, 30, [2]),
]


def made(folder, nodes=NODES, **parts):
    (folder / "w.et").write_bytes(stream(nodes))
    return load_design(write_design(folder, "w.et", **parts))


def test_a_folder_for_the_simulator(folder):
    design = made(folder)
    (done,) = export_design(
        design, ExportFormat.ASTRA_SIM, folder / "out", np.array([80e9, 20e9]), chunks=4
    )
    names = sorted(p.name for p in (folder / "out").iterdir())
    assert names == [
        "README.md",
        "memory.json",
        "network.yml",
        "system.json",
        *(f"w.{k}.et" for k in range(8)),
    ]
    text = (folder / "out" / "README.md").read_text()
    assert f"**T = {done.cycles}**" in text
    assert "--workload-configuration=w " in text
    system = json.loads((folder / "out" / "system.json").read_text())
    assert system["preferred-dataset-splits"] == 4
    assert system["collective-optimization"] == "localBWAware"
    assert system["active-chunks-per-dimension"] == 1
    assert system["endpoint-delay"] == 1
    assert json.loads((folder / "out" / "memory.json").read_text()) == {
        "memory-type": "NO_MEMORY_EXPANSION"
    }
    trace = read_trace(folder / "out" / "w.7.et")
    assert trace.types.tolist() == [4, 7, 4, 7, 4]
    assert trace.column(Column.COMM_SIZE)[[1, 3]].tolist() == [1 << 20, 1 << 16]
    assert trace.column(Column.DIMS)[[1, 3]].tolist() == [1, 2]
    assert trace.column(Column.NUM_OPS)[0] == 120_000 * 1000 + 500
    # By hand: the last computation hides the all-gather.
    ring = (1 << 20) * 1.5 / 80
    assert done.cycles == pytest.approx(120_000 + ring + 80_123 + 30_000, rel=2e-4)


def test_files_that_are_the_same_are_written_once(folder):
    design = made(folder)
    export_design(design, ExportFormat.ASTRA_SIM, folder / "out", np.array([80e9, 20e9]))
    assert len({(folder / "out" / f"w.{k}.et").stat().st_ino for k in range(8)}) == 1
    before = (folder / "out" / "w.0.et").read_bytes()
    export_design(design, ExportFormat.ASTRA_SIM, folder / "out", np.array([80e9, 20e9]))
    assert (folder / "out" / "w.7.et").read_bytes() == before


def test_dimensions_that_groups_share_are_split(folder):
    """A block of 8: links of groups of 4 neighbours and of 2 that are 4 apart; a ring is halved."""
    item = collective
    groups = {"1": [0, 1, 2, 3], "2": [0, 4]}
    (folder / "g.json").write_text(json.dumps(groups))
    nodes = [item(0, 0, 8000, pg_name="1"), item(1, 0, 8000, pg_name="2")]
    extra = "    chakra: {comm_groups: g.json}\n"
    for shape, expected in (("FC(8)", [10, 10]), ("RI(8)", [35, 17.5]), ("SW(8)", [70, 70])):
        design = made(folder, nodes, shape=shape, tiers="[node]", extra=extra)
        out = folder / shape
        export_design(design, ExportFormat.ASTRA_SIM, out, np.array([70e9]))
        data = yaml.safe_load((out / "network.yml").read_text())
        assert data["npus_count"] == [4, 2]
        assert np.array(data["bandwidth"]) * 2**30 / 1e9 == pytest.approx(expected, rel=1e-8)
        trace = read_trace(out / "w.0.et")
        assert trace.column(Column.DIMS).tolist() == [1, 2]
        assert "has the bandwidth that its groups reach" in (out / "README.md").read_text()


def test_groups_that_no_split_says(folder):
    (folder / "g.json").write_text(json.dumps({"1": [0, 1], "2": [0, 1, 2]}))
    nodes = [collective(0, 0, 8000, pg_name="1"), collective(1, 0, 8000, pg_name="2")]
    extra = "    chakra: {comm_groups: g.json}\n"
    design = made(folder, nodes, shape="RI(6)", tiers="[node]", extra=extra)
    with pytest.raises(InputError) as caught:
        export_design(design, ExportFormat.ASTRA_SIM, folder / "out", np.array([70e9]))
    assert str(caught.value) == (
        "w: the groups share node of 6 members in a way that the simulator's dimensions cannot say, "
        "got 2 members 1 apart, 3 members 1 apart. Export with comm groups: --comm-groups."
    )
    (done,) = export_design(
        design, ExportFormat.ASTRA_SIM, folder / "out", np.array([70e9]), comm_groups=True
    )
    assert done.cycles is None
    groups = json.loads((folder / "out" / "comm_groups.json").read_text())
    assert groups == {"1": [0, 1], "2": [2, 3], "3": [4, 5], "4": [0, 1, 2], "5": [3, 4, 5]}
    trace = read_trace(folder / "out" / "w.4.et")
    assert [trace.groups[k] for k in trace.group] == ["3", "5"]
    readme = (folder / "out" / "README.md").read_text()
    assert "--comm-group-configuration=comm_groups.json" in readme
    assert "libra does not know the cycles to expect" in readme


def test_cycles_are_those_of_the_model(folder):
    """4,096 NPUs: the rules of the simulator and libra's convex model agree."""
    design = load_design(example_folder() / "resnet-50-3d.yaml")
    bandwidth = np.array([100e9, 100e9, 100e9])
    (done,) = export_design(design, ExportFormat.ASTRA_SIM, folder / "out", bandwidth)
    (workload,) = design.workloads
    timing = build_timing(workload.graph, design.network, design.collectives)
    modelled = critical_path(timing, bandwidth).time
    assert done.cycles == pytest.approx(modelled * 1e9, rel=0.03)
    assert done.npus == 4096
    assert (folder / "out" / f"{workload.name}.4095.et").exists()


@outside
def test_configurations_of_all_steps():
    """Bandwidths of training.csv: a whole ring in the place of a block, or its links."""
    rows = rows_of("training")
    seen_rows = 0
    for row in rows:
        net = net_of(row)
        every = whole_group(net, "all", range(len(net.sizes)))
        item = Collective(CollectiveKind.ALL_REDUCE, 1e9, every)
        given = np.array([float(b) * 1e9 for b in row["bw_npu_GBps"].split(";")])
        ring = row["fc_algorithm"] == "ring"
        model = CollectiveModel(compat="libra" if ring else None)
        seen = simulator_network(net, [item], model, given, int(row["chunks"]))
        data = yaml.safe_load(network_configuration(seen))
        blocks = re.findall(r"([A-Za-z]+)\((\d+)\)", row["topology"])
        links = [int(n) - 1 if w == "FullyConnected" and not ring else 1 for w, n in blocks]
        assert data["topology"] == [LONG[word] for word, _ in blocks]
        assert data["bandwidth"] == pytest.approx(given / links / 2**30, rel=1e-8)
        assert math.prod(data["npus_count"]) == int(row["npus"])
        seen_rows += 1
    assert seen_rows == len(rows) > 300


# --- ASTRA-sim 1.0 text ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["gpt-3-4d", "msft-1t-4d", "turing-nlg-3d", "resnet-50-4d", "dlrm-4d"]
)
def test_text_comes_back_the_same(folder, name):
    design = load_design(example_folder() / f"{name}.yaml")
    (done,) = export_design(design, ExportFormat.ASTRA_SIM_1, folder)
    path = folder / f"{done.workload}.txt"
    written = parse_text_workload(path.read_text())
    source = Path(design.file).parent / design.workloads[0].source
    original = parse_text_workload(source.read_text())
    assert written.layers == original.layers
    assert written.policy
    text = Path(design.file).read_text()
    text = re.sub(r"trace: \S+", f"trace: {path}", text)
    text = re.sub(r"\n    (parallel|groups):.*", "", text)
    (folder / "again.yaml").write_text(text)
    back = load_design(folder / "again.yaml")
    one, other = design.workloads[0].graph, back.workloads[0].graph
    assert one.fixed.tolist() == other.fixed.tolist()
    assert [(c.kind, c.size, c.group.extents) for c in one.collectives] == [
        (c.kind, c.size, c.group.extents) for c in other.collectives
    ]


@outside
@pytest.mark.parametrize("name", ["GPT_3", "MSFT_1T", "Turing_NLG", "ResNet_50", "DLRM"])
def test_text_of_the_reference(folder, name):
    """Times and bytes of every layer as the simulator was given them."""
    source = REFERENCE / "libra" / "workload" / f"{name}.txt"
    degrees = {"GPT_3": (16, 256), "MSFT_1T": (128, 32)}.get(name, (1, 4096))
    text = (
        "network: {shape: RI(4)_FC(8)_RI(4)_SW(32), tiers: [chiplet, package, node, pod]}\n"
        f"workloads:\n  - {{trace: '{source}', parallel: {{tp: {degrees[0]}, dp: {degrees[1]}}}}}\n"
    )
    (folder / "d.yaml").write_text(text)
    design = load_design(folder / "d.yaml")
    export_text(design.workloads[0], design, folder)
    rows = [line.split() for line in (folder / f"{name}.txt").read_text().splitlines()[2:]]
    expected = [line.split() for line in source.read_text().splitlines() if len(line.split()) >= 12]
    assert [[r[0], *r[2:12]] for r in rows] == [[r[0], *r[2:12]] for r in expected]


def test_text_of_a_chain(folder):
    """A trace's chain: each computation a layer, in the sum the same time."""
    nodes = [
        compute(0, 10),
        collective(1, 0, 8000, [0], involved_dim=[True, False]),
        compute(2, 20, [1]),
        collective(3, 2, 500, [2], involved_dim=[False, True]),
    ]
    design = made(folder, nodes)
    export_design(design, ExportFormat.ASTRA_SIM_1, folder / "out")
    assert (folder / "out" / "w.txt").read_text() == (
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n4\n"
        "n0 -1 10000 NONE 0 0 NONE 0 0 NONE 0 0\n"
        "n1 -1 0 ALLREDUCE 8000 0 NONE 0 0 NONE 0 0\n"
        "n2 -1 20000 NONE 0 0 NONE 0 0 NONE 0 0\n"
        "n3 -1 0 NONE 0 0 NONE 0 0 ALLGATHER 500 0\n"
    )
    (folder / "t.yaml").write_text((folder / "d.yaml").read_text().replace("'w.et'", "out/w.txt"))
    back = load_design(folder / "t.yaml")
    bandwidth = np.array([30e9, 7e9])
    both = [
        critical_path(build_timing(d.workloads[0].graph, d.network, d.collectives), bandwidth).time
        for d in (design, back)
    ]
    assert both[0] == pytest.approx(both[1], rel=1e-12)


def test_text_of_what_overlaps_is_refused(folder):
    with pytest.raises(
        InputError, match=r"^w: the text has layers one after the other, got a step"
    ):
        export_design(made(folder), ExportFormat.ASTRA_SIM_1, folder / "out")


def test_places_without_npus_are_refused(folder):
    design = made(folder)
    graph = design.workloads[0].graph
    places = np.array([0, 0, 1, 1, 1])
    lost = Workload("w", type(graph)(**{**vars_of(graph), "places": places}))
    with pytest.raises(InputError, match=r"nothing says which NPUs|waits for"):
        export_astra_sim(lost, design, np.array([1e9, 1e9]), folder / "out")


def vars_of(graph):
    names = (
        "fixed",
        "collectives",
        "count_start",
        "count_index",
        "count_value",
        "predecessor_start",
        "predecessor",
    )
    return {name: getattr(graph, name) for name in names}


def test_text_of_a_pipeline_is_refused(folder):
    (folder / "t.txt").write_text("fc -1 100 ALLREDUCE 1000 100 NONE 0 100 ALLREDUCE 2000 10\n" * 4)
    (folder / "d.yaml").write_text(
        "network: {shape: RI(4)_SW(2), tiers: [node, pod]}\n"
        "workloads:\n"
        "  - trace: t.txt\n"
        "    parallel: {tp: 4, pp: 2}\n"
        "    training_loop: 1f1b\n"
        "    pipeline: {micro_batches: 4, activation: 1 MB}\n"
    )
    with pytest.raises(InputError, match=r"^t: the text has no pipeline, got pp 2\."):
        export_design(load_design("d.yaml"), ExportFormat.ASTRA_SIM_1, folder / "out")


def test_the_schema_s_module_is_that_of_its_text():
    """Names and numbers of all fields, read from chakra.proto without the protobuf compiler."""
    from libra.formats import chakra_messages

    text = (Path(chakra_messages.__file__).with_name("chakra.proto")).read_text()
    for name in chakra_messages.__all__:
        body = re.search(rf"message {name} {{(.*?)\n}}", text, re.DOTALL)[1]
        declared = {(n, int(k)) for n, k in re.findall(r"\w+ (\w+) = (\d+);", body)}
        fields = getattr(chakra_messages, name).DESCRIPTOR.fields
        assert {(f.name, f.number) for f in fields} == declared


def test_rings_of_context_parallelism_are_refused(tmp_path):
    (tmp_path / "d.yaml").write_text(
        "network: {shape: SW(8), tiers: [node]}\n"
        "workloads:\n  - model: llama-3-8b\n    accelerator: h100\n"
        "    parallel: {tp: 2, cp: 4, zero: 1}\n    batch: {global: 2, micro: 1, sequence: 8192}\n"
        "    precision: bf16\n    recomputation: full\n"
        "constraints: [total <= 500 GB/s]\n"
    )
    found = load_design(tmp_path / "d.yaml")
    with pytest.raises(InputError, match="a ring through a group is not exported, got ring"):
        export_design(found, ExportFormat.CHAKRA, tmp_path / "out")
