"""Problems that every way is given, and the ways: both are data, names stay.

The problems are the reference implementation's cases (4 of the workloads that libra ships, on 2
networks, for its 2 objectives, by its own formulas), random task graphs, and a network built of
whole lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from registry.cases import wanted

__all__ = ["METHODS", "PROBLEMS", "Kind", "Method", "Problem", "find_problems"]


class Kind(StrEnum):
    """What makes a problem hard.

    ``CHAIN``: tasks one after the other. ``GRAPH``: any task graph. ``LANES``: whole lanes.
    """

    CHAIN = "chain"
    GRAPH = "graph"
    LANES = "lanes"


@dataclass(frozen=True)
class Problem:
    """One problem: an input of the registry and an objective."""

    kind: Kind
    input: str
    objective: str
    small: bool = False

    @property
    def name(self) -> str:
        """Input and objective."""
        return f"side by side: {self.input} {self.objective}"


_SMALL = ("resnet-50", "3d")
PROBLEMS = (
    *(
        Problem(Kind.CHAIN, f"reference-{name}-{shape}", objective, (name, shape) == _SMALL)
        for objective in ("time", "time-cost")
        for name in ("gpt-3", "msft-1t", "turing-nlg", "resnet-50")
        for shape in ("3d", "4d")
    ),
    Problem(Kind.GRAPH, "graph-100", "time", small=True),
    Problem(Kind.GRAPH, "graph-1000", "time"),
    Problem(Kind.GRAPH, "graph-10000", "time"),
    Problem(Kind.LANES, "lanes-4d", "time", small=True),
    Problem(Kind.LANES, "lanes-4d", "time-cost"),
)


@dataclass(frozen=True)
class Method:
    """One way of solving.

    Attributes
    ----------
    name : str
    says : str
        What it is, for readers.
    module : str
        Has ``solve(step, limit)``, or ``function`` of that form.
    function : str
    package : str
        What it needs beside libra; empty: nothing.
    proof : str
        What its claim to an optimum rests on; empty: it makes none.
    unfit : mapping
        Why it is no way to a kind of problem, or to one of its objectives (``"lanes time-cost"``).
    """

    name: str
    says: str
    module: str
    function: str
    package: str = ""
    proof: str = ""
    unfit: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, problem: Problem) -> str:
        """Why it is no way to a problem; empty: it is one."""
        one = self.unfit.get(f"{problem.kind} {problem.objective}", "")
        return self.unfit.get(problem.kind, one)


_NO_WHOLE = {"lanes": "has no whole numbers"}
_NO_LAYERS = {
    "graph": "a task graph is written task by task anyway: see the row without layers",
    "lanes": "made for the reference problems only",
}

METHODS = (
    Method(
        "libra",
        "`optimize_design`",
        "others.by_libra",
        "solve",
        proof="bound in plain arithmetic from the solver's multipliers",
    ),
    Method(
        "Clarabel",
        "the convex program through cvxpy, equal collectives merged, a variable for each "
        "collective and dimension (for graphs also for the start of each task); time-cost as a "
        "search over the cost",
        "others.convex",
        "solve",
        "cvxpy",
        "duality gap of the solver, for time only",
        _NO_WHOLE,
    ),
    Method(
        "Clarabel, by layer",
        "the same with the collectives of every layer",
        "others.convex",
        "solve_layers",
        "cvxpy",
        "duality gap of the solver, for time only",
        _NO_LAYERS,
    ),
    Method(
        "SCIP",
        "the reference implementation's non-convex program (bandwidth x reciprocal = 1, time x "
        "cost), equal collectives merged",
        "others.by_scip",
        "solve",
        "pyscipopt",
        "branch and bound",
    ),
    Method(
        "SCIP, by layer",
        "the same with the collectives of every layer, as the reference implementation writes it",
        "others.by_scip",
        "solve_layers",
        "pyscipopt",
        "branch and bound",
        _NO_LAYERS,
    ),
    Method(
        "Gurobi",
        "the same program, merged, with the size-limited licence of its package",
        "others.by_gurobi",
        "solve",
        "gurobipy",
        "branch and bound",
    ),
    Method(
        "Gurobi, by layer",
        "the same with the collectives of every layer, as the reference implementation writes it",
        "others.by_gurobi",
        "solve_layers",
        "gurobipy",
        "branch and bound",
        _NO_LAYERS,
    ),
    Method(
        "HiGHS",
        "the mixed-integer linear program of all lanes at once, through `scipy.optimize.milp`",
        "others.whole",
        "solve_milp",
        "scipy",
        "branch and bound",
        {
            "chain": "solves linear programs: reciprocals of free bandwidths are not linear",
            "graph": "solves linear programs: reciprocals of free bandwidths are not linear",
            "lanes time-cost": "solves linear programs: time x cost is a product",
        },
    ),
    Method(
        "enumeration",
        "every combination of lanes, in numpy",
        "others.whole",
        "enumerate_lanes",
        proof="all combinations",
        unfit={"chain": "bandwidths are free", "graph": "bandwidths are free"},
    ),
    Method(
        "SLSQP",
        "`scipy.optimize.minimize` on the step time and its subgradient, from equal shares",
        "others.local",
        "solve_slsqp",
        "scipy",
        unfit=_NO_WHOLE,
    ),
    Method(
        "subgradient",
        "projected subgradient descent on the shares, 10,000 steps",
        "others.local",
        "descend",
        unfit=_NO_WHOLE,
    ),
    Method(
        "Adam",
        "Adam on the logarithms of the shares (softmax), 10,000 steps",
        "others.local",
        "descend_adam",
        unfit=_NO_WHOLE,
    ),
)


def find_problems(patterns: Sequence[str]) -> tuple[Problem, ...]:
    """Problems whose name matches one of some regular expressions; of none, all."""
    return tuple(p for p in PROBLEMS if wanted(p.name, patterns))
