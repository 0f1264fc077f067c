"""Choices of the discrete dimensions, as the columns and rows of a program see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.pricing import Pricing
from libra.program import Rows
from libra.units import BANDWIDTH, MONEY

__all__ = ["Parts", "build_parts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """Choices of all discrete dimensions.

    Attributes
    ----------
    owner : ndarray of int, shape (choices,)
        Dimension of each choice.
    columns : ndarray, shape (choices, columns)
        Bandwidth that a choice gives each column [bytes/s].
    cost : ndarray, shape (choices,)
        [USD]
    rows : ndarray, shape (rows, choices)
        What a choice adds to the left side of each row of the program.
    fixed : ndarray of bool, shape (columns,)
        Columns of discrete dimensions.
    pricing : Pricing
        What bandwidths cost, choices exactly.
    """

    owner: Ints
    columns: Floats
    cost: Floats
    rows: Floats
    fixed: NDArray[np.bool_]
    pricing: Pricing

    @property
    def dimensions(self) -> Ints:
        """The discrete dimensions."""
        return np.unique(self.owner)

    def pick(self, z: Floats) -> Ints:
        """Choice of each discrete dimension that has the largest share z."""
        found = []
        for d in self.dimensions:
            mine = np.flatnonzero(self.owner == d)
            found.append(int(mine[z[mine].argmax()]))
        return np.array(found, dtype=np.int64)


def build_parts(
    pricing: Pricing,
    constraints: Sequence[LinearConstraint],
    rows: Rows,
    pricing_of: Callable[[LinearConstraint], Pricing] | None = None,
) -> Parts | None:
    """Choices of a design in a program's rows; None if every bandwidth is free.

    Parameters
    ----------
    pricing : Pricing
        What the objective counts.
    constraints : sequence of LinearConstraint
        Those that the rows are made of.
    rows : Rows
    pricing_of : callable or None
        Pricing that a constraint counts, where scenarios differ; None: the objective's.
    """
    tables = [(d, table) for d, table in enumerate(pricing.tables) if table is not None]
    if not tables:
        return None
    owner = np.concatenate([np.full(len(table.bandwidth), d) for d, table in tables])
    bandwidth = np.concatenate([table.bandwidth for _, table in tables])
    cost = np.concatenate([table.cost for _, table in tables])
    alone = np.zeros((len(owner), len(pricing.tables)))
    alone[np.arange(len(owner)), owner] = bandwidth
    columns = np.array([pricing.split(b) for b in alone])
    sides = np.zeros((len(rows.bound), len(owner)))
    for k, (source, factor) in enumerate(zip(rows.source, rows.factor, strict=True)):
        row = constraints[source]
        if row.kind is BANDWIDTH:
            sides[k] = factor * (columns @ row.coefficients)
        else:
            counted = pricing if pricing_of is None else pricing_of(row)
            amounts = [t.cost if row.kind is MONEY else t.power for t in counted.tables if t]
            sides[k] = factor * row.multiple * np.concatenate(amounts)
    fixed = np.isin(pricing.owner, owner)
    return Parts(owner.astype(np.int64), columns, cost, sides, fixed, pricing)
