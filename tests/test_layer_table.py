"""Layer tables: read, placed, refused."""

import pytest

from libra.collectives import CollectiveKind
from libra.errors import InputError
from libra.evaluate import evaluate_design
from libra.load import load_design

DESIGN = """\
network:
  - {topology: switch, size: 10, tier: node, name: edge}
  - {topology: switch, size: 4, tier: pod, name: cloud}
workloads:
  - trace: TABLE
EXTRA
constraints:
  - total <= 10 GB/s
"""
TABLE = """\
name, forward, input_gradient, weight_gradient, update, forward_collective, input_gradient_collective, weight_gradient_collective, count
client, 3 ms, 3 ms, 3 ms, 1 ms, point-to-point 8 MB cloud, , all-reduce 5 MB edge,
server, 9 ms, 9 ms, 9 ms, , , point-to-point 8 MB cloud, all-reduce 90 MB all, 2
"""


def write(tmp_path, table=TABLE, name="t.csv", extra=""):
    (tmp_path / name).write_text(table)
    path = tmp_path / "d.yaml"
    path.write_text(DESIGN.replace("TABLE", name).replace("EXTRA\n", extra))
    return path


def test_split_training_over_an_edge_and_a_cloud(tmp_path):
    design = load_design(write(tmp_path))
    (workload,) = design.workloads
    assert workload.name == "t"
    found = {(c.kind, c.size, c.group.extents) for c in workload.graph.collectives}
    assert found == {
        (CollectiveKind.POINT_TO_POINT, 8e6, (1, 2)),
        (CollectiveKind.ALL_REDUCE, 5e6, (10, 1)),
        (CollectiveKind.ALL_REDUCE, 90e6, (10, 4)),
    }
    # Every collective blocks: times and bytes over bandwidths, added.
    edge, cloud = 2e9, 1e9
    reduce_edge = 2 * 5e6 * 0.9 / edge
    reduce_all = max(2 * 90e6 * 0.9 / edge, 2 * 9e6 * 0.75 / cloud)
    expected = 3 * 3e-3 + 1e-3 + 2 * 27e-3 + 3 * 8e6 / cloud + reduce_edge + 2 * reduce_all
    result = evaluate_design(design, [edge, cloud])
    assert result.step_time == pytest.approx(expected)


def test_yaml_and_csv_say_the_same(tmp_path):
    rows = """\
- {name: a, forward: 1 ms, weight_gradient: 2 ms, weight_gradient_collective: all-reduce 1 MB dp, count: 3}
"""
    extra = "    parallel: {tp: 10, dp: 4}\n"
    one = load_design(write(tmp_path, rows, "t.yaml", extra)).workloads[0]
    table = "name,forward,weight_gradient,weight_gradient_collective,count\na,1 ms,2 ms,all-reduce 1 MB dp,3\n"
    other = load_design(write(tmp_path, table, "t.csv", extra)).workloads[0]
    assert one.graph.total_fixed == pytest.approx(9e-3)
    assert one.graph.fixed.tolist() == other.graph.fixed.tolist()
    assert one.graph.collectives == other.graph.collectives
    assert one.graph.total_counts.tolist() == [3.0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,foward\na,1 ms\n", "t.csv:2: foward: unknown column, got 'foward'. Did you mean 'forward'?"),
        ("name,forward\n,1 ms\n", "t.csv:2: name: is missing, got nothing. Name the layer."),
        ("name,forward\na,1\n", "t.csv:2: forward: "),
        ("name,forward\na,1 GB\n", "t.csv:2: forward: "),
        ("name,count\na,0\n", "t.csv:2: count: must be a whole number from 1, got '0'. Correct it."),
        ("name,forward_collective\na,all-reduce 1 MB\n", "t.csv:2: forward_collective: "),
        ("name,forward_collective\na,reduce 1 MB all\n", "t.csv:2: forward_collective: unknown collective, got 'reduce'."),
        ("name,forward_collective\na,all-reduce 1 MB dp\n", "t.csv:2: forward_collective: unknown group, got 'dp'."),
        ("name,forward\n", "t.csv: has no layers, got an empty table. Add a row."),
        ("name,forward\na,1 ms,2\n", "t.csv:2: has more cells than the 2 columns, got ['2']. Remove some."),
    ],
)  # fmt: skip
def test_refusals(tmp_path, monkeypatch, table, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, table)
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value).startswith(message)
