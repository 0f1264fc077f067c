"""What the cone program is made of: constraint rows, timings of the workloads, cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.constraints import LinearConstraint
from libra.timing import StepTiming, Terms, merge_terms

__all__ = [
    "Cut",
    "Goal",
    "Program",
    "Rows",
    "build_program",
    "build_rows",
    "plain_goal",
    "same_array",
    "weighted",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints as ``matrix . B <= bound``, of which the first `equal` hold with equality.

    Attributes
    ----------
    matrix : ndarray, shape (rows, columns)
        Each divided by its largest coefficient [1].
    bound : ndarray, shape (rows,)
        [bytes/s]
    equal : int
        Number of equalities.
    source : ndarray of int, shape (rows,)
        Which constraint each row is from.
    factor : ndarray, shape (rows,)
        Row = factor x constraint; negative where a ``>=`` was turned round.
    """

    matrix: Floats
    bound: Floats
    equal: int
    source: Ints
    factor: Floats

    def like(self, other: Rows) -> bool:
        """Whether other rows differ in their bounds alone: the same matrix, as many equalities."""
        return self.equal == other.equal and (
            self.matrix is other.matrix or np.array_equal(self.matrix, other.matrix)
        )

    @cached_property
    def largest(self) -> Floats:
        """Upper limit of each bandwidth that the rows imply in turn; may be infinite."""
        matrix, bound = self.matrix, self.bound
        if self.equal:
            matrix = np.vstack([matrix, -matrix[: self.equal]])
            bound = np.concatenate([bound, -bound[: self.equal]])
        positive, negative = matrix > 0, matrix < 0
        limit, signs = np.full(matrix.shape[1], np.inf), bool(negative.any())
        with np.errstate(invalid="ignore", divide="ignore"):
            for _ in limit:
                # a_d B_d <= bound + sum of |a_i| B_i over the others with a negative a_i.
                room = bound
                if signs:
                    room = bound + np.where(negative, -matrix * limit, 0.0).sum(axis=1)
                each = np.where(positive, np.maximum(room, 0)[:, None] / matrix, np.inf)
                before, limit = limit, np.minimum(limit, each.min(axis=0, initial=np.inf))
                if not signs or np.array_equal(before, limit):
                    break
        return limit


def build_rows(constraints: Sequence[LinearConstraint], columns: int) -> Rows:
    """Rows of constraints on so many columns, equalities first."""
    order = sorted(range(len(constraints)), key=lambda k: constraints[k].relation != "==")
    matrix, bounds, factors = [], [], []
    for k in order:
        row = constraints[k]
        sign = -1.0 if row.relation == ">=" else 1.0
        factor = sign / float(np.abs(row.coefficients).max())
        matrix.append(row.coefficients * factor)
        bounds.append(row.bound * factor)
        factors.append(factor)
    return Rows(
        np.array(matrix, dtype=np.float64).reshape(len(order), columns),
        np.array(bounds, dtype=np.float64),
        [c.relation for c in constraints].count("=="),
        np.array(order, dtype=np.int64),
        np.array(factors, dtype=np.float64),
    )


@dataclass(frozen=True, eq=False)
class Program:
    """What does not change between solves.

    Attributes
    ----------
    timings : tuple of StepTiming
        One a workload.
    weights : ndarray, shape (workloads,)
        Weight of each workload's step time in the objective.
    terms : Terms
        Collectives of all workloads side by side.
    first : ndarray of int, shape (workloads + 1,)
        First collective of each workload.
    rows : Rows
        Constraints.
    owner : ndarray of int, shape (columns,), or None
        Dimension whose bandwidth each column is a part of; None: columns are dimensions.

    The bandwidths of the program are those of its columns, see `libra.pricing`; `join` adds them
    up to those of the dimensions.
    """

    timings: tuple[StepTiming, ...]
    weights: Floats
    terms: Terms
    first: Ints
    rows: Rows
    owner: Ints | None = None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self.terms.forms.shape[1])

    def join(self, columns: Floats) -> Floats:
        """Bandwidths of the dimensions."""
        if self.owner is None:
            return columns
        result: Floats = np.bincount(self.owner, columns).astype(np.float64)
        return result

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Which columns are of a dimension that carries traffic of some workload."""
        traffic = np.sum([t.step_traffic for t in self.timings], axis=0)
        result: NDArray[np.bool_] = traffic > 0
        return result if self.owner is None else result[self.owner]


def build_program(
    timings: Sequence[StepTiming],
    weights: Floats,
    constraints: Sequence[LinearConstraint],
    owner: Ints | None = None,
    like: Program | None = None,
) -> Program:
    """Program of some workloads under constraints on columns of bandwidth.

    Parameters
    ----------
    timings : sequence of StepTiming
    weights : ndarray, shape (workloads,)
    constraints : sequence of LinearConstraint
    owner : ndarray of int, shape (columns,), or None
        Dimension of each column; None: columns are dimensions.
    like : Program or None
        An earlier program of the same timings, of which what is equal is kept.
    """
    width = timings[0].traffic.shape[1]
    if owner is not None and len(owner) == width:
        owner = None
    if like is not None and same_array(like.owner, owner):
        terms, first = like.terms, like.first
    else:
        terms = timings[0].terms
        if len(timings) > 1:
            terms = merge_terms([t.terms for t in timings], width)
        if owner is not None:
            terms = replace(terms, forms=terms.forms[:, owner])
        first = np.cumsum([0, *(t.terms.collectives for t in timings)])
    rows = build_rows(constraints, terms.forms.shape[1])
    if like is not None and rows.like(like.rows):
        rows = replace(rows, matrix=like.rows.matrix)
    return Program(tuple(timings), weights, terms, first, rows, owner)


def same_array(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Whether two optional arrays are equal."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


@dataclass(frozen=True, eq=False)
class Cut:
    """``T_workload(B) >= fixed + counts . tau(B)`` for all B, from a path through its graph."""

    workload: int
    fixed: float
    counts: Floats


@dataclass(frozen=True, eq=False)
class Goal:
    """Objective ``weights . T(B) + price . B + max_g ratios_g . T(B)`` under time limits.

    Attributes
    ----------
    price : ndarray, shape (columns,)
        Linear price of the bandwidths.
    weights : ndarray, shape (workloads,)
        Of the step times.
    limits : ndarray, shape (workloads,)
        Largest step time allowed [s]; infinite: any.
    ratios : ndarray, shape (groups, workloads), or None
        Of the largest sum, >= 0: e.g. 1 / reference of each workload, for the largest slowdown, or
        the weights of a scenario's workloads; None: it does not count.
    spend : float
        How often the network's cost is in ``price . B``, for those that know it better than the
        columns do (`libra.discrete`).
    """

    price: Floats
    weights: Floats
    limits: Floats
    ratios: Floats | None = None
    spend: float = 0.0

    @property
    def timed(self) -> bool:
        """Whether step times matter at all."""
        return bool(self.weights.any() or len(self.limited) or self.ratios is not None)

    @cached_property
    def limited(self) -> Ints:
        """Workloads whose step time has a limit."""
        return np.flatnonzero(np.isfinite(self.limits))

    def value(self, bandwidth: Floats, times: Floats) -> float:
        """Objective at bandwidths with these step times, whatever the limits."""
        total = float(self.price @ bandwidth) + weighted(self.weights, times)
        if self.ratios is not None:
            total += max(weighted(row, times) for row in self.ratios)
        return total

    def admits(self, times: Floats) -> bool:
        """Whether the step times are within the limits, up to 1e-9 of them."""
        return bool((times <= self.limits * (1 + 1e-9)).all())


def weighted(weights: Floats, times: Floats) -> float:
    """Weighted sum of times, of which those with weight 0 may be infinite."""
    used = weights > 0
    return float(weights[used] @ times[used])


def plain_goal(price: Floats, weights: Floats) -> Goal:
    """Goal without time limits."""
    return Goal(price, weights, np.full(len(weights), np.inf))
