"""Phases around a solve: frontier, sweep, exploration, simulation, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from registry.cases import Case, Phase
from registry.frozen import OUT, folder_fingerprint
from registry.inputs import SPACES, write_design, write_space
from registry.prepared import Prepared

__all__ = ["prepare"]


def prepare(case: Case, folder: Path) -> Prepared:
    """Do what a case's phase does with its design or space."""
    write = write_space if case.input in SPACES else write_design
    path = write(case.input, folder)
    fingerprint = folder_fingerprint(folder)
    (folder / OUT).mkdir(exist_ok=True)
    return _PHASES[case.phase](case, path, fingerprint)


def _frontier(case: Case, path: Path, fingerprint: str) -> Prepared:
    from libra.frontier import time_frontier
    from libra.load import load_design

    design, points = load_design(path), int(case.options["points"])
    return Prepared(
        lambda: time_frontier(design, points), fingerprint, lambda found: {"rows": _length(found)}
    )


def _sweep(case: Case, path: Path, fingerprint: str) -> Prepared:
    from libra.load import DesignReader
    from libra.sweep import parse_axis, sweep_design

    axis = parse_axis(case.options["vary"])
    return Prepared(
        lambda: list(sweep_design(DesignReader(path), [axis])),
        fingerprint,
        lambda found: {"rows": _length(found)},
    )


def _explore(case: Case, path: Path, fingerprint: str) -> Prepared:
    from libra.explore.run import run_exploration
    from libra.explore.space import load_space
    from libra.explore.summary import Summary

    folders = count()

    def work() -> Summary:
        return run_exploration(load_space(path), path.parent / OUT / f"rows-{next(folders)}")

    def describe(found: object) -> dict[str, float | str]:
        assert isinstance(found, Summary)
        return {"rows": len(found.frame), "solved": found.counts.get("solved", 0)}

    return Prepared(work, fingerprint, describe)


def _simulate(case: Case, path: Path, fingerprint: str) -> Prepared:
    from libra.evaluate import simulate_result
    from libra.load import load_design
    from libra.optimize import optimize_design

    result = optimize_design(load_design(path))
    return Prepared(lambda: simulate_result(result), fingerprint)


def _report(case: Case, path: Path, fingerprint: str) -> Prepared:
    from libra.load import load_design
    from libra.optimize import optimize_design
    from libra.report import write_report

    result, page = optimize_design(load_design(path)), path.parent / OUT / "report.html"
    return Prepared(
        lambda: write_report([result], page),
        fingerprint,
        lambda nothing: {"file_bytes": page.stat().st_size},
    )


def _length(rows: object) -> int:
    assert isinstance(rows, Sequence)
    return len(rows)


_PHASES: dict[Phase, Callable[[Case, Path, str], Prepared]] = {
    Phase.FRONTIER: _frontier,
    Phase.SWEEP: _sweep,
    Phase.EXPLORE: _explore,
    Phase.SIMULATE: _simulate,
    Phase.REPORT: _report,
}
