"""Sweeps, comparisons and price ranges: each row as if solved alone, and what is refused."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import GB, design, network, random_graph
from numpy.random import default_rng

import libra.master
from libra.compare import compare_files, read_result
from libra.errors import InputError
from libra.load import DesignReader, load_design
from libra.objectives import PROMISE
from libra.optimize import Memory, optimize_design
from libra.presets import example_folder
from libra.price_range import price_ranges
from libra.screen import render
from libra.sweep import Axis, parse_axis, sweep_design
from libra.tables import compare_table, sweep_csv, sweep_table
from libra.time_limits import TimeLimit
from libra.yaml_source import Override, split_path

EXAMPLE = example_folder() / "gpt-3-4d.yaml"
LANES = """[
  {topology: ring, size: 4, tier: chiplet, lane: 100 GB/s, max_lanes: 8},
  {topology: fully-connected, size: 8, tier: package},
  {topology: ring, size: 4, tier: node},
  {topology: switch, size: 32, tier: pod}]"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1..3:1", ["1", "2", "3"]),
        ("a=0.5..2:0.5 GB/s", ["0.5 GB/s", "1 GB/s", "1.5 GB/s", "2 GB/s"]),
        ("a=100..1600:x2", ["100", "200", "400", "800", "1600"]),
        ("a=1..2:0.4", ["1", "1.4", "1.8"]),
        ("a.b=time,time-cost", ["time", "time-cost"]),
        ("a=[1, 2], [3, 4]", ["[1, 2]", "[3, 4]"]),
        ("a={b: [1, 2], c: 'x, y'},'z, w'", ["{b: [1, 2], c: 'x, y'}", "'z, w'"]),
        ("a=it's,b]c", ["it's", "b]c"]),
        ("a=5", ["5"]),
    ],
)
def test_axes(text, values):
    assert list(parse_axis(text).values) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "needs PATH=VALUES, got 'a'"),
        ("a=", "needs PATH=VALUES"),
        ("a=,", "a value is missing, got ','"),
        ("a=1,,2", "a value is missing, got '1,,2'"),
        ("a=1..3", "a range is LOW..HIGH:STEP, got '1..3'"),
        ("a=3..1:1", "a range rises, got 3..1:1"),
        ("a=1..3:0", "a step is above 0"),
        ("a=1..3:x1", "a factor is above 1"),
        ("a=0..3:x2", "a factor is above 1 and begins above 0"),
        ("a=0..1:1e-9", "at most 100,000 values"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        parse_axis(text)


def test_rows_are_what_single_solves_give():
    reader = DesignReader(EXAMPLE)
    axes = [
        parse_axis("constraints.total=200..800:300"),
        parse_axis("workloads.gpt-3.weight=1,2"),
        parse_axis("training_loop=no-overlap,tp-dp-overlap"),
    ]
    rows = list(sweep_design(reader, axes))
    assert len(rows) == 12
    for row in rows:
        total, weight, loop = row.values
        alone = optimize_design(
            load_design(
                EXAMPLE,
                [
                    Override("constraints.total", f"{total} GB/s"),
                    Override("workloads.0.weight", weight),
                    Override("training_loop", loop),
                ],
            )
        )
        assert row.result.objective_value == pytest.approx(alone.objective_value, rel=2e-6)
        assert row.result.gap <= 1e-6
        assert row.result.design.settings["constraints"] == alone.design.settings["constraints"]


def test_neighbours_share_a_master_problem(monkeypatch):
    made, new_solver = [], libra.master._new_solver
    monkeypatch.setattr(
        libra.master, "_new_solver", lambda *given: made.append(1) or new_solver(*given)
    )
    rows = list(sweep_design(DesignReader(EXAMPLE), [parse_axis("constraints.total=200..290:10")]))
    assert [row.status for row in rows] == ["optimal"] * 10
    assert len(made) == 2  # The first is at a guess, the second at an optimum.


@pytest.mark.parametrize("seed", range(6))
def test_a_shared_memory_changes_no_optimum(seed):
    rng, memory = default_rng(seed), Memory()
    net = network("RI(4)_FC(4)_SW(8)")
    graphs = [random_graph(rng, net, 12, 4, is_chain=seed % 2 == 0) for _ in range(1 + seed % 3)]
    for k in range(8):
        total = rng.choice([100, 130, 90, 77, 400])
        d = design(
            net,
            graphs,
            [f"total <= {total} GB/s", f"a <= {rng.choice([60, 70, 20])} GB/s"],
            usd=rng.choice([1.0, 1.5, 3.0], 3),
            npu=1.0,
            weights=list(rng.choice([1.0, 2.0], len(graphs))),
            objective=rng.choice(["time", "time", "worst-time", "time-cost"]),
        )
        best = optimize_design(d).workloads[0].step_time
        if k % 3 == 0:
            limit = float(rng.choice([1.02, 1.3])) * best
            d = replace(d, time_limits=(TimeLimit("time(w0)", "w0", False, limit),))
        alone = optimize_design(d)
        with_memory = optimize_design(d, memory)
        promise = PROMISE[d.objective]
        assert with_memory.objective_value == pytest.approx(alone.objective_value, rel=2 * promise)
        assert with_memory.gap <= promise


@pytest.mark.parametrize("seed", range(4))
def test_an_equality_is_not_taken_for_the_inequality_before_it(seed):
    """Their rows have the same coefficients."""
    rng, memory = default_rng(seed), Memory()
    net = network("RI(4)_FC(4)_SW(8)")
    graph = random_graph(rng, net, 12, 4)
    for relation, most in zip(("<=", "==") * 3, (20, 24, 22, 30, 26, 28), strict=True):
        d = design(net, graph, [f"c {relation} {most} GB/s", "total <= 100 GB/s"])
        with_memory, alone = optimize_design(d, memory), optimize_design(d)
        assert with_memory.step_time == pytest.approx(alone.step_time, rel=2e-6)
        assert with_memory.objective_bound <= alone.step_time * (1 + 1e-9)


def test_conflicts_are_rows_and_wrong_values_end_it():
    reader = DesignReader(EXAMPLE, [Override("constraints", "[total <= 100 GB/s, pod >= 50 GB/s]")])
    rows = list(sweep_design(reader, [parse_axis("constraints.total=40..120:40")]))
    assert [row.status for row in rows] == ["infeasible", "optimal", "optimal"]
    assert "cannot hold together" in rows[0].to_dict()["message"]
    assert rows[1].to_dict()["value"] == 80
    with pytest.raises(
        InputError, match="--vary objective=speed: objective: unknown value, got 'speed'"
    ):
        list(sweep_design(reader, [parse_axis("objective=time,speed")]))
    with pytest.raises(InputError, match="no constraint has this left side, got 'totl'"):
        list(sweep_design(reader, [parse_axis("constraints.totl=1..2:1")]))
    with pytest.raises(InputError, match="from 1 to 100,000 combinations"):
        list(sweep_design(reader, []))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (("a.b", "c", "a.b"), "got 'a.b' after 'a.b'"),
        (("a[0].b", "a.0.b"), "got 'a.0.b' after 'a.0.b'"),
        (("a.b", "a"), "got 'a' after 'a.b'"),
    ],
)
def test_an_axis_that_undoes_another(paths, message):
    axes = [Axis(path, ("1", "2")) for path in paths]
    with pytest.raises(InputError, match=message):
        next(sweep_design(DesignReader(EXAMPLE), axes))


def test_an_outer_setting_and_one_within_it():
    axes = [
        Axis("collectives", ("{algorithm: multi-rail}",)),
        Axis("collectives.chunks", ("1", "8")),
    ]
    few, many = (row.result.step_time for row in sweep_design(DesignReader(EXAMPLE), axes))
    assert few > many


def test_table_and_csv():
    axes = [parse_axis("constraints.total=100..300:100")]
    rows = list(sweep_design(DesignReader(EXAMPLE), axes))
    lines = list(csv.DictReader(io.StringIO(sweep_csv(axes, rows))))
    assert [line["constraints.total"] for line in lines] == ["100", "200", "300"]
    assert float(lines[1]["step_time_s"]) == rows[1].result.step_time
    assert float(lines[2]["pod_GBps"]) == rows[2].result.bandwidth[3] / GB
    assert sum("USD" in line for line in render(sweep_table(axes, rows)).splitlines()) == 3
    json.dumps([row.to_dict() for row in rows], allow_nan=False)


def test_compare_designs_and_results(tmp_path):
    path = Path(tmp_path, "r.json")
    result = optimize_design(load_design(EXAMPLE))
    path.write_text(result.to_json(with_design=True))
    found = compare_files([path, EXAMPLE, example_folder() / "gpt-3-3d.yaml"])
    assert found[1].ratio(found[0], "step_time_s") == pytest.approx(1, rel=1e-6)
    text = render(compare_table(found))
    assert "RI(16)_FC(8)_SW(32)" in text
    assert "(1.000x)" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON, got something else"),
        ("[]", "is not a result: status, network"),
        ('{"status": 1}', "is not a result: network, dimensions"),
        ("[" * 100_000, "JSON|nested too deeply"),
    ],
)
def test_compare_refuses_other_files(tmp_path, content, message):
    path = Path(tmp_path, "r.json")
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        compare_files([path, path])
    with pytest.raises(InputError, match="two or more files are compared, got 1"):
        compare_files([EXAMPLE])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bandwidth_GBps", "abc"),
        ("bandwidth_GBps", [1, 2]),
        ("bandwidth_GBps[3]", [1, 2, 3, "4"]),
        ("dimensions[0]", [[1], 2, 3, 4]),
        ("workloads[0]", [1]),
        ("workloads[0].step_time_s", [{"name": "w"}]),
        ("workloads[0].name", [{"name": ["w"], "step_time_s": 1}]),
        ("step_time_s", "x"),
        ("network_cost_usd", [1]),
        ("network_power_w", 10**400),
    ],
)
def test_compare_refuses_values_of_another_kind(tmp_path, key, value):
    data = optimize_design(load_design(EXAMPLE)).to_dict() | {split_path(key)[0]: value}
    path = Path(tmp_path, "r.json")
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=f"is not a result: {re.escape(key)} is of another kind"):
        compare_files([path, EXAMPLE])
    path.write_text(json.dumps(data | {split_path(key)[0]: float("nan")}))
    with pytest.raises(InputError, match="holds a number that JSON has not, got NaN"):
        compare_files([path, EXAMPLE])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("workloads[0].busy_s", [1.0]),
        ("workloads[0].idle_s", None),
        ("workloads[0].collectives", True),
        ("workloads[0].collectives[0].bytes", "many"),
        ("workloads[0].collectives[0].limited_by[0]", None),
        ("gains[1]", None),
        ("gains[0].dimension", [1]),
        ("shadow_prices[0].met", 1),
        ("bill_of_materials[0].part", 5),
        ("bill_of_materials[0].count", None),
        ("solver.cuts", []),
        ("scenarios", True),
        ("price_ranges", "x"),
        ("design", "d.yaml"),
        ("design.settings", []),
    ],
)
def test_a_result_with_a_value_of_another_kind_within(tmp_path, place, value):
    lanes = [Override("network", LANES)]
    data = json.loads(optimize_design(load_design(EXAMPLE, lanes)).to_json(with_design=True))
    path = Path(tmp_path, "r.json")
    path.write_text(json.dumps(data))
    assert read_result(path) == data
    owner = data
    *around, last = (int(k) if k.isdigit() else k for k in split_path(place))
    for key in around:
        owner = owner[key]
    owner[last] = value
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=f"is not a result: {re.escape(place)} is of another kind"):
        read_result(path)


@pytest.mark.parametrize("seed", range(2))
def test_price_ranges_are_where_the_answer_stops_to_be_good(seed):
    rng = default_rng(seed)
    net = network("RI(4)_SW(8)", lane=[10 * GB] * 2, max_lanes=[8] * 2)
    d = design(net, random_graph(rng, net, 4, 3), usd=[2.0, 7.0], npu=50.0, objective="time-cost")
    result = optimize_design(d)
    for found in price_ranges(result, 0.0):
        assert found.low <= 1 <= found.high
        for factor, stays in (
            (found.low * 1.01, True),
            (found.low / 1.05, False),
            (found.high / 1.01, True),
            (found.high * 1.05, False),
        ):
            if not 0.01 <= factor <= 100:
                continue
            usd, npu = [2.0, 7.0], 50.0
            if found.part == "npu":
                npu *= factor
            else:
                usd["ab".index(found.part[0])] *= factor
            other = optimize_design(
                design(net, d.workloads[0].graph, usd=usd, npu=npu, objective="time-cost")
            )
            cost = other.design.fixed_cost + other.design.pricing.cost(result.bandwidth)
            good = result.step_time * cost <= other.objective_value * (1 + 3e-5)
            assert good == stays


def test_prices_that_do_not_count_have_no_ends():
    net = network("RI(4)_SW(8)")
    d = design(net, random_graph(default_rng(1), net, 4, 3), ["total <= 100 GB/s"])
    assert {(r.low, r.high) for r in price_ranges(optimize_design(d))} == {(0.0, np.inf)}


def test_price_ranges_where_a_total_alone_keeps_bandwidths_from_shrinking():
    net = network("RI(4)_SW(8)")
    graph = random_graph(default_rng(1), net, 4, 3)
    d = design(net, graph, ["total == 100 GB/s"], usd=[2.0, 7.0], objective="time-cost")
    found = price_ranges(optimize_design(d), 0.01)
    first, second = found
    # All prices together do not matter, so one may rise as far as the other may fall.
    assert first.low < 1 < first.high
    assert first.high * second.low == pytest.approx(1, rel=1e-4)
    assert first.low * second.high == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize(
    "path", ["workloads[0].batch.global", "workloads[llama-3-8b].batch.global"]
)
def test_paths_in_brackets_sweep_as_those_with_points(tmp_path, path):
    """Also: what a path in brackets sets does not stay for the next row."""
    file = tmp_path / "d.yaml"
    file.write_text(
        "network: {shape: SW(8)_SW(4), tiers: [node, pod]}\n"
        "workloads:\n  - model: llama-3-8b\n    accelerator: h100\n"
        "    parallel: {tp: 8, dp: 4, zero: 1}\n"
        "    batch: {global: 64, micro: 1, sequence: 4096}\n    precision: bf16\n"
        "constraints: [total <= 500 GB/s]\n"
    )
    times = [
        [row.result.step_time for row in sweep_design(DesignReader(file), [parse_axis(axis)])]
        for axis in (f"{path}=64,128", "workloads.0.batch.global=64,128")
    ]
    assert times[0] == times[1]
    assert times[0][0] < times[0][1]
