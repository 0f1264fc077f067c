"""``libra import`` and ``libra export`` on the command line."""

import json
import subprocess
import sys

import pytest
import yaml
from chakra_helpers import ALL_REDUCE, collective, compute, send, stream, write_design

from libra.cli import main
from libra.presets import example_folder

NODES = [compute(0, 100), collective(1, ALL_REDUCE, 1 << 20, [0])]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.et").write_bytes(stream(NODES))
    write_design(".", "w.et")

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(w) for w in words])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


def test_import_then_export(run, tmp_path):
    status, out, err = run(
        "import", "w.et", "-o", "new/d.yaml", "--network", "RI(4)_SW(2)", "--tiers", "node,pod"
    )
    assert (status, out) == (
        0,
        "new/d.yaml: 2 tasks, 1 collectives and messages, on RI(4)_SW(2), 8 NPUs\n",
    )
    assert "Next: add constraints" in err
    data = yaml.safe_load((tmp_path / "new" / "d.yaml").read_text())
    assert data == {
        "network": {"shape": "RI(4)_SW(2)", "tiers": ["node", "pod"]},
        "workloads": [{"name": "w", "trace": "../w.et"}],
    }
    status, out, _ = run("export", "new/d.yaml", "--to", "chakra", "-o", "out", "--one", "--json")
    assert status == 0
    (row,) = json.loads(out)["exported"]
    assert row == {
        "folder": "out", "workload": "w", "npus": 1, "nodes": 2, "expected_cycles": None, "remarks": [],
    }  # fmt: skip
    assert (tmp_path / "out" / "w.et").exists()


def test_import_json_and_every_option(run, tmp_path):
    (tmp_path / "g.json").write_text('{"1": [0, 1]}')
    words = [
        "--comm-groups",
        "g.json",
        "--durations",
        "ns",
        "--peak",
        "1 TFLOP/s",
        "--memory",
        "1 TB/s",
    ]
    status, out, _ = run("import", "w.et", "-o", "x.yaml", "--network", "4d-4096", *words, "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["npus"], found["tasks"], found["compute_s"]) == (4096, 2, pytest.approx(1e-7))
    entry = yaml.safe_load((tmp_path / "x.yaml").read_text())["workloads"][0]
    assert entry["chakra"] == {
        "comm_groups": "g.json",
        "durations": "ns",
        "peak": "1 TFLOP/s",
        "memory": "1 TB/s",
    }


def test_import_an_astra_sim_network_and_text(run, tmp_path):
    (tmp_path / "network.yml").write_text(
        "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50, 50]\nlatency: [500, 250.5]\n"
    )
    (tmp_path / "t.txt").write_text("fc -1 100 ALLREDUCE 1000 100 NONE 0 100 ALLREDUCE 2000 10\n")
    status, out, err = run(
        "import",
        "t.txt",
        "-o",
        "x.yaml",
        "--network",
        "network.yml",
        "--tiers",
        "node,pod",
        "--parallel",
        "tp=4,dp=2",
    )
    assert status == 0, err
    assert "on RI(4)_SW(2), 8 NPUs" in out
    network = yaml.safe_load((tmp_path / "x.yaml").read_text())["network"]
    assert network[1] == {"topology": "switch", "size": 2, "latency": "250.5 ns", "tier": "pod"}


def test_a_simulator_s_folder_comes_back(run, tmp_path):
    """Split dimensions and all: on the network as it was written the graph is the same."""
    from libra.load import load_design

    groups = {
        "1": [0, 1, 2, 3],
        "2": [4, 5, 6, 7],
        "3": [0, 4],
        "4": [1, 5],
        "5": [2, 6],
        "6": [3, 7],
    }
    (tmp_path / "g.json").write_text(json.dumps(groups))
    for npu in range(8):
        nodes = [
            compute(0, 100),
            collective(1, ALL_REDUCE, 1 << 20, [0], pg_name=str(1 + npu // 4)),
            collective(2, ALL_REDUCE, 1 << 16, [1], pg_name=str(3 + npu % 4)),
        ]
        (tmp_path / f"m.{npu}.et").write_bytes(stream(nodes))
    extra = "    chakra: {comm_groups: g.json}\n"
    write_design(".", "m.*.et", shape="SW(8)", tiers="[pod]", extra=extra)
    assert run("export", "d.yaml", "--to", "astra-sim", "-o", "out", "-b", "50")[0] == 0
    status, _, err = run(
        "import", "out/m.*.et", "-o", "x.yaml", "--network", "out/network.yml", "--tiers", "pod,pod"
    )
    assert status == 0, err
    one, other = (load_design(name).workloads[0].graph for name in ("d.yaml", "x.yaml"))
    assert one.fixed.tolist() == other.fixed.tolist()
    assert [c.group.extents for c in one.collectives] == [(4,), (2,)]
    assert [c.group.extents for c in other.collectives] == [(4, 1), (1, 2)]
    assert [c.size for c in one.collectives] == [c.size for c in other.collectives]


SHAPE = ("--network", "RI(4)_SW(2)", "--tiers", "node,pod")
REFUSED = [
    (("import", "w.et", "-o", "x.yaml"), "--network: a trace does not say the network it runs on, got nothing. Add e.g. --network 'RI(4)_SW(8)' --tiers node,pod, a preset, or ASTRA-sim's network.yml."),
    (("import", "w.et", "-o", "d.yaml", *SHAPE), "d.yaml: is there already, got a file. Choose another name."),
    (("import", "w.et", "-o", "x.yaml", "--network", "RI(4)_SW(2)"), "--tiers: needs one for each of the 2 dimensions, got 0. Write e.g. --tiers node,pod, innermost first."),
    (("import", "w.et", "-o", "x.yaml", "--network", "QQ(4)"), "--network: unknown building block, got 'QQ'. Use one of: ring, fully-connected, switch, RI, FC, SW."),
    (("import", "w.et", "-o", "x.yaml", "--network", "4d-4096", "--tiers", "a"), "--tiers: the preset '4d-4096' has tiers, got some. Leave them out."),
    (("import", "no.et", "-o", "x.yaml", *SHAPE), "x.yaml:6: workloads[0].trace: cannot be read (No such file or directory), got 'no.et'. Check the name."),
    (("import", "d.yaml", "-o", "x.yaml", *SHAPE, "--peak", "1 TFLOP/s"), "d.yaml: --comm-groups, --durations, --peak and --memory are for Chakra traces, got a text workload. Leave them out."),
    (("import", "w.et", "-o", "x.yaml", *SHAPE, "--parallel", "tp"), "--parallel: needs ROLE=DEGREE, got 'tp'. Write e.g. tp=16,dp=256."),
    (("import", "w.et", "-o", "x.yaml", "--network", "bad.yml", "--tiers", "a"), "bad.yml: is no ASTRA-sim network with topology, npus_count and latency lists of one length, got KeyError: 'latency'. Correct it."),
    (("export", "d.yaml", "--to", "astra", "-o", "out"), "--to: unknown format, got 'astra'. Did you mean 'astra-sim'?"),
    (("export", "d.yaml", "--to", "chakra", "-o", "out", "-b", "1,2"), "--bandwidth: is for astra-sim, got it for chakra. Leave it out."),
    (("export", "d.yaml", "--to", "astra-sim", "-o", "out", "-b", "1"), "--bandwidth: needs one for each of the 2 dimensions of RI(4)_SW(2), got 1. Give 2, innermost first."),
    (("export", "d.yaml", "--to", "astra-sim", "-o", "out", "-b", "1,0"), "--bandwidth: the simulator needs some in each dimension, got 0 GB/s. Give each some."),
    (("export", "d.yaml", "--to", "astra-sim", "-o", "out", "--chunks", "0"), "--chunks: a collective has at least 1 chunk, got 0. Correct it."),
    (("export", "d.yaml", "--to", "astra-sim", "-o", "out", "--one"), "--one: is for chakra, got it for astra-sim. Leave it out."),
    (("export", "d.yaml", "--to", "chakra", "-o", "w.et/out"), "w.et/out: cannot be made (Not a directory), got 'w.et/out'. Choose another place."),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(run, tmp_path, words, message):
    (tmp_path / "bad.yml").write_text("topology: [Ring]\nnpus_count: [4]\n")
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err == message + "\n"
    assert not (tmp_path / "x.yaml").exists()


def test_a_bad_trace_ends_in_one_line(tmp_path):
    """Status 2 and no traceback, from a process of its own."""
    (tmp_path / "w.et").write_bytes(stream([send(0, 1, 5)])[:-2])
    write_design(tmp_path, "w.et")
    command = [sys.executable, "-m", "libra", "optimize", "d.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("w.et: is cut off: its last message is not whole, got ")
    assert done.stderr.count("\n") == 1


def test_several_workloads_get_folders(run, tmp_path):
    text = (tmp_path / "d.yaml").read_text()
    (tmp_path / "d.yaml").write_text(
        text.replace(
            "  - trace: 'w.et'\n", "  - {name: a, trace: w.et}\n  - {name: b, trace: w.et}\n"
        )
    )
    status, out, _ = run("export", "d.yaml", "--to", "astra-sim", "-o", "out", "-b", "50,20")
    assert status == 0
    assert out.startswith("out/a: a, 8 NPUs, 2 nodes, expected ")
    assert (tmp_path / "out" / "b" / "README.md").exists()


def test_best_bandwidths_are_exported(run, tmp_path):
    status, _, _ = run(
        "export", example_folder() / "resnet-50-3d.yaml", "--to", "astra-sim", "-o", "out"
    )
    assert status == 0
    total = sum(
        float(line.split("|")[4]) for line in (tmp_path / "out" / "README.md").read_text().splitlines()
        if line.startswith("| ") and line.split("|")[4].strip()[0].isdigit()
    )  # fmt: skip
    assert total == pytest.approx(1000, rel=1e-4)
