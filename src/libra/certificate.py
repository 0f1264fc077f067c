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
    reach: Floats,
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
    reach : ndarray, shape (forms,)
        Multipliers of the forms H . B, >= 0: a suggestion for u, which is made to fit.

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
    return constant + max(
        _least(gradient, u, load, program)
        for u in (_shared_out(gradient, terms.forms, load), _fitted(gradient, terms.forms, reach))
    )


def _least(gradient: Floats, u: Floats, load: Floats, program: Program) -> float:
    """Lower bound of ``sum_f a_f / (H_f . B) + g . B`` that u >= 0 proves."""
    rest = gradient - u @ program.terms.forms
    negative = rest < 0
    least = float(2 * np.sqrt(load * u).sum())
    if negative.any():
        least += float(rest[negative] @ program.rows.largest[negative])
    return least


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


def _shared_out(gradient: Floats, forms: Floats, load: Floats) -> Floats:
    """Choice of u >= 0 with sum_f u_f H_f <= g in closed form, exact where H is the identity.

    Each dimension's g_d is shared among the forms that use it in proportion to their loads' square
    roots; a form takes the least that its dimensions grant.
    """
    room = np.maximum(gradient, 0)
    root = np.sqrt(load)
    claims = forms * root[:, None]
    total = claims.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        granted = np.where(forms > 0, room * root[:, None] / total, np.inf)
    u = granted.min(axis=1, initial=np.inf)
    return np.where((load > 0) & np.isfinite(u), u, 0.0)


def _fitted(gradient: Floats, forms: Floats, suggestion: Floats) -> Floats:
    """Suggested u, all scaled down by what it takes for sum_f u_f H_f <= g."""
    wanted = suggestion @ forms
    over = wanted > np.maximum(gradient, 0)
    factor = (np.maximum(gradient, 0)[over] / wanted[over]).min(initial=1.0)
    result: Floats = suggestion * factor
    return result
