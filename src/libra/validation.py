"""Predicted against measured training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libra.cluster import cluster_bandwidth, cluster_network
from libra.errors import FieldError
from libra.fitting import Residuals, residuals_of
from libra.network import Dimension, Network, Topology
from libra.placement import Group
from libra.timing import build_timing, critical_path
from libra.training_rows import SkippedRow, TrainingRow, read_training_rows
from libra.workload.model import has_aligned_heads
from libra.workload.roles import MEGATRON_ORDER, place_roles
from libra.workload.transformer import build_step

__all__ = [
    "PlacedRow",
    "Prediction",
    "Ranking",
    "Validation",
    "place_training_row",
    "predict_row",
    "rank_layouts",
    "validate_rows",
    "validate_training",
]

_ROLES = ("tp", "cp", "pp", "dp", "replicas", "ep", "expert_tp", "expert_replicas")


@dataclass(frozen=True)
class Prediction:
    """A row with its predicted time.

    Attributes
    ----------
    row : TrainingRow
    predicted : float
        Time of a step [s].
    memory : float
        Predicted peak memory of an NPU [bytes].
    flat : float
        Time at half of the peak [s], a baseline.
    """

    row: TrainingRow
    predicted: float
    memory: float
    flat: float

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.row.seconds - 1


@dataclass(frozen=True)
class Validation:
    """All rows of a table.

    Attributes
    ----------
    predictions : tuple of Prediction
    skipped : tuple of SkippedRow
    """

    predictions: tuple[Prediction, ...]
    skipped: tuple[SkippedRow, ...]

    def sets(self) -> dict[str, Residuals]:
        """Residuals by set; ``all`` for all rows.

        A set with rows whose heads are not aligned (`libra.workload.model.has_aligned_heads`) comes
        a second time without them.
        """
        return _by_set(self.predictions, flat=False)

    def baseline(self) -> dict[str, Residuals]:
        """Residuals of a flat half of the peak, by set."""
        return _by_set(self.predictions, flat=True)


def _by_set(predictions: Sequence[Prediction], *, flat: bool) -> dict[str, Residuals]:
    table: dict[str, list[tuple[float, float]]] = {}
    mixed = {p.row.set for p in predictions if not has_aligned_heads(p.row.model)}
    for p in predictions:
        pair = (p.flat if flat else p.predicted, p.row.seconds)
        keys = [p.row.set, "all"]
        if p.row.set in mixed and has_aligned_heads(p.row.model):
            keys.append(f"{p.row.set}, aligned heads")
        for key in keys:
            table.setdefault(key, []).append(pair)
    return {key: residuals_of(*np.array(pairs).T) for key, pairs in table.items()}


@dataclass(frozen=True)
class Ranking:
    """How good the layout is that is predicted to be fastest.

    Attributes
    ----------
    label : str
        Set, model, NPUs and batch, which all layouts share.
    layouts : int
    loss : float
        Measured time of the predicted best over the measured best, less 1.
    """

    label: str
    layouts: int
    loss: float


def rank_layouts(found: Validation, least: int = 8) -> list[Ranking]:
    """Rankings of grids of layouts that have at least so many rows."""
    grids: dict[str, list[Prediction]] = {}
    for p in found.predictions:
        c, memory = p.row.columns, p.row.plan.memory
        key = (
            f"{p.row.set} {p.row.model.name}, {p.row.gpus} NPUs, batch {c['global_batch']}, "
            f"{memory.activations.recomputation.value} recomputation"
        )
        grids.setdefault(key, []).append(p)
    rankings = []
    for label, grid in grids.items():
        layouts = {_layout(p) for p in grid}
        if len(layouts) >= least:
            chosen = min(grid, key=lambda p: p.predicted)
            best = min(p.row.seconds for p in grid)
            rankings.append(Ranking(label, len(layouts), chosen.row.seconds / best - 1))
    return rankings


def _layout(prediction: Prediction) -> tuple[int, ...]:
    memory = prediction.row.plan.memory
    run = memory.activations
    return run.tp, run.cp, memory.pp, memory.virtual_stages, memory.dp, run.micro_batch


@dataclass(frozen=True, eq=False)
class PlacedRow:
    """A row on its cluster.

    Attributes
    ----------
    row : TrainingRow
    network : Network
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s].
    groups : mapping of str to Group
    """

    row: TrainingRow
    network: Network
    bandwidth: NDArray[np.float64]
    groups: Mapping[str, Group]


def place_training_row(row: TrainingRow) -> PlacedRow:
    """Row on as much of its cluster as it needs, placed as Megatron-LM and DeepSpeed do.

    Raises
    ------
    FieldError
        Degrees that do not fit the nodes.
    """
    if row.gpus == 1:  # a network has two NPUs at least; nothing is sent
        network = Network((Dimension(Topology.SWITCH, 2, "node"),))
        alone = {role: Group(role, (1,), (1,)) for role in _ROLES}
        return PlacedRow(row, network, np.array([1e9]), alone)
    network = cluster_network(row.cluster, row.gpus)
    groups = place_roles(network, row.plan.memory, MEGATRON_ORDER)
    return PlacedRow(row, network, cluster_bandwidth(row.cluster, row.gpus), groups)


def predict_row(row: TrainingRow) -> Prediction:
    """Predicted time of a row's step.

    Raises
    ------
    FieldError
        The row's degrees fit neither its model nor its cluster.
    """
    placed, chip = place_training_row(row), row.accelerator
    step = build_step(row.model, row.plan, chip, placed.groups, placed.network.sizes)
    timing = build_timing(step.graph, placed.network, row.cluster.collectives)
    seconds = critical_path(timing, placed.bandwidth).time
    flops = step.flops("forward", "input_gradient", "weight_gradient")
    flat = flops / (0.5 * chip.peak[row.plan.precision] * row.gpus)
    return Prediction(row, seconds, step.memory.total, flat)


def validate_rows(rows: Sequence[TrainingRow], skipped: Sequence[SkippedRow] = ()) -> Validation:
    """Predictions of rows; those that their model or cluster refuses join the skipped ones."""
    found, left = [], list(skipped)
    for row in rows:
        try:
            found.append(predict_row(row))
        except FieldError as error:
            reason = f"{error.field_name}: {error.message}" if error.place else error.message
            left.append(SkippedRow(row.id, row.set, row.tier, reason))
    return Validation(tuple(found), tuple(left))


def validate_training(path: Path) -> Validation:
    """Predictions of the rows of a CSV file.

    Raises
    ------
    InputError
        The file cannot be read or lacks a column.
    """
    return validate_rows(*read_training_rows(path))
