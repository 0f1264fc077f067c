"""Roofline time of operators: closed forms, and one operator after the other."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra.errors import FieldError
from libra.workload.compute import (
    MEMORY_BOUND,
    Accelerator,
    KindEfficiency,
    Operator,
    OperatorKind,
    Precision,
    matmul,
    operator_time,
    operator_times,
    tabulate_operators,
)
from libra.workload.systolic import SystolicArray, run_matmul

EFFICIENCY = {
    OperatorKind.MATMUL: KindEfficiency(0.8, 0.9, 100, 50, 200),
    OperatorKind.GROUPED_MATMUL: KindEfficiency(0.6, 0.9),
    OperatorKind.ATTENTION: KindEfficiency(0.5),
    OperatorKind.ELEMENTWISE: KindEfficiency(memory=0.7),
    OperatorKind.OPTIMIZER: KindEfficiency(memory=0.6),
}
NPU = Accelerator(
    "npu",
    {Precision.BF16: 100e12, Precision.FP8: 200e12},
    64e9,
    1e12,
    EFFICIENCY,
    kernel_overhead=2e-6,
)


def slow_time(o, a):
    """The equation of the module, one operator at a time."""
    e = a.efficiency[o.kind]
    moving = (o.bytes_read + o.bytes_written) / (a.memory_bandwidth * e.memory)
    if o.kind in MEMORY_BOUND or o.flops == 0:
        return a.kernel_overhead + moving
    rate = a.peak[o.precision] * e.compute
    for side, half in ((o.m, e.half_m), (o.n, e.half_n), (o.k, e.half_k)):
        if side:
            rate *= side / (side + half)
    return a.kernel_overhead + max(o.flops / rate, moving)


amounts = st.one_of(st.just(0.0), st.floats(1, 1e15))
operators = st.builds(
    Operator,
    st.sampled_from(list(EFFICIENCY)),
    amounts,
    amounts,
    amounts,
    st.sampled_from([Precision.BF16, Precision.FP8]),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
)


@given(st.lists(operators, max_size=20))
def test_times_are_those_of_the_equation(some):
    expected = [slow_time(o, NPU) for o in some]
    np.testing.assert_allclose(operator_times(some, NPU), expected, rtol=1e-12)
    np.testing.assert_allclose(operator_times(tabulate_operators(some), NPU), expected, rtol=1e-12)
    for o, time in zip(some, expected, strict=True):
        assert operator_time(o, NPU) == pytest.approx(time, rel=1e-12)


def test_a_large_product_takes_its_flops_and_a_thin_one_its_bytes():
    large = matmul(100_000, 100_000, 100_000)
    assert large.flops == 2e15
    assert operator_time(large, NPU) == pytest.approx(2e15 / 80e12, rel=0.005)
    thin = matmul(1, 10_000, 10_000)
    assert thin.bytes == 2 * (10_000 + 1e8 + 10_000)
    slow = dataclasses.replace(NPU, memory_bandwidth=1e9)
    assert operator_time(thin, slow) == pytest.approx(2e-6 + thin.bytes / 0.9e9)


def test_half_of_each_side_halves_the_rate():
    """At m = m_half, n = n_half and k = k_half an eighth of the efficiency is left."""
    bare = dataclasses.replace(NPU, kernel_overhead=0.0, memory_bandwidth=1e18)
    product = matmul(100, 50, 200)
    assert operator_time(product, bare) == pytest.approx(8 * product.flops / 80e12)


def test_groups_multiply_work_and_bytes():
    one, many = matmul(64, 32, 16), matmul(64, 32, 16, groups=8)
    assert (many.flops, many.bytes) == (8 * one.flops, 8 * one.bytes)
    assert many.kind is OperatorKind.GROUPED_MATMUL
    assert (many.m, many.n, many.k) == (64, 32, 16)
    wide = matmul(64, 32, 16, precision=Precision.FP8, result_bytes=4)
    assert (wide.bytes_read, wide.bytes_written) == (64 * 16 + 16 * 32, 4 * 64 * 32)


@given(operators)
def test_a_faster_accelerator_is_never_slower(o):
    faster = dataclasses.replace(
        NPU, peak={p: 2 * v for p, v in NPU.peak.items()}, memory_bandwidth=2e12
    )
    assert operator_time(o, faster) <= operator_time(o, NPU)


def test_bytes_of_the_formats():
    sizes = {p.value: p.bytes for p in Precision}
    assert sizes == {
        "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "fp6": 0.75, "fp4": 0.5,
    }  # fmt: skip


def test_an_array_takes_its_cycles_and_moves_what_its_buffers_cannot_keep():
    array = SystolicArray(128, 128, 1e9, 1e6, 1e6, 1e6)
    npu = Accelerator(
        "own",
        {Precision.INT8: array.peak, Precision.BF16: array.peak / 2},
        8e9,
        1e12,
        {OperatorKind.MATMUL: KindEfficiency(), OperatorKind.GROUPED_MATMUL: KindEfficiency()},
        array=array,
    )
    m, n, k = 4096, 4096, 4096
    run = run_matmul(array, m, n, k, element_bytes=1)
    product = matmul(m, n, k, precision=Precision.INT8)
    assert operator_time(product, npu) == pytest.approx(float(run.cycles) / 1e9)
    half = matmul(m, n, k, precision=Precision.BF16)
    assert operator_time(half, npu) == pytest.approx(2 * float(run.cycles) / 1e9)
    groups = matmul(m, n, k, groups=3, precision=Precision.INT8)
    assert operator_time(groups, npu) == pytest.approx(3 * float(run.cycles) / 1e9)
    slow = dataclasses.replace(npu, memory_bandwidth=1e9)
    assert float(run.bytes) > product.bytes
    assert operator_time(product, slow) == pytest.approx(float(run.bytes) / 1e9)


def test_nothing_takes_no_time():
    assert operator_times([], NPU).shape == (0,)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (
            Operator(OperatorKind.EMBEDDING, 0, 1, 1),
            "the accelerator npu has none for this operator (it has matmul, grouped-matmul, "
            "attention, elementwise, optimizer), got 'embedding'. Add efficiency.embedding.",
        ),
        (
            matmul(2, 2, 2, precision=Precision.FP4),
            "the accelerator npu has none for this operator (it has bf16, fp8), got 'fp4'. "
            "Add peak.fp4.",
        ),
    ],
)
def test_names_what_the_accelerator_lacks(operator, message):
    with pytest.raises(FieldError) as error:
        operator_time(operator, NPU)
    assert error.value.message == message


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (
            lambda: Operator(OperatorKind.MATMUL, -1, 0, 0),
            "flops",
            "must be finite and not negative, got -1. Correct the operator.",
        ),
        (
            lambda: Operator(OperatorKind.MATMUL, 1, math.nan, 0),
            "bytes_read",
            "must be finite and not negative, got nan. Correct the operator.",
        ),
        (
            lambda: KindEfficiency(compute=1.1),
            "compute",
            "an efficiency is in (0, 1], got 1.1. Correct it.",
        ),
        (
            lambda: KindEfficiency(half_k=-1),
            "half_k",
            "must be finite and not negative, got -1. Correct it.",
        ),
        (
            lambda: dataclasses.replace(NPU, peak={}),
            "peak",
            "needs the FLOP/s of a precision, got none. Add e.g. bf16.",
        ),
        (
            lambda: dataclasses.replace(NPU, peak={Precision.BF16: 0.0}),
            "peak.bf16",
            "must be finite and positive, got 0.0. Correct it.",
        ),
        (
            lambda: dataclasses.replace(NPU, memory=-1.0),
            "memory",
            "must be finite and positive, got -1.0. Correct it.",
        ),
        (
            lambda: dataclasses.replace(NPU, kernel_overhead=math.inf),
            "kernel_overhead",
            "must be finite and not negative, got inf. Correct it.",
        ),
        (
            lambda: dataclasses.replace(NPU, array=SystolicArray(8, 8, 1e9, 1e6, 1e6, 1e6)),
            "array",
            "multiplies at 0.128 TFLOP/s, which is none of the peaks, got 100, 200 TFLOP/s. "
            "Correct one of them.",
        ),
        (
            lambda: dataclasses.replace(NPU, array=SystolicArray(1000, 50, 1e9, 1e9, 1e9, 1e9)),
            "efficiency.matmul",
            "halves and an array both say what small sizes reach, got both. Remove one of them.",
        ),
    ],
)
def test_refuses(make, field, message):
    with pytest.raises(FieldError) as error:
        make()
    assert (error.value.field_name, error.value.message) == (field, message)
