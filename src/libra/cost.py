"""Prices: what one GB/s per NPU costs in each dimension, and what a network costs.

The network costs ``N sum_d price_d B_d``, with N NPUs and price_d per unit of the bandwidth that
an NPU can inject into dimension d: the link price for a ring or a fully connected block, link plus
switch plus NIC for a switch (Won et al., ISPASS 2024, arXiv 2109.11762, section IV-C). A link price
is thus per NPU and direction; who counts a cable once per pair of NPUs gives half of its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError
from libra.network import Dimension, Network, Topology
from libra.units import MONEY, PRICE_RATE

__all__ = ["PartPrices", "PriceList", "bandwidth_prices", "network_cost"]

PriceRate = Annotated[float, PRICE_RATE]


@dataclass(frozen=True)
class PartPrices:
    """Prices of the parts of one tier [USD per byte/s of an NPU's bandwidth]; None: no price."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    link: PriceRate | None = None
    switch: PriceRate | None = None
    nic: PriceRate | None = None


@dataclass(frozen=True)
class PriceList:
    """Prices by tier.

    Attributes
    ----------
    tiers : mapping of str to PartPrices
        The tiers that can be built from.
    npu : float
        Price of one NPU [USD]; 0: the objective ``time-cost`` looks at the network alone.
    source : str
        Where the prices are from.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tiers: Mapping[str, PartPrices]
    npu: Annotated[float, MONEY] = 0.0
    source: str = "the design file"


def needed_parts(dimension: Dimension) -> tuple[str, ...]:
    """Parts that a dimension is built from, by the names of `PartPrices`."""
    return ("link", "switch", "nic") if dimension.topology is Topology.SWITCH else ("link",)


def bandwidth_prices(network: Network, prices: PriceList) -> NDArray[np.float64]:
    """Price of bandwidth in each dimension for the whole network.

    Returns
    -------
    ndarray, shape (dimensions,)
        N times the sum of the prices of the parts it needs [USD per byte/s].

    Raises
    ------
    FieldError
        If the list has no price for a part that a dimension needs; names tier and part.
    """
    result = np.zeros(len(network.dimensions))
    for d, dimension in enumerate(network.dimensions):
        parts = prices.tiers.get(dimension.tier, PartPrices())
        for part in needed_parts(dimension):
            price = getattr(parts, part)
            if price is None:
                raise FieldError(
                    (dimension.tier, part),
                    f"no price for a {part} in tier {dimension.tier!r}, which dimension "
                    f"{network.names[d]} ({dimension.topology.code}({dimension.size})) needs, "
                    f"got none. Add '{part}: … USD/(GB/s)'; 0 USD/(GB/s) if it costs nothing.",
                )
            result[d] += price
    return result * network.npus


def network_cost(network: Network, prices: PriceList, bandwidth: NDArray[np.float64]) -> float:
    """Cost of the network at given bandwidths, NPUs not included [USD]."""
    return float(bandwidth_prices(network, prices) @ bandwidth)
