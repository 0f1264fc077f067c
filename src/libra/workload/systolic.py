"""A weight-stationary systolic array: cycles, bytes and utilisation of a matrix product.

The array has R rows and C columns of multiply-accumulate units. To compute (M, K) x (K, N) it holds
a tile of R x C weights, a row for each of R terms of the sums, a column for each of C results. The
M rows of activations enter from the left, one a cycle, each row of the array one cycle later than
the one above; sums move down and leave at the bottom. A tile takes

    R                 cycles to shift its weights in from the top,
    M + R + c - 2     to stream M rows through it, c <= C of its columns in use,

and there are T = ceil(K / R) ceil(N / C) tiles. One after the other they take (the closed form of
SCALE-Sim [1]_)

    sum over tiles of (2 R + M + c - 2).

With a second register for weights in each unit (`double_buffered`) the next tile's weights follow
while this one's rows still stream, and its rows follow directly behind (TPU [2]_); tiles then begin
max(M, R) cycles apart, and all take R + (T - 1) max(M, R) + M + R + c - 2 with the c of the last
(or until a wider one before it has drained, if that is later).

Buffers decide what comes from memory more than once. The rows of activations are taken in B blocks,
as many as the partial sums of one column of tiles need to fit the accumulators. Within a block each
column of tiles sums over all its rows of tiles before its results leave. Then

    weights      K N once if all of them fit the weight buffer, else B times;
    activations  M K once if a block of them fits the activation buffer, else ceil(N / C) times;
    results      M N once.

References
----------
.. [1] Samajdar et al., "A systematic methodology for characterizing scalability of DNN accelerators
   using SCALE-Sim", ISPASS 2020, section III.
.. [2] Jouppi et al., "In-datacenter performance analysis of a tensor processing unit", ISCA 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from libra.errors import FieldError
from libra.units import FREQUENCY, SIZE

__all__ = ["ArrayRun", "SystolicArray", "run_matmul"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SystolicArray:
    """Weight-stationary systolic arrays of an NPU.

    Attributes
    ----------
    rows, columns : int
        Units along the sums (R) and along the results (C) of one array.
    clock : float
        Cycles a second [Hz]; each unit multiplies and adds once a cycle.
    weight_buffer, activation_buffer, accumulator : float
        On-chip memory for weights, activations and partial sums, of all arrays together [bytes].
    sum_bytes : float
        Bytes of a partial sum.
    arrays : int
        Arrays that work on different blocks and columns of tiles at once.
    double_buffered : bool
        Units load the next weights while they use the present ones.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    rows: int
    columns: int
    clock: Annotated[float, FREQUENCY]
    weight_buffer: Annotated[float, SIZE]
    activation_buffer: Annotated[float, SIZE]
    accumulator: Annotated[float, SIZE]
    sum_bytes: float = 4.0
    arrays: int = 1
    double_buffered: bool = True

    def __post_init__(self) -> None:
        for key in ("rows", "columns", "arrays"):
            value = getattr(self, key)
            if value < 1:
                raise FieldError(key, f"must be at least 1, got {value}. Correct it.")
        for key in ("clock", "weight_buffer", "activation_buffer", "accumulator", "sum_bytes"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise FieldError(key, f"must be finite and positive, got {value!r}. Correct it.")
        if self.block_rows < 1:
            raise FieldError(
                "accumulator",
                f"must hold one row of {self.columns} sums of {self.sum_bytes:g} bytes for each of "
                f"{self.arrays} arrays, got {self.accumulator:g} bytes. Enlarge it.",
            )

    @property
    def block_rows(self) -> int:
        """Rows of partial sums that an array's share of the accumulators holds."""
        return int(self.accumulator // (self.columns * self.sum_bytes * self.arrays))

    @property
    def peak(self) -> float:
        """FLOP/s of all units, 2 a cycle."""
        return 2.0 * self.rows * self.columns * self.arrays * self.clock


@dataclass(frozen=True, eq=False)
class ArrayRun:
    """Matrix products on a systolic array; each field has the shape of the products.

    Attributes
    ----------
    cycles : ndarray
        Until the last result has left.
    utilization : ndarray
        Multiplications over what all units could do in these cycles, in (0, 1].
    weight_bytes, activation_bytes, result_bytes : ndarray
        Between memory and the buffers [bytes].
    weight_reads, activation_reads, sum_moves : ndarray
        Numbers between the buffers and the array: weights shifted in, activations streamed, partial
        sums written and read back.
    """

    cycles: Floats
    utilization: Floats
    weight_bytes: Floats
    activation_bytes: Floats
    result_bytes: Floats
    weight_reads: Floats
    activation_reads: Floats
    sum_moves: Floats

    @property
    def bytes(self) -> Floats:
        """Bytes between memory and the buffers."""
        return self.weight_bytes + self.activation_bytes + self.result_bytes


def run_matmul(
    array: SystolicArray,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    element_bytes: ArrayLike = 2.0,
    result_bytes: ArrayLike | None = None,
) -> ArrayRun:
    """Run matrix products (m, k) x (k, n), the second factor stationary.

    Parameters
    ----------
    array : SystolicArray
    m, n, k : array of numbers
        Sides, >= 1; broadcast against each other.
    element_bytes : array of float
        Bytes of a number of the factors.
    result_bytes : array of float or None
        Bytes of a number of the product; None: as the factors.

    Returns
    -------
    ArrayRun
        The equations at the head of this module.

    Examples
    --------
    >>> array = SystolicArray(4, 4, 1e9, 1e6, 1e6, 1e6, double_buffered=False)
    >>> float(run_matmul(array, 10, 4, 4).cycles)
    20.0
    """
    m, n, k = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(m, n, k))
    element = np.asarray(element_bytes, dtype=float)
    result = element if result_bytes is None else np.asarray(result_bytes, dtype=float)
    down, across = np.ceil(k / array.rows), np.ceil(n / array.columns)
    block = np.minimum(m, array.block_rows)
    blocks = np.ceil(m / block)
    cycles = _cycles(array, m, n, down, across, block, blocks)
    fits = k * n * element <= array.weight_buffer
    stays = block * k * element <= array.activation_buffer
    return ArrayRun(
        cycles,
        m * n * k / (cycles * array.rows * array.columns * array.arrays),
        k * n * element * np.where(fits, 1.0, blocks),
        m * k * element * np.where(stays, 1.0, across),
        m * n * result,
        k * n * blocks,
        m * k * across,
        m * n * (2 * down - 1),
    )


def _cycles(
    array: SystolicArray,
    m: Floats,
    n: Floats,
    down: Floats,
    across: Floats,
    block: Floats,
    blocks: Floats,
) -> Floats:
    """Cycles of the array with the most to do.

    Pairs of a block and a column of tiles are dealt to the arrays. Of several arrays the one with
    the most pairs is taken to have whole blocks and columns of tiles only.
    """
    rows, columns = array.rows, array.columns
    last_columns = n - (across - 1) * columns
    last_block = m - (blocks - 1) * block
    pairs = np.ceil(blocks * across / array.arrays)
    alone = array.arrays == 1
    if array.double_buffered:
        # Tiles begin max(rows, array rows) apart; the last one drains.
        long, short = np.maximum(block, rows), np.maximum(last_block, rows)
        if alone:
            start = down * (long * (blocks - 1) + short) * across - short
            # A narrow last column of tiles can be done before the wide one before it.
            earlier = np.where(across > 1, columns - down * short, 0.0)
            drain = last_block + np.maximum(last_columns, earlier)
        else:
            start = (pairs * down - 1) * long
            drain = block + np.minimum(n, columns)
        result: Floats = rows + start + drain + rows - 2
        return result
    if alone:
        # sum over blocks, rows and columns of tiles of 2 R + rows of the block + c - 2.
        tiles = blocks * down * across
        serial: Floats = tiles * (2 * rows - 2) + down * (across * m + blocks * n)
        return serial
    each: Floats = pairs * down * (2 * rows + block + np.minimum(n, columns) - 2)
    return each
