"""Fit an accelerator's efficiencies to measured training steps.

What operators of a kind reach, the time to start one, and the fraction of the bandwidth between
nodes are fitted together, the same for all rows. A step's graph does not change with them: the
times of its tasks are linear in those of its pieces, so that a row is built once and one evaluation
is one pass over its graph. The fit minimises the sum of absolute deviations of log(predicted /
measured), which outliers do not pull far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.efficiency import CollectiveKind
from libra.fitting import Residuals, fit_parameters, residuals_of
from libra.timing import StepTiming, build_timing, critical_path
from libra.training_rows import TrainingRow
from libra.validation import place_training_row
from libra.workload.compute import Accelerator, KindEfficiency, OperatorKind, operator_times
from libra.workload.operators import Operator, OperatorTable, tabulate_operators
from libra.workload.transformer import (
    Work,
    distinct_pieces,
    model_pieces,
    stage_updates,
    step_graph,
)

__all__ = ["FittedTraining", "fit_training", "predict_fitted", "prepare_row"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PreparedRow:
    """A row whose graph is built: task times are ``basis @ (sums of operator times)``.

    Attributes
    ----------
    row : TrainingRow
    timing : StepTiming
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s].
    between : ndarray of bool, shape (dimensions,)
        Dimensions between nodes.
    basis : ndarray, shape (tasks, unknowns)
    operators : OperatorTable
    owner : ndarray of int, shape (operators,)
        Unknown that each operator's time is part of.
    """

    row: TrainingRow
    timing: StepTiming
    bandwidth: Floats
    between: NDArray[np.bool_]
    basis: Floats
    operators: OperatorTable
    owner: NDArray[np.int64]


def prepare_row(row: TrainingRow) -> PreparedRow:
    """Build the graph of a row once for each unknown: a piece's passes, a stage's update."""
    placed = place_training_row(row)
    model, plan, groups = row.model, row.plan, placed.groups
    sizes = placed.network.sizes
    parts = model_pieces(model, plan, groups)
    pieces, updates = distinct_pieces(parts), stage_updates(parts, plan)
    kinds = sorted({o.bytes for o in updates})
    unknowns = 2 * len(pieces) + len(kinds)
    columns = []
    for one in np.eye(unknowns).tolist():
        work = {p: Work(one[2 * k], one[2 * k + 1]) for k, p in enumerate(pieces)}
        stage = [one[2 * len(pieces) + kinds.index(o.bytes)] for o in updates]
        graph = step_graph(parts, plan, groups, sizes, model, work, stage)
        columns.append(graph.fixed)
    operators: list[Operator] = []
    owner: list[int] = []
    for k, piece in enumerate(pieces):
        for phase, found in enumerate(piece.operators.phases()):
            operators += found
            owner += [2 * k + (phase > 0)] * len(found)
    for k, size in enumerate(kinds):
        operators.append(next(o for o in updates if o.bytes == size))
        owner.append(2 * len(pieces) + k)
    timing = build_timing(graph, placed.network, row.cluster.collectives)
    between = np.array([d.tier != "node" for d in placed.network.dimensions])
    return PreparedRow(
        row,
        timing,
        placed.bandwidth,
        between,
        np.array(columns).T.copy(),
        tabulate_operators(operators),
        np.array(owner, dtype=np.int64),
    )


@dataclass(frozen=True)
class BetweenNodes:
    """Fractions of the bandwidth between nodes, on top of the cluster's own efficiency.

    Attributes
    ----------
    collectives, messages : float
        What collectives, and messages from one stage to the next, reach.
    """

    collectives: float
    messages: float


def predict_fitted(prepared: PreparedRow, accelerator: Accelerator, between: BetweenNodes) -> float:
    """Time of a row's step with other efficiencies [s].

    Parameters
    ----------
    prepared : PreparedRow
    accelerator : Accelerator
    between : BetweenNodes
        Of what the row's cluster says.
    """
    times = operator_times(prepared.operators, accelerator)
    sums = np.bincount(prepared.owner, times, prepared.basis.shape[1])
    graph = replace(prepared.timing.graph, fixed=prepared.basis @ sums)
    bandwidth = np.where(prepared.between, between.collectives, 1.0) * prepared.bandwidth
    terms, slower = prepared.timing.terms, between.collectives / between.messages
    coefficient = terms.coefficient.copy()
    outside = (terms.forms[:, prepared.between] > 0).any(axis=1)
    for j, collective in enumerate(graph.collectives):
        if collective.kind is CollectiveKind.POINT_TO_POINT:
            coefficient[terms.start[j] : terms.start[j + 1], outside] *= slower
    timing = replace(prepared.timing, graph=graph, terms=replace(terms, coefficient=coefficient))
    return critical_path(timing, bandwidth).time


@dataclass(frozen=True)
class FittedTraining:
    """What was fitted.

    Attributes
    ----------
    accelerator : Accelerator
        With the efficiencies.
    between : BetweenNodes
    residuals : Residuals
        Of the rows that were fitted.
    """

    accelerator: Accelerator
    between: BetweenNodes
    residuals: Residuals


_START = {
    "matmul": 0.9,
    "attention": 0.6,
    "attention_memory": 0.7,
    "elementwise": 0.7,
    "optimizer": 0.7,
    "collectives": 0.8,
    "messages": 0.8,
}


def fit_training(
    rows: Sequence[PreparedRow], accelerator: Accelerator, *, rounds: int = 40
) -> FittedTraining:
    """Fit efficiencies to measured steps, all on one kind of accelerator.

    Parameters
    ----------
    rows : sequence of PreparedRow
        At least one.
    accelerator : Accelerator
        Where to begin: `compute` of its matrix products is scaled, their halves are kept.
    rounds : int
        Most steps of the fit.
    """
    measured = np.log([p.row.seconds for p in rows])
    sets = [p.row.set for p in rows]
    # Each set of rows counts the same, however many it has.
    weight = np.array([len(rows) / len(set(sets)) / sets.count(name) for name in sets])
    # A kernel takes microseconds to start; what more it seems to take is something else.
    pull = np.array([0.01] * len(_START) + [0.2])
    start = np.array([*(_logit(v) for v in _START.values()), np.log(3.0)])

    def deviation(x: Floats) -> Floats:
        chip, between = _described(accelerator, x)
        predicted = [predict_fitted(p, chip, between) for p in rows]
        # A little pull to the start decides what the rows do not.
        result: Floats = np.concatenate(
            [(np.log(predicted) - measured) * weight, pull * (x - start)]
        )
        return result

    x = _rounded(fit_parameters(deviation, start, rounds=rounds, tolerance=1e-4))
    chip, between = _described(accelerator, x)
    predicted = [predict_fitted(p, chip, between) for p in rows]
    return FittedTraining(chip, between, residuals_of(predicted, np.exp(measured)))


def _logit(value: float) -> float:
    return float(np.log(value / (1 - value)))


def _rounded(x: Floats) -> Floats:
    """Parameters whose fractions and time have three digits."""
    fractions = [_logit(min(float(f"{v:.3g}"), 0.999)) for v in 1 / (1 + np.exp(-x[:-1]))]
    return np.array([*fractions, np.log(float(f"{np.exp(x[-1]):.3g}"))])


def _described(base: Accelerator, x: Floats) -> tuple[Accelerator, BetweenNodes]:
    """Accelerator and fractions of parameters."""
    fractions = (1 / (1 + np.exp(-x[: len(_START)]))).tolist()
    matmul, attention, attention_memory, elementwise, optimizer, collectives, messages = fractions
    kinds = dict(base.efficiency)
    for kind in (OperatorKind.MATMUL, OperatorKind.GROUPED_MATMUL):
        known = kinds[kind]
        kinds[kind] = replace(known, compute=matmul)
    kinds[OperatorKind.ATTENTION] = KindEfficiency(compute=attention, memory=attention_memory)
    for kind in (OperatorKind.ELEMENTWISE, OperatorKind.EMBEDDING):
        kinds[kind] = KindEfficiency(memory=elementwise)
    kinds[OperatorKind.OPTIMIZER] = KindEfficiency(memory=optimizer)
    overhead = float(np.exp(x[-1]) * 1e-6)
    return replace(base, efficiency=kinds, kernel_overhead=overhead), BetweenNodes(
        collectives, messages
    )
