"""Cutting planes: the best bandwidths for a `Goal` under linear rows, with their bound.

Each round solves the master problem of `libra.master` (a lower bound), times the workloads at its
bandwidths (an upper bound and, from each critical path, a new cut), and stops when the two meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libra.certificate import Multipliers, certified_bound
from libra.master import Master, MasterSolution
from libra.parts import Parts
from libra.polish import polish
from libra.program import Cut, Goal, Program
from libra.timing import critical_path

__all__ = ["MOST_ROUNDS", "Optimum", "Search", "first_guess", "minimise", "safe_scale"]

Floats = NDArray[np.float64]

MOST_ROUNDS = 2000
_AIM = 3e-8
_CLOSE = 3e-7
"""Relative gaps: at which a search stops, and at which it stops once no new path is found."""
_PATIENCE = 3
_MOST_CUTS = 64
"""Of an earlier search that a later one begins with."""
_MARGIN = 1e-10
"""Least part by which time limits are tightened for the solver where its answers violate them."""


@dataclass
class Search:
    """State of one optimisation.

    Attributes
    ----------
    program : Program
    cuts : list of Cut
        The pool, which holds for any constraint and objective; at least one a workload.
    known : set
        What tells the cuts apart.
    limits : ndarray, shape (workloads,)
        Largest step times [s].
    parts : Parts or None
        Whole parts, where bandwidths come in them.
    scale : ndarray, shape (columns,)
        Bandwidths near the optimum, as far as it is known [bytes/s].
    rounds : int
        Master problems solved.
    master : Master or None
        The last one, which may serve another goal or bound.
    """

    program: Program
    cuts: list[Cut] = field(default_factory=list)
    known: set[tuple[int, float, bytes]] = field(default_factory=set)
    limits: Floats = field(default_factory=lambda: np.zeros(0))
    parts: Parts | None = None
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0
    master: Master | None = None

    def __post_init__(self) -> None:
        if not len(self.limits):
            self.limits = np.full(len(self.program.weights), np.inf)
        if len(self.scale) != self.program.columns:
            self.scale = first_guess(self.program)
        if not self.cuts:
            self.step_times(self.scale)

    def resumed(self, program: Program, limits: Floats, parts: Parts | None) -> Search:
        """Search for another optimum of the same timings, from what this one has found."""
        cuts = self.cuts[-_MOST_CUTS:]
        known = {cut_key(cut) for cut in cuts} if len(cuts) < len(self.cuts) else set(self.known)
        return Search(program, cuts, known, limits, parts, self.scale, master=self.master)

    def step_times(self, bandwidth: Floats) -> tuple[Floats, bool]:
        """Step time of each workload [s] at given columns, and whether a new cut was found."""
        times, new, bandwidth = [], False, self.program.join(bandwidth)
        for w, timing in enumerate(self.program.timings):
            path = critical_path(timing, bandwidth)
            times.append(path.time)
            new = self.add_cut(Cut(w, path.fixed, path.counts)) or new
        return np.array(times), new

    def master_problem(self, goal: Goal, anew: bool) -> Master:
        """Master problem of the cuts so far: the last one if it fits, unless one is made anew."""
        known, program = self.master, self.program
        if anew or known is None or not known.fits(program, self.cuts, goal, self.scale):
            known = self.master = Master(program, self.cuts, goal, self.scale)
        return known

    def add_cut(self, cut: Cut) -> bool:
        """Add a cut to the pool; whether it is new."""
        key = cut_key(cut)
        if key in self.known:
            return False
        self.known.add(key)
        self.cuts.append(cut)
        return True


def cut_key(cut: Cut) -> tuple[int, float, bytes]:
    """What tells a cut from others."""
    return cut.workload, cut.fixed, cut.counts.tobytes()


@dataclass(frozen=True, eq=False)
class Optimum:
    """Least objective that was found, and its proven bound.

    `multipliers` are those of the constraints at it, None if nothing was found.
    """

    bandwidth: Floats
    value: float
    bound: float
    multipliers: Multipliers | None = None

    @property
    def gap(self) -> float:
        """Relative distance of value and bound; infinite if nothing was found."""
        if not np.isfinite(self.value):
            return np.inf
        return (self.value - self.bound) / abs(self.value) if self.value else 0.0


def first_guess(program: Program) -> Floats:
    """Bandwidths of the right order of magnitude, to scale the first master problem by."""
    rows = program.rows
    size = np.abs(rows.matrix)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(
            (size > 0) & (rows.bound != 0)[:, None], np.abs(rows.bound)[:, None] / size, np.inf
        )
    guess = each.min(axis=0, initial=np.inf)
    open_ = ~np.isfinite(guess)
    if open_.any():
        guess[open_] = np.median(guess[~open_]) if not open_.all() else 1e11
    result: Floats = guess / program.columns
    return result


def minimise(search: Search, goal: Goal, aim: float = _AIM) -> Optimum:
    """Reach a goal under the rows: the best bandwidths found and the proven bound."""
    program = search.program
    best = Optimum(search.scale, np.inf, -np.inf)
    turns, stalled, settled, rescaled, missed, margin = 0, 0, False, False, 0, 0.0
    while (
        best.gap > (_CLOSE if settled else aim)
        and stalled < _PATIENCE
        and search.rounds < MOST_ROUNDS
    ):
        search.rounds += 1
        cuts = tuple(search.cuts)
        master = search.master_problem(goal, anew=turns > 0).solve(program.rows.bound, goal, margin)
        turns += 1
        stalled += 1
        if master.multipliers is None:
            search.scale = search.scale * np.exp(0.5 * (-1) ** np.arange(len(goal.price)))
            continue
        bandwidth, new, value = _made_feasible(program, master), False, np.inf
        if bandwidth is not None:
            times = goal.weights
            if goal.timed:
                times, new = search.step_times(bandwidth)
            if not goal.timed or goal.admits(times):
                value, margin = goal.value(bandwidth, times), margin / 4
            elif not new:
                missed += 1
                margin = min(max(4 * margin, _MARGIN), 1e-6) if missed > _PATIENCE else 0.0
        known = min(value, best.value)
        bound = certified_bound(program, cuts, goal, master.multipliers, known)
        progress = value < best.value * (1 - 1e-12) or bound > best.bound + 1e-12 * abs(bound)
        stalled = 0 if progress or new else stalled
        settled = not new and rescaled
        rescaled = not new
        if bound > best.bound:
            best = replace(best, bound=bound, multipliers=master.multipliers)
        if bandwidth is not None and value < best.value:
            best = replace(best, value=value, bandwidth=bandwidth)
        search.scale = safe_scale(master.bandwidth)
    return best


def _made_feasible(program: Program, master: MasterSolution) -> Floats | None:
    """Bandwidths of a master problem that meet the rows to rounding; None if they cannot be had."""
    assert master.multipliers is not None
    size = master.objective if master.objective > 0 else np.inf
    bandwidth = polish(program.rows, master.bandwidth, master.multipliers.rows / size)
    return bandwidth if np.isfinite(bandwidth).all() else None


def safe_scale(bandwidth: Floats) -> Floats:
    """Scale for the next master problem: bandwidths kept away from 0."""
    return np.maximum(bandwidth, 1e-7 * max(float(bandwidth.max()), 1.0))
