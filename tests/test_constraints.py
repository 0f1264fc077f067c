"""Constraints: text to rows."""

import dataclasses
import re

import numpy as np
import pytest
from helpers import GB, network
from hypothesis import given
from hypothesis import strategies as st

from libra.constraints import bound_constraints, parse_constraint
from libra.units import BANDWIDTH, MONEY

NET = network("RI(4)_FC(8)_SW(2)", ("node", "rack", "pod"))
PRICES = np.array([2e-6, 3e-6, 5e-6])


def parse(text, net=NET, prices=PRICES):
    return parse_constraint(text, net, prices)


@pytest.mark.parametrize(
    ("text", "coefficients", "relation", "bound"),
    [
        ("total <= 1000 GB/s", [1, 1, 1], "<=", 1000),
        ("1000 GB/s >= total", [-1, -1, -1], ">=", -1000),
        ("node >= 2 * pod", [1, 0, -2], ">=", 0),
        ("dim1 == dim3", [1, 0, -1], "==", 0),
        ("node + pod == 200 GB/s", [1, 0, 1], "==", 200),
        ("node - rack - pod <= 0 GB/s", [1, -1, -1], "<=", 0),
        ("node - (rack - pod) <= 0 GB/s", [1, -1, 1], "<=", 0),
        ("node / 2 / 2 >= pod", [0.25, 0, -1], ">=", 0),
        ("2 * node / 4 * 3 >= pod", [1.5, 0, -1], ">=", 0),
        ("node * 2 >= pod * 3", [2, 0, -3], ">=", 0),
        ("2 + 3 >= pod", None, None, None),
        ("(2 + 3 * 4) * node >= pod", [14, 0, -1], ">=", 0),
        ("node / (1 + 3) >= pod", [0.25, 0, -1], ">=", 0),
        ("-node <= -5 GB/s", [-1, 0, 0], "<=", -5),
        ("- -node >= +5 GB/s", [1, 0, 0], ">=", 5),
        ("2 * -(node - 3 * pod) <= 1 GB/s", [-2, 0, 6], "<=", 1),
        ("total - node <= 10 GB/s + rack", [0, 0, 1], "<=", 10),
        ("3 GB/s + node <= 10 GB/s - 2 GB/s", [1, 0, 0], "<=", 5),
        ("node <= 8 Gbit/s + 1 TB/s", [1, 0, 0], "<=", 1001),
        ("node <= 1 GiB/s", [1, 0, 0], "<=", 2**30 / 1e9),
        ("node<=1_000GB/s/2", [1, 0, 0], "<=", 500),
        ("node <= 2 * (100 GB/s)", [1, 0, 0], "<=", 200),
        ("node <= 1e3 MB/s", [1, 0, 0], "<=", 1),
        ("1.5*node-.5*node <= 1 GB / s", [1, 0, 0], "<=", 1),
    ],
)
def test_rows(text, coefficients, relation, bound):
    if coefficients is None:
        with pytest.raises(ValueError, match="same kind"):
            parse(text)
        return
    row = parse(text)
    assert row.coefficients == pytest.approx(coefficients)
    assert (row.relation, row.kind, row.text) == (relation, BANDWIDTH, text)
    assert row.bound / GB == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "coefficients", "bound"),
    [
        ("cost <= 15e6 USD", PRICES, 15e6),
        ("cost <= 15 MUSD - 500 kUSD", PRICES, 14.5e6),
        ("2 * cost <= 1 USD", 2 * PRICES, 1),
        ("cost / 4096 <= 10_000 USD", PRICES / 4096, 1e4),
        ("3 USD <= cost", -PRICES, -3),
    ],
)
def test_cost_rows(text, coefficients, bound):
    row = parse(text)
    assert row.kind is MONEY
    assert row.coefficients == pytest.approx(coefficients, rel=1e-15)
    assert row.bound == pytest.approx(bound)
    assert row.unit == ("USD", 1.0)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("node <= 100", "same kind"),
        ("node + 3 <= 100 GB/s", "same kind"),
        ("node <= 100 USD", "same kind"),
        ("cost <= 100 GB/s", "same kind"),
        ("cost + node <= 100 GB/s", "same kind"),
        ("node <= 100 GB", "unit of a size"),
        ("node <= 100 Gb/s", "Gbit or GB"),
        ("node * pod <= 1 GB/s", "not linear"),
        ("node / pod <= 2", "not linear"),
        ("2 / node <= 2 GB/s", "plain number"),
        ("node / 0 <= 2 GB/s", "other than 0"),
        ("node < 2 GB/s", "strict"),
        ("node = 2 GB/s", "=="),
        ("node != 2 GB/s", "not a relation"),
        ("node <= pod <= rack", "one comparison"),
        ("node", "one comparison"),
        ("node <=", "missing"),
        ("<= node", "missing"),
        ("node <= 2 GB/s)", "cannot read"),
        ("(node <= 2 GB/s", "not closed"),
        ("node pod <= 2 GB/s", "cannot read"),
        ("2 node <= 2 GB/s", "cannot read"),
        ("node - node <= 2 GB/s", "no bandwidth"),
        ("noed <= 2 GB/s", "Did you mean 'node'"),
        ("dim4 <= 2 GB/s", "unknown name"),
        ("time <= 2 s", "stands alone"),
        ("node <= 1e999 GB/s", "not finite"),
        ("node ** 2 <= 2 GB/s", "cannot read"),
        ("__import__('os') <= 2", "got"),
        ("node; pod <= 2 GB/s", "got ';'"),
        ("(" * 400 + "node" + ")" * 400 + " <= 2 GB/s", "too deeply"),
        ("node " + "+ node " * 400 + "<= 2 GB/s", "longer than"),
    ],
)
def test_refuses(text, fragment):
    with pytest.raises(ValueError, match=re.escape(fragment)):
        parse(text)


def test_cost_needs_prices():
    with pytest.raises(ValueError, match="prices are not known"):
        parse("cost <= 1 USD", prices=None)


def test_the_name_of_a_tier_that_repeats_is_refused():
    net = network("RI(4)_FC(8)_SW(2)", ("node", "node", "pod"))
    with pytest.raises(ValueError, match="Write dim1 or dim2"):
        parse("node <= 1 GB/s", net)
    assert parse("dim2 <= 1 GB/s", net).coefficients.tolist() == [0, 1, 0]


def test_own_limits_of_the_dimensions():
    net = network("RI(4)_SW(2)", min_bandwidth=[1e9, None], max_bandwidth=[5e9, 7e9])
    rows = [(r.text, r.coefficients.tolist(), r.relation, r.bound) for r in bound_constraints(net)]
    assert rows == [
        ("a >= 1 GB/s", [1, 0], ">=", 1e9),
        ("a <= 5 GB/s", [1, 0], "<=", 5e9),
        ("b <= 7 GB/s", [0, 1], "<=", 7e9),
    ]


@pytest.mark.parametrize(("relation", "slack"), [("<=", 3e9), (">=", -3e9), ("==", -3e9)])
def test_slack(relation, slack):
    row = dataclasses.replace(parse("node + pod <= 10 GB/s"), relation=relation)
    assert row.slack(np.array([3e9, 1e9, 4e9])) == slack
    assert row.slack(np.array([3e9, 1e9, 7e9])) == 0


# --- any linear expression reads back ----------------------------------------------------------

numbers = st.integers(1, 99).map(lambda n: n / 4)
UNITS = {"GB/s": 1.0, "MB/s": 1e-3, "TB/s": 1e3, "Gbit/s": 1 / 8, "GiB/s": 2**30 / 1e9}
VECTORS = {
    "node": [1, 0, 0, 0],
    "rack": [0, 1, 0, 0],
    "dim3": [0, 0, 1, 0],
    "total": [1, 1, 1, 0],
}
# An expression is its text and its coefficients with the constant [GB/s] last.
names = st.sampled_from(list(VECTORS)).map(lambda name: (name, np.array(VECTORS[name], float)))
constants = st.builds(
    lambda n, unit: (f"{n} {unit}", np.array([0, 0, 0, n * UNITS[unit]])),
    numbers,
    st.sampled_from(list(UNITS)),
)


def compounds(inner):
    bracketed = inner.map(lambda e: (f"({e[0]})", e[1]))
    return st.one_of(
        st.builds(lambda a, b: (f"{a[0]} + {b[0]}", a[1] + b[1]), inner, inner),
        st.builds(lambda a, b: (f"{a[0]}-{b[0]}", a[1] - b[1]), inner, bracketed),
        st.builds(lambda k, a: (f"{k} * {a[0]}", k * a[1]), numbers, bracketed),
        st.builds(lambda k, a: (f"{a[0]}/{k}", a[1] / k), numbers, bracketed),
        st.builds(
            lambda k, a: (f"{a[0]} * ({k} - 0.25 * 2)", a[1] * (k - 0.5)), numbers, bracketed
        ),
        st.builds(lambda a: (f"-{a[0]}", -a[1]), bracketed),
    )


expressions = st.recursive(names | constants, compounds, max_leaves=8)


@given(expressions, expressions, st.sampled_from(["<=", ">=", "=="]))
def test_linear_expressions_read_back(left, right, relation):
    expected = left[1] - right[1]
    text = f"{left[0]} {relation} {right[0]}"
    if len(text) > 1000 or text.count("(") > 10:
        return
    size = np.abs(left[1]).max() + np.abs(right[1]).max()
    if np.abs(expected[:3]).max() < 1e-9 * size:
        return
    row = parse(text)
    assert row.coefficients == pytest.approx(expected[:3], rel=1e-12, abs=1e-12 * size)
    assert row.bound / GB == pytest.approx(-expected[3], rel=1e-12, abs=1e-12 * size)
    assert row.relation == relation


@given(
    st.text(max_size=40) | st.from_regex(r"[-+*/() a-z0-9.]{0,20}(<=|>=|==)[-+*/() a-z0-9.]{0,20}")
)
def test_any_text_is_read_or_refused(text):
    try:
        row = parse(text)
    except ValueError:
        return
    assert np.isfinite(row.coefficients).all()
    assert np.isfinite(row.bound)
