"""Prices and power: what bandwidth costs and draws in each dimension.

The network costs ``N sum_d price_d B_d``, with N NPUs and price_d per unit of the bandwidth that
an NPU can inject into dimension d: the link price for a ring or a fully connected block, link plus
switch plus NIC for a switch (Won et al., ISPASS 2024, arXiv 2109.11762, section IV-C). A link price
is thus per NPU and direction, `LinkCount.PER_NPU`; who counts a direct cable once per pair of NPUs
gives half of it, `LinkCount.PER_CABLE`. Power is counted in the same way. With t tiers of switches,
a byte passes t links and 2 t - 1 switches, and pays for each.

A price may rise with bandwidth (convex, piecewise linear) or belong to a choice of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from libra.errors import FieldError, shown
from libra.network import Dimension, Network, Topology
from libra.units import (
    BANDWIDTH,
    DURATION,
    ENERGY_PRICE,
    MONEY,
    POWER,
    POWER_RATE,
    PRICE_RATE,
    Kind,
    parse_quantity,
    require_range,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "Curve",
    "Energy",
    "LinkCount",
    "PartPower",
    "PartPrices",
    "PowerList",
    "PriceList",
    "curve_steps",
    "part_curves",
]

Steps = tuple[tuple[float, float], ...]
Curve = float | Steps
"""Price or power per byte/s: one number, or steps (up to this bandwidth, that much)."""


@dataclass(frozen=True)
class _CurveKind:
    """Makes pydantic read a `Curve`: text with a unit, or a list of ``{up_to: …, KEY: …}``."""

    kind: Kind
    key: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic read it with `read`."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: object) -> dict[str, Any]:
        """JSON Schema of a number with its unit, or of a list of steps."""
        rate = self.kind.__get_pydantic_json_schema__(core, handler)
        limit = BANDWIDTH.__get_pydantic_json_schema__(core, handler)
        step = {
            "type": "object",
            "properties": {"up_to": limit, self.key: rate},
            "required": [self.key],
            "additionalProperties": False,
        }
        return {"anyOf": [rate, {"type": "array", "items": step, "minItems": 1}]}

    def read(self, value: object) -> Curve:
        """Curve of plain data.

        Raises
        ------
        ValueError
            If it is not such a text or list.
        """
        if not isinstance(value, list):
            return self._number(value, self.kind)
        steps = []
        for k, item in enumerate(value):
            last = k == len(value) - 1
            wanted = {self.key} if last else {self.key, "up_to"}
            if not (isinstance(item, dict) and (set(item) == wanted)):
                keys = " and ".join(sorted(wanted, reverse=True))
                raise ValueError(
                    f"step {k + 1} of {len(value)} needs {keys} (the last has no end), got "
                    f"{shown(item)}. Write e.g. [{{up_to: 100 GB/s, {self.key}: "
                    f"{self.kind.example}}}, {{{self.key}: {self.kind.example}}}]."
                )
            limit = np.inf if last else self._number(item["up_to"], BANDWIDTH)
            steps.append((limit, self._number(item[self.key], self.kind)))
        return tuple(steps)

    @staticmethod
    def _number(value: object, kind: Kind) -> float:
        result = parse_quantity(value, kind)
        require_range(result, kind, shown(value))
        return result


PriceCurve = Annotated[Curve, _CurveKind(PRICE_RATE, "price")]
PowerCurve = Annotated[Curve, _CurveKind(POWER_RATE, "power")]


def curve_steps(curve: Curve) -> Steps:
    """Steps of a curve: (up to this bandwidth [bytes/s], that much per byte/s)."""
    return curve if isinstance(curve, tuple) else ((np.inf, curve),)


def check_curve(name: str, curve: Curve | None) -> None:
    """Refuse a curve whose limits or rates do not rise.

    Raises
    ------
    FieldError
        Names the part.
    """
    if curve is None:
        return
    steps = curve_steps(curve)
    if not steps:
        raise FieldError(name, "needs at least one step, got []. Write a number with its unit.")
    limits, rates = [limit for limit, _ in steps], [rate for _, rate in steps]
    if steps[-1][0] != np.inf or any(b <= a for a, b in pairwise(limits)):
        raise FieldError(
            name,
            f"the limits must rise from step to step, got "
            f"{', '.join(f'{x / 1e9:g}' for x in limits)} GB/s. "
            "Order them.",
        )
    if any(b < a for a, b in pairwise(rates)):
        raise FieldError(
            name,
            "what bandwidth costs or draws may rise with it but not fall (that is not convex), got "
            f"{', '.join(f'{x * 1e9:g}' for x in rates)} per GB/s. "
            "List parts under bandwidth_choices instead.",
        )


@dataclass(frozen=True)
class PartPrices:
    """Prices of the parts of one tier [USD per byte/s of an NPU's bandwidth]; None: no price.

    Attributes
    ----------
    link, switch, nic : Curve or None
        One number, or steps that rise with an NPU's bandwidth. A ring or fully connected block pays
        for links, a switch for all three.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    link: PriceCurve | None = None
    switch: PriceCurve | None = None
    nic: PriceCurve | None = None

    def __post_init__(self) -> None:
        for part in PARTS:
            check_curve(part, getattr(self, part))


@dataclass(frozen=True)
class PartPower:
    """Power of the parts of one tier [W per byte/s of an NPU's bandwidth]; None: not known.

    Attributes
    ----------
    link, switch, nic : Curve or None
        One number, or steps that rise with an NPU's bandwidth.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    link: PowerCurve | None = None
    switch: PowerCurve | None = None
    nic: PowerCurve | None = None

    def __post_init__(self) -> None:
        for part in PARTS:
            check_curve(part, getattr(self, part))


PARTS = ("link", "switch", "nic")


class LinkCount(StrEnum):
    """How a direct link (of a ring or a fully connected block) is counted.

    ``PER_NPU``: once for each NPU at its ends, as in LIBRA. ``PER_CABLE``: once, so that an NPU
    pays half, as in the precursor of LIBRA (github willjwon/sc245-artifact).
    """

    PER_NPU = "per-npu"
    PER_CABLE = "per-cable"


@dataclass(frozen=True)
class Energy:
    """What power costs over the years.

    Attributes
    ----------
    price : float
        Of energy [USD/J].
    years : float
        Time in service [s].
    overhead : float
        Power drawn from the grid per power used, the PUE of the building; at least 1.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    price: Annotated[float, ENERGY_PRICE]
    years: Annotated[float, DURATION]
    overhead: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.overhead) and self.overhead >= 1):
            raise FieldError(
                "overhead",
                f"the grid delivers at least what is used, got {self.overhead!r}. Write e.g. 1.2.",
            )

    @property
    def per_watt(self) -> float:
        """Price of one watt over the years [USD/W]."""
        return self.price * self.years * self.overhead


@dataclass(frozen=True)
class PriceList:
    """Prices by tier.

    Attributes
    ----------
    tiers : mapping of str to PartPrices
        The tiers that can be built from.
    npu : float
        Price of one NPU [USD]; 0: the objective ``time-cost`` looks at the network alone.
    direct_links : LinkCount
        How the links of rings and fully connected blocks are counted.
    energy : Energy or None
        What the network's power (and the NPUs', where it is given) adds to its cost.
    source : str
        Where the prices are from.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tiers: Mapping[str, PartPrices]
    npu: Annotated[float, MONEY] = 0.0
    direct_links: LinkCount = LinkCount.PER_NPU
    energy: Energy | None = None
    source: str = "the design file"

    def __hash__(self) -> int:
        """Hash of what it holds, tiers in any order."""
        tiers = frozenset(self.tiers.items())
        return hash((tiers, self.npu, self.direct_links, self.energy, self.source))


@dataclass(frozen=True)
class PowerList:
    """Power by tier.

    Attributes
    ----------
    tiers : mapping of str to PartPower
    npu : float
        Power of one NPU [W]; counts where energy has a price.
    direct_links : LinkCount
        How the links of rings and fully connected blocks are counted.
    source : str
        Where the figures are from.
    unconfirmed : tuple of str
        Figures (``tier.part``) whose source was not read.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tiers: Mapping[str, PartPower]
    npu: Annotated[float, POWER] = 0.0
    direct_links: LinkCount = LinkCount.PER_NPU
    source: str = "the design file"
    unconfirmed: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Hash of what it holds, tiers in any order."""
        return hash((frozenset(self.tiers.items()), self.npu, self.direct_links, self.source))


def needed_parts(dimension: Dimension) -> tuple[str, ...]:
    """Parts that a dimension is built from, by the names of `PartPrices`."""
    return PARTS if dimension.topology is Topology.SWITCH else ("link",)


def part_counts(dimension: Dimension, direct_links: LinkCount) -> dict[str, float]:
    """How often an NPU's bandwidth passes, and pays for, each part of a dimension."""
    if dimension.topology is not Topology.SWITCH:
        return {"link": 0.5 if direct_links is LinkCount.PER_CABLE else 1.0}
    tiers = dimension.switch_tiers
    return {"link": float(tiers), "switch": 2.0 * tiers - 1, "nic": 1.0}


def part_curves(
    network: Network, figures: PriceList | PowerList, dimension: int
) -> dict[str, Steps]:
    """Curve of each part that a dimension needs, for one NPU, times how often it is passed.

    Raises
    ------
    FieldError
        If the list has no figure for a part that the dimension needs; names tier and part.
    """
    what, unit = (
        ("price", "USD/(GB/s)") if isinstance(figures, PriceList) else ("power", "W/(GB/s)")
    )
    block = network.dimensions[dimension]
    empty: PartPrices | PartPower = PartPrices()
    parts = figures.tiers.get(block.tier, empty)
    found = {}
    for part, count in part_counts(block, figures.direct_links).items():
        curve = getattr(parts, part)
        if curve is None:
            raise FieldError(
                (block.tier, part),
                f"no {what} for a {part} in tier {block.tier!r}, which dimension "
                f"{network.names[dimension]} ({block.topology.code}({block.size})) needs, "
                f"got none. Add '{part}: … {unit}'; 0 {unit} if it "
                f"{'costs' if what == 'price' else 'draws'} nothing.",
            )
        found[part] = tuple((limit, rate * count) for limit, rate in curve_steps(curve))
    return found


def curve_amount(steps: Steps, bandwidth: float) -> float:
    """Price or power of a bandwidth along a curve, step by step."""
    limits = np.array([0.0, *(limit for limit, _ in steps)])
    filled = np.diff(np.minimum(limits, bandwidth))
    return float(filled @ np.array([rate for _, rate in steps]))


def add_curves(
    curves: Sequence[tuple[tuple[float, float], ...]],
) -> tuple[tuple[float, float], ...]:
    """Sum of curves, with the limits of all of them."""
    limits = sorted({limit for curve in curves for limit, _ in curve})
    return tuple(
        (limit, sum(next(rate for end, rate in curve if end >= limit) for curve in curves))
        for limit in limits
    )
