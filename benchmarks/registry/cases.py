"""The cases: what is measured on which input. Names and inputs stay, so that runs can be compared.

A case is data: a phase of libra's work, the name of an input (see `registry.inputs`) and options of
the phase (see the modules in `MODULES`). A case that should change gets a new name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["CASES", "MODULES", "Case", "Phase", "find_cases", "wanted"]


class Phase(StrEnum):
    """A part of libra's work that a user waits for."""

    LOAD = "load"
    BUILD = "build"
    FIRST = "first solve"
    SOLVE = "re-solve"
    FRONTIER = "frontier"
    DISCRETE = "discrete"
    SCENARIOS = "scenarios"
    SWEEP = "sweep"
    EXPLORE = "explore"
    TRACE = "trace reading"
    SIMULATE = "simulate"
    REPORT = "report"
    COMMAND = "command"


MODULES = {
    Phase.LOAD: "registry.loading",
    Phase.BUILD: "registry.solving",
    Phase.FIRST: "registry.solving",
    Phase.SOLVE: "registry.solving",
    Phase.FRONTIER: "registry.decisions",
    Phase.DISCRETE: "registry.solving",
    Phase.SCENARIOS: "registry.solving",
    Phase.SWEEP: "registry.decisions",
    Phase.EXPLORE: "registry.decisions",
    Phase.TRACE: "registry.loading",
    Phase.SIMULATE: "registry.decisions",
    Phase.REPORT: "registry.decisions",
    Phase.COMMAND: "registry.commands",
}
"""Where each phase is prepared: imported in the process that measures it only."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes
    ----------
    phase : Phase
    input : str
        Name of the input.
    options : mapping of str to str
        What the phase is told; part of the name.
    repeats : int
        How often a full run measures it.
    fresh : bool
        Each repeat in a process of its own, as a user meets it; otherwise after one that does not
        count, in the same process.
    large : bool
        Left out of ``--once``: another case runs the same code on less.
    """

    phase: Phase
    input: str
    options: Mapping[str, str] = field(default_factory=dict)
    repeats: int = 7
    fresh: bool = False
    large: bool = False

    @property
    def name(self) -> str:
        """Phase, input and options."""
        words = [f"{k}={v}" for k, v in self.options.items()]
        return " ".join([f"{self.phase}: {self.input}", *words])


EXAMPLES = ("gpt-3", "msft-1t", "turing-nlg", "resnet-50", "dlrm")
SHAPES = ("3d", "4d")


def _goal(objective: str) -> Mapping[str, str]:
    return {"objective": objective}


CASES: tuple[Case, ...] = (
    *(Case(Phase.LOAD, name) for name in ("gpt-3-4d", "resnet-50-4d", "llama-3-70b-1f1b")),
    *(Case(Phase.BUILD, name) for name in ("gpt-3-4d", "graph-1000", "graph-100000")),
    Case(Phase.BUILD, "graph-1000000", repeats=3, large=True),
    Case(Phase.FIRST, "gpt-3-4d", _goal("time"), fresh=True),
    Case(Phase.FIRST, "gpt-3-4d", _goal("time-cost"), fresh=True),
    Case(Phase.FIRST, "graph-100000", _goal("time"), fresh=True),
    *(
        Case(Phase.SOLVE, f"{name}-{shape}", _goal(objective))
        for name in EXAMPLES
        for shape in SHAPES
        for objective in ("time", "time-cost")
    ),
    Case(Phase.SOLVE, "gpt-3-4d-within", _goal("cost")),
    Case(Phase.SOLVE, "two-jobs-4d", _goal("worst-time")),
    Case(Phase.SOLVE, "eight-jobs-4d", _goal("time")),
    Case(Phase.SOLVE, "latency-4d", _goal("time")),
    Case(Phase.SOLVE, "balanced-4d", _goal("time")),
    Case(Phase.SOLVE, "llama-3-70b-1f1b", _goal("time")),
    Case(Phase.SOLVE, "chain-100000", _goal("time")),
    Case(Phase.SOLVE, "graph-1000", _goal("time")),
    Case(Phase.SOLVE, "graph-10000", _goal("time")),
    Case(Phase.SOLVE, "graph-100000", _goal("time")),
    Case(Phase.SOLVE, "graph-1000000", _goal("time"), repeats=3, large=True),
    Case(Phase.SOLVE, "graph-10000000", _goal("time"), repeats=3, large=True),
    Case(Phase.FRONTIER, "gpt-3-4d", {"points": "20"}),
    Case(Phase.FRONTIER, "gpt-3-4d", {"points": "100"}),
    Case(Phase.DISCRETE, "lanes-4d", _goal("time")),
    Case(Phase.DISCRETE, "lanes-4d", _goal("time-cost")),
    *(Case(Phase.SCENARIOS, f"scenarios-{how}") for how in ("expected", "worst", "regret")),
    Case(Phase.SWEEP, "gpt-3-4d", {"vary": "constraints.total=100..1000:50 GB/s"}),
    Case(Phase.SWEEP, "gpt-3-4d", {"vary": "constraints.total=100..1099:1 GB/s"}),
    Case(Phase.EXPLORE, "space-64-npus", repeats=3),
    Case(Phase.TRACE, "trace-10000", repeats=5, fresh=True),
    Case(Phase.TRACE, "trace-100000", repeats=5, fresh=True, large=True),
    Case(Phase.TRACE, "trace-1000000", repeats=3, fresh=True, large=True),
    Case(Phase.SIMULATE, "gpt-3-4d"),
    Case(Phase.REPORT, "gpt-3-4d", fresh=True, repeats=5),
    *(
        Case(Phase.COMMAND, "gpt-3-4d", {"libra": word}, repeats=7)
        for word in ("--help", "check", "optimize")
    ),
)


def find_cases(patterns: Sequence[str]) -> tuple[Case, ...]:
    """Cases whose name matches one of some regular expressions; of none, all."""
    return tuple(case for case in CASES if wanted(case.name, patterns))


def wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches one of some regular expressions, or there are none."""
    return not patterns or any(re.search(pattern, name) for pattern in patterns)
