"""The benchmarks: frozen names and inputs, records, the page, and the other ways to the optimum."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import network, random_collective

from libra.collectives import CollectiveKind, CollectiveModel, Compatibility, dimension_bytes

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from others.markdown import left_out, summary  # noqa: E402
from others.problems import METHODS, PROBLEMS, find_problems  # noqa: E402
from others.side_by_side import judged, measure_problem  # noqa: E402
from others.step import collective_bytes, load_step  # noqa: E402
from page import RECORD, fill_page  # noqa: E402
from registry.cases import CASES, MODULES, Phase, find_cases  # noqa: E402
from registry.frozen import changed, frozen_fingerprints  # noqa: E402
from registry.inputs import SPACES, design_names  # noqa: E402
from registry.measure import measure_here  # noqa: E402
from registry.record import Record, Row, SideRow, read_record, write_record  # noqa: E402
from registry.tables import compare_records, note_text, registry_line, time_text  # noqa: E402

NET = network("RI(4)_FC(8)_RI(4)_SW(32)")
PAGE = ROOT / "docs" / "performance.md"


# --- names and inputs --------------------------------------------------------------------------


def test_every_name_is_there_once_and_every_phase_has_a_case():
    names = [case.name for case in CASES] + [p.name for p in PROBLEMS]
    assert len(set(names)) == len(names)
    assert {case.phase for case in CASES} == set(Phase) == set(MODULES)
    assert all(any(c.phase is phase and not c.large for c in CASES) for phase in Phase)


def test_cases_of_the_published_run_are_still_there():
    record = read_record(ROOT / "docs" / RECORD)
    assert {row.case for row in record.rows} <= {case.name for case in CASES}
    assert {r.problem for r in record.side_by_side} <= {p.name for p in PROBLEMS}


SMALL = [c for c in CASES if c.input in design_names() and c.input not in SPACES]


@pytest.mark.parametrize("case", {c.input: c for c in SMALL}.values(), ids=lambda c: c.input)
def test_designs_are_what_they_were(case, tmp_path):
    prepared = importlib.import_module(MODULES[case.phase]).prepare(case, tmp_path)
    assert changed(case.input, prepared.fingerprint) == ""


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_problems_are_what_they_were(problem):
    assert changed(problem.input, load_step(problem).fingerprint) == ""


def test_every_input_is_frozen():
    inputs = {c.input for c in CASES} | {p.input for p in PROBLEMS}
    assert set(frozen_fingerprints()) == inputs


def test_an_input_that_changed_is_refused():
    assert changed("gpt-3-4d", "0") == (
        "input gpt-3-4d is not what it was, got fingerprint 0 instead of "
        f"{frozen_fingerprints()['gpt-3-4d']}. Give what changed a new name."
    )
    assert changed("new", "0") == (
        "input new is not frozen yet, got fingerprint 0. Add it to benchmarks/registry/frozen.json."
    )


def test_a_case_is_measured():
    (case,) = (c for c in CASES if c.name == "re-solve: gpt-3-4d objective=time")
    row = measure_here(case, 2)
    assert row.status == "ok"
    assert len(row.seconds) == len(row.cpu_seconds) == 2
    assert row.peak_bytes >= row.before_bytes > 0
    assert row.notes["gap"] <= 1e-6
    assert row.case in registry_line(row)


# --- records -----------------------------------------------------------------------------------


def record(seconds=1.0, fingerprint="a", versions=None, rows=None):
    row = Row("solve: x", "solve", "x", "ok", "", (seconds,) * 3, (seconds,) * 3, 100, 50)
    row = replace(row, fingerprint=fingerprint, notes={"gap": 1e-7, "tasks": 12345})
    machine = {"system": "s", "processor": "p", "cores": 2}
    kept = (row,) if rows is None else rows
    side = (SideRow("side by side: y", "chain", "time", "SCIP", "failed", "no licence"),)
    return Record("2026-01-01", "abc", machine, versions or {"numpy": "2"}, kept, side)


def test_a_record_survives_its_file(tmp_path):
    write_record(record(), tmp_path / "run.json")
    assert read_record(tmp_path / "run.json") == record()


def test_another_file_is_no_record(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="not a record of a benchmark run"):
        read_record(tmp_path / "x.json")


def test_runs_are_compared_case_by_case():
    text = "\n".join(compare_records(record(0.5), record(2.0, versions={"numpy": "1"})))
    assert "numpy: 1 -> 2" in text
    assert "solve: x".ljust(58) + "   0.25x   0.25x   1.00x" in text
    assert "another input" in "\n".join(compare_records(record(), record(fingerprint="b")))
    assert "not in the new run" in "\n".join(compare_records(record(rows=()), record()))
    assert "not in the old run" in "\n".join(compare_records(record(), record(rows=())))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (0.9999, "1.00 s"), (0.12345, "123 ms"), (4e-5, "40.0 us")],
)
def test_times_have_three_digits(seconds, text):
    assert time_text(seconds) == text


def test_notes_are_words():
    assert note_text({"gap": 2e-9, "tasks": 1355, "file_bytes": 1.5e6}) == (
        "gap 2e-09, 1,355 tasks, 1.5 MB on disk"
    )


def test_the_page_shows_its_record():
    text = PAGE.read_text("utf-8")
    assert fill_page(text, read_record(ROOT / "docs" / RECORD)) == text


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="needs one part machine, got 0"):
        fill_page("# Performance", record())


# --- other ways --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather", "all-to-all"])
@pytest.mark.parametrize("seed", range(10))
def test_bytes_follow_the_reference_implementation(kind, seed):
    drawn = random_collective(np.random.default_rng(seed), NET)
    collective = replace(drawn, kind=CollectiveKind(kind))
    model = CollectiveModel(compat=Compatibility.LIBRA)
    expected = dimension_bytes(collective, NET, model)
    np.testing.assert_allclose(collective_bytes(collective), expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.small], ids=lambda p: p.name)
def test_no_other_way_is_better_than_libra_s_bound(problem):
    """Each way that is installed, for a second; those that are not are rows that say so."""
    rows = list(measure_problem(problem, 1.0, here=True))
    assert [r.method for r in rows] == [m.name for m in METHODS]
    libra = rows[0]
    assert libra.status == "solved"
    assert libra.above_bound <= (1e-6 if problem.objective == "time" else 1e-5)
    for row, method in zip(rows, METHODS, strict=True):
        assert row.status != "contradiction", row
        if row.status != "solved":
            assert row.reason or row.value is not None
        if row.proof:
            # A solver's tolerances may let it end before the very best.
            assert -1e-5 < row.excess < 2e-4, row
        assert method.why_not(problem) == "" or row.status == "skipped"
    without_package = {r.method: r for r in rows if r.method in ("enumeration", "HiGHS", "Adam")}
    assert any(r.reached is not None for r in without_package.values())


def test_contradictions_are_found():
    libra = SideRow("p", "chain", "time", "libra", "solved", value=1.0, bound=0.9999)
    other = SideRow("p", "chain", "time", "other", "solved", value=0.9998)
    assert judged(other, libra).status == "contradiction"
    assert judged(replace(other, value=0.9999), libra).status == "solved"
    late = replace(other, value=1.1, bound=1.1)
    assert judged(late, libra).reason == "its bound is above libra's optimum"
    assert judged(replace(late, bound=1.0), libra).excess == pytest.approx(0.1)
    assert judged(late, replace(libra, value=None)) == late


def test_what_is_left_out_says_why():
    rows = [
        SideRow("side by side: a", "chain", "time", "libra", "solved", seconds=1.0, reached=1.0),
        SideRow("side by side: a", "chain", "time", "SCIP", "skipped", "not installed"),
    ]
    assert "| SCIP | skipped | not installed | a |" in list(left_out(rows))
    assert not any("SCIP" in line for line in summary(rows))


def test_problems_are_found_by_name():
    assert [p.input for p in find_problems(["graph-1000 "])] == ["graph-1000"]
    assert find_problems([]) == PROBLEMS
    assert [c.input for c in find_cases(["trace-1000+$"])] == [
        "trace-10000",
        "trace-100000",
        "trace-1000000",
    ]
