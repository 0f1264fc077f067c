"""Operators: what one accelerator executes, one by one or as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from libra.errors import FieldError

__all__ = [
    "KINDS",
    "MEMORY_BOUND",
    "PRECISIONS",
    "Operator",
    "OperatorKind",
    "OperatorTable",
    "Precision",
    "matmul",
    "tabulate_operators",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class OperatorKind(StrEnum):
    """What an operator does; efficiencies are by kind."""

    MATMUL = "matmul"
    GROUPED_MATMUL = "grouped-matmul"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"


MEMORY_BOUND = (OperatorKind.ELEMENTWISE, OperatorKind.EMBEDDING, OperatorKind.OPTIMIZER)
"""Kinds whose time is that of their bytes."""

KINDS = tuple(OperatorKind)


class Precision(StrEnum):
    """Number format that an operator multiplies in."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP6 = "fp6"
    FP4 = "fp4"

    @property
    def bytes(self) -> float:
        """Bytes of one number in memory; tf32 is stored as fp32."""
        sizes = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "fp6": 0.75}
        return float(sizes.get(self.value, 0.5))


PRECISIONS = tuple(Precision)


@dataclass(frozen=True)
class Operator:
    """One operator of a layer, as one accelerator executes it.

    Attributes
    ----------
    kind : OperatorKind
        What it does.
    flops : float
        Floating-point operations, a multiply-add counted as 2; >= 0.
    bytes_read, bytes_written : float
        To and from the accelerator's memory [bytes]; >= 0.
    precision : Precision
        Of its multiplications.
    m, n, k : int
        Shape of a matrix product (m, k) x (k, n), of one group or head where there are several; 0:
        no matrix product, or a shape that does not matter.
    name : str
        For breakdowns.
    """

    kind: OperatorKind
    flops: float
    bytes_read: float
    bytes_written: float
    precision: Precision = Precision.BF16
    m: int = 0
    n: int = 0
    k: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", OperatorKind(self.kind))
        object.__setattr__(self, "precision", Precision(self.precision))
        for key in ("flops", "bytes_read", "bytes_written", "m", "n", "k"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise FieldError(
                    key, f"must be finite and not negative, got {value!r}. Correct the operator."
                )

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


def matmul(
    m: int,
    n: int,
    k: int,
    *,
    groups: int = 1,
    precision: Precision = Precision.BF16,
    result_bytes: float | None = None,
    name: str = "",
) -> Operator:
    """Matrix product (m, k) x (k, n), or `groups` of them in one kernel.

    Parameters
    ----------
    m, n, k : int
        Rows and columns of the product, and the length of its sums; of each group.
    groups : int
        Independent products, each with matrices of its own.
    precision : Precision
        Of the factors.
    result_bytes : float or None
        Of one number of the product [bytes]; None: as the factors.
    name : str
        For breakdowns.

    Returns
    -------
    Operator
        2 m n k FLOPs a group; reads both factors and writes the product once.

    Examples
    --------
    >>> matmul(1024, 4096, 512).flops
    4294967296.0
    """
    size = Precision(precision).bytes
    out = size if result_bytes is None else result_bytes
    kind = OperatorKind.MATMUL if groups == 1 else OperatorKind.GROUPED_MATMUL
    return Operator(
        kind,
        2.0 * groups * m * n * k,
        groups * size * (m * k + k * n),
        groups * out * m * n,
        precision,
        m,
        n,
        k,
        name,
    )


@dataclass(frozen=True, eq=False)
class OperatorTable:
    """Operators as arrays, so that thousands are timed at once; one row an operator.

    Attributes
    ----------
    kind, precision : ndarray of int, shape (operators,)
        Index into ``KINDS`` and ``PRECISIONS``.
    flops, bytes : ndarray, shape (operators,)
        FLOPs; bytes read and written.
    sides : ndarray, shape (3, operators)
        m, n and k; 0 where there is none.
    """

    kind: Ints
    precision: Ints
    flops: Floats
    bytes: Floats
    sides: Floats

    @cached_property
    def inverse_sides(self) -> Floats:
        """1 / m, 1 / n and 1 / k; 0 where there is none."""
        return np.divide(1.0, self.sides, out=np.zeros_like(self.sides), where=self.sides > 0)


def tabulate_operators(operators: Sequence[Operator]) -> OperatorTable:
    """Operators as arrays, in their order."""
    kinds = {kind: index for index, kind in enumerate(KINDS)}
    precisions = {precision: index for index, precision in enumerate(PRECISIONS)}
    return OperatorTable(
        np.array([kinds[o.kind] for o in operators], dtype=np.int64),
        np.array([precisions[o.precision] for o in operators], dtype=np.int64),
        np.array([o.flops for o in operators], dtype=float),
        np.array([o.bytes for o in operators], dtype=float),
        np.array([(o.m, o.n, o.k) for o in operators], dtype=float).reshape(-1, 3).T.copy(),
    )
