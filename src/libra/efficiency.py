"""Efficiency of collectives: the fraction of a nominal bandwidth that a kind reaches, by size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import numpy as np

from libra.errors import FieldError
from libra.units import SIZE

__all__ = [
    "CollectiveKind",
    "EfficiencyCurves",
    "EfficiencyPoint",
    "efficiency_at",
    "require_fraction",
    "require_rising",
]


class CollectiveKind(StrEnum):
    """What a collective does, by its name in the field."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point-to-point"


@dataclass(frozen=True)
class EfficiencyPoint:
    """Fraction of the nominal bandwidth that a collective of a size reaches.

    Attributes
    ----------
    size : float
        Buffer m [bytes], > 0.
    fraction : float
        In (0, 1].
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    size: Annotated[float, SIZE]
    fraction: float

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise FieldError("size", f"a size must be positive, got {self.size!r}. Correct it.")
        require_fraction("fraction", self.fraction)


EfficiencyCurves = Mapping[CollectiveKind, tuple[EfficiencyPoint, ...]]
"""Points of rising size, by kind of collective."""


def require_fraction(name: str, value: float) -> None:
    """Refuse an efficiency outside (0, 1]."""
    if not 0 < value <= 1:
        raise FieldError(name, f"an efficiency is in (0, 1], got {value!r}. Correct it.")


def require_rising(name: str, curves: EfficiencyCurves) -> None:
    """Refuse curves without points, or whose sizes do not rise."""
    for kind, points in curves.items():
        sizes = [p.size for p in points]
        if not points or sizes != sorted(set(sizes)):
            raise FieldError(
                f"{name}.{kind}",
                f"needs points of rising size, got {sizes}. Sort them, one a size.",
            )


def efficiency_at(points: Sequence[EfficiencyPoint], size: float) -> float:
    """Fraction at a size: linear in log size between the points, constant outside them.

    Examples
    --------
    >>> efficiency_at([EfficiencyPoint(1e6, 0.2), EfficiencyPoint(1e8, 0.8)], 1e7)
    0.5
    """
    sizes = np.log([p.size for p in points])
    return float(np.interp(math.log(size), sizes, [p.fraction for p in points]))
