"""What a person calls the tasks of a pipeline, made when asked for: a step may have a million."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from libra.workload.slots import Slots

__all__ = ["SlotLabels", "name_layers"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SlotLabels(Sequence[str]):
    """Labels such as ``mb3 layers 12-23 forward``: micro-batch, layers, pass and what of it.

    Attributes
    ----------
    slots : Slots
    slot : ndarray of int, shape (tasks in slots,)
        Slot of each task.
    row : ndarray of int, shape (tasks in slots,)
        Index of each task into `rows`.
    rows : tuple of (int, str)
        For the tasks of all kinds of slots: segment, and what the task does beside its
        computation; empty: the computation itself.
    names : tuple of tuple of str
        What each segment is called, in each list of segments that occurs.
    name_of : ndarray of int, shape (slots,)
        Which list a slot follows.
    endings : tuple of str
        Of the tasks after the last slots.
    """

    slots: Slots
    slot: Ints
    row: Ints
    rows: tuple[tuple[int, str], ...]
    names: tuple[tuple[str, ...], ...]
    name_of: Ints
    endings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.slot) + len(self.endings)

    @overload
    def __getitem__(self, task: int) -> str: ...
    @overload
    def __getitem__(self, task: slice) -> tuple[str, ...]: ...
    def __getitem__(self, task: int | slice) -> str | tuple[str, ...]:
        if isinstance(task, slice):
            return tuple(self[k] for k in range(*task.indices(len(self))))
        task = range(len(self))[task]
        if task >= len(self.slot):
            return self.endings[task - len(self.slot)]
        slot = self.slot[task]
        segment, what = self.rows[self.row[task]]
        layers = self.names[self.name_of[slot]][segment]
        way = "forward" if self.slots.forward[slot] else "backward"
        return f"mb{self.slots.micro_batch[slot]} {layers} {way}{what and ' ' + what}"


def name_layers(units: Sequence[int | str]) -> str:
    """Name of layers that follow each other, and of what comes before and after them.

    Examples
    --------
    >>> name_layers(["input", 0, 1, 2])
    'input, layers 0-2'
    >>> name_layers([7])
    'layer 7'
    """
    numbers = [u for u in units if isinstance(u, int)]
    found: list[str] = []
    for unit in units:
        if isinstance(unit, str):
            found.append(unit)
        elif unit == numbers[0]:
            low, high = min(numbers), max(numbers)
            found.append(f"layer {low}" if low == high else f"layers {low}-{high}")
    return ", ".join(found)
