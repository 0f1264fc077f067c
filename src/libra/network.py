"""The network: nested dimensions, innermost first, each a building block of some size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from libra.errors import FieldError, nearest
from libra.units import BANDWIDTH, Kind

__all__ = ["Dimension", "Group", "Network", "Topology", "parse_shape", "place_groups"]

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
        return Topology(value)
    except ValueError:
        words = [t.value for t in Topology] + [t.code for t in Topology]
        raise ValueError(
            f"unknown building block, got {value!r}. {nearest(str(value), words)}"
        ) from None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    """

    __pydantic_config__ = {"extra": "forbid"}

    topology: Topology
    size: int
    tier: str
    name: str = ""
    min_bandwidth: Bandwidth | None = None
    max_bandwidth: Bandwidth | None = None
    in_network: bool = False

    def __post_init__(self) -> None:
        if self.size < 2:
            raise FieldError(
                "size", f"a dimension needs at least 2 members, got {self.size}. Leave it out."
            )
        if self.name and not _NAME.fullmatch(self.name):
            raise FieldError(
                "name",
                f"a name is letters, digits and _, not beginning with a digit, got {self.name!r}. "
                "Rename it.",
            )
        if self.name in _RESERVED:
            raise FieldError("name", f"the name is reserved, got {self.name!r}. Rename it.")
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
                f"the least bandwidth exceeds the largest, got {low / 1e9:g} > {high / 1e9:g} GB/s. "
                "Lower it.",
            )


@dataclass(frozen=True)
class Network:
    """Dimensions, innermost first. Dimension d has ``names[d]``; all names differ."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise FieldError("", "a network needs at least one dimension, got none. Add one.")
        names = [d.name for d in self.dimensions if d.name]
        numbers = [f"dim{k + 1}" for k in range(len(self.dimensions))]
        for k, dimension in enumerate(self.dimensions):
            name = dimension.name
            if name and (names.count(name) > 1 or (name in numbers and name != numbers[k])):
                raise FieldError(
                    f"[{k}].name", f"the name belongs to two dimensions, got {name!r}. Rename one."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """What each dimension is called: its name, else its tier, else ``dimK``."""
        taken = [d.name or d.tier for d in self.dimensions]
        return tuple(
            name if dimension.name or taken.count(name) == 1 else f"dim{k + 1}"
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


_BLOCK = re.compile(r"([A-Za-z]+)\((-?\d{1,12})\)")


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
                f"not a block with its size, got {part!r} in {shape!r}. "
                "Write e.g. RI(4)_FC(8)_SW(32), innermost dimension first."
            )
        blocks.append((read_topology(match[1]), int(match[2])))
    return tuple(blocks)


@dataclass(frozen=True)
class Group:
    """NPUs that take part in a collective together: a regular sub-grid of the network.

    Attributes
    ----------
    name : str
        Role, e.g. ``tp``, ``dp``, ``all``.
    extents : tuple of int
        Members along each dimension, e_d (1: the group does not extend along it).
    strides : tuple of int
        Distance between neighbouring members along each dimension, in members of the dimension.
    """

    name: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Members of the group, the product of the extents."""
        return math.prod(self.extents)


def place_groups(sizes: Sequence[int], degrees: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Extents of each parallelism along each dimension, placed innermost first.

    Each parallelism, in the order given, takes what is left of the innermost dimensions, whole
    dimensions first and then a divisor of the next one.

    Parameters
    ----------
    sizes : sequence of int
        Members along each dimension, innermost first.
    degrees : mapping of str to int
        Degree of each parallelism, innermost first, e.g. ``{"tp": 16, "dp": 256}``.

    Returns
    -------
    dict of str to tuple of int
        Extents along each dimension.

    Raises
    ------
    ValueError
        If the degrees do not multiply to the number of NPUs, or one does not divide what is left
        of a dimension.

    Examples
    --------
    >>> place_groups([4, 8, 4, 32], {"tp": 16, "dp": 256})
    {'tp': (4, 4, 1, 1), 'dp': (1, 2, 4, 32)}
    """
    product, npus = math.prod(degrees.values()), math.prod(sizes)
    if product != npus:
        factors = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
        raise ValueError(
            f"the degrees multiply to {product} but the network has {npus} NPUs, got {factors}. "
            "Change one of the degrees or the network's shape."
        )
    left = list(sizes)
    groups = {}
    for name, degree in degrees.items():
        extents, need = [1] * len(left), degree
        for d, free in enumerate(left):
            taken = free if need % free == 0 else need
            if free % taken:
                raise ValueError(
                    f"{name} {degree} does not fit the dimensions {list(sizes)}: {need} members are "
                    f"left to place on dimension {d + 1}, of which {free} are free, got {degree}. "
                    "Use a degree that divides, or give the groups' extents with groups:."
                )
            extents[d], left[d], need = taken, free // taken, need // taken
            if need == 1:
                break
        groups[name] = tuple(extents)
    return groups


def nest_groups(network: Network, extents: Mapping[str, Sequence[int]]) -> dict[str, Group]:
    """Groups with strides, of extents that nest in the order given and fill the network.

    Parameters
    ----------
    network : Network
        The network.
    extents : mapping of str to sequence of int
        Extents of each group, innermost first; along each dimension they multiply to its size.

    Raises
    ------
    FieldError
        If a group has the wrong number of extents, an extent below 1, or the product along a
        dimension is not its size.
    """
    reached = [1] * len(network.sizes)
    groups = {}
    for name, given in extents.items():
        if len(given) != len(reached) or any(e < 1 for e in given):
            raise FieldError(
                name,
                f"a group needs one extent of at least 1 for each of the {len(reached)} dimensions "
                f"(1: does not extend), got {list(given)}. Write {len(reached)} whole numbers.",
            )
        groups[name] = Group(name, tuple(given), tuple(reached))
        reached = [r * e for r, e in zip(reached, given, strict=True)]
        for d, (size, product) in enumerate(zip(network.sizes, reached, strict=True)):
            if size % product:
                raise FieldError(
                    name,
                    f"the groups do not fit dimension {network.names[d]} of {size} members, of which "
                    f"they take {product}, got {list(given)}. Make the extents along a dimension "
                    "multiply to its size.",
                )
    if math.prod(reached) != network.npus:
        raise FieldError(
            "",
            f"the groups' sizes multiply to {math.prod(reached)} but the network has {network.npus} "
            f"NPUs, got {[list(e) for e in extents.values()]}. Make the extents along each dimension "
            "multiply to its size.",
        )
    return groups


def whole_group(network: Network, name: str, dimensions: Sequence[int]) -> Group:
    """Group that spans the given dimensions (indices from 0) whole, and no other."""
    extents = tuple(n if d in dimensions else 1 for d, n in enumerate(network.sizes))
    return Group(name, extents, tuple(1 for _ in extents))
