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


@pytest.mark.parametrize("name", NAMES)
def test_page_and_figure_say_what_the_study_computes(name):
    study, figures = computed(name)
    page = (pages.DOCS / f"{name}.md").read_text("utf-8")
    assert pages.differences(page, pages.render_page(name, figures)) == [], RENEW
    drawn = (pages.DOCS / f"{name}.svg").read_text("utf-8")
    fresh = chart_svg(study.chart(figures))
    assert pages.differences(pages.svg_text(drawn), pages.svg_text(fresh)) == [], RENEW


@pytest.mark.parametrize("name", NAMES)
def test_page_has_what_a_study_must_have(name):
    page = (pages.DOCS / f"{name}.md").read_text("utf-8")
    assert f"python studies/run.py {name}" in page
    assert f"]({name}.svg)" in page
    for heading in ("## What to conclude", "## What it does not say"):
        assert heading in page
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
