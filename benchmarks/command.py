"""Measure what a user waits for, and the same problems by other open ways.

    python benchmarks/run.py                     everything; writes build/benchmark.json
    python benchmarks/run.py "re-solve: gpt-3"   the cases and problems whose name matches that
    python benchmarks/run.py --once              each case once, to see that it runs
    python benchmarks/run.py --compare OLD.json  ratios of this run to an earlier one
    python benchmarks/run.py --page FILE.json    write the tables of docs/performance.md; no run
    python benchmarks/run.py --list              names only

Each case runs in a process of its own. Compare times within a run, or runs on one quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from others.problems import METHODS, PROBLEMS, find_problems
from others.side_by_side import measure_problem, side_heading, side_line, solve_here
from registry.cases import CASES, Case, find_cases
from registry.machine import describe_machine, installed_versions, now, source_commit
from registry.measure import measure_case, measure_here
from registry.record import Record, Row, SideRow, read_record, write_record
from registry.tables import compare_records, registry_heading, registry_line

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
ONCE = 0.3
"""Time that each other way has under ``--once`` [s]."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; 1 if something failed, or contradicts libra's bound."""
    given = _parser().parse_args(arguments)
    if given.child is not None:
        _child(given)
        return 0
    if given.page is not None:
        from page import write_page

        print(write_page(read_record(given.page), ROOT / "docs"))
        return 0
    if given.list:
        print(*(case.name for case in CASES), *(p.name for p in PROBLEMS), sep="\n")
        return 0
    old = read_record(given.compare) if given.compare else None
    record = _run(given)
    if not given.once:
        write_record(record, given.output)
        print(f"\nwritten to {given.output}")
    if old is not None:
        print(*compare_records(record, old), sep="\n")
    return _judge(record)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure libra, and other ways beside it.")
    parser.add_argument("only", nargs="*", help="regular expressions of names")
    parser.add_argument("--once", action="store_true", help="each case once, writes nothing")
    parser.add_argument("--no-others", action="store_true", help="libra alone")
    parser.add_argument("--limit", type=float, default=60.0, help="for each other way [s]")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "benchmark.json")
    parser.add_argument("--compare", type=Path, metavar="OLD.json")
    parser.add_argument("--page", type=Path, metavar="FILE.json")
    parser.add_argument("--list", action="store_true")
    # What the processes that measure are told.
    for name in ("--case", "--problem", "--method"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--target", type=float, help=argparse.SUPPRESS)
    return parser


def _child(given: argparse.Namespace) -> None:
    """Measure one thing in this process, and write what was found."""
    if given.case is not None:
        (case,) = (c for c in CASES if c.name == given.case)
        found: Row | SideRow = measure_here(case, given.repeats, given.folder)
    else:
        (problem,) = (p for p in PROBLEMS if p.name == given.problem)
        (method,) = (m for m in METHODS if m.name == given.method)
        found = solve_here(problem, method, given.limit, given.target, given.repeats)
    given.child.write_text(json.dumps(asdict(found)), "utf-8")


def _run(given: argparse.Namespace) -> Record:
    """Measure what was asked for, printing row by row; an interrupt ends it with what it has."""
    machine, date = describe_machine(), now()
    rows: list[Row] = []
    side: list[SideRow] = []
    try:
        for row in _registry(given):
            rows.append(row)
        if not given.no_others:
            for answer in _side_by_side(given):
                side.append(answer)
    except KeyboardInterrupt:
        print("interrupted: what is measured so far is kept", file=sys.stderr)
    return Record(
        date,
        source_commit(),
        machine,
        installed_versions(),
        tuple(rows),
        tuple(side),
        given.limit,
        float(describe_machine().get("load", 0.0)),
    )


def _registry(given: argparse.Namespace) -> Iterator[Row]:
    print(registry_heading())
    for case in find_cases(given.only):
        row = _once(case) if given.once else measure_case(case)
        print(registry_line(row), flush=True)
        yield row


def _once(case: Case) -> Row:
    """Run a case once, in this process: that it runs is what counts."""
    if case.large:
        return Row(
            case.name, case.phase, case.input, "skipped", "large; a smaller one runs its code"
        )
    try:
        return measure_here(case, 1)
    except Exception as error:  # the other cases run all the same
        return Row(case.name, case.phase, case.input, "failed", f"{type(error).__name__}: {error}")


def _side_by_side(given: argparse.Namespace) -> Iterator[SideRow]:
    problems = find_problems(given.only)
    if given.once:
        problems = tuple(p for p in problems if p.small)
    print(f"\n{side_heading()}")
    for problem in problems:
        limit = min(given.limit, ONCE) if given.once else given.limit
        for row in measure_problem(problem, limit, here=given.once):
            print(side_line(row), flush=True)
            yield row


def _judge(record: Record) -> int:
    """Exit status: 1 if a case failed, or a row contradicts libra's bound."""
    bad = [r.case for r in record.rows if r.status == "failed"]
    bad += [
        f"{r.problem} by {r.method}"
        for r in record.side_by_side
        if r.status == "contradiction" or (r.method == "libra" and r.status != "solved")
    ]
    for name in bad:
        print(f"failed: {name}", file=sys.stderr)
    return int(bool(bad))
