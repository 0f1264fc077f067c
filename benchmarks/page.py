"""docs/performance.md: its tables and picture, written from the record of one run.

What stands between ``<!-- generated NAME -->`` and ``<!-- end NAME -->`` is written here; the rest
of the page is by hand and says nothing that a run could change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from others.markdown import left_out, problem_tables, summary, ways
from others.problems import PROBLEMS
from registry.cases import CASES
from registry.growth import growth_chart, growth_points
from registry.record import Record, write_record
from registry.tables import note_text, time_text

__all__ = ["RECORD", "fill_page", "write_page"]

RECORD = Path("assets") / "benchmark.json"
"""Where the record of the page stands, below the documentation."""
_POINTS = 4
"""Sizes of graphs that make a picture of growth."""


def write_page(record: Record, docs: Path) -> Path:
    """Write the page's tables, its picture, and the record they are from.

    Raises
    ------
    ValueError
        If the page lacks a marker.
    """
    page = docs / "performance.md"
    page.write_text(fill_page(page.read_text("utf-8"), record), "utf-8")
    write_record(record, docs / RECORD)
    points = growth_points(record)
    if len(points) >= _POINTS:
        growth_chart(points).save(docs / "assets" / "growth.svg")
    return page


def fill_page(text: str, record: Record) -> str:
    """Page with its generated parts written anew."""
    for name, write in _PARTS.items():
        pattern = rf"(<!-- generated {name} -->\n).*?(<!-- end {name} -->)"
        body = "\n".join(write(record)).strip().replace("\\", r"\\")
        text, count = re.subn(pattern, rf"\1\n{body}\n\n\2", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"docs/performance.md: needs one part {name}, got {count}. Write <!-- generated "
                f"{name} --> and <!-- end {name} -->."
            )
    return text


def _machine(record: Record) -> Iterator[str]:
    machine = record.machine
    versions = ", ".join(f"{k} {v}" for k, v in record.versions.items() if v is not None)
    missing = [k for k, v in record.versions.items() if v is None]
    yield (
        f"Run of {record.date[:10]}, commit {record.commit}, on {machine['system']}, "
        f"{machine['processor']}, {machine['cores']} cores, {machine.get('memory_GB', '?')} GB; "
        f"load {machine.get('load', '?')} at the start, {record.load_at_end} at the end (of "
        f"{machine['cores']}: more means that others were at work, and wall times are too long)."
    )
    yield f"Versions: {versions}." + (f" Not installed: {', '.join(missing)}." if missing else "")


def _registry(record: Record) -> Iterator[str]:
    for phase in dict.fromkeys(r.phase for r in record.rows):
        yield f"**{phase[0].upper()}{phase[1:]}**"
        yield ""
        yield "| case | least | median | processor | peak MB | |"
        yield "|---|--:|--:|--:|--:|---|"
        for row in record.rows:
            if row.phase == phase:
                name = row.case.partition(": ")[2]
                if row.status != "ok":
                    yield f"| {name} | {row.status} | | | | {row.reason} |"
                    continue
                times = " | ".join(time_text(t) for t in (row.least, row.median, row.cpu))
                memory = f"{row.peak_bytes / 1e6:,.0f}"
                yield f"| {name} | {times} | {memory} | {note_text(row.notes)} |"
        yield ""


def _missing(record: Record) -> Iterator[str]:
    """Cases and problems that the run left out, so that none is missed without a word."""
    seen = {row.case for row in record.rows} | {row.problem for row in record.side_by_side}
    names = [case.name for case in CASES] + [problem.name for problem in PROBLEMS]
    left = [name for name in names if name not in seen]
    if left:
        yield f"Not in this run, {len(left)} of {len(names)}: {'; '.join(left)}."
    else:
        yield f"All {len(names)} cases and problems of the registry are in this run."


def _growth(record: Record) -> Iterator[str]:
    yield "| tasks | rounds | optimum | one round | a million tasks' round |"
    yield "|--:|--:|--:|--:|--:|"
    for p in growth_points(record):
        each = time_text(p.round * 1e6 / p.tasks)
        rounds = round(p.optimum / p.round)
        yield f"| {p.tasks:,} | {rounds} | {time_text(p.optimum)} | {time_text(p.round)} | {each} |"
    if len(growth_points(record)) < _POINTS:
        yield ""
        yield "This run has too few sizes for a picture; the one above is of an earlier run."


_PARTS: dict[str, Callable[[Record], Iterator[str]]] = {
    "machine": _machine,
    "missing": _missing,
    "registry": _registry,
    "growth": _growth,
    "ways": lambda record: ways(record.limit),
    "summary": lambda record: summary(record.side_by_side),
    "problems": lambda record: problem_tables(record.side_by_side),
    "left out": lambda record: left_out(record.side_by_side),
}
