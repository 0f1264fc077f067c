"""Charts: the rows they show, their specifications, and the files they become."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest
from altair.utils.schemapi import SchemaValidationError
from helpers import chain, collective, design, network, optimum, random_design

import libra
from libra import plots
from libra.baselines import result_baselines
from libra.errors import FieldError, InputError
from libra.frontier import Against, time_frontier
from libra.load import DesignReader
from libra.plots import rows as data_of
from libra.plots.engine import draw_svg
from libra.plots.of_frames import candidate_rows, validation_rows
from libra.plots.of_timelines import timeline_bars
from libra.plots.series_rows import frontier_rows, sweep_bandwidth_rows, sweep_rows, x_axis
from libra.plots.specs import (
    as_chart,
    channel,
    drawing,
    empty_spec,
    layered,
    stacked_specs,
    styled_spec,
)
from libra.plots.timeline_rows import BINS, CRITICAL, hidden_stages, segments_of, timeline_rows
from libra.presets import example_folder
from libra.sweep import axis_unit, parse_axis, sweep_design

GPT = example_folder() / "gpt-3-4d.yaml"


@pytest.fixture(scope="module")
def gpt():
    return libra.optimize_design(libra.load_design(GPT))


@pytest.fixture(scope="module")
def overlapped():
    rng = np.random.default_rng(3)
    return optimum(random_design(rng, 3, is_chain=False, workloads=2)[0])


def specification(chart):
    """Checked against the schema of Vega-Lite."""
    return chart.to_dict()


def drawn(chart, tmp_path, name="c.svg"):
    plots.save_chart(chart, tmp_path / name)
    return (tmp_path / name).read_bytes()


# --- rows --------------------------------------------------------------------------------------


def test_baselines(gpt):
    equal, traffic = result_baselines(gpt)
    total = gpt.bandwidth.sum()
    assert (equal.name, traffic.name) == ("shared equally", "shared by traffic")
    assert equal.bandwidth == pytest.approx([total / 4] * 4)
    busy = np.array(gpt.workloads[0].busy) * gpt.bandwidth
    assert traffic.bandwidth == pytest.approx(total * busy / busy.sum())
    for b in (equal, traffic):
        evaluated = libra.evaluate_design(gpt.design, b.bandwidth)
        assert b.step_time == pytest.approx(evaluated.step_time, rel=1e-12)
        assert b.network_cost == pytest.approx(evaluated.network_cost, rel=1e-12)
        assert b.step_time >= gpt.step_time
        assert b.meets
    assert equal.step_time / gpt.step_time == pytest.approx(gpt.speedup)


def test_a_baseline_that_breaks_a_constraint_says_so():
    d = design(
        network("RI(4)_SW(8)"),
        chain(collective("all-reduce", 1e9, (4, 8))),
        ["total <= 100 GB/s", "a >= 70 GB/s"],
    )
    assert [b.meets for b in result_baselines(optimum(d))] == [False, True]


def test_the_design_s_own_baseline_comes_first(gpt):
    own = dataclasses.replace(gpt.design, baseline=(4e11, 3e11, 2e11, 1e11))
    first, *others = result_baselines(dataclasses.replace(gpt, design=own))
    assert first.name == "the design's baseline"
    assert first.bandwidth.tolist() == [4e11, 3e11, 2e11, 1e11]
    assert len(others) == 2


def test_bandwidths_beside_baselines(gpt):
    found = data_of.baseline_rows(gpt)
    assert [r["design"] for r in found[::4]] == ["best", "shared equally", "shared by traffic"]
    assert [r["bandwidth"] for r in found[:4]] == pytest.approx(gpt.bandwidth.tolist())
    plain = data_of.baseline_rows(json.loads(gpt.to_json()))
    assert [r["bandwidth"] for r in plain[:4]] == pytest.approx(gpt.bandwidth.tolist())
    assert [r["design"] for r in plain[::4]] == ["best", "baseline"]


def test_parts_of_a_step_sum_up(overlapped):
    data = overlapped.to_dict()
    for w in overlapped.workloads:
        parts = [r for r in data_of.part_rows(data) if r["workload"] == w.name]
        assert sum(r["time"] for r in parts) == pytest.approx(w.step_time)
        assert sum(r["share"] for r in parts) == pytest.approx(1)
        steps = [r for r in data_of.step_rows(data) if r["workload"] == w.name]
        assert sum(r["time"] for r in steps) == pytest.approx(w.exposed_communication)
        assert {r["limit"] for r in steps} <= {*overlapped.design.network.names, "latency"}


def test_time_limited_together_is_shared(gpt):
    first = [r for r in data_of.step_rows(gpt.to_dict()) if r["order"] == 0]
    assert {r["limit"] for r in first} == {"chiplet", "package"}
    assert first[0]["time"] == first[1]["time"] == pytest.approx(first[0]["total"] / 2)


def test_many_collectives_end_in_others():
    net = network("RI(4)_SW(8)")
    many = [collective("all-reduce", 1e6 * (k + 1), (4, 8)) for k in range(20)]
    data = optimum(design(net, chain(*many), ["total <= 100 GB/s"])).to_dict()
    found = data_of.step_rows(data)
    exposed = data["workloads"][0]["exposed_communication_s"]
    assert sum(r["time"] for r in found) == pytest.approx(exposed)
    assert found[-1]["collective"] == "8 others"


def test_utilisation(gpt):
    found = {r["what"]: r for r in data_of.utilisation_rows(gpt.to_dict())}
    w = gpt.workloads[0]
    assert found["compute"]["busy"] == pytest.approx(w.step_time - w.idle)
    assert found["package"]["share"] == pytest.approx(w.busy[1] / w.step_time)


def test_sensitivities_are_finite_differences():
    d = design(
        network("RI(4)_SW(8)"),
        chain(collective("all-reduce", 1e9, (4, 8)), collective("all-reduce", 1e9, (4, 1))),
        ["total <= 100 GB/s"],
    )
    result = optimum(d)
    (price,) = data_of.price_rows(result.to_dict())
    row = dataclasses.replace(d.constraints[0], bound=d.constraints[0].bound + 1e7)
    looser = optimum(dataclasses.replace(d, constraints=(row,)))
    saved = 1 - looser.objective_value / result.objective_value
    assert price["share"] * 0.01 == pytest.approx(saved, rel=1e-3)
    gains = data_of.gain_rows(result.to_dict())
    for k, gain in enumerate(gains):
        more = result.bandwidth.copy()
        more[k] += 1e9
        time = libra.evaluate_design(d, more).step_time
        assert gain["share"] == pytest.approx(1 - time / result.step_time, abs=1e-12)


def test_a_step_without_end_has_no_rows(gpt):
    dead = libra.evaluate_design(gpt.design, [0, 1e9, 1e9, 1e9])
    for data in (dead.to_dict(), json.loads(dead.to_json())):
        assert data_of.part_rows(data) == data_of.step_rows(data) == []
        assert data_of.utilisation_rows(data) == []
    specification(plots.plot_result(dead))
    specification(plots.plot_timeline(dead))


# --- timelines -----------------------------------------------------------------------------------


def test_a_still_timeline_looks_the_same(gpt):
    whole, still = (timeline_bars(gpt, still=one) for one in (False, True))
    assert "tooltip" in whole["encoding"]
    assert "tooltip" not in still["encoding"]
    assert draw_svg(styled_spec(whole)) == draw_svg(styled_spec(still))


@pytest.mark.parametrize(
    "wrong",
    [
        empty_spec("") | {"mark": {"type": "ring"}},
        layered({}, drawing("bar", {"x": {"field": "a", "type": "amount"}})),
        stacked_specs([drawing("bar", {"x": channel("a:Q", axis={"ticksCount": 3})})]),
    ],
    ids=["mark", "layer", "stack"],
)
def test_specifications_are_checked_here(wrong):
    with pytest.raises((TypeError, SchemaValidationError)):
        specification(as_chart(wrong))


def test_segments_are_the_tasks(overlapped):
    for timing, path in zip(overlapped.timings, overlapped.paths, strict=True):
        found = segments_of(timing, overlapped.bandwidth)
        lengths = found.end - found.start
        assert lengths[found.lane == 0].sum() == pytest.approx(timing.graph.total_fixed)
        assert found.end.max() == pytest.approx(path.time)
        on = found.critical
        assert lengths[on].sum() == pytest.approx(path.time)
        # The critical path has no gap.
        assert found.start[on][1:] == pytest.approx(found.end[on][:-1])


def test_bins_keep_the_time_in_use(gpt):
    found = timeline_rows(gpt)
    w = gpt.workloads[0]
    lanes = {r["lane"] for r in found}
    assert lanes == {CRITICAL, "compute", "tp", "dp"}

    def used(lane):
        return sum(r["share"] * (r["end"] - r["start"]) for r in found if r["lane"] == lane)

    assert used("compute") == pytest.approx(w.compute)
    assert used("tp") + used("dp") == pytest.approx(w.exposed_communication)
    assert used(CRITICAL) == pytest.approx(w.step_time)
    assert all(r["below"] + r["share"] <= 1 + 1e-9 for r in found)
    assert len(found) <= BINS * 7


def test_a_window_cuts_what_reaches_out_of_it(gpt):
    low, high = 1.0, 1.1
    found = timeline_rows(gpt, (low, high))
    assert min(r["start"] for r in found) == low
    assert max(r["end"] for r in found) == high
    assert {r["share"] for r in found} == {1.0}


def test_of_many_stages_the_ends_the_slowest_and_some_between_are_shown():
    net = network("RI(4)_SW(8)")
    tasks = 20
    g = chain(*[collective("all-reduce", 1e9, (4, 8))] * tasks, compute=1.0)
    fixed = np.where(np.arange(tasks) == 15, 2.0, 1.0)
    g = dataclasses.replace(g, fixed=fixed, places=np.arange(tasks))
    result = optimum(design(net, g, ["total <= 100 GB/s"]))
    assert hidden_stages(result) == "8 of 20 stages"
    assert {r["lane"] for r in timeline_rows(result)} == {
        CRITICAL,
        *(f"stage {k}, {w}" for k in (0, 3, 5, 8, 11, 15, 16, 19) for w in ("compute", "g")),
    }
    assert "8 of 20 stages" in json.dumps(specification(plots.plot_timeline(result)))
    assert {r["lane"] for r in timeline_rows(result, stages=[4, 50])} == {
        CRITICAL, "stage 4, compute", "stage 4, g",
    }  # fmt: skip
    assert hidden_stages(result, [4, 50]) == "1 of 20 stages"
    with pytest.raises(FieldError, match=r"has the stages 0 to 19, got \[50\]\. Name one\."):
        plots.plot_timeline(result, stages=[50])


# --- frontiers, sweeps, tables -------------------------------------------------------------------


def test_frontier(gpt):
    points = time_frontier(gpt.design, 4)
    found, bandwidths = frontier_rows(points, gpt.design.network.names, Against.COST)
    assert [r["x"] for r in found] == [p.network_cost for p in points]
    assert [r["time"] for r in found] == [p.step_time for p in points]
    assert [r["bandwidth"] for r in bandwidths[:4]] == points[0].bandwidth.tolist()
    specification(plots.plot_frontier(points, gpt.design.network.names))


@pytest.mark.parametrize(
    ("texts", "main", "series"),
    [
        (["constraints.total=100,200,400,800"], 0, [""]),
        (["training_loop=no-overlap,tp-dp-overlap"], None, [""]),
        (
            ["training_loop=no-overlap,tp-dp-overlap", "constraints.total=100,1000"],
            1,
            ["training_loop no-overlap", "training_loop tp-dp-overlap"],
        ),
    ],
)
def test_sweep(texts, main, series):
    axes, reader = [parse_axis(t) for t in texts], DesignReader(GPT)
    rows = list(sweep_design(reader, axes))
    assert x_axis(axes) == main
    found = sweep_rows(axes, rows)
    assert [r["time"] for r in found] == [r.result.step_time for r in rows]
    assert list(dict.fromkeys(r["series"] for r in found)) == series
    assert len(sweep_bandwidth_rows(axes, rows)) == 4 * len(rows)
    specification(plots.plot_sweep(axes, rows, "GB/s"))


def test_units_of_axes():
    reader = DesignReader(GPT)
    words = ("constraints.total=1,2", "constraints.total=1 TB/s", "objective=time,time-cost")
    assert [axis_unit(reader, parse_axis(w)) for w in words] == ["GB/s", "TB/s", ""]


def test_candidates():
    frame = pl.DataFrame(
        {
            "step_time_s": [3.0, 2.0, 2.5, 1.0, float("inf")],
            "network_cost_usd": [1.0, 2.0, 3.0, 4.0, 5.0],
            "network": list("aabbc"),
        }
    )
    rows, frontier = candidate_rows(frame)
    assert len(rows) == 4
    assert [(r["cost"], r["time"]) for r in frontier] == [(1, 3), (2, 2), (4, 1)]
    specification(plots.plot_candidates(frame))
    specification(plots.plot_candidates(frame.drop("network")))
    specification(plots.plot_candidates(frame.head(0)))
    with pytest.raises(FieldError, match=r"needs the column network_cost_usd, got step_time_s"):
        plots.plot_candidates(frame.select("step_time_s"))


def test_validation():
    frame = pl.DataFrame(
        {"id": ["x", "y"], "set": ["s", "t"], "predicted_s": [1.1, 9.0], "measured_s": [1.0, 10.0]}
    )
    assert [r["error"] for r in validation_rows(frame)] == pytest.approx([0.1, -0.1])
    specification(plots.plot_validation(frame))
    specification(plots.plot_validation(frame.head(0)))
    printed = [row | {"bytes": None} for row in frame.to_dicts()]
    printed[1]["bytes"] = 5e10  # What other keys hold makes no difference.
    assert validation_rows(printed) == validation_rows(frame)
    specification(plots.plot_validation([]))
    with pytest.raises(FieldError, match="needs the columns id, set, predicted_s, measured_s"):
        plots.plot_validation(pl.DataFrame({"a": [1]}))


# --- charts and files ----------------------------------------------------------------------------


def test_charts_meet_the_schema(gpt, overlapped):
    for result in (gpt, overlapped):
        for plot in (
            plots.plot_bandwidths,
            plots.plot_step_time,
            plots.plot_utilisation,
            plots.plot_sensitivities,
            plots.plot_scenarios,
            plots.plot_result,
        ):
            specification(plot(result))
    specification(plots.plot_result(json.loads(gpt.to_json())))
    specification(plots.plot_timeline(gpt))
    specification(plots.plot_timeline(overlapped))
    specification(plots.plot_comparison({"a": gpt, "b": overlapped}))


def test_files_of_each_kind(gpt, tmp_path):
    chart = plots.plot_bandwidths(gpt)
    assert drawn(chart, tmp_path, "c.png").startswith(b"\x89PNG")
    assert drawn(chart, tmp_path, "c.pdf").startswith(b"%PDF")
    assert b"chiplet" in drawn(chart, tmp_path, "c.SVG")
    with pytest.raises(InputError, match=r"got 'c.gif'. End it in .png, .svg, .pdf or .html."):
        plots.save_chart(chart, tmp_path / "c.gif")


def test_names_in_charts_are_text(tmp_path):
    d = design(
        network("RI(4)"), chain(collective("all-reduce", 1e9, (4,)), compute=1.0), ["a <= 10 GB/s"]
    )
    name = "<b>&\"'</script>"
    d = dataclasses.replace(
        d, workloads=(dataclasses.replace(d.workloads[0], name=name), *d.workloads[1:])
    )
    svg = drawn(plots.plot_step_time(optimum(d)), tmp_path).decode()
    assert "<b>" not in svg
    assert "&lt;b&gt;&amp;" in svg
    page = drawn(plots.plot_step_time(optimum(d)), tmp_path, "c.html").decode()
    assert page.count("</script>") == page.count("<script")
