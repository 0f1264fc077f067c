"""Tables of measured collectives, as nccl-tests prints them, and their place in a cluster.

Columns of a CSV file: ``op`` (all_reduce, reduce_scatter, all_gather, alltoall), ``bytes`` (the
full buffer), ``gpus``, and one of ``time_us``, ``algbw_GBps`` (bytes over time) and ``busbw_GBps``
(that times 2 (n - 1) / n for an all-reduce, (n - 1) / n for the others). ``nodes``,
``gpus_per_node``, ``system``, ``gpu``, ``source`` and ``algorithm`` may be there.

References
----------
.. [1] nccl-tests, doc/PERFORMANCE.md: operation and bus bandwidth.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libra.calibrate import CollectiveMeasurement
from libra.cluster import Cluster
from libra.efficiency import CollectiveKind
from libra.errors import FieldError, InputError, Problem, shown
from libra.files import read_text

__all__ = ["CollectiveRow", "Skipped", "place_row", "read_collectives"]

KINDS = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_gather": CollectiveKind.ALL_GATHER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
MOST_BYTES = 100_000_000
NEEDED = ("op", "bytes", "gpus")
SPEEDS = ("time_us", "algbw_GBps", "busbw_GBps")


@dataclass(frozen=True)
class CollectiveRow:
    """One row of a table of collectives.

    Attributes
    ----------
    kind : CollectiveKind
        What it does.
    size : float
        Full buffer [bytes].
    members : int
        GPUs that take part.
    time : float
        [s].
    nodes, per_node : int
        Nodes that they are in, and GPUs of a node; 0: not told.
    columns : mapping of str to str
        The row as it is.
    line : int
        Of the file.
    """

    kind: CollectiveKind
    size: float
    members: int
    time: float
    nodes: int
    per_node: int
    columns: Mapping[str, str]
    line: int


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be used: its line, its columns and why."""

    line: int
    columns: Mapping[str, str]
    reason: str


def read_collectives(path: Path) -> tuple[list[CollectiveRow], list[Skipped]]:
    """Rows of a CSV file of measured collectives, and those that say too little.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InputError
        The file cannot be read, lacks a column, or holds text where a number is due.
    """
    try:
        text = read_text(Path(path), MOST_BYTES)
    except ValueError as error:
        raise InputError(Problem(str(error), file=str(path))) from None
    reader = csv.DictReader(io.StringIO(text))
    columns = reader.fieldnames or []
    missing = [name for name in NEEDED if name not in columns]
    if not missing and not any(name in columns for name in SPEEDS):
        missing = [" or ".join(SPEEDS)]
    if missing:
        raise InputError(
            Problem(
                f"needs a column {missing[0]}, got {shown(', '.join(columns))}. Add it.",
                file=str(path),
                line=1,
            )
        )
    rows, skipped, problems = [], [], []
    for columns_ in reader:
        line = reader.line_num
        values = {k: (v or "").strip() for k, v in columns_.items() if k is not None}
        try:
            row = _row(values, line)
        except FieldError as error:
            problems.append(Problem(error.message, error.field_name, str(path), line))
        else:
            if isinstance(row, CollectiveRow):
                rows.append(row)
            else:
                skipped.append(row)
    if problems:
        raise InputError(problems)
    return rows, skipped


def _row(values: Mapping[str, str], line: int) -> CollectiveRow | Skipped:
    kind = KINDS.get(values["op"])
    if kind is None:
        return Skipped(line, values, f"no collective, got op {shown(values['op'])}")
    size, members = _number(values, "bytes"), _number(values, "gpus")
    if not size:
        return Skipped(line, values, "no size")
    if members < 2 or members != int(members):
        return Skipped(line, values, "no number of GPUs")
    time = _row_time(values, kind, size, members)
    if not time:
        return Skipped(line, values, "no time, or a bandwidth that was rounded to 0")
    nodes, per_node = _number(values, "nodes", ">"), _number(values, "gpus_per_node")
    return CollectiveRow(kind, size, int(members), time, int(nodes), int(per_node), values, line)


def _row_time(
    values: Mapping[str, str], kind: CollectiveKind, size: float, members: float
) -> float:
    """Time of the row [s], of the first column that tells it; 0 if none does."""
    time = _number(values, "time_us") * 1e-6
    if time:
        return time
    algorithm = _number(values, "algbw_GBps") * 1e9
    if not algorithm:
        ways = 2 if kind is CollectiveKind.ALL_REDUCE else 1
        algorithm = _number(values, "busbw_GBps") * 1e9 / (ways * (members - 1) / members)
    return size / algorithm if algorithm else 0.0


def _number(values: Mapping[str, str], key: str, mark: str = "") -> float:
    """Number of a column, 0 where it is empty or begins with a mark such as ``>1``."""
    text = values.get(key, "")
    if not text or (mark and text.startswith(mark)):
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise FieldError(
            key, f"must be a number that is not negative, got {shown(text)}. Correct it."
        )
    return value


def place_row(row: CollectiveRow, cluster: Cluster, label: str = "") -> CollectiveMeasurement:
    """Put a row's GPUs on the dimensions of a cluster.

    Nodes of the size of the innermost dimension take theirs along it; else the GPUs fill the
    dimensions from the inside.

    Raises
    ------
    FieldError
        ``gpus``: they do not fill the inner dimensions.
    """
    inner = cluster.dimensions[0].size
    if row.nodes > 1 and row.per_node == inner and row.members % row.nodes == 0:
        rest, extents = row.nodes, [row.members // row.nodes]
    else:
        rest, extents = row.members, []
    for d, dimension in enumerate(cluster.dimensions):
        if d < len(extents):
            continue
        last = d == len(cluster.dimensions) - 1
        extent = rest if last or rest < dimension.size else dimension.size
        if rest % extent:
            raise FieldError(
                "gpus",
                f"do not fill the {dimension.size} members of dimension {d + 1} of "
                f"{cluster.name or 'the cluster'}, got {row.members}. Leave the row out.",
            )
        extents.append(extent)
        rest //= extent
    return CollectiveMeasurement(row.kind, row.size, tuple(extents), row.time, label)
