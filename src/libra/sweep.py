"""Sweeps: one design solved for many values of one or several of its settings.

Solves share what the values leave unchanged: the parsed file, its step graphs, time models and, as
long as only constraints, prices or weights vary, all critical-path cuts.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from libra.errors import InfeasibleError, InputError, Problem, SolverError, UnboundedError
from libra.load import DesignReader
from libra.optimize import Memory, optimize_design
from libra.result import Result
from libra.units import parse_number
from libra.yaml_source import Override, split_path

__all__ = ["Axis", "SweepRow", "axis_unit", "parse_axis", "sweep_design"]

MOST_VALUES = 100_000
_RANGE = re.compile(
    r"\s*(?P<low>[-+]?[\d.][\d.eE_+-]*?)\.\.(?P<high>[-+]?[\d.][\d.eE_+-]*?)"
    r":(?P<times>x?)(?P<step>[\d.][\d.eE_+-]*)\s*(?P<unit>[A-Za-z(].*)?"
)
_EXAMPLE = "Write e.g. constraints.total=100..1000:100 or objective=time,time-cost."


@dataclass(frozen=True)
class Axis:
    """A setting that a sweep varies.

    Attributes
    ----------
    path : str
        Where it stands, as for ``--set``.
    values : tuple of str
        What it becomes.
    """

    path: str
    values: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SweepRow:
    """One solve of a sweep.

    Attributes
    ----------
    values : tuple of str
        Of the axes, in their order.
    result : Result or None
        None: there is none, and `message` says why.
    status : str
        ``optimal``, ``infeasible``, ``unbounded``, or that of a solve that failed.
    message : str
    """

    values: tuple[str, ...]
    result: Result | None
    status: str
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra sweep --json``."""
        numbers = [_plain(v) for v in self.values]
        data: dict[str, Any] = {
            "value": numbers[0] if len(numbers) == 1 else numbers,
            "status": self.status,
        }
        if self.result is None:
            return data | {"message": self.message}
        return data | self.result.to_dict()


def parse_axis(text: str) -> Axis:
    """Axis of a text ``PATH=VALUES``.

    Values are a list ``a,b,c``, or a range ``LOW..HIGH:STEP``, ``LOW..HIGH:xFACTOR`` with an
    optional unit. A number without a unit takes the unit of the value that it replaces.

    Raises
    ------
    InputError
        If it is not of that form.

    Examples
    --------
    >>> parse_axis("constraints.total=100..400:100 GB/s").values
    ('100 GB/s', '200 GB/s', '300 GB/s', '400 GB/s')
    """
    path, sign, spec = text.partition("=")
    if not (sign and path.strip() and spec.strip()):
        raise InputError(f"--vary: needs PATH=VALUES, got {text!r}. {_EXAMPLE}")
    match = _RANGE.fullmatch(spec)
    if match is None:
        if ".." in spec:
            raise InputError(f"--vary: a range is LOW..HIGH:STEP, got {spec.strip()!r}. {_EXAMPLE}")
        values = tuple(_split(spec))
        if not all(values):
            raise InputError(f"--vary: a value is missing, got {spec.strip()!r}. {_EXAMPLE}")
        return Axis(path.strip(), values)
    try:
        low, high, step = (float(match[key]) for key in ("low", "high", "step"))
    except ValueError:
        raise InputError(f"--vary: not numbers, got {spec.strip()!r}. {_EXAMPLE}") from None
    return Axis(path.strip(), tuple(_range(low, high, step, bool(match["times"]), match["unit"])))


def _range(low: float, high: float, step: float, times: bool, unit: str | None) -> Iterator[str]:
    """Values from low to high, both included where the steps meet it."""
    got = f"got {low:g}..{high:g}:{'x' if times else ''}{step:g}. {_EXAMPLE}"
    if not (low <= high and all(map(math.isfinite, (low, high, step)))):
        raise InputError(f"--vary: a range rises, {got}")
    if times and not (step > 1 and low > 0):
        raise InputError(f"--vary: a factor is above 1 and begins above 0, {got}")
    if not times and not step > 0:
        raise InputError(f"--vary: a step is above 0, {got}")
    count = math.log(high / low, step) if times else (high - low) / step
    if count > MOST_VALUES:
        raise InputError(f"--vary: at most {MOST_VALUES:,} values, {got}")
    for k in range(math.floor(count + 1e-9) + 1):
        value = low * step**k if times else low + step * k
        yield f"{value:.12g} {unit or ''}".strip()


def _split(spec: str) -> list[str]:
    """Values between commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in spec:
        before = parts[-1].rstrip()[-1:]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"" and before in ("", *"[{:,"):  # Within a word it is an apostrophe.
            quote = sign
        elif sign == "," and depth <= 0:
            parts.append("")
            continue
        depth += (sign in "[{") - (sign in "]}") if not quote else 0
        parts[-1] += sign
    return [part.strip() for part in parts]


def _plain(text: str) -> float | str:
    """Value as a number without its unit, or its text."""
    split = parse_number(text)
    return text if split is None else split[0]


def sweep_design(
    reader: DesignReader, axes: Sequence[Axis], memory: Memory | None = None
) -> Iterator[SweepRow]:
    """Optimise a design file for every combination of the axes' values, the last axis fastest.

    Parameters
    ----------
    reader : DesignReader
        The file.
    axes : sequence of Axis
        At least one.
    memory : Memory or None
        Shared with other solves.

    Yields
    ------
    SweepRow
        Constraints that conflict, a bandwidth without limit or a failed solve are a row, not an
        end.

    Raises
    ------
    InputError
        If a value is wrong.
    """
    memory = Memory() if memory is None else memory
    _require_different_paths(axes)
    count = math.prod(len(axis.values) for axis in axes)
    if not axes or count > MOST_VALUES:
        raise InputError(
            f"--vary: from 1 to {MOST_VALUES:,} combinations, got {count if axes else 0:,}. "
            f"{_EXAMPLE}"
        )
    for values in itertools.product(*(axis.values for axis in axes)):
        overrides = [
            _override(reader, axis.path, value) for axis, value in zip(axes, values, strict=True)
        ]
        design = reader.read(overrides)
        try:
            yield SweepRow(values, optimize_design(design, memory), "optimal")
        except (InfeasibleError, UnboundedError, SolverError) as error:
            yield SweepRow(values, None, error.status, str(error))


def _require_different_paths(axes: Sequence[Axis]) -> None:
    """Refuse an axis that undoes an earlier one, since it sets the same or what is around it."""
    places = [split_path(axis.path) for axis in axes]
    for k, place in enumerate(places):
        for earlier in places[:k]:
            if earlier[: len(place)] == place:
                raise InputError(
                    f"--vary: an axis undoes an earlier one, got {axes[k].path!r} after "
                    f"{'.'.join(earlier)!r}. Vary it once, outer settings first."
                )


def _override(reader: DesignReader, path: str, value: str) -> Override:
    """Override, with the unit of the value that it replaces if it has none itself."""
    split = parse_number(value)
    if split is None or split[1]:
        return Override(path, value, "--vary")
    return Override(path, f"{value} {_current_unit(reader, path)}".strip(), "--vary")


def axis_unit(reader: DesignReader, axis: Axis) -> str:
    """Unit of an axis's numbers: their own, or that of the value they replace; empty: none."""
    split = parse_number(axis.values[0])
    if split is None or split[1]:
        return "" if split is None else split[1]
    return _current_unit(reader, axis.path)


def _current_unit(reader: DesignReader, path: str) -> str:
    """Unit of the value that an axis replaces."""
    try:
        current = reader.value(path)
    except ValueError as error:
        raise InputError(Problem(str(error), file=f"--vary {path}")) from None
    old = parse_number(current) if isinstance(current, str) else None
    return "" if old is None else old[1]
