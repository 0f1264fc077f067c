"""Pipeline schedules as arrays: the slots of all stages in an order in which each can run.

A slot is one pass, forward or backward, of one micro-batch through one part of the model. Stage s
holds the parts s, s + p, s + 2 p, … of p stages. Orders: 1F1B (Narayanan et al., SOSP 2019), and
with several parts a stage Megatron-LM's interleaved schedule (Narayanan et al., SC 2021, arXiv
2104.04473, section 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra.jit import faster

__all__ = ["Slots", "schedule_slots"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Slots:
    """Slots of a pipeline in topological order, one row each.

    Attributes
    ----------
    stage, part, micro_batch : ndarray of int, shape (slots,)
        Where and what.
    forward : ndarray of bool, shape (slots,)
        Which pass.
    previous : ndarray of int, shape (slots,)
        Slot before it on its stage; -1: it is the first.
    feed : ndarray of int, shape (slots,)
        Slot whose result it needs; -1: none.
    last : ndarray of int, shape (stages,)
        Last slot of each stage.
    """

    stage: Ints
    part: Ints
    micro_batch: Ints
    forward: NDArray[np.bool_]
    previous: Ints
    feed: Ints
    last: Ints


@lru_cache(maxsize=16)
def schedule_slots(stages: int, virtual_stages: int, micro_batches: int) -> Slots:
    """Slots of a pipeline in an order in which each can run.

    Parameters
    ----------
    stages : int
        p.
    virtual_stages : int
        Parts on each stage; more than 1 needs a multiple of p micro-batches.
    micro_batches : int
        Of a step.

    Examples
    --------
    >>> slots = schedule_slots(2, 1, 2)
    >>> [int(m) for m in slots.micro_batch[slots.stage == 0]]
    [0, 1, 0, 1]
    """
    total = micro_batches * virtual_stages
    parts = stages * virtual_stages
    place, batch = _numbered(stages, virtual_stages, micro_batches)
    order = np.stack([_order(stages, virtual_stages, total, s) for s in range(stages)])
    # An index for each slot: (forward or backward, part, micro-batch).
    key = np.empty_like(order)
    for s in range(stages):
        code = order[s]
        forward, k = code < total, code % total
        turn = np.where(forward, place[k], virtual_stages - 1 - place[k])
        key[s] = (~forward * parts + turn * stages + s) * micro_batches + batch[k]
    size = order.shape[1]
    result: Any = faster(_run, stages * size)(
        key, parts, micro_batches, np.full(2 * parts * micro_batches, -1, dtype=np.int64)
    )
    slot, previous, feed, last = (np.asarray(r, dtype=np.int64) for r in result)
    unit, batch_of = np.divmod(slot, micro_batches)
    return Slots(unit % parts % stages, unit % parts, batch_of, unit < parts, previous, feed, last)


def _numbered(stages: int, virtual_stages: int, micro_batches: int) -> tuple[Ints, Ints]:
    """Turn and micro-batch of the k-th slot of a pass: groups as large as there are stages."""
    k = np.arange(micro_batches * virtual_stages)
    if virtual_stages == 1:
        return np.zeros_like(k), k
    group, within = np.divmod(k, stages * virtual_stages)
    turn, offset = np.divmod(within, stages)
    return turn, group * stages + offset


def _order(stages: int, virtual_stages: int, total: int, stage: int) -> Ints:
    """Slots of a stage in its order: k for the k-th forward, total + k for the k-th backward."""
    ahead = stages - 1 - stage
    if virtual_stages == 1:
        warm = min(ahead, total)
    elif total == stages * virtual_stages:
        warm = total
    else:
        warm = min(2 * ahead + (virtual_stages - 1) * stages, total)
    steady = np.empty(2 * (total - warm), dtype=np.int64)
    steady[0::2] = np.arange(warm, total)
    steady[1::2] = total + np.arange(total - warm)
    return np.concatenate([np.arange(warm), steady, total + np.arange(total - warm, total)])


def _run(key: Ints, parts: int, micro_batches: int, done: Ints) -> tuple[Any, Any, Any, Any]:
    """Let each stage run its slots as far as what feeds them is there, round after round."""
    stages, size = key.shape
    slot = np.empty(stages * size, dtype=np.int64)
    previous = np.empty(stages * size, dtype=np.int64)
    feed = np.empty(stages * size, dtype=np.int64)
    position = np.zeros(stages, dtype=np.int64)
    last = np.full(stages, -1, dtype=np.int64)
    count, half = 0, parts * micro_batches
    while count < stages * size:
        before = count
        for s in range(stages):
            while position[s] < size:
                here = key[s, position[s]]
                if here < half:
                    source = here - micro_batches
                elif here >= 2 * half - micro_batches:
                    source = here - half
                else:
                    source = here + micro_batches
                awaited = -1
                if source >= 0:
                    awaited = done[source]
                    if awaited < 0:
                        break
                slot[count], previous[count], feed[count] = here, last[s], awaited
                done[here] = count
                last[s] = count
                position[s] += 1
                count += 1
        if count == before:
            raise ValueError("the schedule has a cycle")
    return slot, previous, feed, last
