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
    members : int
        Members along the dimension (of the whole group, for a collective model) that this is for;
        0: any number.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    size: Annotated[float, SIZE]
    fraction: float
    members: int = 0

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise FieldError("size", f"a size must be positive, got {self.size!r}. Correct it.")
        require_fraction("fraction", self.fraction)
        if self.members < 0 or self.members == 1:
            raise FieldError(
                "members", f"must be 2 or more, got {self.members}. Leave it out for any number."
            )


EfficiencyCurves = Mapping[CollectiveKind, tuple[EfficiencyPoint, ...]]
"""Points of rising size, by kind of collective; with ``members`` one such curve a number."""


def require_fraction(name: str, value: float) -> None:
    """Refuse an efficiency outside (0, 1]."""
    if not 0 < value <= 1:
        raise FieldError(name, f"an efficiency is in (0, 1], got {value!r}. Correct it.")


def require_rising(name: str, curves: EfficiencyCurves) -> None:
    """Refuse curves without points, whose sizes do not rise, or only some of which have members."""
    for kind, points in curves.items():
        order = [(p.members, p.size) for p in points]
        if not points or order != sorted(set(order)):
            sizes = [p.size for p in points]
            raise FieldError(
                f"{name}.{kind}",
                f"needs points of rising size, got {sizes}. Sort them, one a size"
                + (" and number of members." if any(p.members for p in points) else "."),
            )
        if points[0].members == 0 != points[-1].members:
            raise FieldError(
                f"{name}.{kind}",
                f"is for any number of members and for {points[-1].members}, got both. "
                "Give all points members, or none.",
            )


def efficiency_at(points: Sequence[EfficiencyPoint], size: float, members: int) -> float:
    """Fraction at a size and a number of members.

    Linear in the logarithm of each between the points, constant outside them.

    Examples
    --------
    >>> efficiency_at([EfficiencyPoint(1e6, 0.2), EfficiencyPoint(1e8, 0.8)], 1e7, 4)
    0.5
    >>> efficiency_at([EfficiencyPoint(1e6, 0.2, 2), EfficiencyPoint(1e6, 0.3, 8)], 1e6, 4)
    0.25
    """
    counts = sorted({p.members for p in points})
    fractions = []
    for count in counts:
        curve = [p for p in points if p.members == count]
        sizes = np.log([p.size for p in curve])
        fractions.append(np.interp(math.log(size), sizes, [p.fraction for p in curve]))
    if len(counts) == 1:
        return float(fractions[0])
    return float(np.interp(math.log(members), np.log(counts), fractions))
