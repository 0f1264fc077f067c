"""Design files that are right: what is read from them."""

from pathlib import Path

import numpy as np
import pytest
from test_bad_input import DESIGN, PARTS, TRACE

from libra.collectives import Compatibility
from libra.design import Objective
from libra.load import load_design
from libra.network import Topology
from libra.yaml_source import Override


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def loader(*overrides, trace=TRACE, **parts):
        Path("t.txt").write_text(trace)
        Path("d.yaml").write_text("".join((PARTS | parts).values()))
        return load_design("d.yaml", [Override(*o.split("=", 1)) for o in overrides])

    return loader


def test_the_short_form(load):
    design = load()
    assert [(d.topology, d.size, d.tier) for d in design.network.dimensions] == [
        (Topology.RING, 4, "node"),
        (Topology.SWITCH, 8, "pod"),
    ]
    (workload,) = design.workloads
    assert (workload.name, workload.weight, workload.source) == ("w", 1.0, "t.txt")
    assert {k: g.extents for k, g in workload.groups.items()} == {"tp": (4, 1), "dp": (1, 8)}
    assert [row.text for row in design.constraints] == ["total <= 100 GB/s"]
    assert (design.objective, design.baseline, design.file) == (Objective.TIME, None, "d.yaml")
    assert (design.constraints[0].file, design.constraints[0].line) == ("d.yaml", 10)
    assert design.warnings == ()


def test_short_and_long_form_agree(load):
    long_form = load(
        network="network:\n  - {topology: RI, size: 4, tier: node}\n"
        "  - topology: switch\n    size: 8\n    tier: pod\n",
        workloads="workloads:\n  - {name: w, trace: t.txt, groups: {tp: [4, 1], dp: [1, 8]}}\n",
    )
    short = load()
    assert long_form.network == short.network
    assert long_form.workloads[0].groups == short.workloads[0].groups


def test_everything_that_can_be_set(load):
    design = load(
        network="network:\n"
        "  - {topology: ring, size: 4, tier: in, name: inner, min_bandwidth: 1 GiB/s}\n"
        "  - {topology: switch, size: 8, tier: out, max_bandwidth: 400 Gbit/s, in_network: true}\n",
        prices="prices:\n  npu: 25 kUSD\n  in: {link: 4 USD/(GB/s)}\n"
        "  out: {link: 1 USD/(GB/s), switch: 2 USD/(GB/s), nic: 0 USD/(GB/s)}\n",
        objective="objective: time-cost\n",
        extra="collectives: {compat: libra}\ntraining_loop: no-overlap\n"
        "baseline: [10 GB/s, 20 GB/s]\n",
    )
    inner, outer = design.network.dimensions
    assert design.network.names == ("inner", "out")
    assert (inner.min_bandwidth, outer.max_bandwidth, outer.in_network) == (2**30, 5e10, True)
    assert design.bandwidth_prices == pytest.approx([32 * 4e-9, 32 * 3e-9])
    assert design.fixed_cost == 32 * 25_000
    assert design.baseline == (10e9, 20e9)
    assert design.collectives.compat is Compatibility.LIBRA
    assert [row.text for row in design.rows] == [
        "total <= 100 GB/s",
        "inner >= 1.07374 GB/s",
        "out <= 50 GB/s",
    ]


def test_presets_of_networks_and_names_of_files(load):
    design = load(
        network="network: 4d-4096\n",
        workloads="workloads:\n  - {trace: t.txt, weight: 3}\n",
        constraints="",
    )
    assert design.network.shape == "RI(4)_FC(8)_RI(4)_SW(32)"
    assert (design.workloads[0].name, design.workloads[0].weight) == ("t", 3.0)


def test_the_trace_is_found_next_to_the_design(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.txt").write_text(TRACE)
    (tmp_path / "in" / "d.yaml").write_text(DESIGN)
    monkeypatch.chdir(tmp_path)
    assert load_design("in/d.yaml").workloads[0].source == "t.txt"


def test_several_workloads(load):
    design = load(
        workloads="workloads:\n  - {name: a, trace: t.txt}\n  - {name: b, trace: t.txt, weight: 2}\n"
    )
    assert [(w.name, w.weight) for w in design.workloads] == [("a", 1.0), ("b", 2.0)]


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("objective=time", lambda d: d.objective is Objective.TIME),
        ("workloads.w.weight=2", lambda d: d.workloads[0].weight == 2),
        ("workloads.0.name=x", lambda d: d.workloads[0].name == "x"),
        ("workloads[0].name=x", lambda d: d.workloads[0].name == "x"),
        ("network.shape=RI(4)_FC(8)", lambda d: d.network.shape == "RI(4)_FC(8)"),
        ("collectives.compat=libra", lambda d: d.collectives.compat is Compatibility.LIBRA),
        ("constraints.total=50 GB/s", lambda d: d.constraints[0].bound == 50e9),
        ("constraints=[pod >= 1 GB/s]", lambda d: d.constraints[0].text == "pod >= 1 GB/s"),
        ("constraints=[]", lambda d: d.constraints == ()),
        ("baseline=[1 GB/s, 2 GB/s]", lambda d: d.baseline == (1e9, 2e9)),
        ("baseline=equal", lambda d: d.baseline is None),
    ],
)
def test_overrides(load, override, value):
    design = load(override)
    assert value(design)
    assert np.isfinite(design.bandwidth_prices).all()


def test_settings_hold_the_overridden_file(load):
    assert load("constraints.total=50 GB/s").settings["constraints"] == ["total <= 50 GB/s"]
