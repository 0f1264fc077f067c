"""Measuring cases: a process for each, so that neither time nor memory of one touches another's."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from registry.cases import MODULES, Case
from registry.frozen import changed
from registry.prepared import Prepared
from registry.record import Row, row_of

__all__ = ["PATIENCE", "measure_case", "measure_here", "run_child"]

PATIENCE = 900.0
"""Longest that a case's process may take in all, preparation included [s]."""
_RUN = Path(__file__).resolve().parent.parent / "run.py"


def measure_case(case: Case) -> Row:
    """Measure a case in processes of its own: one, or if it is fresh one a repeat.

    Of a fresh case the first process does not count: it may compile or read from disk what later
    ones find.
    """
    with tempfile.TemporaryDirectory() as folder:
        if not case.fresh:
            return _measure_apart(case, case.repeats, folder)
        rows = [_measure_apart(case, 1, folder) for _ in range(case.repeats + 1)]
    if bad := [row for row in rows if row.status != "ok"]:
        return bad[0]
    counted = rows[1:]
    return replace(
        counted[0],
        seconds=tuple(s for row in counted for s in row.seconds),
        cpu_seconds=tuple(s for row in counted for s in row.cpu_seconds),
        peak_bytes=max(row.peak_bytes for row in counted),
    )


def _measure_apart(case: Case, repeats: int, folder: str) -> Row:
    blank = Row(case.name, case.phase.value, case.input)
    words = ["--case", case.name, "--repeats", str(repeats), "--folder", folder]
    found, error = run_child(words, PATIENCE)
    if error:
        return replace(blank, status="failed", reason=error)
    return row_of(Row, found)


def run_child(arguments: list[str], patience: float) -> tuple[dict[str, Any], str]:
    """What a process of run.py writes, or why it wrote nothing."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.json"
        command = [sys.executable, str(_RUN), *arguments, "--child", str(target)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            return {}, f"no answer within {patience:g} s"
        if done.returncode or not target.exists():
            return {}, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        found: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return found, ""


def measure_here(case: Case, repeats: int, folder: Path | None = None) -> Row:
    """Measure a case in this process, with its files in a folder, or in one of its own.

    Repeats follow one that does not count, unless the case is fresh or there is only one.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as own:
            return measure_here(case, repeats, Path(own))
    row = Row(case.name, case.phase.value, case.input)
    module = importlib.import_module(MODULES[case.phase])
    prepared: Prepared = module.prepare(case, folder)
    if problem := changed(case.input, prepared.fingerprint):
        return replace(row, status="failed", reason=problem)
    before = 0 if prepared.children else peak_memory()
    if repeats > 1 and not case.fresh:
        prepared.work()
    timed = [_timed(prepared) for _ in range(repeats)]
    return replace(
        row,
        seconds=tuple(t[0] for t in timed),
        cpu_seconds=tuple(t[1] for t in timed),
        peak_bytes=peak_memory(children=prepared.children),
        before_bytes=before,
        fingerprint=prepared.fingerprint,
        notes=dict(prepared.describe(timed[-1][2])),
    )


def _timed(prepared: Prepared) -> tuple[float, float, object]:
    """Wall time and processor time of the work [s], and its outcome."""
    cpu = _children_cpu if prepared.children else time.process_time
    start, busy = time.perf_counter(), cpu()
    outcome = prepared.work()
    return time.perf_counter() - start, cpu() - busy, outcome


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def peak_memory(*, children: bool = False) -> int:
    """Largest resident memory of this process, or of the largest that it waited for [bytes]."""
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit
