"""README and documentation: commands, designs and Python in them run and print what they show."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chakra_helpers import ALL_REDUCE, collective, compute, stream

import libra
from libra.explore.explorer import Explorer
from libra.explore.space import load_space
from libra.presets import example_folder

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [README, *(p.read_text("utf-8") for p in sorted((ROOT / "docs").glob("*.md")))]


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(example_folder(), tmp_path / "my-design")
    shutil.copytree(example_folder() / "workloads", tmp_path / "workloads")
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "groups.json").write_text(json.dumps(GROUPS))
    for npu in range(8):
        (traces / f"w.{npu}.et").write_bytes(stream(trace_of(npu)))
    return tmp_path


GROUPS = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}


def trace_of(npu):
    """A forward pass with tensor parallelism, a backward pass, and the gradients' all-reduce."""
    return [
        compute(0, 100),
        collective(1, ALL_REDUCE, 1 << 22, [0], pg_name=str(1 + npu // 4)),
        compute(2, 60, [1]),
        collective(3, ALL_REDUCE, 1 << 20, [2]),
    ]


def without_figures_of_the_run(text):
    """Without trailing spaces, what the run took, gaps and last digits, which depend on machines."""
    text = re.sub(r"Solved in [\d.,]+ ms", "Solved in … ms", text)
    text = re.sub(r"\b\d\.\de-\d\d\b", "…", text)
    text = re.sub(r"(\.\d\d\d)\d\b", r"\1", text)
    return [re.sub(r"[─ ]+$", "", line) for line in text.strip().splitlines()]


def test_the_readme_s_example_prints_what_it_shows(tmp_path):
    (shown,) = (b for b in blocks(README, "console") if "libra optimize" in b)
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    printed = ""
    for command in commands:
        arguments = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
        printed = done.stdout
    expected = "\n".join(shown.splitlines()[len(commands) :])
    assert without_figures_of_the_run(printed) == without_figures_of_the_run(expected)


def test_commands_of_the_traces_page_print_what_they_show(folder):
    page = (ROOT / "docs" / "traces.md").read_text("utf-8")
    (shown,) = blocks(page, "console")
    for step in shown.split("$ ")[1:]:
        command, _, expected = step.partition("\n")
        arguments = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout == expected


def test_python_of_the_readme_runs(folder, capsys):
    for code in blocks(README, "python"):
        exec(compile(code, "README.md", "exec"), {})
    assert "gpt-3" in capsys.readouterr().out


def test_python_of_the_plots_page_draws_its_pictures(folder):
    page = (ROOT / "docs" / "plots.md").read_text("utf-8")
    exec(compile("\n".join(blocks(page, "python")), "plots.md", "exec"), {})
    pictures = {Path(name).name for name in re.findall(r"\((assets/plots/\S+)\)", page)}
    assert pictures == {path.name for path in Path().glob("*.svg")}
    assert pictures == {path.name for path in (ROOT / "docs" / "assets" / "plots").iterdir()}
    assert Path("gpt-3.html").stat().st_size <= 2_000_000


DESIGNS = [
    text
    for page in PAGES
    for text in blocks(page, "yaml")
    if "network:" in text and "workloads:" in text and "npus:" not in text
]
SPACES = [text for page in PAGES for text in blocks(page, "yaml") if "npus:" in text]


@pytest.mark.parametrize("text", DESIGNS, ids=range(len(DESIGNS)))
def test_designs_in_the_documentation_solve(folder, text):
    (folder / "design.yaml").write_text(text)
    result = libra.optimize_design(libra.load_design("design.yaml"))
    assert result.gap <= 1e-6


SNIPPETS = [
    text
    for page in PAGES
    for text in blocks(page, "yaml")
    if text.startswith(("network:", "collectives:", "constraints:")) and text not in DESIGNS
]


@pytest.mark.parametrize("text", SNIPPETS, ids=range(len(SNIPPETS)))
def test_parts_of_designs_in_the_documentation_load(folder, text):
    """Each snippet replaces its part of an example that has the same dimensions."""
    key = text.partition(":")[0]
    lines = (example_folder() / "resnet-50-4d.yaml").read_text().splitlines(keepends=True)
    kept, skip = [], False
    for line in lines:
        if re.match(r"[a-z]", line):
            skip = line.startswith(f"{key}:")
        kept += [] if skip else [line]
    if text.count("- {topology") == 2:
        text = text.replace("size: 4", "size: 16").replace("size: 32", "size: 256")
    text = text.replace("(gpt-3)", "(resnet-50)")
    (folder / "design.yaml").write_text("".join(kept) + "\n" + text)
    libra.load_design("design.yaml")


def test_the_documentation_lists_every_command():
    help_text = subprocess.run(
        [sys.executable, "-m", "libra", "--help"], capture_output=True, text=True, check=True
    ).stdout
    names = ["check", "evaluate", "export", "frontier", "import", "new", "optimize", "presets"]
    names += ["report"]
    commands = re.findall(rf"^\W*({'|'.join(names)})\b", help_text, re.MULTILINE)
    assert sorted(set(commands)) == names
    assert all(f"libra {command}" in README for command in commands)


@pytest.mark.parametrize("text", SPACES, ids=range(len(SPACES)))
def test_spaces_in_the_documentation_can_be_explored(folder, text):
    (folder / "space.yaml").write_text(text)
    explorer = Explorer(load_space("space.yaml"))
    explorer.check()
    assert explorer.count > 1


@pytest.mark.parametrize("path", sorted((example_folder() / "spaces").glob("*.yaml")), ids=str)
def test_example_spaces_can_be_explored(path):
    explorer = Explorer(load_space(path))
    explorer.check()
    assert any(not block.refused for block in explorer.blocks)
