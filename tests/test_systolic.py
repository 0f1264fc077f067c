"""Systolic array: closed forms, and an array simulated cycle by cycle."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.errors import FieldError
from libra.workload.systolic import SystolicArray, run_matmul


def array(rows, columns, **fields):
    fields = {"weight_buffer": 1e9, "activation_buffer": 1e9, "accumulator": 1e9} | fields
    return SystolicArray(rows, columns, 1e9, **fields)


class Units:
    """The registers of an array, moved on one cycle at a time."""

    def __init__(self, rows, columns):
        self.shape = rows, columns
        self.weight = np.zeros((rows, columns))
        self.next_weight = np.zeros((rows, columns))
        self.activation = np.zeros((rows, columns))
        self.is_first = np.zeros((rows, columns), dtype=bool)
        self.partial = np.zeros((rows, columns))

    def cycle(self, entering, first, weights):
        """Enter a column of activations (``first`` marks a new tile's) and a row of weights."""
        self.activation = np.hstack([entering[:, None], self.activation[:, :-1]])
        self.is_first = np.hstack([first[:, None], self.is_first[:, :-1]])
        self.weight = np.where(self.is_first, self.next_weight, self.weight)
        above = np.vstack([np.zeros((1, self.shape[1])), self.partial[:-1]])
        self.partial = above + self.weight * self.activation
        for i, j, value in weights:
            self.next_weight[i, j] = value
        return self.partial[-1].copy()


def simulate(a, x, w):
    """Product of x and w on an array, unit by unit, and the cycles that it takes.

    Weights shift down column j so that the one for row i leaves row 0 after R - 1 - i cycles and all
    are in place R cycles after the column began; with double buffers a column begins when its first
    unit has changed to the present tile's weights.
    """
    (m, k), n = x.shape, w.shape[1]
    rows, columns = a.rows, a.columns
    tiles = [(c, r) for c in range(0, n, columns) for r in range(0, k, rows)]
    start, now = [], 0
    for _ in tiles:
        if not start:
            now = rows
        elif a.double_buffered:
            now = start[-1] + max(m, rows)
        start.append(now)
        if not a.double_buffered and len(start) < len(tiles):
            width = min(columns, n - tiles[len(start) - 1][0])
            now = start[-1] + m + rows + width - 2 + rows
    units, result, last = Units(rows, columns), np.zeros((m, n)), 0
    for cycle in range(start[-1] + m + rows + columns):
        entering, first, weights = np.zeros(rows), np.zeros(rows, dtype=bool), []
        for (c, r), begin in zip(tiles, start, strict=True):
            block = np.zeros((rows, columns))
            part = w[r : r + rows, c : c + columns]
            block[: part.shape[0], : part.shape[1]] = part
            for i in range(rows):
                t = cycle - begin - i
                if 0 <= t < m:
                    entering[i] = x[t, r + i] if r + i < k else 0.0
                    first[i] = t == 0
            for j in range(columns):
                # The last shift of the column puts every weight in its place.
                if cycle == begin + j - 1:
                    weights += [(i, j, block[i, j]) for i in range(rows)]
        leaving = units.cycle(entering, first, weights)
        for (c, _), begin in zip(tiles, start, strict=True):
            for j in range(min(columns, n - c)):
                t = cycle - begin - (rows - 1) - j
                if 0 <= t < m:
                    result[t, c + j] += leaving[j]
                    last = max(last, cycle)
    return result, last + 1


sides = st.integers(1, 9)


@settings(max_examples=60, deadline=None)
@given(sides, sides, sides, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_cycles_are_those_of_the_units(m, n, k, rows, columns, double):
    a = array(rows, columns, double_buffered=double)
    rng = np.random.default_rng(m * 1000 + n * 100 + k)
    x, w = rng.integers(-5, 6, (m, k)).astype(float), rng.integers(-5, 6, (k, n)).astype(float)
    product, cycles = simulate(a, x, w)
    np.testing.assert_array_equal(product, x @ w)
    assert run_matmul(a, m, n, k).cycles == cycles


@given(sides, sides, sides, st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
def test_blocks_run_one_after_the_other(m, n, k, rows, columns, block):
    """Serial tiles: every block, row and column of tiles takes 2 R + rows + c - 2."""
    a = array(rows, columns, accumulator=4.0 * columns * block, double_buffered=False)
    expected = sum(
        2 * rows + min(block, m - b) + min(columns, n - c) - 2
        for b in range(0, m, block)
        for c in range(0, n, columns)
        for _ in range(0, k, rows)
    )
    run = run_matmul(a, m, n, k)
    assert run.cycles == expected
    assert run.utilization == pytest.approx(m * n * k / (expected * rows * columns))


@pytest.mark.parametrize(
    ("m", "n", "k", "double", "cycles"),
    [
        (1, 4, 4, False, 4 + 1 + 4 + 4 - 2),
        (100, 4, 4, False, 2 * 4 + 4 + 100 - 2),
        (100, 8, 8, False, 4 * (2 * 4 + 4 + 100 - 2)),
        (100, 8, 8, True, 4 + 3 * 100 + 100 + 4 + 4 - 2),
        (2, 8, 8, True, 4 + 3 * 4 + 2 + 4 + 4 - 2),
    ],
)
def test_closed_forms(m, n, k, double, cycles):
    assert run_matmul(array(4, 4, double_buffered=double), m, n, k).cycles == cycles


def test_a_long_stream_keeps_all_units_busy():
    run = run_matmul(array(128, 128), 1e7, 128, 128)
    assert run.utilization == pytest.approx(1, abs=1e-4)
    assert run_matmul(array(128, 128), 1e7, 64, 128).utilization == pytest.approx(0.5, abs=1e-4)


def test_several_arrays_share_the_columns():
    one, four = array(128, 128), array(128, 128, arrays=4)
    m, n, k = 4096, 8192, 1024
    assert run_matmul(one, m, n, k).cycles / run_matmul(four, m, n, k).cycles == pytest.approx(
        4, rel=0.01
    )
    alone = run_matmul(four, m, 128, k)
    assert alone.cycles == run_matmul(one, m, 128, k).cycles
    assert alone.utilization == pytest.approx(run_matmul(one, m, 128, k).utilization / 4)


def test_what_fits_the_buffers_moves_once():
    m, n, k = 1000, 512, 256
    run = run_matmul(array(128, 128), m, n, k)
    assert (run.weight_bytes, run.activation_bytes, run.result_bytes) == (
        2 * k * n,
        2 * m * k,
        2 * m * n,
    )
    assert run.bytes == 2 * (k * n + m * k + m * n)
    assert (run.weight_reads, run.activation_reads) == (k * n, m * k * 4)
    assert run.sum_moves == m * n * 3


def test_what_does_not_fit_moves_again():
    m, n, k = 1000, 512, 256
    small = array(128, 128, accumulator=4 * 128 * 100, weight_buffer=1e3, activation_buffer=1e3)
    run = run_matmul(small, m, n, k)
    assert small.block_rows == 100
    assert run.weight_bytes == 10 * 2 * k * n
    assert run.activation_bytes == 4 * 2 * m * k
    assert run.weight_reads == 10 * k * n


@given(sides, sides, sides, st.integers(1, 4), st.booleans())
def test_larger_buffers_never_cost_more(m, n, k, arrays, double):
    tight = array(
        2, 3, accumulator=48.0, weight_buffer=8.0, activation_buffer=8.0, double_buffered=double
    )
    ample = dataclasses.replace(tight, accumulator=1e6, weight_buffer=1e6, activation_buffer=1e6)
    assert run_matmul(ample, m, n, k).bytes <= run_matmul(tight, m, n, k).bytes
    several = dataclasses.replace(ample, arrays=arrays)
    assert run_matmul(several, m, n, k).utilization <= 1


def test_products_are_run_together():
    a = array(16, 16)
    m, n, k = np.array([1, 100, 7]), np.array([40, 3, 16]), np.array([8, 8, 90])
    together = run_matmul(a, m, n, k, element_bytes=np.array([2, 1, 4]))
    for i in range(3):
        alone = run_matmul(a, m[i], n[i], k[i], element_bytes=[2, 1, 4][i])
        for field in dataclasses.fields(alone):
            assert getattr(together, field.name)[i] == getattr(alone, field.name)


def test_peak_is_two_operations_a_unit_and_cycle():
    assert array(128, 128, arrays=8).peak == 2 * 128 * 128 * 8 * 1e9


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 0}, "must be at least 1, got 0. Correct it."),
        ({"arrays": -1}, "must be at least 1, got -1. Correct it."),
        ({"clock": 0.0}, "must be finite and positive, got 0.0. Correct it."),
        ({"weight_buffer": math.inf}, "must be finite and positive, got inf. Correct it."),
        (
            {"accumulator": 100.0},
            "must hold one row of 128 sums of 4 bytes for each of 1 arrays, got 100 bytes. "
            "Enlarge it.",
        ),
    ],
)
def test_refuses(fields, message):
    with pytest.raises(FieldError) as error:
        dataclasses.replace(array(128, 128), **fields)
    assert error.value.message == message
