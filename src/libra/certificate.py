"""The proof of optimality: a lower bound from multipliers, in plain arithmetic.

The bound is not read off the solver. Of the master problem in `libra.master`, multipliers lambda of
the cuts, mu of the pieces and y of the rows, made consistent by scaling, give for all bandwidths
that meet the rows

    objective >= c + sum_f a_f / (H_f . B) + g . B - y . b,    g = price + A' y,
              >= c + sum_f 2 sqrt(a_f u_f) - y . b             for u >= 0 with sum_f u_f H_f <= g,

by the inequality of the arithmetic and geometric mean. It is evaluated in plain arithmetic and
holds whatever the solver's accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from libra.program import Cut, Program, Rows

__all__ = ["certified_bound"]

Floats = NDArray[np.float64]


def certified_bound(
    program: Program,
    cuts: Sequence[Cut],
    price: Floats,
    weights: Floats,
    y: Floats,
    pieces: Floats,
    path: Floats,
) -> float:
    """Lower bound of the objective that the multipliers prove; minus infinity if they prove none.

    Parameters
    ----------
    program, cuts, price, weights
        As for `solve_master`.
    y : ndarray, shape (rows,)
        Multipliers of the rows, >= 0 but for equalities.
    pieces : ndarray, shape (pieces,)
        Multipliers mu of the pieces, >= 0; only their ratios within a collective matter.
    path : ndarray, shape (cuts,)
        Multipliers lambda of the cuts, >= 0; only their ratios within a workload matter.

    Returns
    -------
    float
        The bound at the head of this module.
    """
    terms, rows = program.terms, program.rows
    y = _without_free_rows(rows, price, y)
    constant = -float(y @ rows.bound)
    load = np.zeros(len(terms.forms))
    gradient = price + rows.matrix.T @ y
    if weights.any():
        counts = np.zeros(terms.collectives)
        owner = np.array([cut.workload for cut in cuts])
        for w, weight in enumerate(weights):
            mine = np.flatnonzero(owner == w)
            share = _shares(path[mine], weight)
            for k, part in zip(mine, share, strict=True):
                cut = cuts[int(k)]
                constant += part * cut.fixed
                counts[program.first[w] : program.first[w + 1]] += part * cut.counts
        weight_of = np.zeros(len(terms.alpha))
        for j in np.flatnonzero(counts > 0):
            span = slice(terms.start[j], terms.start[j + 1])
            weight_of[span] = _shares(pieces[span], counts[j])
        constant += float(weight_of @ terms.alpha)
        load = weight_of @ terms.coefficient
    u = _within(gradient, terms.forms, load)
    constant += float(2 * np.sqrt(load * u).sum())
    rest = gradient - u @ terms.forms
    negative = rest < 0
    if negative.any():
        constant += float(rest[negative] @ rows.largest[negative])
    return constant


def _without_free_rows(rows: Rows, price: Floats, y: Floats) -> Floats:
    """Multipliers without those that would pay for bandwidth that no row limits.

    At the optimum they are 0; an interior-point solver leaves a trace, which would prove nothing.
    """
    free = (price + rows.matrix.T @ y < 0) & np.isinf(rows.largest)
    paying = (rows.matrix[:, free] * y[:, None] < 0).any(axis=1)
    return np.where(paying, 0.0, y)


def _shares(multipliers: Floats, total: float) -> Floats:
    """Multipliers scaled to a sum, equal shares where all are 0."""
    size = multipliers.sum()
    if size <= 0:
        return np.full(len(multipliers), total / max(len(multipliers), 1))
    shares: Floats = multipliers * (total / size)
    return shares


def _within(gradient: Floats, forms: Floats, load: Floats) -> Floats:
    """U >= 0 with sum_f u_f H_f <= g, as good as can be had in closed form.

    Each dimension's g_d is shared among the forms that use it in proportion to their loads' square
    roots; a form takes the least that its dimensions grant. Exact where H is the identity.
    """
    room = np.maximum(gradient, 0)
    root = np.sqrt(load)
    claims = forms * root[:, None]
    total = claims.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        granted = np.where(forms > 0, room * root[:, None] / total, np.inf)
    u = granted.min(axis=1)
    return np.where((load > 0) & np.isfinite(u), u, 0.0)
