"""Rows of the charts of frontiers and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libra.frontier import Against, FrontierPoint
from libra.sweep import Axis, SweepRow
from libra.units import GB_PER_S, parse_number

__all__ = ["frontier_rows", "sweep_bandwidth_rows", "sweep_number", "sweep_rows", "x_axis"]

Rows = list[dict[str, Any]]


def frontier_rows(
    points: Sequence[FrontierPoint], names: Sequence[str], against: Against
) -> tuple[Rows, Rows]:
    """Rows of a frontier: its points, and the bandwidths of each dimension along it.

    Parameters
    ----------
    points : sequence of FrontierPoint
    names : sequence of str
        Of the dimensions.
    against : Against
        What the step times are set against.

    Returns
    -------
    points : list of dict
        ``x`` [USD or W], ``time`` [s].
    bandwidths : list of dict
        ``x``, ``dimension``, ``bandwidth`` [bytes/s].
    """
    power = against is Against.POWER
    where = [p.network_power or 0.0 if power else p.network_cost for p in points]
    found = [{"x": x, "time": p.step_time} for x, p in zip(where, points, strict=True)]
    bandwidths = [
        {"x": x, "dimension": name, "bandwidth": value}
        for x, p in zip(where, points, strict=True)
        for name, value in zip(names, p.bandwidth.tolist(), strict=True)
    ]
    return found, bandwidths


def sweep_number(text: str) -> float | None:
    """Number of a swept value without its unit; None: it is a word."""
    split = parse_number(text)
    return None if split is None else split[0]


def x_axis(axes: Sequence[Axis]) -> int | None:
    """First axis whose values are all numbers of one unit; None: there is none."""
    for k, axis in enumerate(axes):
        split = [parse_number(v) for v in axis.values]
        if len({s[1] for s in split if s is not None}) == 1 and None not in split:
            return k
    return None


def sweep_rows(axes: Sequence[Axis], rows: Sequence[SweepRow]) -> Rows:
    """Rows of a sweep's solves: what varied, step time and cost.

    Returns
    -------
    list of dict
        ``x`` (number or text of the axis that `x_axis` names, or of the first), ``series`` (the
        other axes), ``time`` [s], ``cost`` [USD]; no row where there is no optimum.
    """
    main = x_axis(axes)
    found = []
    for row in rows:
        if row.result is None:
            continue
        x, series = _place(axes, row, main)
        found.append(
            {
                "x": x,
                "series": series,
                "time": row.result.step_time,
                "cost": row.result.network_cost,
            }
        )
    return found


def sweep_bandwidth_rows(axes: Sequence[Axis], rows: Sequence[SweepRow]) -> Rows:
    """Bandwidths of a sweep's solves: ``x``, ``series``, ``dimension``, ``bandwidth`` [bytes/s]."""
    main = x_axis(axes)
    found = []
    for row in rows:
        if row.result is None:
            continue
        x, series = _place(axes, row, main)
        names = row.result.design.network.names
        found += [
            {"x": x, "series": series, "dimension": name, "bandwidth": value}
            for name, value in zip(names, row.result.bandwidth.tolist(), strict=True)
        ]
    return found


def _place(axes: Sequence[Axis], row: SweepRow, main: int | None) -> tuple[float | str, str]:
    """Where a solve stands: its value on the main axis, and the others in words."""
    at = 0 if main is None else main
    x = row.values[at] if main is None else sweep_number(row.values[at])
    others = [
        f"{axis.path.split('.')[-1]} {value}"
        for k, (axis, value) in enumerate(zip(axes, row.values, strict=True))
        if k != at
    ]
    return x if x is not None else row.values[at], ", ".join(others)


def bandwidth_in_gb(rows: Rows) -> Rows:
    """Rows with bandwidths in GB/s."""
    return [row | {"bandwidth": row["bandwidth"] / GB_PER_S} for row in rows]
