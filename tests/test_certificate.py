"""The proof of the bound: valid for any multipliers, tight at the optimal ones."""

import numpy as np
import pytest
from helpers import GB
from hypothesis import assume, given
from hypothesis import strategies as st

from libra.certificate import Multipliers, _least, certified_bound
from libra.constraints import LinearConstraint
from libra.program import Cut, Program, build_rows, plain_goal
from libra.timing import Terms
from libra.units import BANDWIDTH

seeds = st.integers(0, 2**32 - 1)


def row(coefficients, relation, bound):
    return LinearConstraint("", np.array(coefficients, float), relation, float(bound), BANDWIDTH)


def program(terms, first, weights, rows):
    width = terms.forms.shape[1]
    return Program((), np.array(weights, float), terms, np.array(first), build_rows(rows, width))


def objective(prog, cuts, price, weights, b):
    """Weighted step times by the cuts, plus the price of the bandwidth."""
    tau = prog.terms.times(b)
    times = np.zeros(len(weights))
    for cut in cuts:
        at = prog.first[cut.workload]
        time = cut.fixed + cut.counts @ tau[at : at + len(cut.counts)]
        times[cut.workload] = max(times[cut.workload], time)
    return float(price @ b + np.asarray(weights) @ times)


def random_terms(rng, collectives, dims, *, identity):
    """Pieces of random collectives, over single bandwidths or general forms of them."""
    if identity:
        forms = np.eye(dims)
    else:
        forms = np.where(rng.random((5, dims)) < 0.6, rng.uniform(0.1, 2, (5, dims)), 0.0)
        forms[:, int(rng.integers(dims))] += 0.5
    sizes = rng.integers(1, 4, collectives)
    pieces = int(sizes.sum())
    some = rng.random((pieces, len(forms))) < 0.6
    some[:, 0] |= ~some.any(axis=1)
    alpha = np.where(rng.random(pieces) < 0.5, rng.exponential(1e-3, pieces), 0.0)
    coefficient = np.where(some, 10 ** rng.uniform(6, 10, some.shape), 0.0)
    return Terms(alpha, coefficient, forms, np.concatenate([[0], np.cumsum(sizes)]))


def random_problem(rng, *, identity):
    """A program with rows around some bandwidths that meet them, and its cuts."""
    dims, workloads = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    inside = 10 ** rng.uniform(8, 11, dims)
    rows = [row(np.ones(dims), "<=", inside.sum() * rng.choice([1, 1.3]))]
    for _ in range(int(rng.integers(0, 4))):
        a = rng.normal(size=dims)
        relation = rng.choice(["<=", ">=", "=="])
        room = {"<=": 1, ">=": -1, "==": 0}[relation] * rng.exponential(inside.mean())
        rows.append(row(a, relation, a @ inside + room))
    if rng.random() < 0.3:
        rows = rows[1:]  # nothing limits the bandwidths
    sizes = rng.integers(1, 4, workloads)
    terms = random_terms(rng, int(sizes.sum()), dims, identity=identity)
    weights = rng.choice([0.0, 1.0, 2.5], workloads) if rng.random() < 0.3 else np.ones(workloads)
    prog = program(terms, np.concatenate([[0], np.cumsum(sizes)]), weights, rows)
    cuts = [
        Cut(w, float(rng.exponential(1e-2)), rng.choice([0.0, 1.0, 3.0], sizes[w]))
        for w in range(workloads)
        for _ in range(int(rng.integers(1, 4)))
    ]
    price = np.where(rng.random(dims) < 0.5, 0.0, rng.exponential(1e-11, dims))
    return prog, cuts, price, weights, inside


def feasible_points(rng, prog, inside, wanted=30):
    """Bandwidths that meet the rows, found along rays from one that does, kept on the equalities."""
    equal = prog.rows.matrix[: prog.rows.equal]
    for _ in range(wanted):
        step = rng.normal(size=len(inside)) * inside
        if len(equal):
            step -= np.linalg.pinv(equal) @ (equal @ step)
        slope, room = prog.rows.matrix @ step, prog.rows.bound - prog.rows.matrix @ inside
        slope, room = slope[prog.rows.equal :], np.maximum(room[prog.rows.equal :], 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            limits = [
                np.where(slope > 0, room / slope, np.inf).min(initial=10.0),
                np.where(step < 0, inside / -step, np.inf).min(initial=np.inf),
            ]
        b = inside + step * min(limits) * rng.choice([1.0, 0.999, 0.5])
        yield np.maximum(b, 1e-3)


def prove(prog, cuts, price, weights, y, pieces, path, forms=None):
    """Bound that multipliers prove, without a suggestion for those of the forms unless given."""
    forms = np.zeros(len(prog.terms.forms)) if forms is None else forms
    none = np.zeros(len(weights))
    multipliers = Multipliers(
        rows=y, pieces=pieces, cuts=path, forms=forms, limits=none, groups=none
    )
    return certified_bound(prog, cuts, plain_goal(price, np.asarray(weights)), multipliers)


@pytest.mark.parametrize("identity", [True, False], ids=["identity", "general forms"])
@given(seed=seeds)
def test_a_lower_bound_for_any_multipliers(identity, seed):
    rng = np.random.default_rng(seed)
    prog, cuts, price, weights, inside = random_problem(rng, identity=identity)
    points = [inside, *feasible_points(rng, prog, inside)]
    values = np.array([objective(prog, cuts, price, weights, b) for b in points])
    slope = values[0] / inside.sum()
    for _ in range(10):
        size = slope * 10 ** rng.uniform(-4, 1)
        y = (
            np.abs(rng.normal(size=len(prog.rows.bound)))
            * size
            * rng.choice([0, 1], len(prog.rows.bound))
        )
        y *= rng.choice([-1, 1], len(y))
        pieces = rng.exponential(1, len(prog.terms.alpha)) * rng.choice(
            [0, 1], len(prog.terms.alpha)
        )
        path = rng.exponential(1, len(cuts)) * rng.choice([0, 1], len(cuts))
        forms = rng.exponential(size, len(prog.terms.forms)) * rng.choice([0, 1])
        bound = prove(prog, cuts, price, weights, y, pieces, path, forms)
        rounding = 1e-9 * (np.abs(values).max() + np.abs(y @ prog.rows.bound))
        assert bound <= values.min() + rounding
        assert not np.isnan(bound)


@given(
    a=st.floats(1e3, 1e12),
    fixed=st.floats(0, 1),
    total=st.floats(1, 1e4),
    count=st.floats(0.5, 100),
)
def test_one_dimension_under_a_limit_is_tight(a, fixed, total, count):
    """T = c + n a / B under B <= total; the multiplier is n a / total**2."""
    terms = Terms(np.zeros(1), np.array([[a]]), np.eye(1), np.array([0, 1]))
    total *= GB
    prog = program(terms, [0, 1], [1.0], [row([1], "<=", total)])
    cuts, price, one = [Cut(0, fixed, np.array([count]))], np.zeros(1), np.ones(1)
    best = fixed + count * a / total
    y = np.array([count * a / total**2])
    assert prove(prog, cuts, price, one, y, one, one) == pytest.approx(best, rel=1e-12)
    for wrong in (0.5, 2.0):
        worse = prove(prog, cuts, price, one, y * wrong, one, one)
        assert worse < best - 0.05 * count * a / total


def test_one_dimension_with_a_price_is_tight():
    """T + p B: least 2 sqrt(a p) at B = sqrt(a / p)."""
    terms = Terms(np.zeros(1), np.array([[9e9]]), np.eye(1), np.array([0, 1]))
    prog = program(terms, [0, 1], [1.0], [])
    cuts, one = [Cut(0, 0.25, np.ones(1))], np.ones(1)
    bound = prove(prog, cuts, np.array([4e-9]), one, np.zeros(0), one, one)
    assert bound == pytest.approx(0.25 + 2 * np.sqrt(9e9 * 4e-9), rel=1e-14)


def test_a_shared_form_is_tight():
    """T = a / (B1 + 2 B2) under B1 + 2 B2 <= r: a form that is no single bandwidth."""
    terms = Terms(np.array([0.125]), np.array([[6e9]]), np.array([[1.0, 2.0]]), np.array([0, 1]))
    prog = program(terms, [0, 1], [1.0], [row([1, 2], "<=", 3e9)])
    best = 0.125 + 6e9 / 3e9
    y = np.array([6e9 / 3e9**2 / prog.rows.factor[0]])
    one = np.ones(1)
    bound = prove(prog, [Cut(0, 0.0, one)], np.zeros(2), one, y, one, one)
    assert bound == pytest.approx(best, rel=1e-12)


@given(seeds)
def test_scaling_the_path_and_piece_multipliers_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    prog, cuts, price, weights, _ = random_problem(rng, identity=True)
    y = np.abs(rng.normal(size=len(prog.rows.bound))) * 1e-12
    pieces, path = rng.exponential(1, len(prog.terms.alpha)), rng.exponential(1, len(cuts))
    first = prove(prog, cuts, price, weights, y, pieces, path)
    assume(np.isfinite(first))
    again = prove(prog, cuts, price, weights, y, pieces * 7, path * 0.1)
    assert again == pytest.approx(first, rel=1e-9, abs=1e-12)


def test_large_multipliers_do_not_overflow():
    huge = np.array([1e200])
    assert _least(huge, np.eye(1), huge[None], huge, np.array([np.inf])) == pytest.approx(2e200)
