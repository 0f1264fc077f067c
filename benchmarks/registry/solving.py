"""Phases that build and solve: time models, first solves, re-solves, whole parts, scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from libra.design import Design, Objective, time_design
from libra.load import load_design
from libra.optimize import optimize_design
from libra.result import Result
from registry.cases import Case, Phase
from registry.frozen import folder_fingerprint, graph_fingerprint
from registry.graphs import graph_design, is_graph, make_graph
from registry.inputs import write_design
from registry.prepared import Note, Prepared

__all__ = ["prepare"]


def prepare(case: Case, folder: Path) -> Prepared:
    """Solve or build a case's design; the phases differ in when, see `Case.fresh`."""
    design, fingerprint = _design(case, folder)
    if case.phase is Phase.BUILD:
        return Prepared(lambda: _build(design), fingerprint)
    return Prepared(lambda: optimize_design(design), fingerprint, _describe)


def _design(case: Case, folder: Path) -> tuple[Design, str]:
    if is_graph(case.input):
        graph = make_graph(case.input)
        return graph_design(graph), graph_fingerprint(graph)
    path = write_design(case.input, folder)
    fingerprint = folder_fingerprint(folder)
    design = load_design(path)
    if "objective" in case.options:
        design = replace(design, objective=Objective(case.options["objective"]))
    return design, fingerprint


def _build(design: Design) -> object:
    """Step graph from its arrays, with their checks, and its time model."""
    jobs = tuple(replace(w, graph=replace(w.graph)) for w in design.workloads)
    return time_design(replace(design, workloads=jobs))


def _describe(outcome: object) -> Mapping[str, Note]:
    assert isinstance(outcome, Result)
    notes: dict[str, Note] = {"tasks": sum(w.graph.tasks for w in outcome.design.workloads)}
    if outcome.gap is not None:
        notes["gap"] = outcome.gap
    if outcome.solver is not None:
        notes["rounds"] = outcome.solver.iterations
    return notes
