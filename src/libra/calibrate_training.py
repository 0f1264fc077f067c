"""Fit an accelerator's efficiencies to measured training steps.

What operators of a kind reach, the time to start one, and the fraction of the bandwidth between
nodes are fitted together, the same for all rows. A step's graph does not change with them: the
times of its tasks are linear in those of its pieces, so that a row is built once and one evaluation
is one pass over its graph. The fit minimises the sum of absolute deviations of log(predicted /
measured), which outliers do not pull far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra.efficiency import CollectiveKind
from libra.errors import FieldError
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

__all__ = [
    "START",
    "BetweenNodes",
    "FittedTraining",
    "PreparedRow",
    "fit_training",
    "predict_fitted",
    "prepare_row",
]

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
    """Build the graph of a row once for each unknown: a piece's passes, a stage's update.

    Raises
    ------
    FieldError
        Degrees that do not fit the nodes; a ring of context parallelism beside attention, whose
        share of a pass is no unknown.
    """
    if row.plan.overlap.cp and row.plan.memory.activations.cp > 1:
        raise FieldError(
            "cp", "a ring beside attention cannot be fitted, got cp > 1. Leave it out."
        )
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


START = {
    "matmul": 0.8,
    "attention": 0.6,
    "attention_memory": 0.7,
    "elementwise": 0.7,
    "optimizer": 0.7,
    "collectives": 0.9,
    "messages": 0.9,
    "kernel_overhead": 3e-6,
}
"""What can be fitted and where a fit begins: fractions, and the time to start a kernel [s]."""

_PULL, _PULL_OF_OVERHEAD = 0.01, 0.2
"""Weight of a deviation from the start against that of a row: decides what the rows do not. A
kernel takes microseconds to start; what more it seems to take is something else."""


def fit_training(
    rows: Sequence[PreparedRow],
    accelerator: Accelerator,
    names: Sequence[str] = tuple(START),
    *,
    rounds: int = 40,
) -> FittedTraining:
    """Fit efficiencies to measured steps, all on one kind of accelerator.

    Parameters
    ----------
    rows : sequence of PreparedRow
        At least one. Each set of them counts the same, however many it has.
    accelerator : Accelerator
        What is not fitted stays as it is.
    names : sequence of str
        What to fit, of `START`.
    rounds : int
        Most steps of the fit.
    """
    measured = np.log([p.row.seconds for p in rows])
    sets = [p.row.set for p in rows]
    weight = np.array([len(rows) / len(set(sets)) / sets.count(name) for name in sets])
    start = np.array([_unbounded(name, START[name]) for name in names])
    pull = np.array([_PULL_OF_OVERHEAD if n == "kernel_overhead" else _PULL for n in names])

    def deviation(x: Floats) -> Floats:
        chip, between = _described(accelerator, _values(names, x))
        predicted = [predict_fitted(p, chip, between) for p in rows]
        result: Floats = np.concatenate(
            [(np.log(predicted) - measured) * weight, pull * (x - start)]
        )
        return result

    x = fit_parameters(deviation, start, rounds=rounds, tolerance=1e-4)
    values = {name: float(f"{value:.3g}") for name, value in _values(names, x).items()}
    chip, between = _described(accelerator, values)
    predicted = [predict_fitted(p, chip, between) for p in rows]
    return FittedTraining(chip, between, residuals_of(predicted, np.exp(measured)))


def _unbounded(name: str, value: float) -> float:
    """Unknown of a fit: the logarithm of a time, the logit of a fraction."""
    return math.log(value) if name == "kernel_overhead" else math.log(value / (1 - value))


def _bounded(name: str, unknown: float) -> float:
    return math.exp(unknown) if name == "kernel_overhead" else 1 / (1 + math.exp(-unknown))


def _values(names: Sequence[str], x: Floats) -> dict[str, float]:
    return {name: _bounded(name, float(v)) for name, v in zip(names, x, strict=True)}


def _described(base: Accelerator, values: Mapping[str, float]) -> tuple[Accelerator, BetweenNodes]:
    """Accelerator and fractions of parameters."""
    kinds = dict(base.efficiency)
    if "matmul" in values:
        for kind in (OperatorKind.MATMUL, OperatorKind.GROUPED_MATMUL):
            kinds[kind] = replace(kinds[kind], compute=values["matmul"])
    known = kinds.get(OperatorKind.ATTENTION, KindEfficiency())
    kinds[OperatorKind.ATTENTION] = replace(
        known,
        compute=values.get("attention", known.compute),
        memory=values.get("attention_memory", known.memory),
    )
    for kind, name in (
        (OperatorKind.ELEMENTWISE, "elementwise"),
        (OperatorKind.EMBEDDING, "elementwise"),
        (OperatorKind.OPTIMIZER, "optimizer"),
    ):
        if name in values:
            kinds[kind] = KindEfficiency(memory=values[name])
    overhead = values.get("kernel_overhead", base.kernel_overhead)
    between = BetweenNodes(values.get("collectives", 1.0), values.get("messages", 1.0))
    return replace(base, efficiency=kinds, kernel_overhead=overhead), between
