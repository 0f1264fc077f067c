"""Large random graphs: optima against a cone program with every task's start as a variable."""

import clarabel
import numpy as np
import pytest
from helpers import GB, NO_QUEUES, design, network, random_collective
from scipy import sparse

from libra.collectives import dimension_bytes
from libra.optimize import optimize_design
from libra.workload.graph import StepGraph

NET = network("RI(4)_FC(8)_RI(4)_SW(32)")
TOTAL = 500 * GB
DISTINCT = 20


def large_graph(tasks, seed):
    """Random tasks in arrays: half of them with a collective, each after 1 to 3 recent tasks."""
    rng = np.random.default_rng(seed)
    items = [random_collective(rng, NET) for _ in range(DISTINCT)]
    has = rng.random(tasks) < 0.5
    before = np.minimum(np.arange(tasks), rng.integers(1, 4, tasks))
    task = np.repeat(np.arange(tasks), before)
    back = np.ceil(rng.random(len(task)) * np.minimum(task, 10)).astype(np.int64)
    return StepGraph(
        fixed=rng.exponential(1e-3, tasks),
        collectives=tuple(items),
        count_start=np.concatenate([[0], np.cumsum(has)]),
        count_index=rng.integers(0, DISTINCT, int(has.sum())),
        count_value=np.ones(int(has.sum())),
        predecessor_start=np.concatenate([[0], np.cumsum(before)]),
        predecessor=task - back,
    )


def cone_optimum(found, total):
    """min T over starts t, bandwidths b, reciprocals s and collective times y, all at once.

    t_i >= t_p + f_p + sum_j y_j, T >= the end of each task, y_j >= traffic_jd s_d,
    s_d b_d >= 1 as the cone |(2, s - b)| <= s + b. Bandwidths in shares of the total.
    """
    n, dims = found.tasks, len(NET.sizes)
    traffic = np.array([dimension_bytes(c, NET, NO_QUEUES) for c in found.collectives]) / total
    start, y, s, b, end = 0, n, n + DISTINCT, n + DISTINCT + dims, n + DISTINCT + 2 * dims
    rows, cols, values, bounds = [], [], [], []

    def row(entries, bound):
        for column, value in entries:
            rows.append(len(bounds))
            cols.append(column)
            values.append(value)
        bounds.append(bound)

    def length(i):
        span = slice(found.count_start[i], found.count_start[i + 1])
        return [
            (y + j, v)
            for j, v in zip(found.count_index[span], found.count_value[span], strict=True)
        ]

    row([(b + d, 1.0) for d in range(dims)], 1.0)
    for i in range(n):
        row([(start + i, -1.0)], 0.0)
        row([(start + i, 1.0), (end, -1.0), *length(i)], -found.fixed[i])
        for p in found.predecessor[found.predecessor_start[i] : found.predecessor_start[i + 1]]:
            row([(start + p, 1.0), (start + i, -1.0), *length(p)], -found.fixed[p])
    for j, d in zip(*np.nonzero(traffic), strict=True):
        row([(s + d, traffic[j, d]), (y + j, -1.0)], 0.0)
    linear = len(bounds)
    for d in range(dims):
        row([(s + d, -1.0), (b + d, -1.0)], 0.0)
        row([], 2.0)
        row([(s + d, -1.0), (b + d, 1.0)], 0.0)
    cost = np.zeros(end + 1)
    cost[end] = 1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-9
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix((end + 1, end + 1)),
        cost,
        sparse.csc_matrix((values, (rows, cols)), shape=(len(bounds), end + 1)),
        np.array(bounds),
        [clarabel.NonnegativeConeT(linear), *[clarabel.SecondOrderConeT(3)] * dims],
        settings,
    ).solve()
    assert str(solution.status) in {"Solved", "AlmostSolved"}
    return solution.obj_val


def large_design(found):
    return design(NET, found, [f"total <= {TOTAL / GB} GB/s"])


@pytest.mark.parametrize(("tasks", "seed"), [(300, 0), (300, 1), (300, 2), (2000, 0), (2000, 1)])
def test_the_optimum_is_that_of_one_cone_program(tasks, seed):
    found = large_graph(tasks, seed)
    result = optimize_design(large_design(found))
    assert result.gap <= 1e-6
    assert result.objective_value == pytest.approx(cone_optimum(found, TOTAL), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_twenty_thousand_tasks(seed):
    found = large_graph(20_000, seed)
    assert len(found.predecessor) > 1.9 * found.tasks
    result = optimize_design(large_design(found))
    assert result.status == "optimal"
    assert 0 <= result.gap <= 1e-6
    assert result.bandwidth.sum() <= TOTAL * (1 + 1e-9)
