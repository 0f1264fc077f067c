"""Bill of materials: which links, switches and NICs a network takes, and what each costs.

Counts are of the whole network of N NPUs. A ring of n has n cables (1 if n = 2), a fully connected
block n (n - 1) / 2. A switched dimension has as many planes as an NPU has lanes in it; in each, a
group of n members hangs on one switch, or on a folded Clos of r-port switches in t tiers: 2 n / r
switches in each tier but the last, which has half as many, n t cables and n (2 t - 1) ports
(Al-Fares et al., SIGCOMM 2008). Every port of an NPU to a switch has a NIC where NICs have a price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.choices import Choice
from libra.cost import curve_amount, part_curves
from libra.design import Design
from libra.network import Dimension, Topology
from libra.units import GB_PER_S

__all__ = ["BillItem", "bill_of_materials"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BillItem:
    """Some equal parts of a dimension.

    Attributes
    ----------
    dimension : str
        Its name.
    part : str
        What it is; of a choice with a price of its own, as the design calls it.
    count : int
        How many in the whole network.
    bandwidth : float
        Of one, in one direction [bytes/s].
    price : float or None
        Of all of them [USD]; None: in the price of another item.
    power : float or None
        Of all of them [W]; None: not known, or in that of another item.
    note : str
        What does not fit.
    """

    dimension: str
    part: str
    count: int
    bandwidth: float
    price: float | None
    power: float | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys of ``libra optimize --json``."""
        unit = None if self.price is None or not self.count else self.price / self.count
        return {
            "dimension": self.dimension,
            "part": self.part,
            "count": self.count,
            "bandwidth_GBps": self.bandwidth / GB_PER_S,
            "unit_price_usd": unit,
            "price_usd": self.price,
            "power_w": self.power,
            "note": self.note,
        }


def bill_of_materials(design: Design, bandwidth: Floats) -> tuple[BillItem, ...]:
    """Parts of a design's network at given bandwidths.

    Prices sum up to the cost of the network without energy, powers to its power. For bandwidths
    that are not whole lanes, an NPU is taken to have one port in a switched dimension.

    Parameters
    ----------
    design : Design
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s]
    """
    items: list[BillItem] = []
    for d, table in enumerate(design.pricing.tables):
        k = None if table is None else table.index(float(bandwidth[d]))
        choices = design.network.dimensions[d].choices
        choice = None if k is None or choices is None else choices[k]
        items += _dimension_items(design, d, float(bandwidth[d]), choice)
    return tuple(item for item in items if item.count)


def _dimension_items(
    design: Design, d: int, bandwidth: float, choice: Choice | None
) -> list[BillItem]:
    dimension, npus = design.network.dimensions[d], design.network.npus
    name, lanes = design.network.names[d], 1 if choice is None else choice.lanes
    counts = _part_counts(dimension, npus, lanes, bandwidth)
    prices = _amounts(design, d, bandwidth, choice, "price")
    powers = _amounts(design, d, bandwidth, choice, "power")
    items = []
    if choice is not None and (choice.price is not None or choice.power is not None):
        own = choice.part or f"part of {bandwidth / GB_PER_S:g} GB/s"
        items.append(
            BillItem(
                name,
                own,
                npus,
                bandwidth,
                None if choice.price is None else npus * choice.price,
                None if choice.power is None else npus * choice.power,
            )
        )
    note = _uneven(dimension, choice)
    for part, (label, count, each) in counts.items():
        if part == "nic" and not prices.get("nic") and not powers.get("nic"):
            continue
        items.append(BillItem(name, label, count, each, prices.get(part), powers.get(part), note))
        note = ""
    return items


def _part_counts(
    dimension: Dimension, npus: int, lanes: int, bandwidth: float
) -> dict[str, tuple[str, int, float]]:
    """Label, count and bandwidth of each kind of part."""
    n, port = dimension.size, bandwidth / lanes
    if dimension.topology is Topology.FULLY_CONNECTED:
        return {"link": ("cable", npus * (n - 1) // 2, bandwidth / (n - 1))}
    if dimension.topology is Topology.RING:
        links = 2 if n > 2 else 1
        return {"link": ("cable", npus * links // 2, bandwidth / links)}
    tiers, groups = dimension.switch_tiers, npus // n
    if tiers == 1:
        radix, switches = dimension.radix or n, 1
    else:
        radix = dimension.radix or n
        switches = (tiers - 1) * math.ceil(2 * n / radix) + math.ceil(n / radix)
    return {
        "link": ("cable", npus * lanes * tiers, port),
        "switch": (f"switch of {radix} ports", groups * lanes * switches, radix * port),
        "nic": ("NIC", npus * lanes, port),
    }


def _amounts(
    design: Design, d: int, bandwidth: float, choice: Choice | None, what: str
) -> dict[str, float]:
    """Price or power of all parts of a kind by the lists; empty: a choice says, or none knows."""
    figures = design.prices if what == "price" else design.power
    if figures is None or (choice is not None and getattr(choice, what) is not None):
        return {}
    curves = part_curves(design.network, figures, d)
    return {
        part: design.network.npus * curve_amount(curve, bandwidth) for part, curve in curves.items()
    }


def _uneven(dimension: Dimension, choice: Choice | None) -> str:
    """Say where lanes do not share out evenly over the links of an NPU."""
    if choice is None or dimension.lane is None or dimension.topology is Topology.SWITCH:
        return ""
    ring = dimension.topology is Topology.RING
    links = (2 if dimension.size > 2 else 1) if ring else dimension.size - 1
    if choice.lanes % links == 0:
        return ""
    one = choice.lanes == 1
    lanes = "1 lane does" if one else f"{choice.lanes} lanes do"
    return f"{lanes} not share out evenly over {links} links of an NPU"
