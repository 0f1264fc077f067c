"""Records of runs: rows, and one JSON file a run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Record", "Row", "SideRow", "read_record", "row_of", "write_record"]

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """What one case took.

    Attributes
    ----------
    case, phase, input : str
    status : str
        ``ok``, ``skipped`` or ``failed``.
    reason : str
        Why there is no measurement.
    seconds, cpu_seconds : tuple of float
        Wall time and processor time of each repeat [s].
    peak_bytes, before_bytes : int
        Largest resident memory of the process, interpreter and imports included; and the same
        before the work that counts.
    fingerprint : str
        Of the input: rows are comparable only where it is the same.
    notes : mapping
        What the work came to (tasks, gap, rounds, …).
    """

    case: str
    phase: str
    input: str
    status: str = "ok"
    reason: str = ""
    seconds: tuple[float, ...] = ()
    cpu_seconds: tuple[float, ...] = ()
    peak_bytes: int = 0
    before_bytes: int = 0
    fingerprint: str = ""
    notes: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """Least wall time [s]."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Median wall time [s]."""
        return statistics.median(self.seconds)

    @property
    def cpu(self) -> float:
        """Median processor time [s]."""
        return statistics.median(self.cpu_seconds)


@dataclass(frozen=True)
class SideRow:
    """What one way of solving made of one problem.

    Attributes
    ----------
    problem, kind, objective, method : str
    status : str
        ``solved``, ``time limit``, ``failed``, ``skipped``, or ``contradiction``: it claims what
        libra's bound rules out.
    reason : str
        Why there is no answer, or what to know about it.
    seconds : float or None
        Wall time from the problem's numbers to the answer, least of repeats [s].
    reached : float or None
        Time until it was within 1e-4 of libra's optimum [s]; None: it never was.
    peak_bytes : int
    value : float or None
        Objective of its bandwidths, made feasible, by one and the same evaluation.
    bound : float or None
        What it proves that nothing can beat, in the objective's unit.
    proof : str
        What its claim rests on; empty: it claims nothing.
    excess : float or None
        value over libra's optimum, less 1.
    above_bound : float or None
        value over libra's proven bound, less 1.
    """

    problem: str
    kind: str
    objective: str
    method: str
    status: str
    reason: str = ""
    seconds: float | None = None
    reached: float | None = None
    peak_bytes: int = 0
    value: float | None = None
    bound: float | None = None
    proof: str = ""
    excess: float | None = None
    above_bound: float | None = None


@dataclass(frozen=True)
class Record:
    """One run."""

    date: str
    commit: str | None
    machine: Mapping[str, str | float]
    versions: Mapping[str, str | None]
    rows: tuple[Row, ...]
    side_by_side: tuple[SideRow, ...] = ()
    limit: float = 60.0
    load_at_end: float | None = None

    def row(self, case: str) -> Row | None:
        """Row of a case, if it was measured."""
        return next((r for r in self.rows if r.case == case and r.status == "ok"), None)


def write_record(record: Record, path: Path) -> None:
    """Write a record as JSON."""
    data = {"format": FORMAT, **asdict(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def read_record(path: Path) -> Record:
    """Read a record.

    Raises
    ------
    ValueError
        If the file is not a record of this format.
    """
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if data.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not a record of a benchmark run. Give a file that run.py wrote.")
    rows = tuple(row_of(Row, r) for r in data.pop("rows"))
    side = tuple(row_of(SideRow, r) for r in data.pop("side_by_side"))
    return Record(**data, rows=rows, side_by_side=side)


_T = TypeVar("_T", Row, SideRow)


def row_of(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """Row of plain data; its lists become tuples."""
    known = {f.name for f in fields(kind)}
    plain: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known
    }
    return kind(**plain)
