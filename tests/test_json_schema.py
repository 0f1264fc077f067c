"""JSON Schema of design and space files: what ships validates, what is misshapen does not."""

import copy
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from test_bad_input import PARTS, read_cases
from typer.testing import CliRunner

from libra.cli import app
from libra.json_schema import SchemaKind, design_schema, file_schema, space_schema
from libra.presets import example_folder
from libra.yaml_source import read_yaml

DESIGN, SPACE = (Draft7Validator(schema()) for schema in (design_schema, space_schema))
EXAMPLES = sorted(example_folder().glob("*.yaml"))
SPACES = sorted((example_folder() / "spaces").glob("*.yaml"))


def plain(path):
    """What a file holds, as libra reads YAML."""
    return read_yaml(Path(path)).data


@pytest.mark.parametrize("kind", SchemaKind)
def test_it_is_a_schema_whose_references_lead_somewhere(kind):
    schema = file_schema(kind)
    Draft7Validator.check_schema(schema)
    names = set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(schema)))
    assert names == set(schema["definitions"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_validates(path):
    DESIGN.validate(plain(path))


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_every_space_validates(path):
    SPACE.validate(plain(path))


LARGE = """
network:
  - topology: ring
    size: 4
    tier: node
    name: board
    latency: 20 ns
    efficiency: 0.9
    lane: 25 GB/s
    max_lanes: 18
    efficiency_by_size:
      all-reduce: [{size: 1 MB, fraction: 0.1, members: 2}]
  - {topology: SW, size: 32, tier: pod, in_network: true, radix: 64, bandwidth_choices:
     [50 GB/s, {bandwidth: 100 GB/s, price: 1200 USD, power: 17 W, part: NIC}]}
workloads:
  - {trace: w.txt, groups: {tp: [4, 1], dp: [1, 32]}, weight: 2, compute_speed: 1.5,
     training_loop: {kind: gradient-overlap, bucket: 25 MB}}
  - {trace: w.*.et, chakra: {comm_groups: g.json, durations: ns, peak: 3 TFLOP/s, memory: 2 TB/s}}
  - model: llama-3-70b
    accelerator: {name: own, peak: {bf16: 400 TFLOP/s}, memory: 64 GB, memory_bandwidth: 2 TB/s,
      efficiency: {matmul: {compute: 0.5}}, cluster: dgx-a100}
    parallel: {tp: 4, dp: 32, sequence_parallel: true, zero: 1, order: [tp, cp, pp, dp]}
    batch: {global: 1024, micro: 1, sequence: 8192}
    precision: {compute: bf16, gradients: fp32}
    overlap: {dp: false}
collectives: {algorithm: balanced, chunks: auto, endpoint_delay: 100 ns}
prices: {node: {link: 4 USD/(GB/s)}, npu: 25000 USD, direct_links: per-cable,
  pod: {link: [{up_to: 50 GB/s, price: 7.8 USD/(GB/s)}, {price: 20 USD/(GB/s)}]},
  energy: {price: 0.08 USD/kWh, years: 4 years}}
power: {node: {link: 1 W/(GB/s)}, npu: 700 W}
constraints: [total <= 1000 GB/s]
scenarios: {minimize: regret, samples: {count: 3, seed: 1, vary: {objective: [time]}},
  cases: [{name: a, weight: 2, set: {training_loop: no-overlap}}]}
objective: time-cost
baseline: [500 GB/s, 500 GB/s]
"""


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text(LARGE)
    return plain(path)


def test_short_and_long_forms_validate(large):
    DESIGN.validate(large)
    for path, value in (
        (["network"], "4d-4096"),
        (["network"], {"shape": "RI(4)_SW(32)", "tiers": ["node", "pod"], "names": ["a", "b"]}),
        (["scenarios"], large["scenarios"]["cases"]),
        (["collectives"], {"chunks": 64}),
        (["collectives"], {"compat": "libra"}),
        (["prices"], {"npu": "25000 USD"}),
        (["power"], "default"),
        (["baseline"], "equal"),
        (["workloads", 2, "precision"], "bf16"),
        (["workloads", 2, "accelerator"], "h100"),
        (["workloads", 0, "training_loop"], "1f1b"),
    ):
        DESIGN.validate(changed(large, path, value))


def changed(data, path, value):
    data = copy.deepcopy(data)
    owner = data
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return data


def mappings(data, path=()):
    """Paths of all mappings whose keys are not the user's own."""
    if isinstance(data, dict):
        if path[-1:] not in (("set",), ("vary",)) and path not in (("prices",), ("power",)):
            yield list(path)
        for key, value in data.items():
            yield from mappings(value, (*path, key))
    elif isinstance(data, list):
        for k, value in enumerate(data):
            yield from mappings(value, (*path, k))


def test_unknown_keys_are_refused_everywhere(large):
    places = list(mappings(large))
    assert len(places) >= 30
    for place in places:
        assert not DESIGN.is_valid(changed(large, [*place, "unknown"], 1)), place


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["network", 0, "size"], "four"),
        (["network", 0, "latency"], 20),
        (["network", 0, "latency"], "20"),
        (["network", 0, "topology"], "rong"),
        (["network", 0], "ring"),
        (["network"], "5d-4096"),
        (["network"], {"shape": "RI(4)"}),
        (["workloads"], []),
        (["workloads", 0, "trace"], None),
        (["workloads", 0, "weight"], "2"),
        (["workloads", 2, "batch"], {"micro": 1, "sequence": 8}),
        (["workloads", 2, "accelerator"], "h1000"),
        (["workloads", 2, "precision"], "bf15"),
        (["collectives", "chunks"], "many"),
        (["prices", "npu"], 25000),
        (["prices", "node", "link"], "4"),
        (["prices", "pod", "link"], [{"up_to": "50 GB/s"}]),
        (["constraints"], "total <= 1000 GB/s"),
        (["constraints", 0], 1000),
        (["objective"], "speed"),
        (["baseline"], "even"),
        (["baseline", 0], 500),
        (["scenarios", "samples", "count"], "3"),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused(large, path, value):
    assert not DESIGN.is_valid(changed(large, path, value))


def test_what_libra_calls_an_unknown_or_missing_key_is_refused(tmp_path):
    """The table of bad designs, where a key or the kind of a value is wrong."""
    path, count = tmp_path / "d.yaml", 0
    for text, messages in read_cases("bad_designs.txt"):
        part, _, new = text.partition("\n")
        if not all("unknown key" in m or "needs a unit" in m for m in messages):
            continue
        path.write_text("".join((PARTS | {part: new}).values()))
        count += 1
        assert not DESIGN.is_valid(plain(path)), text
    assert count >= 14


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["npus"], "many"),
        (["npus"], [1]),
        (["network"], "4d-4096"),
        (["network", "tiers", 0, "size"], 4),
        (["network", "tiers", 0, "latency"], 20),
        (["network", "tiers", 0, "sizes"], "any"),
        (["workloads", 0, "parallel", "tp"], "some"),
        (["workloads", 0, "parallel", "zero"], "auto"),
        (["workloads", 0, "batch", "micro"], ["one"]),
        (["objective"], "worst-time"),
        (["scenarios"], [{"name": "a"}]),
    ],
    ids=str,
)
def test_wrong_spaces_are_refused(path, value):
    space = plain(SPACES[0])
    SPACE.validate(space)
    assert not SPACE.is_valid(changed(space, path, value))


def test_every_key_is_described():
    for schema in (design_schema(), space_schema()):
        assert all(value.get("description") for value in schema["properties"].values())
        for name, definition in schema["definitions"].items():
            for key, value in definition.get("properties", {}).items():
                assert value.get("description"), f"{name}.{key}"


def test_the_command_prints_and_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    assert json.loads(run(app, ["schema"]).stdout) == design_schema()
    done = run(app, ["schema", "space", "-o", "space.json"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "wrote space.json\n")
    assert json.loads(Path("space.json").read_text()) == space_schema()
    done = run(app, ["schema", "spaces"])
    assert done.exit_code == 2
    assert done.stderr == "schema: unknown kind, got 'spaces'. Did you mean 'space'?\n"
