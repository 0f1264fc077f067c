"""Accelerators and clusters: presets against the facts, what is refused, there and back."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
import yaml

from libra.accelerator_yaml import format_yaml, plain_accelerator, plain_cluster, quantity_text
from libra.accelerators import load_accelerator, load_cluster, read_accelerator
from libra.choices import Choice
from libra.cluster import Cluster, cluster_bandwidth, cluster_network
from libra.collectives import CollectiveModel
from libra.efficiency import CollectiveKind, EfficiencyPoint
from libra.errors import FieldError, InputError
from libra.load import load_design
from libra.network import Dimension, Topology
from libra.optimize import optimize_design
from libra.presets import example_folder, list_presets, load_presets
from libra.units import FLOPS, SIZE, TIME
from libra.workload.compute import OperatorKind, Precision

FACTS = Path(__file__).parents[2] / "shared" / "reference" / "facts"
NAMES = sorted(load_presets("accelerators"))
CLUSTERS = sorted(k for k, v in load_presets("networks").items() if "dimensions" in v)

OWN = {
    "name": "own",
    "peak": {"bf16": "400 TFLOP/s"},
    "memory": "64 GB",
    "memory_bandwidth": "2 TB/s",
    "efficiency": {"matmul": {"compute": 0.7, "source": "measured"}},
}
FACT_NAMES = {
    "a100-80gb": "A100-SXM-80GB", "a100-40gb": "A100-SXM-40GB", "h100": "H100-SXM-80GB",
    "h200": "H200-SXM", "b200": "B200-SXM", "b300": "B300-SXM", "gb200": "GB200-NVL72",
    "gb300": "GB300-NVL72", "mi325x": "MI325X", "mi355x": "MI355X", "tpu-v3": "TPUv3",
    "tpu-v4": "TPUv4", "tpu-v5e": "TPUv5e", "tpu-v5p": "TPUv5p", "tpu-v6e": "TPUv6e-Trillium",
    "tpu-v7x": "TPU7x-Ironwood", "trainium1": "Trainium1", "trainium2": "Trainium2",
    "gaudi2": "Gaudi2", "gaudi3": "Gaudi3", "mi300x": "MI300X",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_presets_load_and_know_every_kind(name):
    accelerator = load_accelerator(name)
    assert accelerator.name == name
    assert set(accelerator.efficiency) == set(OperatorKind)
    assert all(e.source for e in accelerator.efficiency.values())
    numbers = {"peak", "memory", "memory_bandwidth"} | ({"tdp"} if accelerator.tdp else set())
    assert numbers <= set(accelerator.sources)
    assert set(accelerator.unconfirmed) <= numbers


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_the_facts(name):
    if not FACTS.exists():
        pytest.skip(f"no {FACTS}")
    entries = yaml.safe_load((FACTS / "hardware.yaml").read_text("utf-8"))["accelerators"]
    fact = next(e for e in entries if e["name"] == FACT_NAMES[name])
    accelerator = load_accelerator(name)
    assert accelerator.memory == fact["memory"]["GB"] * 1e9
    assert accelerator.memory_bandwidth == pytest.approx(fact["memory"]["GBps"] * 1e9)
    assert (accelerator.tdp or 0) == fact.get("tdp_W", 0)
    if name != "mi300x":
        # Its entry says that its source prints 1300 and 2610, and that the others are recalled.
        peaks = {k: v * 1e12 for k, v in fact["peak_tflops"].items()}
        assert {p.value: v for p, v in accelerator.peak.items()} == pytest.approx(peaks)
    if fact["marked"] == "recalled":
        assert {"peak", "memory", "memory_bandwidth"} <= set(accelerator.unconfirmed)
    if accelerator.cluster is not None and fact["scale_up"].get("topology") != "torus3d":
        links = fact["scale_up"]["per_direction_GBps"] * 1e9
        rings = [d.topology is Topology.RING for d in accelerator.cluster.dimensions]
        inner = sum(rings) or 1
        assert sum(accelerator.cluster.bandwidth[:inner]) == pytest.approx(links)


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_load_and_name_a_source_for_each_number(name):
    cluster = load_cluster(name)
    assert cluster.name == name
    rows = [r for r in list_presets("networks") if r["name"].startswith(f"{name} ")]
    assert len([r for r in rows if r["name"].endswith(".bandwidth")]) == len(cluster.bandwidth)
    for d, label in zip(cluster.dimensions, cluster.network.names, strict=True):
        listed = {r["name"] for r in rows}
        assert (f"{name} {label}.latency" in listed) == bool(d.latency)
        for kind in d.efficiency_by_size:
            assert f"{name} {label}.efficiency_by_size.{kind.value}" in listed


@pytest.mark.parametrize("kind", ["accelerators", "networks"])
def test_every_row_has_a_source(kind):
    rows = list_presets(kind)
    assert all(row["name"] and row["value"] and row["source"] for row in rows)
    assert len({row["name"] for row in rows}) == len(rows)


def test_unconfirmed_numbers_are_shown_as_such():
    rows = {r["name"]: r["source"] for r in list_presets("accelerators")}
    assert rows["a100-40gb memory"] == "unconfirmed: recalled"
    assert "unconfirmed" not in rows["a100-80gb memory"]
    assert rows["tpu-v4 efficiency.attention"].startswith("bound: nobody measured it")
    networks = {r["name"]: r["source"] for r in list_presets("networks")}
    assert networks["gb200-nvl72 pod.bandwidth"].startswith("unconfirmed: ")


def test_a_mapping_may_name_its_cluster():
    accelerator = load_accelerator(OWN | {"cluster": "dgx-h100"})
    assert accelerator.cluster == load_cluster("dgx-h100")
    assert accelerator.peak == {Precision.BF16: 400e12}


def test_a_mapping_may_have_an_array():
    array = {
        "rows": 128, "columns": 128, "clock": "1 GHz", "weight_buffer": "1 MiB",
        "activation_buffer": "8 MiB", "accumulator": "4 MiB", "arrays": 2,
    }  # fmt: skip
    accelerator = load_accelerator(OWN | {"peak": {"bf16": "65.536 TFLOP/s"}, "array": array})
    assert accelerator.array is not None
    assert accelerator.array.peak == 65.536e12


BAD = [
    ("h10", "accelerator: unknown accelerator, got 'h10'. Did you mean 'h100'?"),
    (
        OWN | {"cluster": "dgx-x100"},
        "accelerator.cluster: unknown cluster, got 'dgx-x100'. Did you mean 'dgx-h100'?",
    ),
    (
        OWN | {"peak": {"bf17": "3 TFLOP/s"}},
        "accelerator.peak.bf17: unknown value, got 'bf17'. Did you mean 'bf16'?",
    ),
    (
        OWN | {"peak": {"bf16": "3 TFLOPS"}},
        "accelerator.peak.bf16: unknown unit 'TFLOPS', got '3 TFLOPS'. Write TFLOP/s.",
    ),
    (
        OWN | {"memory": 64},
        "accelerator.memory: a size needs a unit, got 64. "
        "Write a size with its unit, e.g. '64 MB'.",
    ),
    (
        OWN | {"tdp": "700 J"},
        "accelerator.tdp: the unit is not that of a power but of another kind of quantity, got "
        "'700 J'. Write a power with its unit, e.g. '700 W'.",
    ),
    (
        {k: v for k, v in OWN.items() if k != "memory"},
        "accelerator.memory: is missing, got nothing. Add memory:.",
    ),
    (
        OWN | {"memroy": "64 GB"},
        "accelerator.memroy: unknown key, got 'memroy'. Did you mean 'memory'?",
    ),
    (
        OWN | {"efficiency": {"matmul": {"comput": 0.5}}},
        "accelerator.efficiency.matmul.comput: unknown key, got 'comput'. Did you mean 'compute'?",
    ),
    (
        OWN | {"efficiency": {"matmul": {"compute": 50}}},
        "accelerator.efficiency.matmul.compute: an efficiency is in (0, 1], got 50.0. Correct it.",
    ),
    (
        OWN | {"cluster": {"dimensions": [{"topology": "switch", "size": 8}], "bandwidth": []}},
        "accelerator.cluster.dimensions[0].tier: is missing, got nothing. Add tier:.",
    ),
    (
        OWN
        | {
            "cluster": {
                "dimensions": [{"topology": "switch", "size": 8, "tier": "node"}],
                "bandwidth": [],
            }
        },
        "accelerator.cluster.bandwidth: needs one bandwidth for each of the 1 dimensions, got 0. "
        "Write them innermost first.",
    ),
    (
        OWN
        | {
            "cluster": {
                "dimensions": [
                    {
                        "topology": "switch", "size": 8, "tier": "node",
                        "efficiency_by_size": {"all-reduce": [{"size": "1 MB", "fraction": 1.2}]},
                    }
                ],
                "bandwidth": ["1 GB/s"],
            }
        },
        "accelerator.cluster.dimensions[0].efficiency_by_size.all-reduce[0].fraction: an "
        "efficiency is in (0, 1], got 1.2. Correct it.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "message"), BAD)
def test_refuses(source, message):
    with pytest.raises(InputError) as error:
        load_accelerator(source)
    assert str(error.value) == message


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError) as error:
        load_accelerator({"name": "x", "peak": {"bf16": 3}, "memory": "1 s"})
    assert len(error.value.problems) == 4


def test_a_file_is_blamed_by_its_line(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("name: own\npeak: {bf16: 1 TFLOP/s}\nmemory: 64\nmemory_bandwidth: 1 TB/s\n")
    with pytest.raises(InputError) as error:
        read_accelerator(path)
    assert [p.line for p in error.value.problems] == [1, 3]
    path.write_text("- a list\n")
    with pytest.raises(InputError, match=re.escape("must be a mapping, got ['a list']")):
        read_accelerator(path)


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name, tmp_path):
    accelerator = load_accelerator(name)
    path = tmp_path / "accelerator.yaml"
    path.write_text(format_yaml(plain_accelerator(accelerator)), encoding="utf-8")
    assert read_accelerator(path) == accelerator


def test_all_keys_of_a_dimension_go_there_and_back():
    dimension = Dimension(
        Topology.SWITCH,
        8,
        "node",
        latency=1e-6,
        efficiency=0.5,
        min_bandwidth=1e9,
        max_bandwidth=4e9,
        bandwidth_choices=(Choice(2e9, 100.0, 5.0, "cable"), Choice(4e9, 200.0, 9.0)),
        efficiency_by_size={CollectiveKind.ALL_TO_ALL: (EfficiencyPoint(1e6, 0.5, 2),)},
    )
    laned = dataclasses.replace(
        dimension, name="b", bandwidth_choices=None, lane=1e9, max_lanes=4, radix=64
    )
    model = CollectiveModel(
        algorithm="balanced",
        chunks=4,
        endpoint_delay=1e-7,
        efficiency={CollectiveKind.ALL_REDUCE: (EfficiencyPoint(1e6, 0.5),)},
    )
    cluster = Cluster((dimension, laned), (2e9, 3e9), model, "own", "mine", {"a": "b"}, ("a",))
    assert load_cluster(yaml.safe_load(format_yaml(plain_cluster(cluster)))) == cluster


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.75e-6, TIME, "1.75 us"),
        (989e12, FLOPS, "989 TFLOP/s"),
        (80e9, SIZE, "80 GB"),
        (2.0**26, SIZE, "64 MiB"),
        (65536.0, SIZE, "64 KiB"),
        (12345.0, SIZE, "12345 B"),
    ],
)
def test_quantities_are_short(value, kind, text):
    assert quantity_text(value, kind) == text


def switch(size, tier="node"):
    return Dimension(Topology.SWITCH, size, tier)


@pytest.mark.parametrize(
    ("npus", "sizes", "shape", "bandwidth"),
    [
        (2, None, "SW(2)", [450e9]),
        (8, None, "SW(8)", [450e9]),
        (64, None, "SW(8)_SW(8)", [450e9, 50e9]),
        (4096, None, "SW(8)_SW(512)", [450e9, 50e9]),
        (8, (2, 4), "SW(2)_SW(4)", [450e9, 50e9]),
        (4, (1, 4), "SW(4)", [50e9]),
    ],
)
def test_parts_of_a_cluster(npus, sizes, shape, bandwidth):
    cluster = load_cluster("dgx-h100")
    assert cluster_network(cluster, npus, sizes).shape == shape
    assert cluster_bandwidth(cluster, npus, sizes).tolist() == bandwidth


@pytest.mark.parametrize(
    ("name", "npus", "sizes", "message"),
    [
        (
            "dgx-h100", 12, None,
            "does not fill the 8 members of dimension 1 of SW(8)_SW(128), got 12. "
            "Give sizes, one a dimension.",
        ),
        (
            "dgx-h100", 16, (4, 8),
            "must multiply to 16 NPUs over 2 dimensions, got (4, 8). Correct them.",
        ),
        (
            "dgx-h100", 32, (16, 2),
            "dimension 1 of dgx-h100 has 8 members, got 16. Use fewer.",
        ),
        ("dgx-h100", 1, None, "a network has at least 2 NPUs, got 1. Use more."),
        (
            "tpu-v4", 64, None,
            "a part of a torus (RI(16)_RI(16)_RI(16)) has many shapes, got 64 NPUs. "
            "Give sizes, one a dimension.",
        ),
        (
            "tpu-v6e", 512, (16, 32),
            "dimension 2 of tpu-v6e has 16 members, got 32. Use fewer.",
        ),
    ],
)  # fmt: skip
def test_refuses_parts_that_are_none(name, npus, sizes, message):
    with pytest.raises(FieldError) as error:
        cluster_network(load_cluster(name), npus, sizes)
    assert error.value.message == message


def test_a_torus_is_cut_as_told():
    assert cluster_network(load_cluster("tpu-v5p"), 512, (8, 8, 8)).shape == "RI(8)_RI(8)_RI(8)"
    assert cluster_network(load_cluster("tpu-v5e"), 512).shape == "RI(16)_RI(16)_SW(2)"


def test_refuses_clusters_that_are_none():
    with pytest.raises(FieldError, match=r"must be finite and positive, got 0\.0"):
        Cluster((switch(8),), (0.0,))
    with pytest.raises(FieldError, match="needs at least one dimension"):
        Cluster((), ())
    with pytest.raises(FieldError, match="needs one bandwidth for each of the 1 dimensions"):
        dataclasses.replace(Cluster((switch(8),), (1e9,)), bandwidth=(1e9, 1e9))


def test_a_design_may_name_a_cluster(tmp_path):
    """Its dimensions with their latencies and efficiencies; its bandwidths stay open."""
    shutil.copy(example_folder() / "workloads" / "resnet-50.txt", tmp_path / "w.txt")
    path = tmp_path / "design.yaml"
    path.write_text(
        "network: dgx-h100\nworkloads:\n  - {trace: w.txt, parallel: {dp: 1024}}\n"
        "constraints: [node <= 450 GB/s, pod <= 50 GB/s]\n"
    )
    design = load_design(path)
    assert design.network == load_cluster("dgx-h100").network
    assert optimize_design(design).bandwidth == pytest.approx([450e9, 50e9])
