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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.program import Cut, Goal, Program, Rows

__all__ = ["Multipliers", "certified_bound", "certified_floors", "shared_out", "supporting_sum"]

Floats = NDArray[np.float64]

_BELOW = 1 - 1e-15
"""Keeps what rounding might put above a limit below it."""
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Multipliers of a master problem's constraints.

    Attributes
    ----------
    rows : ndarray, shape (rows,)
        y, >= 0 but for equalities: how fast the objective falls as a row's bound rises.
    pieces : ndarray, shape (pieces,)
        mu, >= 0; only their ratios within a collective matter.
    cuts : ndarray, shape (cuts,)
        lambda, >= 0; only their ratios within a workload matter.
    limits : ndarray, shape (workloads,)
        Of the time limits, >= 0.
    groups : ndarray, shape (groups,)
        Of the rows ratios_g . T <= z, >= 0; only their ratios matter.
    forms : ndarray, shape (forms,)
        Of the forms H . B, >= 0: a suggestion for u, which is made to fit.
    """

    rows: Floats
    pieces: Floats
    cuts: Floats
    forms: Floats
    limits: Floats
    groups: Floats


def certified_bound(
    program: Program,
    cuts: Sequence[Cut],
    goal: Goal,
    multipliers: Multipliers,
    known: float = np.inf,
) -> float:
    """Lower bound of the objective that multipliers prove; minus infinity if they prove none.

    Parameters
    ----------
    program, cuts, goal
        As for `libra.master.solve_master`.
    multipliers : Multipliers
        Of whatever accuracy.
    known : float
        A value of the objective that some bandwidths reach: others need to be looked at only as
        far as price . B stays below it.

    Returns
    -------
    float
        The bound at the head of this module.
    """
    support = _support(program, cuts, goal, multipliers, known)
    return min(support.constant + float(support.least.max()), known)


def certified_floors(
    program: Program,
    cuts: Sequence[Cut],
    goal: Goal,
    multipliers: Multipliers,
    choices: Floats,
    decided: NDArray[np.bool_],
    beyond: Floats,
) -> Floats:
    """Lower bounds of the objective that multipliers prove for each choice of some columns.

    Where a choice gives some columns the bandwidths x, the terms a_f / (H_f . B) of forms on these
    columns alone are a_f / (H_f . x), and what the columns cost is g . x, not the least of both.
    The bounds are infinite where a choice leaves a needed form without bandwidth.

    Parameters
    ----------
    program, cuts, goal, multipliers
        As for `certified_bound`.
    choices : ndarray, shape (choices, columns)
        Bandwidths that each gives the columns it decides; 0 in the others [bytes/s].
    decided : ndarray of bool, shape (choices, columns)
        Which columns each decides.
    beyond : ndarray, shape (choices, rows)
        What each adds to the left sides of the rows above the columns' own [bytes/s].

    Returns
    -------
    ndarray, shape (choices,)
    """
    support = _support(program, cuts, goal, multipliers, np.inf)
    forms, load = program.terms.forms, support.load
    k = int(support.least.argmax())
    u, constant = support.choices[k], support.constant + support.least[k]
    rest = np.maximum(support.gradient - u @ forms, 0.0)
    alone = ~((forms > 0).astype(np.float64) @ ~decided.T).T.astype(np.bool_)
    reached = choices @ forms.T
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(load > 0, load / reached, 0.0)
    more = exact - 2 * np.sqrt(load) * np.sqrt(u) + u * reached
    floors: Floats = constant + np.where(alone, more, 0.0).sum(axis=1) + choices @ rest
    return floors + beyond @ support.rows


@dataclass(frozen=True, eq=False)
class _Support:
    """``objective >= constant + sum_f load_f / (H_f . B) + gradient . B`` for all B in the rows.

    `rows` are the rows' multipliers, `choices` some choices of u, one a row, and `least` what each
    proves of the part that depends on B.
    """

    constant: float
    load: Floats
    gradient: Floats
    rows: Floats
    choices: Floats
    least: Floats


@np.errstate(over="ignore", invalid="ignore")
def _support(
    program: Program, cuts: Sequence[Cut], goal: Goal, multipliers: Multipliers, known: float
) -> _Support:
    price = goal.price
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.minimum(program.rows.largest, np.where(price > 0, known / price, np.inf))
    signed = multipliers.rows.copy()
    # Those of inequalities prove something only from 0 on, whatever the solver took them for.
    signed[program.rows.equal :] = np.maximum(signed[program.rows.equal :], 0.0)
    y = _without_free_rows(program.rows, price, signed, limit)
    weights, relief = combined_weights(goal, multipliers)
    constant, load = supporting_sum(program, cuts, weights, multipliers)
    constant -= relief + float(y @ program.rows.bound)
    gradient = price + program.rows.matrix.T @ y
    forms = program.terms.forms
    choices = np.array(
        [
            shared_out(gradient, forms, load),
            _fitted(gradient, forms, multipliers.forms),
            multipliers.forms,
        ]
    )
    least = _least(gradient, forms, choices, load, limit)
    # The solver's multipliers grow without end where there is nothing to find; infinity, and what
    # is no number, prove nothing.
    least = np.where(np.isfinite(least), least, -np.inf)
    constant = constant if np.isfinite(constant) else -np.inf
    return _Support(constant, load, gradient, y, choices, least)


def combined_weights(goal: Goal, multipliers: Multipliers) -> tuple[Floats, float]:
    """Weights w of the step times and r with ``objective >= w . T(B) + price . B - r``.

    A limit T_w <= l_w adds its multiplier nu_w to the weights and nu_w l_w to r; the largest
    sum z >= ratios_g . T adds omega_g ratios_g, scaled so that sum_g omega_g = 1.
    """
    limited = goal.limited
    nu = multipliers.limits[limited]
    weights = goal.weights.copy()
    weights[limited] += nu
    if goal.ratios is not None:
        weights = weights + _shares(multipliers.groups, 1.0) @ goal.ratios
    return weights, float(nu @ goal.limits[limited])


def supporting_sum(
    program: Program, cuts: Sequence[Cut], weights: Floats, multipliers: Multipliers
) -> tuple[float, Floats]:
    """C and a with ``weights . T(B) >= c + sum_f a_f / (H_f . B)`` for all B."""
    terms = program.terms
    constant, counts = 0.0, np.zeros(terms.collectives)
    for w in np.flatnonzero(weights).tolist():
        mine = [k for k, cut in enumerate(cuts) if cut.workload == w]
        share = _shares(multipliers.cuts[mine], float(weights[w]))
        for k, part in zip(mine, share.tolist(), strict=True):
            constant += part * cuts[k].fixed
            counts[program.first[w] : program.first[w + 1]] += part * cuts[k].counts
    if not counts.any():
        return constant, np.zeros(len(terms.forms))
    among, total = multipliers.pieces, np.add.reduceat(multipliers.pieces, terms.start[:-1])
    if not total.all():
        # Where no piece has a multiplier, any shares will do.
        among = np.where((total > 0)[terms.owner], among, 1.0)
        total = np.where(total > 0, total, terms.pieces)
    weight_of = among * (counts / total)[terms.owner]
    return constant + float(weight_of @ terms.alpha), weight_of @ terms.coefficient


def _least(gradient: Floats, forms: Floats, choices: Floats, load: Floats, limit: Floats) -> Floats:
    """Lower bounds of ``sum_f a_f / (H_f . B) + g . B`` for 0 <= B <= limit.

    Each is what a choice of u >= 0 proves, of which there is one a row of `choices`.
    """
    rest = gradient - choices @ forms
    least = 2 * np.sqrt(choices) @ np.sqrt(load)  # load * u may overflow
    bounds: Floats = least + (rest * np.where(rest < 0, limit, 0.0)).sum(axis=1)
    return bounds


def _without_free_rows(rows: Rows, price: Floats, y: Floats, limit: Floats) -> Floats:
    """Multipliers that do not pay for bandwidth which nothing limits.

    At the optimum g = price + A' y is not negative there; an interior-point solver leaves it so by
    a trace, which would prove nothing. The multipliers that make it negative are scaled down to
    what there is to pay with.
    """
    free = np.flatnonzero(np.isinf(limit))
    if not len(free):
        return y
    y = y.copy()
    for _ in range(len(free) + 1):
        for d in free:
            parts = rows.matrix[:, d] * y
            owed, owned = -parts[parts < 0].sum(), price[d] + parts[parts > 0].sum()
            if owed > owned:
                y[parts < 0] *= max(owned, 0.0) / owed * (1 - 1e-15)
    paying = (rows.matrix[:, free] * y[:, None] < 0) & (price + rows.matrix.T @ y < 0)[free]
    y[paying.any(axis=1)] = 0.0
    return y


def _shares(multipliers: Floats, total: float) -> Floats:
    """Multipliers scaled to a sum, equal shares where all are 0."""
    size = multipliers.sum()
    if size <= 0:
        return np.full(len(multipliers), total / max(len(multipliers), 1))
    shares: Floats = multipliers * (total / size)
    return shares


def shared_out(gradient: Floats, forms: Floats, load: Floats) -> Floats:
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
    u = granted.min(axis=1, initial=np.inf) * _BELOW
    return np.where((load > 0) & np.isfinite(u), u, 0.0)


def _fitted(gradient: Floats, forms: Floats, suggestion: Floats) -> Floats:
    """Suggested u, each form's scaled down by what its dimensions need for sum_f u_f H_f <= g."""
    wanted, room = suggestion @ forms, np.maximum(gradient, 0)
    fits = np.where(wanted > room, room / np.maximum(wanted, _TINY), 1.0)
    result: Floats = suggestion * np.where(forms > 0, fits, 1.0).min(axis=1, initial=1.0) * _BELOW
    return result
