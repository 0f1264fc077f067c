"""Designs without an optimum: smallest conflicts, ways out, unlimited bandwidth."""

import re
import subprocess
import sys
from pathlib import Path

import highspy
import numpy as np
import pytest
from helpers import GB, chain, collective, design, network, random_network
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from libra.constraints import parse_constraint
from libra.errors import FieldError, InfeasibleError, SolverError, UnboundedError
from libra.feasibility import smallest_conflict
from libra.linear import solve_linear
from libra.optimize import optimize_design

seeds = st.integers(0, 2**32 - 1)
NET = network("RI(4)_FC(8)_SW(16)")
ALL = chain(collective("all-reduce", 1e9, (4, 8, 16)), compute=0.1)
NO_B = chain(collective("all-reduce", 1e9, (4, 1, 16)))


def most_for_all(rows, used):
    """Largest bandwidth <= 1 GB/s that all used dimensions can have; -1 if the rows conflict."""
    width = len(used)
    upper, equal = [], []
    for row in rows:
        sign = -1 if row.relation == ">=" else 1
        norm = sign / np.abs(row.coefficients).max()
        entry = [*(row.coefficients * norm), 0.0, row.bound * norm / GB]
        (equal if row.relation == "==" else upper).append(entry)
    upper += [[*(-np.eye(width)[d]), 1.0, 0.0] for d in np.flatnonzero(used)]
    upper, equal = np.array(upper), np.array(equal).reshape(-1, width + 2)
    found = linprog(
        -np.eye(width + 1)[-1],
        upper[:, :-1],
        upper[:, -1],
        equal[:, :-1],
        equal[:, -1],
        bounds=[(0, None)] * width + [(0, 1)],
    )
    return float(found.x[-1]) if found.status == 0 else -1.0


def conflict_of(d):
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(d)
    return caught.value


def loosened(d_rows, conflict):
    """Constraints as text after the way out that a conflict proposes."""
    (item,) = [c for c in conflict if c.way_out]
    if match := re.fullmatch(r"write '(.*)'\.", item.way_out):
        return [match[1] if text == item.constraint else text for text in d_rows]
    match = re.fullmatch(r"loosen '(.*)' by (\S+) (GB/s|USD)\.", item.way_out)
    assert match, item.way_out
    left, relation, right = re.split("(<=|>=|==)", match[1])
    looser = f"{left} {relation} {right} {'+' if relation == '<=' else '-'} {match[2]} {match[3]}"
    return [looser if text == item.constraint else text for text in d_rows]


CONFLICTS = [
    (["total <= 100 GB/s", "a >= 60 GB/s", "b >= 50 GB/s", "c >= 1 GB/s"], {0, 1, 2}),
    (["total <= 100 GB/s", "a >= 101 GB/s", "b <= 5 GB/s"], {0, 1}),
    (["total == 100 GB/s", "total == 90 GB/s", "a >= b"], {0, 1}),
    (["a >= 2 * b", "b >= 2 * a", "c <= 5 GB/s", "a >= 1 GB/s"], {0, 1}),
    (["total <= 100 GB/s", "cost <= 1 USD", "a >= 1 GB/s"], {1, 2}),
    (["total <= 10 GB/s", "b <= 0 GB/s"], {1}),
    (["total <= -1 GB/s"], {0}),
    (["a + b == c", "c <= 1 GB/s", "a >= 2 GB/s", "total <= 90 GB/s"], {0, 1, 2}),
]


@pytest.mark.parametrize(("rows", "expected"), CONFLICTS)
def test_names_a_smallest_conflict(rows, expected):
    error = conflict_of(design(NET, ALL, rows))
    assert {rows.index(c.constraint) for c in error.conflict} == expected
    assert sum(bool(c.way_out) for c in error.conflict) <= 1


def test_rows_that_leave_only_zero_conflict():
    rows = ["a >= 2 * b", "b >= 2 * a", "c <= 5 GB/s", "total <= 10 GB/s"]
    error = conflict_of(design(NET, ALL, rows))
    assert {c.constraint for c in error.conflict} == {"a >= 2 * b", "b >= 2 * a"}


@pytest.mark.parametrize(
    "rows",
    [
        CONFLICTS[0][0],
        CONFLICTS[2][0],
        ["total <= 100 GB/s", "a >= 101 GB/s", "b >= 5 GB/s", "c >= 1 GB/s"],
        ["cost <= 1000 USD", "a >= 1 GB/s", "b >= 1 GB/s", "c >= 1 GB/s", "total <= 9 GB/s"],
        ["a >= 2 * b + 1 GB/s", "a <= b", "b >= 3 GB/s", "total <= 10 GB/s"],
    ],
)
def test_the_way_out_is_one(rows):
    error = conflict_of(design(NET, ALL, rows))
    assert optimize_design(design(NET, ALL, loosened(rows, error.conflict))).gap <= 1e-6


@pytest.mark.parametrize(
    "rows",
    [
        ["a + b <= 5 GB/s", "a >= 10 GB/s", "c <= 1 GB/s"],
        ["total <= 5 GB/s", "a >= 10 GB/s"],
        ["total <= 100 GB/s", "a >= 101 GB/s", "b <= 5 GB/s"],
        ["total <= 100 GB/s", "cost <= 1 USD", "a >= 1 GB/s"],
    ],
)
def test_the_way_out_gives_every_used_dimension_some_bandwidth(rows):
    error = conflict_of(design(NET, ALL, rows))
    assert optimize_design(design(NET, ALL, loosened(rows, error.conflict))).gap <= 1e-6


def random_rows(rng, net, n):
    """Constraints of all kinds; many sets of them conflict."""
    rows = []
    for _ in range(n):
        k = np.where(rng.random(len(net.sizes)) < 0.6, rng.normal(size=len(net.sizes)).round(2), 0)
        k[int(rng.integers(len(k)))] += 1
        side = " + ".join(f"{x:.2f} * {name}" for x, name in zip(k, net.names, strict=True))
        relation = rng.choice(["<=", ">=", "=="], p=[0.45, 0.4, 0.15])
        rows.append(f"{side} {relation} {rng.normal() * 100:.3f} GB/s")
    return rows


@settings(max_examples=60)
@given(seeds)
def test_conflicts_are_irreducible(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, int(rng.integers(2, 5)))
    used = rng.random(len(net.sizes)) < 0.7
    used[0] = True
    rows = [
        parse_constraint(text, net, None) for text in random_rows(rng, net, int(rng.integers(2, 9)))
    ]
    conflict = smallest_conflict(rows, used)
    room = most_for_all(rows, used)
    assume(not 0 <= room < 1e-6)  # at the edge of what is feasible
    assert bool(conflict) == (room < 0)
    if not conflict:
        return
    assert most_for_all(conflict, used) <= 1e-7
    for row in conflict:
        rest = [other for other in conflict if other is not row]
        assert most_for_all(rest, used) > 1e-9, f"{row.text} is not needed"


@settings(max_examples=60)
@given(seeds)
def test_the_optimiser_and_the_conflict_agree(seed):
    """Either an optimum, or a conflict that a linear program confirms."""
    rng = np.random.default_rng(seed)
    net = random_network(rng, 3)
    texts = [*random_rows(rng, net, int(rng.integers(1, 5))), "total <= 300 GB/s"]
    load = chain(collective("all-reduce", 1e9, net.sizes))
    d = design(net, load, texts)
    room = most_for_all(d.rows, np.ones(3, dtype=bool))
    assume(not 0 <= room < 1e-3)
    if room > 0:
        assert optimize_design(d).gap <= 1e-6
        return
    error = conflict_of(d)
    rows = [row for row in d.rows if row.text in {c.constraint for c in error.conflict}]
    assert most_for_all(rows, np.ones(3, dtype=bool)) <= 1e-7


# --- unbounded ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "load", "free"),
    [
        ([], ALL, "a and b and c"),
        (["a <= 5 GB/s", "c <= 5 GB/s"], ALL, "b"),
        (["a + b <= 5 GB/s"], ALL, "c"),
        (["a >= b", "b >= c"], ALL, "a and b and c"),
        (["a - b <= 5 GB/s", "c <= 1 GB/s"], ALL, "a and b"),
        (["b <= 5 GB/s"], NO_B, "a and c"),
    ],
)
def test_names_what_nothing_limits(rows, load, free):
    with pytest.raises(UnboundedError, match=f"nothing limits {free}, which"):
        optimize_design(design(NET, load, rows))


@pytest.mark.parametrize(
    "rows",
    [
        ["a <= 5 GB/s", "b <= a", "c <= b + 1 GB/s"],
        ["2 * a - b <= 5 GB/s", "2 * b - a <= 5 GB/s", "c <= 1 GB/s"],
        ["cost <= 1e5 USD"],
        ["a == b", "b == c", "c <= 7 GB/s"],
        ["100 GB/s == total"],
    ],
)
def test_limits_by_several_rows_together_are_found(rows):
    assert optimize_design(design(NET, ALL, rows)).gap <= 1e-6


def test_an_unused_dimension_may_be_unlimited():
    result = optimize_design(design(NET, NO_B, ["a <= 5 GB/s", "c <= 5 GB/s"]))
    assert result.gap <= 1e-6


@pytest.mark.parametrize("rows", [[], ["total <= 100 GB/s"], ["a >= b"]])
def test_time_cost_without_a_floor_is_refused(rows):
    with pytest.raises(FieldError, match="shrinking together"):
        design(NET, ALL, rows, objective="time-cost")


@pytest.mark.parametrize("rows", [[], ["total <= 100 GB/s"], ["a >= b"]])
def test_npus_with_a_price_keep_time_cost_bounded(rows):
    assert optimize_design(design(NET, ALL, rows, npu=1.0, objective="time-cost")).gap <= 1e-5


@pytest.mark.parametrize(
    "rows", [["a >= 10 GB/s"], ["total >= 10 GB/s"], ["10 GB/s == total"], ["cost >= 100 USD"]]
)
def test_time_cost_needs_no_upper_limit(rows):
    assert optimize_design(design(NET, ALL, rows, objective="time-cost")).gap <= 1e-5


def test_time_cost_of_nothing_but_communication_and_npus_has_no_optimum():
    """(a / B)(C0 + p B) falls for ever as B grows."""
    silent = chain(collective("all-reduce", 1e9, (4, 8, 16)))
    with pytest.raises(UnboundedError):
        optimize_design(design(NET, silent, [], npu=1.0, objective="time-cost"))


def test_conflicts_are_found_for_time():
    assert len(conflict_of(design(NET, ALL, ["total == 10 GB/s", "a >= 20 GB/s"])).conflict) == 2


@pytest.mark.parametrize("npu", [0.0, 1.0])
def test_conflicts_are_found_for_time_cost(npu):
    rows = ["total == 10 GB/s", "a >= 20 GB/s"]
    assert len(conflict_of(design(NET, ALL, rows, npu=npu, objective="time-cost")).conflict) == 2


def test_many_rows_that_meet_in_one_point():
    rows = [
        "-1.769*a + 0.52*b <= -2635.6944909261924 GB/s",
        "-0.478*a + -0.067*b >= -1007.4407550508797 GB/s",
        "-0.346*a + -0.312*b >= -1104.1569285212297 GB/s",
        "total <= 3331.0217410328464 GB/s",
    ]
    net = network("FC(2)_RI(4)")
    result = optimize_design(design(net, chain(collective("all-reduce", 1e9, (2, 4))), rows))
    assert result.bandwidth / GB == pytest.approx([1908.18077524, 1422.84096246], rel=1e-6)


def test_the_linear_programs_are_silent():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import test_infeasible as t
t.optimize_design(t.design(t.NET, t.ALL, ["a <= 5 GB/s", "b <= a", "c <= b + 1 GB/s"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == ""


def test_a_linear_solver_that_gives_up_is_not_taken_for_no_answer(monkeypatch):
    ended = highspy.HighsModelStatus.kIterationLimit
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda _: ended)
    with pytest.raises(SolverError, match="the linear solver stopped: Iteration limit"):
        solve_linear(np.ones(1), np.ones((1, 1)), np.zeros(1), np.ones(1))
