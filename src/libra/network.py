"""The network: nested dimensions, innermost first, each a building block of some size."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

from libra.choices import MOST_CHOICES, Choice, check_choices, lane_choices, switch_tiers
from libra.efficiency import EfficiencyCurves, require_fraction, require_rising
from libra.errors import FieldError, nearest, shown
from libra.units import BANDWIDTH, TIME

__all__ = ["Dimension", "Network", "Topology", "parse_shape"]

Bandwidth = Annotated[float, BANDWIDTH]


class Topology(StrEnum):
    """Building block of a dimension: how its members are wired.

    ``RING`` splits an NPU's bandwidth over 2 links, ``FULLY_CONNECTED`` over size - 1 links,
    ``SWITCH`` has one link to the switch.
    """

    RING = "ring"
    FULLY_CONNECTED = "fully-connected"
    SWITCH = "switch"

    @property
    def code(self) -> str:
        """Two letters of the shape notation."""
        return {"ring": "RI", "fully-connected": "FC", "switch": "SW"}[self.value]

    @classmethod
    def _missing_(cls, value: object) -> Topology | None:
        word = re.sub(r"[^a-z]", "", str(value).lower())
        for topology in cls:
            if word in (topology.code.lower(), topology.value.replace("-", "")):
                return topology
        return None


def read_topology(value: object) -> Topology:
    """Topology of a word: ``ring``, ``fully-connected``, ``switch`` or ``RI``, ``FC``, ``SW``.

    Raises
    ------
    ValueError
        For any other word, with the nearest valid one.
    """
    try:
        return Topology(str(value))
    except ValueError:
        words = [t.value for t in Topology] + [t.code for t in Topology]
        raise ValueError(
            f"unknown building block, got {value!r}. {nearest(str(value), words)}"
        ) from None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBERED = re.compile(r"dim[0-9]+$")
_MOST_MEMBERS = 1_000_000
_MOST_NPUS = 1_000_000_000_000
_RESERVED = ("total", "cost", "time", "slowdown", "power")


@dataclass(frozen=True)
class Dimension:
    """One dimension of the network.

    Attributes
    ----------
    topology : Topology
        Building block.
    size : int
        Members along the dimension, at least 2.
    tier : str
        What it is built from and priced by: chiplet, package, node, pod, or a tier of the user's
        own price list.
    name : str
        How constraints call it; empty: by its tier, or by ``dimK`` where tiers repeat.
    min_bandwidth, max_bandwidth : float or None
        Limits on an NPU's bandwidth in this dimension [bytes/s]; None: no limit.
    in_network : bool
        The switch reduces in the network: an all-reduce sends its buffer only once.
    latency : float
        Of one hop [s]; through a switch a message takes two.
    efficiency : float
        Fraction of the nominal bandwidth that collectives reach here, in (0, 1].
    efficiency_by_size : mapping of CollectiveKind to tuple of EfficiencyPoint
        The same for a kind of collective by the size of the buffer that comes to this dimension, in
        place of `efficiency`: linear in log size between the points, constant outside them.
    bandwidth_choices : tuple of Choice or None
        The only bandwidths that can be had; None: any.
    lane : float or None
        Bandwidth of one lane [bytes/s], where a bandwidth is a whole number of lanes.
    min_lanes, max_lanes : int, int or None
        Fewest and most lanes.
    radix : int or None
        Ports of a switch; a dimension with more members has several tiers of them. None: one
        switch joins all members.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    topology: Topology
    size: int
    tier: str
    name: str = ""
    min_bandwidth: Bandwidth | None = None
    max_bandwidth: Bandwidth | None = None
    in_network: bool = False
    latency: Annotated[float, TIME] = 0.0
    efficiency: float = 1.0
    efficiency_by_size: EfficiencyCurves = field(default_factory=dict)
    bandwidth_choices: tuple[Choice, ...] | None = None
    lane: Bandwidth | None = None
    min_lanes: int = 1
    max_lanes: int | None = None
    radix: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topology", Topology(self.topology))
        if self.size < 2:
            raise FieldError(
                "size", f"a dimension needs at least 2 members, got {self.size}. Leave it out."
            )
        if self.size > _MOST_MEMBERS:
            raise FieldError(
                "size",
                f"a dimension has at most {_MOST_MEMBERS:,} members, got {shown(self.size)}. "
                "Correct it.",
            )
        if self.name and not _NAME.fullmatch(self.name):
            raise FieldError(
                "name",
                f"a name is letters, digits and _, not beginning with a digit, got {self.name!r}. "
                "Rename it.",
            )
        if self.name in _RESERVED:
            raise FieldError("name", f"the name is reserved, got {self.name!r}. Rename it.")
        require_fraction("efficiency", self.efficiency)
        require_rising("efficiency_by_size", self.efficiency_by_size)
        if self.in_network and self.topology is not Topology.SWITCH:
            raise FieldError(
                "in_network",
                f"only a switch can reduce in the network, got a {self.topology.value}. "
                "Remove in_network.",
            )
        low, high = self.min_bandwidth, self.max_bandwidth
        if low is not None and high is not None and low > high:
            raise FieldError(
                "min_bandwidth",
                f"the least bandwidth exceeds the largest, got {low / 1e9:g} > {high / 1e9:g} "
                "GB/s. Lower it.",
            )
        _check_discrete(self)

    def __hash__(self) -> int:
        """Hash of the fields that tell most dimensions apart; equality looks at all of them."""
        limits = (self.min_bandwidth, self.max_bandwidth, self.lane, self.radix)
        return hash((self.topology, self.size, self.tier, self.latency, self.efficiency, *limits))

    @cached_property
    def choices(self) -> tuple[Choice, ...] | None:
        """Bandwidths that can be had, by rising bandwidth; None: any."""
        if self.lane is not None and self.max_lanes is not None:
            return lane_choices(self.lane, self.min_lanes, self.max_lanes)
        if self.bandwidth_choices is None:
            return None
        return tuple(sorted(self.bandwidth_choices, key=lambda c: c.bandwidth))

    @property
    def switch_tiers(self) -> int:
        """Tiers of switches between the members; 1 for a ring or a fully connected block."""
        return switch_tiers(self.size, self.radix)


def _check_discrete(dimension: Dimension) -> None:
    """Refuse choices, lanes and radixes that contradict each other.

    Raises
    ------
    FieldError
        Names the field.
    """
    lane, most = dimension.lane, dimension.max_lanes
    if dimension.bandwidth_choices is not None:
        if lane is not None or most is not None:
            raise FieldError(
                "lane",
                "bandwidth_choices and lanes both say what can be built, got both. Remove one.",
            )
        try:
            check_choices(dimension.bandwidth_choices)
        except FieldError as error:
            raise FieldError(("bandwidth_choices", *error.place), error.message) from None
    for name, given, other in (("lane", lane, "max_lanes"), ("max_lanes", most, "lane")):
        if given is None and getattr(dimension, other) is not None:
            raise FieldError(
                other, f"{other} needs {name} beside it, got none. Add {name}: or remove {other}:."
            )
    if lane is not None and not lane > 0:
        raise FieldError("lane", f"a lane has more than 0 GB/s, got {lane!r}. Correct it.")
    if most is not None and not 1 <= dimension.min_lanes <= most <= MOST_CHOICES:
        raise FieldError(
            "max_lanes",
            "lanes are counted from min_lanes (at least 1) to max_lanes (at most "
            f"{MOST_CHOICES:,}), got {dimension.min_lanes} to {most}. Correct them.",
        )
    if dimension.min_lanes != 1 and most is None:
        raise FieldError(
            "min_lanes", "there are no lanes, got min_lanes. Add lane: and max_lanes:."
        )
    radix = dimension.radix
    if radix is not None and dimension.topology is not Topology.SWITCH:
        raise FieldError(
            "radix", f"only a switch has a radix, got a {dimension.topology.value}. Remove radix."
        )
    if radix is not None and (radix < 2 or (radix < dimension.size and (radix % 2 or radix < 4))):
        raise FieldError(
            "radix",
            "switches with fewer ports than the dimension has members stand in tiers, which takes "
            f"an even radix of at least 4, got {radix}. Correct it.",
        )


@dataclass(frozen=True)
class Network:
    """Dimensions, innermost first. Dimension d has ``names[d]``; all names differ."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise FieldError("", "a network needs at least one dimension, got none. Add one.")
        if self.npus > _MOST_NPUS:
            raise FieldError(
                "",
                f"a network has at most {_MOST_NPUS:,} NPUs, got {shown(self.shape)}. Correct it.",
            )
        numbers = [f"dim{k + 1}" for k in range(len(self.dimensions))]
        for k, dimension in enumerate(self.dimensions):
            name = dimension.name
            repeated = name in [d.name for d in self.dimensions[:k]]
            if name and (repeated or (name in numbers and name != numbers[k])):
                raise FieldError(
                    (k, "name"), f"the name belongs to two dimensions, got {name!r}. Rename one."
                )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What each dimension is called: its name, else its tier, else ``dimK``.

        A tier that means something else in a constraint, or several dimensions, names none.
        """
        taken = [d.name or d.tier for d in self.dimensions]
        unclear = [t for t in taken if taken.count(t) > 1 or t in _RESERVED or _NUMBERED.match(t)]
        return tuple(
            name if dimension.name or name not in unclear else f"dim{k + 1}"
            for k, (dimension, name) in enumerate(zip(self.dimensions, taken, strict=True))
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Members along each dimension."""
        return tuple(d.size for d in self.dimensions)

    @property
    def npus(self) -> int:
        """Number of NPUs, the product of the sizes."""
        return math.prod(self.sizes)

    @property
    def shape(self) -> str:
        """Shape notation, e.g. ``RI(4)_FC(8)_RI(4)_SW(32)``."""
        return "_".join(f"{d.topology.code}({d.size})" for d in self.dimensions)


_BLOCK = re.compile(r"([A-Za-z]+)\((-?\d{1,15})\)", re.ASCII)


@lru_cache(maxsize=1000)
def parse_shape(shape: str) -> tuple[tuple[Topology, int], ...]:
    """Blocks of a shape, innermost first.

    Parameters
    ----------
    shape : str
        E.g. ``RI(4)_FC(8)_RI(4)_SW(32)``: RI ring, FC fully connected, SW switch.

    Raises
    ------
    ValueError
        If the text is not of that form, or a block is unknown.

    Examples
    --------
    >>> parse_shape("RI(4)_SW(32)")
    ((<Topology.RING: 'ring'>, 4), (<Topology.SWITCH: 'switch'>, 32))
    """
    blocks = []
    for part in shape.split("_"):
        match = _BLOCK.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"not a block with its size, got {shown(part)} in {shown(shape)}. "
                "Write e.g. RI(4)_FC(8)_SW(32), innermost dimension first."
            )
        blocks.append((read_topology(match[1]), int(match[2])))
    return tuple(blocks)
