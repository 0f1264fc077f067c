"""Tables of records: on the screen, and a run beside an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from registry.record import Record, Row

__all__ = ["compare_records", "note_text", "registry_heading", "registry_line", "time_text"]


def time_text(seconds: float) -> str:
    """Time with three digits, in the unit that suits it.

    Examples
    --------
    >>> time_text(0.00123), time_text(12.34), time_text(4e-5)
    ('1.23 ms', '12.3 s', '40.0 us')
    """
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= 0.9995 * size or unit == "us":
            value = seconds / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    raise AssertionError


def note_text(notes: Mapping[str, float | str]) -> str:
    """What the work came to, in words."""
    words = []
    for key, value in notes.items():
        match key:
            case "gap":
                words.append(f"gap {float(value):.0e}")
            case "file_bytes":
                words.append(f"{float(value) / 1e6:,.1f} MB on disk")
            case _:
                words.append(f"{value:,} {key}" if not isinstance(value, str) else f"{key} {value}")
    return ", ".join(words)


def registry_heading() -> str:
    """Heading of the lines on the screen."""
    return f"{'case':58s} {'least':>9s} {'median':>9s} {'cpu':>9s} {'peak MB':>8s}"


def registry_line(row: Row) -> str:
    """One line on the screen."""
    if row.status != "ok":
        return f"{row.case:58s} {row.status}: {row.reason}"
    times = " ".join(f"{time_text(t):>9s}" for t in (row.least, row.median, row.cpu))
    return f"{row.case:58s} {times} {row.peak_bytes / 1e6:8.0f}  {note_text(row.notes)}"


def compare_records(new: Record, old: Record) -> Iterator[str]:
    """Ratios new / old of least time, processor time and peak memory, case by case.

    Cases on inputs that differ, or that only one run has, are listed without a ratio.
    """
    yield f"new: {new.date}, commit {new.commit}; old: {old.date}, commit {old.commit}"
    for key in sorted({*new.versions, *old.versions}):
        if new.versions.get(key) != old.versions.get(key):
            yield f"{key}: {old.versions.get(key)} -> {new.versions.get(key)}"
    if new.machine.get("processor") != old.machine.get("processor"):
        yield f"machine: {old.machine.get('processor')} -> {new.machine.get('processor')}"
    yield f"{'case (new / old)':58s} {'least':>7s} {'cpu':>7s} {'peak':>7s}"
    for case in dict.fromkeys(r.case for r in (*new.rows, *old.rows)):
        now, before = new.row(case), old.row(case)
        if now is None or before is None:
            missing = "old" if before is None else "new"
            yield f"{case:58s} not in the {missing} run"
        elif now.fingerprint != before.fingerprint:
            yield f"{case:58s} another input"
        else:
            ratios = (
                now.least / before.least,
                min(now.cpu_seconds) / max(min(before.cpu_seconds), 1e-9),
                now.peak_bytes / max(before.peak_bytes, 1),
            )
            yield f"{case:58s} " + " ".join(f"{r:6.2f}x" for r in ratios)
