"""Case studies: each is run again, and its page and figure say what it computes now."""

import re
import sys
from functools import cache
from pathlib import Path

import pytest

from libra.errors import FieldError, InputError
from libra.explore.space import load_space
from libra.load import load_design
from libra.plots.save import chart_svg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "studies"))

import pages  # noqa: E402

NAMES = pages.study_names()
RENEW = "Run `python studies/run.py` and read what changed."


@cache
def computed(name):
    study = pages.load_study(name)
    return study, study.figures()


def trace_totals(workload):
    """Seconds of compute, and bytes of a step's all-reduces of gradients, by reading the columns."""
    text = (ROOT / f"src/libra/examples/workloads/{workload}.txt").read_text()
    rows = [line.split() for line in text.splitlines()[2:]]
    seconds = sum(float(row[k]) for row in rows for k in (2, 5, 8, 11)) * 1e-9
    return seconds, sum(float(row[10]) for row in rows if row[9] == "ALLREDUCE")


def check_budgets(figures):
    """Turing-NLG only reduces gradients over all NPUs: closed forms for the fixed order."""
    compute, size = trace_totals("turing-nlg")
    traffic = {"3D": [15 / 16, 7 / 8 / 16, 31 / 32 / 128]}
    traffic["4D"] = [3 / 4, 7 / 8 / 4, 3 / 4 / 32, 31 / 32 / 128]
    for row in figures["rows"]:
        if row["model"] == "turing-nlg":
            each, total = traffic[row["network"]], row["budget"] * 1e9
            best = compute + 2 * size * sum(each) / total
            equal = compute + 2 * size * max(each) / (total / len(each))
            assert row["best"] == pytest.approx(best, rel=1e-6)
            assert row["equal"] == pytest.approx(equal, rel=1e-6)
        # Without overlap the best time is compute plus a part in 1 / budget.
        same = [
            r
            for r in figures["rows"]
            if (r["model"], r["network"]) == (row["model"], row["network"])
        ]
        parts = [(r["best"] - same[-1]["best"]) / (1 / r["budget"] - 1e-3) for r in same[:-1]]
        assert parts == pytest.approx([parts[0]] * len(parts), rel=1e-4)


def check_scheduler(figures):
    """No schedule reduces faster than all bandwidth together, and a balanced one is as fast."""
    for row in figures["rows"]:
        if row["workload"] in ("turing-nlg", "resnet-50"):
            compute, size = trace_totals(row["workload"])
            ideal = compute + 2 * size * (1 - 1 / 4096) / (figures["total"] * 1e9)
            reached = row["fixed"] / (1 + row["gain_codesigned"])
            assert reached == pytest.approx(ideal, rel=1e-6)
        assert row["gain_codesigned"] >= row["gain_after"] - 2e-3
        assert row["regret"] + 1e-6 >= 1
        assert row["cost_with"] <= row["cost"] * (1 + 1e-6)


def check_synthesised(figures):
    """The cut bound over all chips, and in one dimension alone for tensor parallelism."""
    for row in figures["rows"]:
        if row["workload"] in ("turing-nlg", "resnet-50"):
            compute, size = trace_totals(row["workload"])
            ideal = compute + 2 * size * (1 - 1 / 4096) / 270e9
            assert row["ideal_equal"] == pytest.approx(ideal, rel=1e-6)
        assert row["codesigned"] <= min(row["fixed_best"], row["ideal_equal"]) * (1 + 1e-6)
        assert row["fixed_best"] <= row["fixed_equal"] * (1 + 1e-6)


def check_group(figures):
    """At the least largest slowdown those that limit it are level, and no other network beats it."""
    at = {row["network"]: row["slowdown"] for row in figures["rows"]}
    level = sorted(at["least slowdown"].values())[-3:]
    assert level == pytest.approx([level[0]] * 3, rel=1e-5)
    assert all(max(slowdown.values()) >= level[-1] - 1e-6 for slowdown in at.values())
    for name in ("turing-nlg", "gpt-3", "msft-1t", "resnet-50", "dlrm"):
        assert at[f"made for {name}"][name] == pytest.approx(1, rel=1e-9)
    assert max(at["cheapest within 20 %"].values()) == pytest.approx(1.2, rel=1e-5)


def check_real(figures):
    """GPT-3 on DGX A100 by hand: tensor parallelism over 8 x 2 GPUs, data parallelism over 256."""
    (row,) = (r for r in figures["rows"] if r["key"] == "dgx-a100" and r["workload"] == "gpt-3")
    text = (ROOT / "src/libra/examples/workloads/gpt-3.txt").read_text()
    seconds = 0.0
    for line in text.splitlines()[2:]:
        cells = line.split()
        seconds += sum(float(cells[k]) for k in (2, 5, 8, 11)) * 1e-9
        for kind, size in ((cells[k], float(cells[k + 1])) for k in (3, 6)):
            if kind == "NONE":
                continue
            whole = size * 16 if kind == "ALLGATHER" else 2 * size
            seconds += max(whole * 7 / 8 / 300e9, whole / 8 / 2 / 25e9)
        seconds += 2 * float(cells[10]) * 255 / 256 / 25e9
    assert row["real"] == pytest.approx(seconds, rel=1e-6)
    for row in figures["rows"]:
        assert row["total"] >= 0
        assert row["cost"] >= 0


def check_prices(figures):
    """The answer of the nominal prices loses nothing there, and more the farther prices are."""
    for tier in ("chiplet", "package", "node", "pod"):
        losses = [r["loss"] for r in figures["rows"] if r["tier"] == tier]
        bought = [r["bandwidth"] for r in figures["rows"] if r["tier"] == tier]
        middle = len(losses) // 2
        assert losses[middle] == pytest.approx(0, abs=2e-5)
        assert losses[:middle] == sorted(losses[:middle], reverse=True)
        assert losses[middle + 1 :] == sorted(losses[middle + 1 :])
        assert bought == sorted(bought, reverse=True)


CHECKS = {
    "bandwidth-budgets": check_budgets,
    "part-prices": check_prices,
    "real-topologies": check_real,
    "runtime-scheduler": check_scheduler,
    "synthesised-collectives": check_synthesised,
    "workload-group": check_group,
}
"""Second computations of a study's figures, run where these are at hand."""


@pytest.mark.parametrize("name", NAMES)
def test_page_and_figure_say_what_the_study_computes(name):
    study, figures = computed(name)
    CHECKS.get(name, lambda _: None)(figures)
    page = (pages.DOCS / f"{name}.md").read_text("utf-8")
    assert pages.differences(page, pages.render_page(name, figures)) == [], RENEW
    drawn = (pages.DOCS / f"{name}.svg").read_text("utf-8")
    fresh = chart_svg(study.chart(figures))
    # Marks carry six decimals, more than an optimum that is nearly flat keeps between machines.
    assert pages.differences(pages.svg_text(drawn), pages.svg_text(fresh), 2e-3) == [], RENEW


@pytest.mark.parametrize("name", NAMES)
def test_page_has_what_a_study_must_have(name):
    page = (pages.DOCS / f"{name}.md").read_text("utf-8")
    assert f"python studies/run.py {name}" in page
    assert f"]({name}.svg)" in page
    for heading in ("What to conclude", "Against what was published", "What it does not say"):
        assert f"\n## {heading}\n" in page
    named = re.findall(r"`((?:studies|src)/[\w./-]+)`", page)
    assert named
    assert all((ROOT / path).exists() for path in named)


DESIGNS = sorted((ROOT / "studies").glob("*/*.yaml"))


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_design_files_load(path):
    text = path.read_text("utf-8")
    if "\nnpus:" in text:
        load_space(path)
    elif "network:" in text:
        load_design(path)


def test_every_study_is_in_the_navigation_and_the_index():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    index = (pages.DOCS / "index.md").read_text("utf-8")
    assert index == pages.index_page(), RENEW
    for name in NAMES:
        assert f"studies/{name}.md" in navigation
        assert f"({name}.md)" in index
    written = {path.stem for path in pages.DOCS.iterdir()} - {"index"}
    assert written == set(NAMES)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("a 1.23 b", "a 1.24 b", True),
        ("a 1.23 b", "a 1.25 b", False),
        ("a 1.23 b", "a 1.2 b", False),
        ("a 1,023 b", "a 1,024 b", True),
        ("a 1,023 b", "b 1,023 b", False),
        ("3D 5 %", "4D 5 %", False),
        ("x -0.01", "x 0.00", True),
        ("1.5e-07", "1.5e-06", False),
        ("one", "one\ntwo", False),
    ],
)
def test_numbers_may_differ_by_one_in_the_last_digit(old, new, same):
    assert (pages.differences(old, new) == []) is same


def test_numbers_of_a_figure_may_differ_by_a_part_of_them():
    assert pages.differences("x: 684.675315", "x: 684.7", 1e-3) == []
    assert len(pages.differences("x: 684.675315", "x: 686", 1e-3)) == 1


def test_tables_and_text_are_escaped():
    table = pages.Table({"a|b": "", "n": ".1f"}, [("<x>_y|", 2.0), (pages.Markdown("`z`"), None)])
    assert f"{table}" == "\n".join(
        ["| a\\|b | n |", "|---|--:|", "| &lt;x&gt;\\_y\\| | 2.0 |", "| `z` | – |"]
    )
    with pytest.raises(FieldError, match="needs one cell for each of the 1 columns, got 2"):
        pages.Table({"a": ""}, [(1, 2)])
    with pytest.raises(ValueError, match="not finite"):
        f"{pages.Table({'a': '.1f'}, [(float('nan'),)])}"


@pytest.mark.parametrize("figures", [{}, {"x": float("nan")}, {"x": "text"}])
def test_a_placeholder_without_its_number_is_refused(figures, tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "page.md").write_text("# One\n\n{x:.1f}\n")
    monkeypatch.setattr(pages, "STUDIES", tmp_path)
    with pytest.raises(InputError, match="a placeholder has no figure or a wrong format"):
        pages.render_page("one", figures)


def test_an_unknown_study_is_refused():
    with pytest.raises(InputError, match=r"there is no such study, got 'none'\. Name one of "):
        pages.load_study("none")
