"""How long an operator takes on an accelerator: roofline with efficiencies by kind and size.

An operator of F floating-point operations that moves b bytes to and from memory takes

    t = t_0 + max( F / (P e_c s(m) s(n) s(k)),  b / (W e_m) )

with the peak P [FLOP/s] of its precision, the memory bandwidth W [bytes/s], the fraction e_c of the
peak that large operators of its kind reach, the fraction e_m of the memory bandwidth, and the time
t_0 to start a kernel. Small matrices leave units idle: s(x) = x / (x + x_half), so that a side of
x_half reaches half of what a long one does (1 where the kind has no halves or the operator no
shape). Kinds bound by memory (elementwise, embedding, optimizer) have no first term: vector units
are not what the peak is for, and their few operations per byte hide behind the bytes.

On an accelerator with a systolic array a matrix product takes the array's cycles over e_c in the
place of the first term, at the clock at which the array has the peak P; and moves the bytes that
its buffers cannot keep (see `libra.workload.systolic`).

References
----------
.. [1] Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for
   multicore architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from libra.cluster import Cluster
from libra.errors import FieldError
from libra.units import BANDWIDTH, FLOPS, POWER, SIZE, TIME
from libra.workload.operators import (
    KINDS,
    MEMORY_BOUND,
    PRECISIONS,
    Operator,
    OperatorKind,
    OperatorTable,
    Precision,
    matmul,
    tabulate_operators,
)
from libra.workload.systolic import SystolicArray, run_matmul

__all__ = [
    "Accelerator",
    "KindEfficiency",
    "Operator",
    "OperatorKind",
    "OperatorTable",
    "Precision",
    "matmul",
    "operator_time",
    "operator_times",
    "tabulate_operators",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KindEfficiency:
    """What operators of a kind reach of an accelerator's peaks.

    Attributes
    ----------
    compute : float
        e_c, fraction of the peak FLOP/s that large operators reach, in (0, 1].
    memory : float
        e_m, fraction of the memory bandwidth, in (0, 1].
    half_m, half_n, half_k : float
        Sides m, n, k at which half of that is reached; 0: any size reaches it.
    source : str
        What the numbers were measured or fitted on, with the residuals; ``bound`` where they are 1
        because nobody measured them.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    compute: float = 1.0
    memory: float = 1.0
    half_m: float = 0.0
    half_n: float = 0.0
    half_k: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for key in ("compute", "memory"):
            value = getattr(self, key)
            if not 0 < value <= 1:
                raise FieldError(key, f"an efficiency is in (0, 1], got {value!r}. Correct it.")
        for key in ("half_m", "half_n", "half_k"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise FieldError(
                    key, f"must be finite and not negative, got {value!r}. Correct it."
                )


def require_positive(key: str, value: float) -> None:
    """Refuse a physical number that is not finite and positive."""
    if not (math.isfinite(value) and value > 0):
        raise FieldError(key, f"must be finite and positive, got {value!r}. Correct it.")


@dataclass(frozen=True)
class Accelerator:
    """An accelerator: what it peaks at, what operators reach of it, and what it is wired with.

    Attributes
    ----------
    name : str
        What it is called.
    peak : mapping of Precision to float
        Dense matrix FLOP/s by precision (operations of an integer format).
    memory : float
        Of one NPU [bytes].
    memory_bandwidth : float
        To and from that memory [bytes/s].
    efficiency : mapping of OperatorKind to KindEfficiency
        By kind of operator; a kind that is not there cannot be timed.
    kernel_overhead : float
        t_0, time to start an operator [s].
    array : SystolicArray or None
        What multiplies matrices; None: anything, described by its efficiencies alone.
    tdp : float or None
        Thermal design power of one NPU [W]; None: not known.
    cluster : Cluster or None
        Network and bandwidths that it usually comes with, scale-up first; None: not known.
    unconfirmed : tuple of str
        Keys whose numbers no source confirms.
    sources : mapping of str to str
        Where each number is from, by key.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    peak: Mapping[Precision, Annotated[float, FLOPS]]
    memory: Annotated[float, SIZE]
    memory_bandwidth: Annotated[float, BANDWIDTH]
    efficiency: Mapping[OperatorKind, KindEfficiency]
    kernel_overhead: Annotated[float, TIME] = 0.0
    array: SystolicArray | None = None
    tdp: Annotated[float, POWER] | None = None
    cluster: Cluster | None = None
    unconfirmed: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.peak:
            raise FieldError("peak", "needs the FLOP/s of a precision, got none. Add e.g. bf16.")
        for precision, value in self.peak.items():
            require_positive(f"peak.{Precision(precision).value}", value)
        require_positive("memory", self.memory)
        require_positive("memory_bandwidth", self.memory_bandwidth)
        if self.tdp is not None:
            require_positive("tdp", self.tdp)
        if not (math.isfinite(self.kernel_overhead) and self.kernel_overhead >= 0):
            raise FieldError(
                "kernel_overhead",
                f"must be finite and not negative, got {self.kernel_overhead!r}. Correct it.",
            )
        if self.array is not None:
            self._check_array(self.array)

    def _check_array(self, array: SystolicArray) -> None:
        """Refuse an array that contradicts the peaks or the efficiencies."""
        if not any(math.isclose(array.peak, value, rel_tol=0.01) for value in self.peak.values()):
            peaks = ", ".join(f"{value / 1e12:g}" for value in self.peak.values())
            raise FieldError(
                "array",
                f"multiplies at {array.peak / 1e12:g} TFLOP/s, which is none of the peaks, got "
                f"{peaks} TFLOP/s. Correct one of them.",
            )
        for kind, efficiency in self.efficiency.items():
            if efficiency.half_m or efficiency.half_n or efficiency.half_k:
                raise FieldError(
                    f"efficiency.{OperatorKind(kind).value}",
                    "halves and an array both say what small sizes reach, got both. "
                    "Remove one of them.",
                )


def operator_times(
    operators: OperatorTable | Sequence[Operator], accelerator: Accelerator
) -> Floats:
    """Time of each operator on an accelerator.

    Parameters
    ----------
    operators : OperatorTable or sequence of Operator
        A table costs microseconds for thousands of operators.
    accelerator : Accelerator
        Must have a peak for every precision and an efficiency for every kind that occur.

    Returns
    -------
    ndarray, shape (operators,)
        [s]; the equation at the head of this module.

    Raises
    ------
    FieldError
        ``peak`` or ``efficiency``: the accelerator lacks one that is needed.
    """
    table = operators if isinstance(operators, OperatorTable) else tabulate_operators(operators)
    _require_known(table, accelerator)
    known = [accelerator.efficiency.get(kind, _UNUSED) for kind in KINDS]
    peaks = [accelerator.peak.get(precision, np.inf) for precision in PRECISIONS]
    rates = np.outer([_compute(kind, e) for kind, e in zip(KINDS, known, strict=True)], peaks)
    computing = table.flops / rates[table.kind, table.precision]
    slowness = 1 / (accelerator.memory_bandwidth * np.array([e.memory for e in known]))
    moved = table.bytes
    if accelerator.array is None:
        for key, inverse in zip(("half_m", "half_n", "half_k"), table.inverse_sides, strict=True):
            halves = np.array([getattr(e, key) for e in known])
            if halves.any():
                # 1 / s(x) = 1 + x_half / x.
                computing *= 1 + halves[table.kind] * inverse
    else:
        shaped = (computing > 0) & (table.sides > 0).all(axis=0)
        slower, moved_by_array = _on_array(table, shaped, accelerator.array)
        computing[shaped] *= slower
        moved = moved.copy()
        moved[shaped] = moved_by_array
    moving = moved * slowness[table.kind]
    result: Floats = accelerator.kernel_overhead + np.maximum(computing, moving)
    return result


_UNUSED = KindEfficiency()


def _compute(kind: OperatorKind, efficiency: KindEfficiency) -> float:
    """Fraction e_c of the peak; infinite where arithmetic takes no time."""
    return math.inf if kind in MEMORY_BOUND else efficiency.compute


def _on_array(
    table: OperatorTable, shaped: NDArray[np.bool_], array: SystolicArray
) -> tuple[Floats, Floats]:
    """How many times longer than at the array's peak the shaped operators take, and their bytes."""
    m, n, k = table.sides[:, shaped]
    element = np.array([p.bytes for p in PRECISIONS])[table.precision[shaped]]
    run = run_matmul(array, m, n, k, element_bytes=element)
    products = table.flops[shaped] / (2 * m * n * k)
    return 1 / run.utilization, run.bytes * products


def _require_known(table: OperatorTable, accelerator: Accelerator) -> None:
    """Refuse operators of a kind or precision that the accelerator says nothing of."""
    pairs = np.bincount(
        table.kind * len(PRECISIONS) + table.precision, minlength=len(KINDS) * len(PRECISIONS)
    ).reshape(len(KINDS), len(PRECISIONS))
    for kind, counts in zip(KINDS, pairs, strict=True):
        if counts.any() and kind not in accelerator.efficiency:
            raise _lacking("efficiency", kind.value, accelerator.efficiency, accelerator)
        for precision, count in zip(PRECISIONS, counts, strict=True):
            if count and kind not in MEMORY_BOUND and precision not in accelerator.peak:
                raise _lacking("peak", precision.value, accelerator.peak, accelerator)


def operator_time(operator: Operator, accelerator: Accelerator) -> float:
    """Time of an operator on an accelerator [s]; see `operator_times`.

    Examples
    --------
    >>> peak = {Precision.BF16: 100e12}
    >>> bound = {OperatorKind.MATMUL: KindEfficiency(compute=0.5)}
    >>> npu = Accelerator("npu", peak, 64e9, 1e12, bound)
    >>> operator_time(matmul(5000, 5000, 5000), npu)
    0.005
    """
    return float(operator_times([operator], accelerator)[0])


def _lacking(key: str, word: str, valid: Iterable[StrEnum], of: Accelerator) -> FieldError:
    known = ", ".join(v.value for v in valid) or "none"
    return FieldError(
        key,
        f"the accelerator {of.name} has none for this operator (it has {known}), got {word!r}. "
        f"Add {key}.{word}.",
    )
