"""Rows of the charts of an exploration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from libra.errors import FieldError

if TYPE_CHECKING:
    import polars

__all__ = ["CHOICES", "coordinate_rows", "heat_rows"]

CHOICES = {
    "npus": "NPUs",
    "algorithm": "algorithm",
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "dp": "data parallel",
    "ep": "expert parallel",
    "cp": "context parallel",
    "zero": "ZeRO",
    "virtual_stages": "virtual stages",
    "sequence_parallel": "sequence parallel",
    "micro": "micro-batch",
    "recomputation": "recomputation",
    "order": "order",
}
"""Columns of choices, and what a person calls them."""

_SHORT = {
    "tp": "TP",
    "pp": "PP",
    "dp": "DP",
    "ep": "EP",
    "cp": "CP",
    "virtual_stages": "stages",
    "sequence_parallel": "SP",
    "recomputation": "recompute",
}


def heat_rows(frame: polars.DataFrame, x: str, y: str) -> list[dict[str, Any]]:
    """Best of each pair of values of two columns, without values that allow no candidate.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of an exploration.
    x, y : str
        Columns.

    Returns
    -------
    list of dict
        ``x``, ``y``; ``kind``: ``solved``, ``pruned`` (the best is not below ``value``) or
        ``refused``; ``value`` in the objective's unit, None where refused; ``text``; ``network`` of
        the best.

    Raises
    ------
    FieldError
        If a column is missing.
    """
    import polars as pl

    for place, name in (("x", x), ("y", y)):
        if name not in frame.columns:
            raise FieldError(
                place, f"no such column, got {name!r}. Use one of {', '.join(frame.columns)}."
            )
    best = pl.col("objective").arg_min()
    pruned = pl.col("bound").filter(pl.col("status") == "pruned").min()
    cells = (
        frame.sort("candidate")
        .group_by(x, y)
        .agg(
            pl.col("objective").min().alias("best"),
            pl.col("network").get(best).alias("shape"),
            pruned.alias("least"),
        )
        .sort(x, y)
    )
    possible = pl.col("best").is_not_null() | pl.col("least").is_not_null()
    cells = cells.filter(possible.any().over(x), possible.any().over(y))
    rows = []
    for across, down, value, shape, least in cells.iter_rows():
        row = {"x": across, "y": down, "text": "–", "network": shape}
        if value is not None:
            row |= {"kind": "solved", "value": value}
        elif least is not None:
            row |= {"kind": "pruned", "value": least}
        else:
            row |= {"kind": "refused", "value": None}
        rows.append(row)
    return rows


def coordinate_rows(
    frame: polars.DataFrame, unit: float, objective: str, best: int, most: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Lines, labels and axes of parallel coordinates.

    Parameters
    ----------
    frame : polars.DataFrame
        Rows of an exploration.
    unit : float
        Size of the objective's unit.
    objective : str
        Name of its axis.
    best, most : int
        Candidates to single out, which join the axes' choices; candidates to draw.

    Returns
    -------
    lines : list of dict
        ``rank`` from 1 on, ``axis``, ``place`` of the axis, ``position`` from 0 to 1,
        ``network``, ``objective``: a point of a candidate's line.
    ticks : list of dict
        ``axis``, ``position``, ``text``.
    axes : list of str
        In order: tiers, choices that vary, the objective.
    """
    solved = frame.filter(frame["objective"].is_not_null()).sort("objective", "candidate")
    rows = solved.head(max(most, best)).to_dicts()
    columns = _choices(rows, frame.columns)
    columns[objective] = [row["objective"] / unit for row in rows]
    axes = [name for name, values in columns.items() if len(set(values)) > 1]
    axes = axes if objective in axes else [*axes, objective]
    lines: list[dict[str, Any]] = []
    ticks: list[dict[str, Any]] = []
    for place, axis in enumerate(axes):
        values = columns[axis]
        positions, labels = _positions(values, is_number=axis == objective)
        ticks += [{"axis": axis, "position": p, "text": text} for p, text in labels]
        lines += [
            {"rank": k + 1, "axis": axis, "place": place, "position": at,
             "network": rows[k]["network"], "objective": rows[k]["objective"] / unit}
            for k, at in enumerate(positions)
        ]  # fmt: skip
    return lines, ticks, axes


def _choices(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Values of each choice: the block of each tier, and the columns of `CHOICES`."""
    columns: dict[str, list[Any]] = {}
    blocks = [
        dict(zip(row["tiers"].split(" "), row["network"].split("_"), strict=True)) for row in rows
    ]
    longest = sorted(blocks, key=len, reverse=True)  # They have the tiers in their order.
    for tier in dict.fromkeys(tier for found in longest for tier in found):
        columns[tier] = [found.get(tier, "none") for found in blocks]
    for name in names:
        prefix, key = re.fullmatch(r"(w\d+_)?(.*)", name).groups()  # type: ignore[union-attr]
        if key in CHOICES:
            columns[f"{_SHORT.get(key, CHOICES[key])}{f' {prefix[:-1]}' if prefix else ''}"] = [
                "none" if row[name] is None else row[name] for row in rows
            ]
    return columns


def _positions(
    values: Sequence[Any], *, is_number: bool
) -> tuple[list[float], list[tuple[float, str]]]:
    """Places on an axis, and its labels with theirs: even steps, or a scale from the least on."""
    if is_number:
        low, high = min(values), max(values)
        if high - low <= 1e-6 * high:  # The same: optima are proven to so much.
            return [0.0] * len(values), [(0.0, f"{low:.4g}")]
        digits = 4 if high - low > 1e-3 * high else 7
        ends = [(1.0, f"{high:.{digits}g}"), (0.0, f"{low:.{digits}g}")]
        return [(v - low) / (high - low) for v in values], ends
    every = sorted(set(values), key=_rank)
    step = 1 / max(len(every) - 1, 1)
    at = {value: k * step for k, value in enumerate(every)}
    return [at[v] for v in values], [(place, str(value)) for value, place in at.items()]


def _rank(value: Any) -> tuple[Any, ...]:
    """Order of a choice's values: numbers by size, blocks by size and kind, text as it is."""
    if isinstance(value, (int, float)):
        return (0, value, "")
    found = re.fullmatch(r"([A-Z]+)\((\d+)\)", value)
    return (1, int(found[2]), found[1]) if found else (0, -1, value)
