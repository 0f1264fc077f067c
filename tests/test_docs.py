"""README and documentation: every command, file and piece of Python in them runs."""

import contextlib
import importlib
import re
from pathlib import Path

import pytest
from docs_blocks import LANGUAGES, PageRun, fill_folder, indented_code, read_blocks
from typer.main import get_command

from libra.cli import app
from libra.explore.explorer import Explorer
from libra.explore.space import load_space
from libra.presets import example_folder

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [page for page in PAGES if any(b.language != "text" for b in read_blocks(page, ROOT))]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what the pages take for granted."""
    monkeypatch.chdir(tmp_path)
    fill_folder(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_blocks_of_a_page_run_and_print_what_they_show(page, folder):
    PageRun(read_blocks(page, ROOT)).run()
    if page.name == "plots.md":
        pictures = set(re.findall(r"\(assets/plots/(\S+)\)", page.read_text("utf-8")))
        assert pictures == {path.name for path in Path().glob("*.svg")}
        assert pictures == {path.name for path in (ROOT / "docs/assets/plots").iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_is_of_a_kind_that_is_run_or_says_that_it_is_not(page):
    assert {block.language for block in read_blocks(page, ROOT)} <= set(LANGUAGES)
    assert indented_code(page) == [], "lines of code without a fence"


def test_no_page_has_what_is_not_run_in_another_guise():
    """HTML could show code that nothing runs."""
    for page in PAGES:
        assert not re.search(r"<(pre|code)\b", page.read_text("utf-8")), page


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_is_there(page):
    """Modules, functions, tests and files that stand between backticks."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`(libra(?:\.\w+)+)`", text):
        assert resolved(name), name
    paths = re.findall(r"`((?:benchmarks|docs|src|studies|tests|tools)/[\w./-]+)`", text)
    assert [p for p in paths if not ((ROOT / p).exists() or "NAME" in p)] == []
    known = "".join(p.read_text("utf-8") for p in (ROOT / "tests").glob("test_*.py"))
    tests = re.findall(r"`(test_\w+)`", text)
    assert [name for name in tests if f"def {name}(" not in known] == []


def resolved(name):
    """Whether a dotted name leads to a module, or to something in one."""
    words = name.split(".")
    for k in range(len(words), 0, -1):
        with contextlib.suppress(ImportError):
            found = importlib.import_module(".".join(words[:k]))
            for word in words[k:]:
                if not hasattr(found, word):
                    return False
                found = getattr(found, word)
            return True
    return False


def test_modules_that_contributing_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    names = set(re.findall(r"`([\w/]+\.(?:py|js|html|proto))`", text))
    folders = ("", "src/libra", "src/libra/formats", "src/libra/report", "tests", "benchmarks")
    found = {n for n in names if any((ROOT / folder / n).is_file() for folder in folders)}
    assert names - found <= {"study.py"}  # one in each folder of a case study
    assert len(names) > 15


def test_the_documentation_lists_every_command():
    names = sorted(get_command(app).commands)
    for page in (README, ROOT / "docs" / "index.md"):
        text = page.read_text("utf-8")
        assert [n for n in names if f"libra {n}" not in text] == [], page


@pytest.mark.parametrize("path", sorted((example_folder() / "spaces").glob("*.yaml")), ids=str)
def test_example_spaces_can_be_explored(path):
    explorer = Explorer(load_space(path))
    explorer.check()
    assert any(not block.refused for block in explorer.blocks)
