"""A step in program order: computations one after the other, collectives beside them."""

from __future__ import annotations

from collections.abc import Sequence

from libra.collectives import Collective
from libra.workload.graph import GraphBuilder
from libra.workload.layers import Layer, Phase

__all__ = ["StepProgram", "add_forward", "kind_of"]


class StepProgram(GraphBuilder):
    """Tasks in program order: compute waits for the compute before it and for `barrier`."""

    def __init__(self) -> None:
        super().__init__()
        self.last: int | None = None
        self.barrier: list[int] = []

    def compute(self, label: str, time: float) -> int:
        """Next computation of the program."""
        after = sorted({*self.barrier, *([] if self.last is None else [self.last])})
        self.barrier = []
        self.last = self.add(label, time, after=after)
        return self.last

    def issue(self, label: str, collective: Collective | None, update: float = 0.0) -> int | None:
        """Start a collective after the computation before it; return its last task."""
        if collective is None:
            return None
        after = [] if self.last is None else [self.last]
        task = self.add(label, collectives=[(collective, 1.0)], after=after)
        return self.add(f"{label} update", update, after=[task]) if update else task

    def wait(self, *tasks: int | None) -> None:
        """Make the next computation wait for tasks."""
        self.barrier += [task for task in tasks if task is not None]

    def phase(self, label: str, phase: Phase, update: float = 0.0) -> None:
        """Compute, then a blocking collective."""
        self.compute(label, phase.compute)
        done = self.issue(f"{label} {kind_of(phase)}", phase.collective, update)
        self.last = self.last if done is None else done


def kind_of(phase: Phase) -> str:
    """Name of a phase's collective, empty if it has none."""
    return phase.collective.kind.value if phase.collective else ""


def add_forward(program: StepProgram, layers: Sequence[Layer]) -> None:
    """Forward phases in order, every collective blocking."""
    for layer in layers:
        program.phase(f"{layer.name} forward", layer.forward)
