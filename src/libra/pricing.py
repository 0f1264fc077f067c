"""Cost and power of a network as functions of its bandwidths, linear in columns.

A *column* is a part of a dimension's bandwidth within which each byte/s costs and draws the same:
``B_d = sum of the columns of d``. A plain price makes one column a dimension. A price that rises
makes one column a step, and since later ones are dearer, a minimum fills them in order, so that the
cost stays linear in the columns. Choices with prices of their own give the columns of the lower
convex hull of (bandwidth, price), the best convex function below what they cost; the first is
always full, since the smallest choice is the least that can be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from libra.choices import Choice
from libra.cost import PowerList, PriceList, Steps, add_curves, curve_amount, part_curves
from libra.errors import FieldError
from libra.network import Network

__all__ = ["Pricing", "Table", "build_pricing", "mix_pricings"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """What the choices of a dimension cost and draw in the whole network.

    Attributes
    ----------
    bandwidth : ndarray, shape (choices,)
        Rising [bytes/s].
    cost : ndarray, shape (choices,)
        [USD]
    power : ndarray, shape (choices,)
        [W]; zeros if it is not known.
    own : bool
        Whether choices carry prices or powers of their own.
    """

    bandwidth: Floats
    cost: Floats
    power: Floats
    own: bool

    def index(self, bandwidth: float) -> int | None:
        """Choice that has a bandwidth within 1e-9 of it; None if none has."""
        k = int(np.abs(self.bandwidth - bandwidth).argmin())
        near = abs(float(self.bandwidth[k]) - bandwidth) <= 1e-9 * bandwidth
        return k if near else None


@dataclass(frozen=True, eq=False)
class Pricing:
    """Cost and power of bandwidths, see the head of this module.

    Attributes
    ----------
    owner : ndarray of int, shape (columns,)
        Dimension of each column; the columns of a dimension stand together, in order of filling.
    width : ndarray, shape (columns,)
        Most bandwidth that a column holds [bytes/s]; infinite: any.
    full : ndarray of bool, shape (columns,)
        Columns that are always full.
    price : ndarray, shape (columns,)
        Of all NPUs, energy included [USD per byte/s].
    power : ndarray, shape (columns,)
        Of all NPUs [W per byte/s]; zeros if it is not known.
    knows_power : bool
        Whether there are power figures.
    tables : tuple of Table or None
        Choices of each dimension; None: any bandwidth.
    energy_per_watt : float
        Part of the cost that pays for power [USD/W].
    """

    owner: Ints
    width: Floats
    full: NDArray[np.bool_]
    price: Floats
    power: Floats
    knows_power: bool
    tables: tuple[Table | None, ...]
    energy_per_watt: float = 0.0

    @property
    def linear(self) -> bool:
        """Whether every dimension has one price, so that columns are dimensions."""
        return len(self.owner) == len(self.tables)

    def join(self, columns: Floats) -> Floats:
        """Bandwidths of the dimensions that columns add up to."""
        if self.linear:
            return columns
        result: Floats = np.bincount(self.owner, columns, len(self.tables)).astype(np.float64)
        return result

    def split(self, bandwidth: Floats) -> Floats:
        """Columns of the dimensions' bandwidths, filled in order."""
        if self.linear:
            return bandwidth
        left, columns = bandwidth.astype(np.float64).copy(), np.zeros(len(self.owner))
        for k, d in enumerate(self.owner):
            last = k + 1 == len(self.owner) or self.owner[k + 1] != d
            columns[k] = left[d] if last else min(left[d], self.width[k])
            left[d] -= columns[k]
        return columns

    def costs(self, bandwidth: Floats) -> Floats:
        """Cost of each dimension, energy included, shape (dimensions,) [USD].

        Between choices with own prices it is that of the convex hull, which no choices undercut.
        """
        return self._amounts(bandwidth, self.price, "cost")

    def powers(self, bandwidth: Floats) -> Floats:
        """Power of each dimension, shape (dimensions,) [W]."""
        return self._amounts(bandwidth, self.power, "power")

    def cost(self, bandwidth: Floats) -> float:
        """Cost of the network, NPUs not included [USD]."""
        return float(self.costs(bandwidth).sum())

    def network_power(self, bandwidth: Floats) -> float | None:
        """Power of the network [W]; None if it is not known."""
        return float(self.powers(bandwidth).sum()) if self.knows_power else None

    def _amounts(self, bandwidth: Floats, rate: Floats, name: str) -> Floats:
        amounts = self.join(self.split(bandwidth) * rate)
        for d, table in enumerate(self.tables):
            if table is not None and table.own:
                k = table.index(float(bandwidth[d]))
                if k is not None:
                    amounts = amounts.copy()
                    amounts[d] = getattr(table, name)[k]
        return amounts


@lru_cache(maxsize=256)
def build_pricing(network: Network, prices: PriceList, power: PowerList | None) -> Pricing:
    """Pricing of a network's bandwidths.

    Raises
    ------
    FieldError
        If a figure is missing for a part that a dimension needs; names list, tier and part.
    """
    energy = prices.energy
    if energy is not None and power is None:
        raise FieldError(
            ("prices", "energy"),
            "energy has a price but nothing says what the network draws, got no power:. Add power: "
            "default, or figures by tier.",
        )
    per_watt = 0.0 if energy is None else energy.per_watt
    columns: list[tuple[int, float, bool, float, float]] = []
    tables: list[Table | None] = []
    for d, dimension in enumerate(network.dimensions):
        choices = dimension.choices
        draws = _steps(network, power, d, choices, "power")
        costs = _steps(network, prices, d, choices, "price")
        if choices is None:
            tables.append(None)
        else:
            tables.append(_table(choices, costs, draws, network.npus, per_watt))
        table = tables[-1]
        if table is not None and table.own:
            columns += [(d, *row) for row in _hull_columns(table)]
        else:
            columns += [(d, *row) for row in _curve_columns(costs, draws, network.npus, per_watt)]
    owner, width, full, price, watt = zip(*columns, strict=True)
    return Pricing(
        np.array(owner, dtype=np.int64),
        np.array(width, dtype=np.float64),
        np.array(full, dtype=np.bool_),
        np.array(price, dtype=np.float64),
        np.array(watt, dtype=np.float64),
        power is not None,
        tuple(tables),
        per_watt,
    )


def _steps(
    network: Network,
    figures: PriceList | PowerList | None,
    d: int,
    choices: tuple[Choice, ...] | None,
    name: str,
) -> Steps | None:
    """Rates of a dimension for one NPU; None if its choices carry the figures themselves."""
    if choices is not None and getattr(choices[0], name) is not None:
        return None
    if figures is None:
        return ((np.inf, 0.0),)
    try:
        return add_curves(list(part_curves(network, figures, d).values()))
    except FieldError as error:
        kind = "prices" if name == "price" else "power"
        raise FieldError((kind, *error.place), error.message) from None


def _table(
    choices: tuple[Choice, ...],
    costs: Steps | None,
    draws: Steps | None,
    npus: int,
    per_watt: float,
) -> Table:
    bandwidth = np.array([c.bandwidth for c in choices])
    watts = np.array(
        [curve_amount(draws, c.bandwidth) if draws else c.power or 0.0 for c in choices]
    )
    price = np.array(
        [curve_amount(costs, c.bandwidth) if costs else c.price or 0.0 for c in choices]
    )
    own = costs is None or draws is None
    return Table(bandwidth, npus * (price + per_watt * watts), npus * watts, own)


def _curve_columns(
    costs: Steps | None, draws: Steps | None, npus: int, per_watt: float
) -> list[tuple[float, bool, float, float]]:
    """Columns (width, full, price, power) of a dimension priced along curves."""
    assert costs is not None
    assert draws is not None
    merged = add_curves([costs, tuple((limit, 0.0) for limit, _ in draws)])
    power = add_curves([draws, tuple((limit, 0.0) for limit, _ in costs)])
    rows, start = [], 0.0
    for (limit, price), (_, watts) in zip(merged, power, strict=True):
        rows.append((limit - start, False, npus * (price + per_watt * watts), npus * watts))
        start = limit
    return rows


def _hull_columns(table: Table) -> list[tuple[float, bool, float, float]]:
    """Columns (width, full, price, power) of the lower hulls of a table's costs and powers."""
    b = table.bandwidth
    hulls = [(_lower_hull(b, y), y) for y in (table.cost, table.power)]
    kinks = sorted({k for hull, _ in hulls for k in hull})
    costs, watts = (np.interp(b[kinks], b[hull], y[hull]) for hull, y in hulls)
    first = float(b[0])
    rows = [(first, True, float(costs[0]) / first, float(watts[0]) / first)]
    for k in range(1, len(kinks)):
        width = float(b[kinks[k]] - b[kinks[k - 1]])
        rows.append(
            (
                width,
                False,
                float(costs[k] - costs[k - 1]) / width,
                float(watts[k] - watts[k - 1]) / width,
            )
        )
    return rows


def _lower_hull(x: Floats, y: Floats) -> list[int]:
    """Indices of the points on the lower convex hull, x rising (Andrew's monotone chain)."""
    hull: list[int] = []
    for k in range(len(x)):
        while len(hull) >= 2:
            i, j = hull[-2], hull[-1]
            if (y[j] - y[i]) * (x[k] - x[i]) < (y[k] - y[i]) * (x[j] - x[i]):
                break
            hull.pop()
        hull.append(k)
    return hull


def mix_pricings(parts: Sequence[tuple[float, Pricing]]) -> Pricing:
    """Mean of pricings of the same columns and choices, by shares that sum to 1."""
    first = parts[0][1]
    tables: list[Table | None] = []
    for d, table in enumerate(first.tables):
        found = [(share, p.tables[d]) for share, p in parts]
        tables.append(
            None
            if table is None
            else replace(
                table,
                cost=sum((s * t.cost for s, t in found if t is not None), 0 * table.cost),
                power=sum((s * t.power for s, t in found if t is not None), 0 * table.power),
            )
        )
    return replace(
        first,
        price=np.sum([share * p.price for share, p in parts], axis=0),
        power=np.sum([share * p.power for share, p in parts], axis=0),
        tables=tuple(tables),
        energy_per_watt=sum(share * p.energy_per_watt for share, p in parts),
    )
