"""Real clusters: a network with its bandwidths, and how its library runs collectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from libra.collectives import CollectiveModel
from libra.errors import FieldError, shown
from libra.network import Dimension, Network, Topology
from libra.units import BANDWIDTH

__all__ = ["Cluster", "cluster_bandwidth", "cluster_network"]


@dataclass(frozen=True)
class Cluster:
    """A network that exists, with its bandwidths.

    Attributes
    ----------
    dimensions : tuple of Dimension
        Innermost first.
    bandwidth : tuple of float
        What an NPU injects into each dimension, in one direction [bytes/s].
    collectives : CollectiveModel
        How its library runs collectives.
    name : str
        What it is called.
    source : str
        What it is.
    sources : mapping of str to str
        Where each number is from, by ``DIMENSION.KEY``.
    unconfirmed : tuple of str
        Keys of numbers that no source confirms.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    dimensions: tuple[Dimension, ...]
    bandwidth: tuple[Annotated[float, BANDWIDTH], ...]
    collectives: CollectiveModel = field(default_factory=CollectiveModel)
    name: str = ""
    source: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    unconfirmed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        object.__setattr__(self, "bandwidth", tuple(self.bandwidth))
        Network(self.dimensions)
        if len(self.bandwidth) != len(self.dimensions):
            raise FieldError(
                "bandwidth",
                f"needs one bandwidth for each of the {len(self.dimensions)} dimensions, got "
                f"{len(self.bandwidth)}. Write them innermost first.",
            )
        for value in self.bandwidth:
            if not (math.isfinite(value) and value > 0):
                raise FieldError(
                    "bandwidth", f"must be finite and positive, got {value!r}. Correct it."
                )

    @property
    def network(self) -> Network:
        """All of it."""
        return Network(self.dimensions)


def cluster_network(cluster: Cluster, npus: int, sizes: Sequence[int] | None = None) -> Network:
    """Network of a part of a cluster.

    Parameters
    ----------
    cluster : Cluster
        The whole.
    npus : int
        NPUs of the part, at least 2. They fill the dimensions from the inside; the outermost
        dimension, if it is a switch, is as large as they need.
    sizes : sequence of int or None
        Members along each dimension, for a part of a torus or one that does not fill the inner
        dimensions; 1 leaves a dimension out.

    Returns
    -------
    Network
        Its first dimensions are the cluster's; `cluster_bandwidth` gives the bandwidths.

    Raises
    ------
    FieldError
        ``npus`` or ``sizes``: the NPUs do not fill the inner dimensions, or are too many.

    Examples
    --------
    >>> node = Dimension(Topology.SWITCH, 8, "node")
    >>> pod = Dimension(Topology.SWITCH, 32, "pod")
    >>> cluster_network(Cluster((node, pod), (450e9, 50e9)), 1024).shape
    'SW(8)_SW(128)'
    """
    kept = _kept(cluster, npus, sizes)
    return Network(tuple(replace(cluster.dimensions[d], size=size) for d, size in kept))


def cluster_bandwidth(
    cluster: Cluster, npus: int, sizes: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Bandwidths [bytes/s] of the network that `cluster_network` gives."""
    return np.array([cluster.bandwidth[d] for d, _ in _kept(cluster, npus, sizes)])


def _kept(cluster: Cluster, npus: int, sizes: Sequence[int] | None) -> list[tuple[int, int]]:
    """Dimensions that a part of a cluster extends along, and its sizes there."""
    if sizes is None:
        sizes = _filled(cluster, npus)
    if len(sizes) != len(cluster.dimensions) or math.prod(sizes) != npus:
        raise FieldError(
            "sizes",
            f"must multiply to {npus} NPUs over {len(cluster.dimensions)} dimensions, got "
            f"{shown(tuple(sizes))}. Correct them.",
        )
    for d, (size, dimension) in enumerate(zip(sizes, cluster.dimensions, strict=True)):
        grows = d == len(sizes) - 1 and dimension.topology is Topology.SWITCH
        if size > dimension.size and not grows:
            raise FieldError(
                "sizes",
                f"dimension {d + 1} of {cluster.name or 'the cluster'} has {dimension.size} "
                f"members, got {size}. Use fewer.",
            )
    kept = [(d, size) for d, size in enumerate(sizes) if size > 1]
    if not kept:
        raise FieldError("npus", f"a network has at least 2 NPUs, got {npus}. Use more.")
    return kept


def _filled(cluster: Cluster, npus: int) -> list[int]:
    """Sizes of the smallest part with so many NPUs that fills dimensions from the inside."""
    whole = cluster.network
    tori = any(d.topology is Topology.RING for d in whole.dimensions)
    if tori and npus % math.prod(d.size for d in whole.dimensions if d.topology is Topology.RING):
        raise FieldError(
            "npus",
            f"a part of a torus ({whole.shape}) has many shapes, got {npus} NPUs. "
            "Give sizes, one a dimension.",
        )
    sizes, left = [], npus
    for d, dimension in enumerate(whole.dimensions):
        last = d == len(whole.dimensions) - 1
        size = left if last or left < dimension.size else dimension.size
        if left % size:
            raise FieldError(
                "npus",
                f"does not fill the {dimension.size} members of dimension {d + 1} of "
                f"{whole.shape}, got {npus}. Give sizes, one a dimension.",
            )
        sizes.append(size)
        left //= size
    return sizes
