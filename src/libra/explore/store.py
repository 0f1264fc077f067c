"""Results of an exploration on disk: whole Parquet parts in a folder of their own.

``space.json`` says what was explored, ``part-000123.parquet`` holds the rows of one part, written
whole or not at all. Whoever resumes reads which parts are there and computes the others.
"""

from __future__ import annotations

import difflib
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra.errors import InputError, Problem
from libra.files import write_whole

if TYPE_CHECKING:
    import polars

__all__ = ["Store", "open_store", "read_exploration"]

_MOST_LINES = 20


class Store:
    """A folder of parts that this process alone writes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, part: int) -> Path:
        """File of a part."""
        return self.folder / f"part-{part:06d}.parquet"

    def has(self, part: int) -> bool:
        """Whether a part is complete."""
        return self.path(part).exists()

    def write(self, part: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write a part whole, even if the power fails."""
        temporary = self.folder / f".part-{part:06d}.tmp"
        try:
            with temporary.open("wb") as file:
                frame_of(rows).write_parquet(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path(part))
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, part: int) -> list[dict[str, Any]]:
        """Rows of a complete part."""
        import polars as pl

        return pl.read_parquet(self.path(part)).to_dicts()


def frame_of(rows: Sequence[dict[str, Any]]) -> polars.DataFrame:
    """Rows as a frame whose columns have the same types in every part."""
    import polars as pl

    schema = {key: _type(key) for key in rows[0]}
    return pl.DataFrame(list(rows), schema=schema)


def _type(key: str) -> Any:
    import polars as pl

    if key == "bandwidth_GBps":
        return pl.List(pl.Float64)
    name = key.split("_", 1)[1] if key[0] == "w" and key[1:2].isdigit() else key
    if name in ("network", "tiers", "algorithm", "recomputation", "order", "status", "reason"):
        return pl.String
    if name == "sequence_parallel":
        return pl.Boolean
    whole = ("candidate", "npus", "tp", "pp", "dp", "ep", "cp", "zero", "virtual_stages", "micro")
    return pl.Int64 if name in whole else pl.Float64


@contextmanager
def open_store(folder: Path, text: str) -> Iterator[Store]:
    """Store in a folder, for one process at a time.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    text : str
        The space and what else decides the rows, as text.

    Raises
    ------
    InputError
        If another process explores into the folder, or something else was explored there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written ({error.strerror}). Choose another folder with -o."
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"{folder}: another exploration is writing here, got a locked folder. Wait for it, "
                "or choose another folder with -o."
            ) from None
        known = folder / "space.json"
        if known.exists():
            _require_same(known, text, folder)
        elif any(folder.glob("part-*.parquet")):
            raise InputError(
                f"{folder}: holds parts but not the space they are of, got no space.json. Choose "
                "another folder with -o."
            )
        else:
            write_whole(known, text)
        for left in folder.glob(".part-*.tmp"):  # Of a run that was killed as it wrote.
            left.unlink()
        yield Store(folder)
    finally:
        os.close(lock)


def _require_same(known: Path, text: str, folder: Path) -> None:
    old = known.read_text("utf-8")
    if old == text:
        return
    lines = [
        line
        for line in difflib.unified_diff(old.splitlines(), text.splitlines(), n=0, lineterm="")
        if line[:1] in "+-" and not line.startswith(("+++", "---"))
    ]
    first = (
        f"{folder}: holds results of another space; choose another folder with -o, or change the "
        "space back. The difference, - what it was, + what it is now:"
    )
    raise InputError([Problem(text) for text in (first, *lines[:_MOST_LINES])])


def read_exploration(folder: Path) -> polars.DataFrame:
    """All rows of an exploration, one a candidate, in order.

    Raises
    ------
    InputError
        If the folder holds none.
    """
    import polars as pl

    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise InputError(
            f"{folder}: holds no exploration, got no part-*.parquet. Run `libra explore` first."
        )
    return pl.concat([pl.read_parquet(p) for p in parts]).sort("candidate")
