"""Placement: which NPUs a parallelism's groups join, as regular sub-grids of the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libra.errors import FieldError
from libra.network import Network

__all__ = ["Group", "nest_groups", "place_groups", "whole_group"]


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
                    f"{name} {degree} does not fit the dimensions {list(sizes)}: {need} members "
                    f"are left for dimension {d + 1}, of which {free} are free, got {degree}. "
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
                    f"the groups do not fit dimension {network.names[d]} of {size} members, of "
                    f"which they take {product}, got {list(given)}. Make the extents along a "
                    "dimension multiply to its size.",
                )
    if math.prod(reached) != network.npus:
        raise FieldError(
            "",
            f"the groups' sizes multiply to {math.prod(reached)} but the network has "
            f"{network.npus} NPUs, got {[list(e) for e in extents.values()]}. Make the extents "
            "along each dimension multiply to its size.",
        )
    return groups


def whole_group(network: Network, name: str, dimensions: Sequence[int]) -> Group:
    """Group that spans the given dimensions (indices from 0) whole, and no other."""
    extents = tuple(n if d in dimensions else 1 for d, n in enumerate(network.sizes))
    return Group(name, extents, tuple(1 for _ in extents))
