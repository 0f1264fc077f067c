"""Discrete bandwidths: the parts, or numbers of lanes, that a dimension can be built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from libra.errors import FieldError
from libra.units import BANDWIDTH, MONEY, POWER

__all__ = ["Choice", "check_choices", "lane_choices", "switch_tiers"]

MOST_CHOICES = 1000


@dataclass(frozen=True)
class Choice:
    """One bandwidth that an NPU can have in a dimension.

    Attributes
    ----------
    bandwidth : float
        Of one NPU [bytes/s].
    price : float or None
        Of all parts that give an NPU this bandwidth [USD]; None: by the price list of the tier.
    power : float or None
        Of these parts [W]; None: by the power list of the tier.
    part : str
        What a bill of materials calls it.
    lanes : int
        Ports that share the bandwidth.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    bandwidth: Annotated[float, BANDWIDTH]
    price: Annotated[float, MONEY] | None = None
    power: Annotated[float, POWER] | None = None
    part: str = ""
    lanes: int = 1

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise FieldError(
                "bandwidth", f"a choice has more than 0 GB/s, got {self.bandwidth!r}. Correct it."
            )
        if self.lanes < 1:
            raise FieldError(
                "lanes", f"a choice has at least 1 lane, got {self.lanes}. Correct it."
            )


def check_choices(choices: Sequence[Choice]) -> None:
    """Refuse lists of choices that are empty, ambiguous or priced in part.

    Raises
    ------
    FieldError
        Names the choice, or nothing if the list as a whole is wrong.
    """
    if not choices:
        raise FieldError(
            "", "a list of choices needs at least one bandwidth, got []. Add one, or leave it out."
        )
    if len(choices) > MOST_CHOICES:
        raise FieldError(
            "",
            f"a dimension has at most {MOST_CHOICES:,} choices, got {len(choices):,}. Drop some.",
        )
    for k, choice in enumerate(choices):
        if choice.bandwidth in [c.bandwidth for c in choices[:k]]:
            raise FieldError(
                (k, "bandwidth"),
                "two choices have one bandwidth, got "
                f"{choice.bandwidth / 1e9:g} GB/s twice. Keep the better one.",
            )
    for name in ("price", "power"):
        given = [getattr(c, name) is not None for c in choices]
        if any(given) and not all(given):
            raise FieldError(
                (given.index(False),),
                f"has no {name} though other choices have one, got none. Give every choice its "
                f"{name}, or none.",
            )


def lane_choices(lane: float, least: int, most: int) -> tuple[Choice, ...]:
    """One choice for each number of lanes of a bandwidth [bytes/s]."""
    return tuple(
        Choice(k * lane, part=f"{k} lane{'s' * (k > 1)}", lanes=k) for k in range(least, most + 1)
    )


def switch_tiers(members: int, radix: int | None) -> int:
    """Tiers of a non-blocking folded Clos network of switches that joins so many members.

    A switch of radix r joins r members; t tiers of them join 2 (r / 2)^t (Leiserson, "Fat-trees",
    IEEE Transactions on Computers 1985; Al-Fares et al., SIGCOMM 2008, for r-port switches).

    Examples
    --------
    >>> [switch_tiers(n, 64) for n in (64, 65, 2048, 2049)]
    [1, 2, 2, 3]
    """
    if radix is None or members <= radix:
        return 1
    tiers = 2
    while 2 * (radix // 2) ** tiers < members:
        tiers += 1
    return tiers
