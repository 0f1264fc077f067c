"""The report in a browser: times as `libra evaluate` says, states, accessibility, no network."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from browser import browser, needs_browser, opened
from helpers import chain, collective, design, network, random_design, random_graph

import libra
from libra import cli
from libra.collectives import CollectiveModel
from libra.network import Network
from libra.plots import plot_result, save_chart
from libra.presets import example_folder
from libra.report import write_report
from libra.yaml_source import Override

pytestmark = needs_browser

DISCRETE = """\
network:
  - {topology: switch, size: 8, tier: node, name: nvlink, lane: 25 GB/s, max_lanes: 18}
  - topology: switch
    size: 512
    tier: pod
    name: rail
    radix: 64
    latency: 1 us
    bandwidth_choices:
      - {bandwidth: 25 GB/s, price: 1200 USD, power: 17 W, part: 200G NIC and ports}
      - {bandwidth: 50 GB/s, price: 1900 USD, power: 25 W, part: 400G NIC and ports}
      - {bandwidth: 100 GB/s, price: 4000 USD, power: 40 W, part: 800G NIC and ports}
workloads:
  - {name: gpt-3, trace: workloads/gpt-3.txt, parallel: {tp: 16, dp: 256}}
prices: {npu: 25000 USD, node: {link: 4 USD/(GB/s), switch: 13 USD/(GB/s), nic: 0 USD/(GB/s)},
  pod: {link: 4 USD/(GB/s), switch: 13 USD/(GB/s), nic: 0 USD/(GB/s)}}
power: default
objective: time-cost
"""


@pytest.fixture(scope="module")
def running():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Examples, with files of designs that overlap, wait and come in parts."""
    path = tmp_path_factory.mktemp("designs")
    shutil.copytree(example_folder(), path, dirs_exist_ok=True)
    text = (path / "gpt-3-4d.yaml").read_text("utf-8")
    (path / "chain.yaml").write_text(text)
    (path / "overlap.yaml").write_text(_with(text, "training_loop", "tp-dp-overlap"))
    latency = re.sub(
        r"network:\n(  .*\n)+",
        "network:\n"
        "  - {topology: ring, size: 4, tier: chiplet, latency: 50 ns}\n"
        "  - {topology: fully-connected, size: 8, tier: package}\n"
        "  - {topology: ring, size: 4, tier: node, latency: 500 ns}\n"
        "  - {topology: switch, size: 32, tier: pod, latency: 2 us}\n",
        _with(text, "training_loop", "tp-dp-overlap"),
    )
    (path / "latency.yaml").write_text(latency + "\ncollectives: {algorithm: balanced}\n")
    (path / "discrete.yaml").write_text(DISCRETE)
    return path


def _with(text, key, value):
    assert re.search(rf"^{key}:", text, re.MULTILINE)
    return re.sub(rf"^{key}:.*$", f"{key}: {value}", text, count=1, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def pages(folder):
    """Path of the page of each design."""
    found = {}
    for name in ("chain", "overlap", "latency", "discrete"):
        result = libra.optimize_design(libra.load_design(folder / f"{name}.yaml"))
        (folder / f"{name}.json").write_text(result.to_json(with_design=True))
        write_report([folder / f"{name}.json"], folder / f"{name}.html")
        found[name] = folder / f"{name}.html"
    return found


def move(page, row, position):
    """Put a slider of the first card somewhere, as a pointer would."""
    slider = page.locator(".what-if").first.locator("input[type=range]").nth(row)
    slider.evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }", position
    )


def shown(page, part, attribute):
    return float(
        page.locator(f".what-if [data-part={part}]").first.get_attribute(f"data-{attribute}")
    )


def bandwidths(page):
    rows = page.locator(".what-if").first.locator("[data-bytes]")
    return [float(rows.nth(k).get_attribute("data-bytes")) for k in range(rows.count())]


def evaluated(capsys, path, values):
    """What ``libra evaluate`` prints."""
    words = ",".join(repr(v / 1e9) for v in values)
    with pytest.raises(SystemExit):
        cli.main(["evaluate", str(path), "-b", words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "settings"), [("chain", 20), ("overlap", 20), ("latency", 8), ("discrete", 8)]
)
def test_sliders_show_what_evaluate_prints(running, pages, folder, name, settings, capsys):
    rng = np.random.default_rng(8)
    with opened(running, pages[name]) as (page, complaints):
        ends = [
            int(e.get_attribute("max"))
            for e in page.locator(".what-if").first.locator("input[type=range]").all()
        ]
        seen = set()
        for k in range(settings):
            for row in [k % len(ends)] if k % 2 else range(len(ends)):
                move(page, row, int(rng.integers(0, ends[row] + 1)))
            values = bandwidths(page)
            expected = evaluated(capsys, folder / f"{name}.yaml", values)
            assert shown(page, "time", "seconds") == pytest.approx(
                expected["step_time_s"], rel=1e-6
            )
            assert shown(page, "cost", "usd") == pytest.approx(
                expected["network_cost_usd"], rel=1e-6
            )
            if expected["network_power_w"] is not None:
                assert shown(page, "power", "watts") == pytest.approx(
                    expected["network_power_w"], rel=1e-6
                )
            broken = page.locator(".what-if .broken").count()
            assert broken == sum(not p["met"] for p in expected["shadow_prices"])
            seen.add(tuple(values))
        assert len(seen) > settings / 2
        assert complaints == []


@pytest.mark.parametrize(
    ("seed", "model"),
    [
        *((seed, None) for seed in range(2)),
        (4, CollectiveModel(algorithm="balanced")),
        (5, CollectiveModel(algorithm="balanced", chunks=3)),
        (6, CollectiveModel(algorithm="ideal")),
    ],
)
def test_random_graphs_and_prices(running, tmp_path, seed, model):
    """The page's model, straight from its script, on graphs and workloads of any form."""
    rng = np.random.default_rng(seed)
    d, inside = random_design(rng, 3, is_chain=False, workloads=2, npu=1000.0)
    if model is not None:
        dimensions = [dataclasses.replace(x, in_network=False) for x in d.network.dimensions]
        d = dataclasses.replace(d, network=Network(tuple(dimensions)), collectives=model)
    result = libra.evaluate_design(d, inside)
    write_report([result], tmp_path / "r.html")
    with opened(running, tmp_path / "r.html") as (page, complaints):
        for _ in range(20):
            b = (inside * np.exp(rng.normal(size=3))).tolist()
            found = page.evaluate(
                "b => stepModel.evaluate(JSON.parse(document.getElementById('r1-model').textContent), b)",
                b,
            )
            expected = libra.evaluate_design(d, b)
            assert found["time"] == pytest.approx(expected.step_time, rel=1e-9)
            assert found["cost"] == pytest.approx(expected.network_cost, rel=1e-9)
            for w, there in zip(expected.workloads, found["workloads"], strict=True):
                assert there["time"] == pytest.approx(w.step_time, rel=1e-9)
                assert there["compute"] == pytest.approx(w.compute, rel=1e-9, abs=1e-12)
                assert there["busy"] == pytest.approx(list(w.busy), rel=1e-9)
                names = d.network.names
                mine = {}
                for c in w.collectives:
                    mine[c.limited_by] = mine.get(c.limited_by, 0) + c.time
                theirs = {tuple(names[k] for k in g["limits"]): g["time"] for g in there["groups"]}
                assert theirs == pytest.approx(mine, rel=1e-9)
        assert complaints == []


def test_graphs_too_large_for_a_page_show_a_bound(running, tmp_path, monkeypatch):
    monkeypatch.setattr("libra.report.what_if.MOST_TASKS", 5)
    monkeypatch.setattr("libra.report.cards.MOST_TASKS", 5)
    rng = np.random.default_rng(1)
    net = network("RI(4)_SW(8)")
    d = design(net, random_graph(rng, net, 12, 3), ["total <= 100 GB/s"])
    result = libra.optimize_design(d)
    write_report([result], tmp_path / "r.html")
    with opened(running, tmp_path / "r.html") as (page, complaints):
        assert "at least that long" in page.locator("#r1-what-if ~ p").first.inner_text()
        assert page.locator("[data-part=time]").inner_text().startswith("at least ")
        assert shown(page, "time", "seconds") == pytest.approx(result.step_time, rel=1e-9)
        for _ in range(8):
            for row in range(2):
                move(page, row, int(rng.integers(0, 1001)))
            exact = libra.evaluate_design(d, bandwidths(page)).step_time
            assert shown(page, "time", "seconds") <= exact * (1 + 1e-9)
        assert complaints == []


def test_reset_and_equalise(running, pages):
    saved = json.loads(pages["chain"].with_suffix(".json").read_text())
    with opened(running, pages["chain"]) as (page, complaints):
        assert shown(page, "time", "seconds") == pytest.approx(saved["step_time_s"], rel=1e-9)
        for row in range(4):
            move(page, row, 300 + 100 * row)
        assert shown(page, "time", "seconds") > saved["step_time_s"]
        page.get_by_role("button", name="Reset to optimum").click()
        assert bandwidths(page) == pytest.approx([b * 1e9 for b in saved["bandwidth_GBps"]])
        assert shown(page, "time", "seconds") == pytest.approx(saved["step_time_s"], rel=1e-9)
        assert "#" not in page.url
        page.get_by_role("button", name="Equalise").click()
        assert bandwidths(page) == pytest.approx([250e9] * 4)
        assert shown(page, "time", "seconds") == pytest.approx(
            saved["speedup_vs_baseline"] * saved["step_time_s"], rel=1e-9
        )
        assert complaints == []


def test_the_address_restores_a_state(running, pages):
    with opened(running, pages["overlap"]) as (page, _):
        move(page, 1, 321)
        number = page.get_by_label("pod, GB/s")
        number.fill("7.25")
        number.press("Enter")
        state, time, address = bandwidths(page), shown(page, "time", "seconds"), page.url
    assert state[3] == 7.25e9
    fragment = address[address.index("#") :]
    with opened(running, pages["overlap"], fragment) as (page, complaints):
        assert bandwidths(page) == pytest.approx(state, rel=1e-14)
        assert shown(page, "time", "seconds") == pytest.approx(time, rel=1e-12)
        assert complaints == []
    for odd in ("#r1=1,2", "#r1=a,b,c,d", "#r1=-1,1,1,1", "#r9=1,1,1,1", "#<script>", "#r1=%zz"):
        with opened(running, pages["discrete"], odd) as (page, complaints):
            assert page.get_by_role("button", name="Reset to optimum").is_visible()
            assert complaints == []


def test_constraints_are_copied_as_a_design_reads_them(running, pages, folder):
    with opened(running, pages["chain"]) as (page, complaints):
        move(page, 0, 444)
        values = bandwidths(page)
        page.get_by_role("button", name="Copy as constraints").click()
        text = page.locator("[data-part=copied]").inner_text()
        assert complaints == []
    lines = [line.removeprefix("  - ") for line in text.splitlines()[1:]]
    copied = Override("constraints", json.dumps(lines))
    result = libra.optimize_design(libra.load_design(folder / "chain.yaml", [copied]))
    assert result.bandwidth == pytest.approx(values, rel=1e-9)


def test_the_keyboard_moves_a_slider(running, pages):
    with opened(running, pages["chain"]) as (page, _):
        before = bandwidths(page)
        page.get_by_role("slider", name="package").focus()
        page.keyboard.press("ArrowRight")
        after = bandwidths(page)
        assert after[1] > before[1]
        assert after[0] == before[0]


def test_no_serious_finding_of_axe(running, pages, folder, tmp_path):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    several = tmp_path / "several.html"
    write_report([folder / f"{n}.json" for n in ("overlap", "discrete")], several)
    # The marks of charts are looked at on one page only, since they are thousands.
    marks = {"exclude": [["svg [class*='mark-']"]]}
    for path, context in ((pages["discrete"], None), (several, marks)):
        # Dark or light, only the colours differ.
        for scheme, rules in (("light", None), ("dark", {"runOnly": ["color-contrast"]})):
            with opened(running, path, color_scheme=scheme) as (page, complaints):
                page.get_by_role("button", name="Equalise").first.click()
                found = axe.run(page, context=context, options=rules).response
                assert found["passes"]
                bad = [
                    (v["id"], v["impact"], [n["html"][:120] for n in v["nodes"]][:3])
                    for v in found["violations"]
                    if v["impact"] in ("serious", "critical")
                ]
                assert bad == []
                assert complaints == []


def test_zoom_of_200_percent_needs_no_sideways_scrolling(running, pages):
    for name in ("chain", "discrete"):
        with opened(running, pages[name], viewport={"width": 640, "height": 400}) as (page, _):
            assert page.evaluate("document.documentElement.scrollWidth") <= 640


def test_the_theme_can_be_switched(running, pages):
    with opened(running, pages["chain"], color_scheme="light") as (page, _):
        paper = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(paper)
        page.get_by_role("button", name="Dark mode").click()
        assert page.evaluate(paper) != light
        page.get_by_role("button", name="Light mode").click()
        assert page.evaluate(paper) == light


def test_a_chart_s_page_needs_no_network(running, tmp_path):
    result = libra.optimize_design(libra.load_design(example_folder() / "gpt-3-4d.yaml"))
    save_chart(plot_result(result), tmp_path / "c.html")
    with opened(running, tmp_path / "c.html") as (page, complaints):
        page.get_by_text("chiplet").first.wait_for()
        assert complaints == []


def test_names_appear_as_text(running, tmp_path):
    name = "<script>document.title='gone'</script> \"quoted\" 'too' & 漢字 </script>"
    d = design(
        network("RI(4)_SW(8)"),
        chain(collective("all-reduce", 1e9, (4, 8)), compute=1.0),
        ["total <= 100 GB/s"],
    )
    workload = libra.Workload(name, d.workloads[0].graph)
    d = libra.Design(d.network, (workload, *d.workloads), d.prices, d.constraints)
    write_report([libra.optimize_design(d)], tmp_path / "r.html")
    with opened(running, tmp_path / "r.html") as (page, complaints):
        assert page.title() != "gone"
        assert page.get_by_role("rowheader", name=name).count() >= 1
        assert name in page.locator(".what-if").inner_text()
        drawn = page.locator("svg text").all_text_contents()
        assert any("<script>document.title='gone'</script>" in text for text in drawn)
        assert page.locator("script").count() == 3
        assert complaints == []
