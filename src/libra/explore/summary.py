"""What an exploration found, from its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libra.explore.explorer import Status
from libra.explore.stages import Stage

if TYPE_CHECKING:
    import polars

__all__ = ["Effort", "Summary", "summarise"]


@dataclass(frozen=True)
class Effort:
    """What one run took; an earlier one that it goes on from is not counted.

    Attributes
    ----------
    candidates : int
        Computed by this run.
    seconds : float
        Wall clock [s].
    stages : dict of Stage to float
        CPU time of all processes [s].
    """

    candidates: int = 0
    seconds: float = 0.0
    stages: dict[Stage, float] = field(default_factory=lambda: dict.fromkeys(Stage, 0.0))

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all stages [s]."""
        return sum(self.stages.values())

    @property
    def rate(self) -> float:
        """Candidates a second of a core; 0: nothing was computed."""
        return self.candidates / self.cpu_seconds if self.candidates else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "candidates": self.candidates,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "candidates_per_core_second": self.rate,
            "stage_cpu_seconds": {stage.value: spent for stage, spent in self.stages.items()},
        }


@dataclass(frozen=True, eq=False)
class Summary:
    """What an exploration found.

    Attributes
    ----------
    frame : DataFrame
        One row a candidate.
    top : DataFrame
        The best, exactly.
    counts : dict
        Candidates by status.
    refused : dict
        Refused candidates by reason.
    proven : float
        Least bound of what was pruned, or failed to be solved: none of it is better; infinite:
        there is none.
    effort : Effort
        Of the run that made the last of it.
    """

    frame: polars.DataFrame
    top: polars.DataFrame
    counts: dict[str, int]
    refused: dict[str, int]
    proven: float
    effort: Effort = field(default_factory=Effort)

    @property
    def is_proven(self) -> bool:
        """Whether nothing that was left out can be among the best."""
        return len(self.top) > 0 and self.proven >= self.top["objective"][-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain data of ``libra explore --json``, without the rows."""
        return {
            "candidates": len(self.frame),
            "counts": self.counts,
            "refused": self.refused,
            "proven": self.is_proven,
            "best_bound_of_pruned": None if math.isinf(self.proven) else self.proven,
            "top": self.top.to_dicts(),
            "run": self.effort.to_dict(),
        }


def summarise(frame: polars.DataFrame, top: int, effort: Effort | None = None) -> Summary:
    """Summary of the rows of an exploration."""
    import polars as pl

    counts = dict(frame.group_by("status").len().sort("status").iter_rows())
    refused = (
        frame.filter(pl.col("status").is_in([Status.REFUSED, Status.INFEASIBLE]))
        .with_columns(pl.col("reason").str.split(":").list.first().alias("kind"))
        .group_by("kind")
        .len()
        .sort("kind")
    )
    solved = frame.filter(pl.col("status") == Status.SOLVED).sort("objective", "candidate")
    # What failed to be solved is as little ruled out as its bound says.
    unsolved = pl.col("status").is_in([Status.PRUNED, Status.FAILED])
    pruned = frame.filter(unsolved)["bound"].min()
    return Summary(
        frame,
        solved.head(top),
        counts,
        dict(refused.iter_rows()),
        math.inf if pruned is None else float(pruned),  # type: ignore[arg-type]
        effort or Effort(),
    )
