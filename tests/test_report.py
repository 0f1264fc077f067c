"""The report as HTML: text stays text, files and results, what is left out and why."""

import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import chain, collective, design, network, optimum
from test_cli import call

import libra
from libra.errors import InputError
from libra.pieces import allowed_schedules, best_schedule, collective_pieces
from libra.presets import example_folder
from libra.report import render_report, write_report
from libra.report.compared import setting_differences
from libra.report.html import Html, fill_in, json_script, table, tag
from libra.report.items import items_of
from libra.report.what_if import what_if_model
from libra.yaml_source import Override

NASTY = "<script>alert(1)</script> \"a\" 'b' & <b>漢字</b> @@DATA@@ \u2028"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(example_folder(), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def saved(folder):
    """Result file of GPT-3."""
    result = libra.optimize_design(libra.load_design(folder / "gpt-3-4d.yaml"))
    (folder / "r.json").write_text(result.to_json(with_design=True))
    return folder / "r.json"


class Elements(HTMLParser):
    """Elements of a page, its text, and what is not closed in order."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.words, self.attributes = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [v for k, v in attrs if k == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def text_of(page):
    return " ".join(" ".join(Elements(page).words).split())


# --- escaping ------------------------------------------------------------------------------------


def test_only_html_enters_as_html():
    assert tag("p", "<i>", Html("<b>x</b>"), None, title='"<') == (
        '<p title="&quot;&lt;">&lt;i&gt;<b>x</b></p>'
    )
    shown = table([NASTY], [[NASTY]], caption=NASTY)
    assert "<script" not in shown
    assert "<b>" not in shown


def test_json_ends_no_script():
    text = json_script({"a": NASTY}, "x")
    inside = text[text.index(">") + 1 : text.rindex("<")]
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside) == {"a": NASTY}


def test_parts_are_not_searched_for_parts():
    assert fill_in("@@A@@ @@B@@", {"A": "@@B@@", "B": "b"}) == "@@B@@ b"


def test_names_are_text_everywhere(tmp_path):
    d = design(
        network("RI(4)_SW(8)"),
        chain(collective("all-reduce", 1e9, (4, 8)), compute=1.0),
        ["total <= 100 GB/s"],
    )
    d = dataclasses.replace(
        d,
        workloads=(dataclasses.replace(d.workloads[0], name=NASTY),),
        settings={NASTY: [NASTY], "name": NASTY},
        warnings=(NASTY,),
        file=f"{tmp_path}/</title>{NASTY}.yaml",
    )
    page = render_report([optimum(d)])
    found = Elements(page)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    # Three scripts of the page's own: data, model, page.
    assert found.tags.count("script") == 3
    assert "b" not in found.tags
    assert NASTY.split(" ", maxsplit=1)[0] in " ".join(found.words)


def test_no_page_asks_the_network(saved):
    found = Elements(render_report([saved]))
    links = [v for k, v in found.attributes if k in ("href", "src", "action", "xlink:href")]
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert {v for k, v in found.attributes if k == "http-equiv"} == {"Content-Security-Policy"}
    assert not any(k.startswith("on") for k, _ in found.attributes)


# --- what it says --------------------------------------------------------------------------------


def test_cards_in_their_order(saved):
    text = text_of(render_report([saved]))
    order = [
        "One step takes 11.97 s. Proven",
        "Proven gap",
        "shared equally",
        "What limits it",
        "compute takes 89.1% of the critical path.",
        "Prices and assumptions",
        "Source: Won et al.",
        "Bill of materials",
        "switch of 32 ports",
        "total <= 1000 GB/s",
        "libra optimize design.yaml",
    ]
    at = [text.index(order[0])]
    for words in order[1:]:
        at.append(text.index(words, at[-1]))
    assert "Not shown: the design has no scenarios." in text
    assert "Not shown: the design has no power figures." in text


def test_the_page_is_small(saved):
    assert len(render_report([saved]).encode()) <= 2_000_000


def test_a_result_and_its_file_say_the_same(saved, folder):
    result = libra.optimize_design(libra.load_design(folder / "gpt-3-4d.yaml"))
    (item,), (other,) = items_of([saved]), items_of([result])
    assert item.reason == other.reason == ""
    assert item.result.status == "optimal"
    assert item.result.step_time == pytest.approx(result.step_time, rel=1e-12)
    assert item.result.gap == result.gap
    assert item.result.shadow_prices == result.shadow_prices
    mine, theirs = (what_if_model(i.result) for i in (item, other))
    assert mine["bandwidth"] == pytest.approx(theirs["bandwidth"], rel=1e-14)
    del mine["bandwidth"], theirs["bandwidth"], mine["sliders"], theirs["sliders"]
    assert mine == theirs


def test_a_moved_result_finds_its_design_beside_it(saved, folder, tmp_path):
    data = json.loads(saved.read_text())
    data["design"]["file"] = "/nowhere/gpt-3-4d.yaml"
    saved.write_text(json.dumps(data))
    assert items_of([saved])[0].reason == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d, folder: d.pop("design"), "does not hold its design"),
        (
            lambda d, folder: (folder / "workloads" / "gpt-3.txt").unlink(),
            "the design cannot be read again",
        ),
        (
            lambda d, folder: d["design"]["settings"].update(training_loop="tp-dp-overlap"),
            "have changed since: at the same bandwidths a step now takes 11.4",
        ),
        (
            lambda d, folder: d["design"]["settings"]["network"].update(
                shape="RI(4)_SW(1024)", tiers=["node", "pod"]
            ),
            "no longer fits the result",
        ),
    ],
)
def test_what_a_file_does_not_allow_is_left_out_with_the_reason(saved, folder, change, reason):
    data = json.loads(saved.read_text())
    change(data, folder)
    saved.write_text(json.dumps(data))
    page = render_report([saved])
    assert "r1-model" not in page.replace('data-model="r1-model"', "")
    text = text_of(page)
    assert text.count(reason) >= 4
    assert "One step takes 11.97 s." in text
    assert "600.2" in text
    assert "switch of 32 ports" in text


def test_several_results_are_compared(saved, folder):
    other = libra.optimize_design(
        libra.load_design(folder / "gpt-3-4d.yaml", [Override("training_loop", "tp-dp-overlap")])
    )
    (folder / "overlap.json").write_text(other.to_json(with_design=True))
    page = render_report([saved, folder / "overlap.json"])
    found = Elements(page)
    assert len(found.ids) == len(set(found.ids))
    text = text_of(page)
    assert "overlap is fastest with 11.48 s a step; r takes 1.043 times as long." in text
    assert re.search(r"training_loop no-overlap tp-dp-overlap", text)
    assert "Network cost 14.12 M USD 15.07 M USD (1.067x)" in text
    assert [i.name for i in items_of([saved, saved])] == ["r (1)", "r (2)"]


def test_setting_differences():
    a = {"x": 1, "workloads": [{"name": "w", "batch": 1}], "rows": ["p", "q"]}
    b = {"x": 1, "workloads": [{"name": "w", "batch": 2}], "rows": ["p"], "new": {"k": True}}
    assert setting_differences([a, b]) == [
        ("workloads.w.batch", ("1", "2")),
        ("rows", ("p; q", "p")),
        ("new.k", (None, "True")),
    ]


def test_scenarios_and_price_ranges_and_infinite_times(folder):
    (folder / "s.yaml").write_text(
        (folder / "gpt-3-4d.yaml").read_text() + "\nscenarios:\n  cases:\n    - {name: planned}\n"
        "    - {name: congested, set: {workloads.gpt-3.compute_speed: 2}}\n"
    )
    text = text_of(render_report([libra.optimize_design(libra.load_design(folder / "s.yaml"))]))
    assert "congested" in text
    assert "Times are those of the design without its scenarios." in text
    d = libra.load_design(folder / "gpt-3-4d.yaml")
    dead = text_of(render_report([libra.evaluate_design(d, [0, 1e9, 1e9, 1e9])]))
    assert "Not shown: the step never ends." in dead


def test_scenarios_that_could_have_anything_alone_have_no_regret(folder):
    settings = [
        Override("objective", "cost"),
        Override("constraints", "[time(gpt-3) <= 16 s]"),
        Override(
            "scenarios", "[{name: planned}, {name: fast, set: {workloads.gpt-3.compute_speed: 2}}]"
        ),
    ]
    result = libra.optimize_design(libra.load_design(folder / "gpt-3-4d.yaml", settings))
    assert [s.regret for s in result.scenarios] == [None, None]
    text = text_of(render_report([result]))
    assert text.count("no limit") == 2
    assert "No regrets: nothing limits what the scenarios could have alone." in text


def test_chunks_are_affine_in_the_page_s_pieces():
    """What two numbers of chunks give is what each of them gives."""
    d = libra.load_design(example_folder() / "gpt-3-4d.yaml")
    net = dataclasses.replace(
        d.network,
        dimensions=tuple(dataclasses.replace(x, latency=1e-6) for x in d.network.dimensions),
    )
    rng = np.random.default_rng(0)
    for algorithm in ("multi-rail", "balanced", "ideal"):
        model = dataclasses.replace(
            d.collectives, algorithm=type(d.collectives.algorithm)(algorithm)
        )
        d2 = dataclasses.replace(d, network=net, collectives=model)
        result = libra.evaluate_design(d2, [1e11] * 4)
        (workload,) = what_if_model(result)["workloads"]
        forms = np.array(workload["forms"])
        for c, data in zip(d2.workloads[0].graph.collectives, workload["collectives"], strict=True):
            orders, counts = allowed_schedules(c, net, model)
            b = np.exp(rng.normal(size=4)) * 1e11
            times = []
            for order, pieces in zip(orders, data["orders"], strict=True):
                for count in counts:
                    n = count or 1
                    mine = [
                        a + s * n + sum(
                            (k + v / n) / (forms[int(f)] @ b)
                            for f, k, v in zip(t[::3], t[1::3], t[2::3], strict=True)
                        )
                        for a, s, t in pieces
                    ]  # fmt: skip
                    p = collective_pieces(
                        c,
                        net,
                        model,
                        dataclasses.replace(
                            best_schedule(c, net, model, b), chunks=count, order=order
                        ),
                    )
                    theirs = p.alpha + p.coefficient @ (1 / (p.forms @ b))
                    assert max(mine) == pytest.approx(theirs.max(), rel=1e-9)
                    times.append(max(mine))
            best = best_schedule(c, net, model, b)
            p = collective_pieces(c, net, model, best)
            chosen = (p.alpha + p.coefficient @ (1 / (p.forms @ b))).max()
            assert min(times) == pytest.approx(chosen, rel=1e-9)


# --- command line and notebooks ------------------------------------------------------------------


def test_the_command(saved, capsys, tmp_path):
    status, out, err = call(capsys, "report", str(saved), "-o", str(tmp_path / "page.html"))
    assert (status, out, err) == (0, "", f"wrote {tmp_path / 'page.html'}\n")
    assert "<!DOCTYPE html>" in (tmp_path / "page.html").read_text("utf-8")
    (tmp_path / "no.json").write_text("{}")
    status, _, err = call(capsys, "report", str(tmp_path / "no.json"))
    assert status == 2
    assert "is not a result: status, network" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("shadow_prices"), "shadow_prices is not what .* got nothing"),
        (lambda d: d.update(network="<b>"), "network is not what .* got '<b>'"),
        (lambda d: d.update(bandwidth_GBps=[1.0]), "bandwidth_GBps is of another kind"),
        (lambda d: d.update(bandwidth_GBps=["<i>"] * 4), r"bandwidth_GBps\[0\] is of another kind"),
        (lambda d: d["workloads"][0].pop("idle_s"), "workloads is not what"),
        (lambda d: d.update(step_time_s="<script>"), "step_time_s is of another kind"),
        (lambda d: d["shadow_prices"].append(1), r"shadow_prices\[\d\] is of another kind"),
    ],
)
def test_files_that_are_no_whole_results(saved, change, message):
    data = json.loads(saved.read_text())
    change(data)
    saved.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message):
        render_report([saved])


def test_nothing_to_report(tmp_path):
    with pytest.raises(InputError, match="shows at least one result, got none"):
        write_report([], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("optimize", ()),
        ("evaluate", ("-b", "500,300,150,50")),
        ("frontier", ("--points", "3")),
        ("sweep", ("--vary", "constraints.total=100..300:100")),
    ],
)
def test_commands_draw(folder, capsys, command, options):
    target = folder / "c.svg"
    design_ = str(folder / "gpt-3-4d.yaml")
    status, out, err = call(capsys, command, design_, *options, "--json", "--plot", str(target))
    assert status == 0
    json.loads(out)
    assert f"wrote {target}" in err
    text = target.read_text("utf-8")
    assert "chiplet" in text
    if command == "sweep":
        assert "constraints.total, GB/s" in text


def test_a_plot_of_no_kind_is_refused_before_anything_is_solved(folder, capsys):
    status, out, err = call(capsys, "optimize", str(folder / "no.yaml"), "--plot", "c.txt")
    assert (status, out) == (2, "")
    assert "End it in .png, .svg, .pdf" in " ".join(err.split())


def test_results_in_notebooks(saved, folder):
    result = libra.optimize_design(libra.load_design(folder / "gpt-3-4d.yaml"))
    shown = result._repr_html_()
    assert Elements(shown).open == []
    assert "One step takes 11.97 s." in shown
    assert "600.23" in shown
    named = dataclasses.replace(
        result.design, workloads=(dataclasses.replace(result.design.workloads[0], name=NASTY),)
    )
    assert "<script" not in libra.evaluate_design(named, [1e9] * 4)._repr_html_()
