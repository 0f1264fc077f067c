"""A space's candidates in a fixed order, and what becomes of each: refused, pruned or solved.

Candidates are numbered job by job, by the time that no network can beat, and within a job network
by network. A *part* is a run of consecutive numbers. What a part's rows say depends on the space,
on the part and on the objective to beat when it began, and on nothing else, so that the order in
which parts are computed, interruptions and the number of processes change no row.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from libra.assembly import Assembly
from libra.collectives import CollectiveModel, Contention
from libra.design import Design, Workload
from libra.errors import (
    FieldError,
    InfeasibleError,
    InputError,
    Problem,
    SolverError,
    UnboundedError,
)
from libra.explore.bounds import (
    JobPath,
    Limits,
    Sharing,
    cut_bound,
    design_limits,
    dimension_bound,
    path_graph,
    reference_paths,
    sharing_of,
)
from libra.explore.candidates import Job, list_jobs, list_networks
from libra.explore.space import Space, refuse_text
from libra.explore.stages import Stage, StageClock
from libra.network import Network
from libra.optimize import optimize_design
from libra.placement import Group
from libra.schema import read_design_file
from libra.workload.graph import StepGraph, chain_graph
from libra.workload.roles import place_roles
from libra.yaml_source import Source

__all__ = ["PART", "Explorer", "Row", "Status"]

PART = 512
"""Candidates of a part."""
_MOST_STEPS = 32
"""Steps kept for other networks of the same sizes."""
Row = dict[str, Any]


class Status:
    """What became of a candidate."""

    REFUSED = "refused"
    PRUNED = "pruned"
    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


@dataclass(frozen=True, eq=False)
class _Block:
    """Candidates with the same jobs and algorithm: all networks of a number of NPUs."""

    first: int
    jobs: tuple[Job, ...]
    algorithm: str
    npus: int
    floor: float

    @property
    def refused(self) -> str:
        """Why the jobs cannot be; empty: they can."""
        return next((job.refused for job in self.jobs if job.refused), "")


class Explorer:
    """Candidates of a space and their rows.

    Parameters
    ----------
    space : Space
    top : int
        How many of the best are wanted exactly; what cannot be among them may be pruned.
    prune : bool
        False: solve all that can be solved.
    """

    def __init__(self, space: Space, top: int = 10, *, prune: bool = True) -> None:
        self.space, self.top, self.prune = space, top, prune
        self.clock = StageClock()
        self._memory: dict[Any, Any] = {}
        self._paths: dict[tuple[int, Sharing], tuple[JobPath, ...]] = {}
        self._limits: dict[Any, Limits] = {}
        # Networks of the same sizes have the same step: those of the last block are kept.
        self._steps: tuple[_Block | None, dict[Any, Any]] = (None, {})

    @cached_property
    def networks(self) -> dict[int, list[tuple[dict[str, Any], ...]]]:
        """Networks of each number of NPUs, as plain data."""
        return {npus: list_networks(self.space, npus) for npus in self.space.npus}

    @cached_property
    def blocks(self) -> list[_Block]:
        """Blocks in order: by what no network can beat, then as the space lists them."""
        with self.clock.measure(Stage.GENERATE):
            return self._numbered()

    def _numbered(self) -> list[_Block]:
        weights = [float(w.get("weight", 1.0)) for w in self.space.workloads]
        found = []
        for npus in self.space.npus:
            lists = [list_jobs(self.space, k, npus, self.clock) for k in range(len(weights))]
            for jobs, algorithm in itertools.product(
                itertools.product(*lists), self.space.algorithms
            ):
                floor = float(np.dot(weights, [job.floor for job in jobs]))
                found.append(_Block(0, jobs, algorithm, npus, floor))
        found.sort(key=lambda block: block.floor)
        first, numbered = 0, []
        for block in found:
            numbered.append(replace(block, first=first))
            first += len(self.networks[block.npus])
        return numbered

    @cached_property
    def count(self) -> int:
        """Number of candidates."""
        return sum(len(self.networks[block.npus]) for block in self.blocks)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.count // PART)

    def check(self) -> None:
        """Build the first candidate that is not refused, so that what is wrong for all shows.

        Raises
        ------
        InputError
            What is wrong with the keys that a space shares with designs, or with all candidates.
        """
        if not any(self.networks.values()):
            raise InputError(
                self.space.source.problem(
                    ("network", "tiers"),
                    f"no sizes of the tiers multiply to {list(self.space.npus)} NPUs within the "
                    "dimensions allowed, got no network. Widen sizes or dimensions.",
                )
            )
        error: InputError | None = None
        for block in self.blocks:
            if block.refused:
                continue
            for network in self.networks[block.npus][:200]:
                try:
                    self._design(block, network)
                except InputError as found:
                    error = error or found
                else:
                    return
        if error is not None:
            raise error
        place = ("workloads", 0, "parallel") if len(self.space.workloads) == 1 else ("workloads",)
        raise InputError(self.space.source.problem(place, _untrainable(self.space, self.blocks)))

    def part_rows(self, part: int, to_beat: float) -> list[Row]:
        """Rows of a part's candidates, in order.

        Parameters
        ----------
        part : int
        to_beat : float
            Objective above which a candidate cannot be among the best `top`.
        """
        start, stop = part * PART, min((part + 1) * PART, self.count)
        rows: list[Row] = []
        best: list[float] = []
        for block, networks in self._pieces(start, stop):
            rows += self._block_rows(block, networks, to_beat, best)
        return rows

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[_Block, range]]:
        """Blocks, and their networks, that candidates from `start` to `stop` belong to."""
        for block in self.blocks:
            size = len(self.networks[block.npus])
            low, high = max(start - block.first, 0), min(stop - block.first, size)
            if low < high:
                yield block, range(low, high)

    def _block_rows(
        self, block: _Block, networks: range, to_beat: float, best: list[float]
    ) -> list[Row]:
        """Rows of some networks of a block; `best` collects the best objectives of the part."""
        plain = self.networks[block.npus]
        with self.clock.measure(Stage.GENERATE):
            rows = [self._row(block, k, plain[k]) for k in networks]
        if block.refused:
            for row in rows:
                row |= {"status": Status.REFUSED, "reason": block.refused}
            return rows
        bounds = np.zeros(len(rows))
        for at, (row, k) in enumerate(zip(rows, networks, strict=True)):
            try:
                with self.clock.measure(Stage.BOUND):
                    bounds[at] = self._bound(block, plain[k], self._threshold(to_beat, best))
            except (FieldError, InputError) as error:
                text = error.message if isinstance(error, FieldError) else refuse_text(error)
                row |= {"status": Status.REFUSED, "reason": f"placement: {text}"}
                bounds[at] = math.inf
        for at in np.argsort(bounds, kind="stable").tolist():
            row = rows[at]
            if row["status"] == Status.REFUSED:
                continue
            row["bound"] = float(bounds[at])
            if self.prune and bounds[at] > self._threshold(to_beat, best):
                row["status"] = Status.PRUNED
                continue
            with self.clock.measure(Stage.SOLVE):
                row |= self._solve(block, plain[networks[at]])
            if row["status"] == Status.SOLVED:
                best.append(row["objective"])
        return rows

    def _threshold(self, to_beat: float, best: list[float]) -> float:
        """Objective above which a candidate cannot be among the best, with what the part found."""
        if len(best) < self.top:
            return to_beat
        return min(to_beat, sorted(best)[self.top - 1])

    def _row(self, block: _Block, k: int, network: Sequence[Mapping[str, Any]]) -> Row:
        """Keys of a candidate."""
        codes = {"ring": "RI", "fully-connected": "FC", "switch": "SW"}
        row: Row = {
            "candidate": block.first + k,
            "npus": block.npus,
            "network": "_".join(f"{codes[d['topology']]}({d['size']})" for d in network),
            "tiers": " ".join(d["tier"] for d in network),
            "algorithm": block.algorithm,
        }
        for w, job in enumerate(block.jobs):
            prefix = "" if len(block.jobs) == 1 else f"w{w}_"
            row |= {f"{prefix}{key}": value for key, value in job.keys.items()}
            row[f"{prefix}memory_bytes"] = None if math.isnan(job.memory) else job.memory
        return row | dict.fromkeys(_FOUND) | {"status": "", "reason": ""}

    def _bound(self, block: _Block, plain: Sequence[Mapping[str, Any]], threshold: float) -> float:
        """Objective that a candidate cannot beat; the cheapest bound that exceeds the threshold."""
        if not self.prune:
            return 0.0
        network = self._network(plain)
        limits = self._limits_of(block, plain)
        worst = block.floor
        if limits.objective.value == "time-cost":
            worst = block.floor * limits.fixed_cost
        elif limits.objective.value == "cost":
            worst = 0.0
        if worst > threshold:
            return worst
        in_network = any(d.in_network for d in network.dimensions)
        model = self._model(block)
        groups = [
            place_roles(network, job.plan.memory, job.entry.parallel.order)
            for job in block.jobs
            if job.plan is not None and job.entry is not None
        ]
        sharing = [sharing_of(placed, network, model) for placed in groups]
        each = self._job_paths(block, sharing, limits.most, in_network)
        for k in range(max(map(len, each))):
            paths = [found[min(k, len(found) - 1)] for found in each]
            worst = max(worst, cut_bound(paths, limits, in_network))
            if worst > threshold:
                return worst
            worst = max(worst, dimension_bound(paths, groups, network, model, limits))
        if worst > threshold:
            return worst
        return max(worst, self._path_bound(block, plain, each, groups))

    def _path_bound(
        self,
        block: _Block,
        plain: Sequence[Mapping[str, Any]],
        paths: Sequence[Sequence[JobPath]],
        groups: Sequence[Mapping[str, Group]],
    ) -> float:
        """Bound of the optimum of some paths of each job on a candidate's network."""
        graphs = [path_graph(p, placed) for p, placed in zip(paths, groups, strict=True)]
        design = self._design(block, plain, graphs)
        # Tasks stand for paths, whose collectives do not queue for each other.
        model = replace(design.collectives, contention=Contention.NONE)
        try:
            result = optimize_design(replace(design, collectives=model))
        except (InfeasibleError, UnboundedError):
            return 0.0
        bound = result.objective_bound if result.schedule_bound is None else result.schedule_bound
        return bound or 0.0

    def _job_paths(
        self, block: _Block, sharing: Sequence[Sharing], most: float, in_network: bool
    ) -> list[tuple[JobPath, ...]]:
        """Paths of each job to bound by."""
        each = []
        for job, shared in zip(block.jobs, sharing, strict=True):
            key = (id(job), shared)
            if key not in self._paths:
                self._paths[key] = reference_paths(job, shared, most, in_network)
            each.append(self._paths[key])
        return each

    def _network(self, plain: Sequence[Mapping[str, Any]]) -> Network:
        key = ("network", id(plain))
        if key not in self._memory:
            problems: list[Problem] = []
            data = {"network": list(plain), "workloads": []}
            with self.clock.measure(Stage.BUILD):
                parsed = read_design_file(self._source(data), problems)
            if parsed.network is None:
                raise InputError(problems)
            self._memory[key] = (Network(parsed.network), plain)
        network: Network = self._memory[key][0]
        return network

    def _model(self, block: _Block) -> CollectiveModel:
        return self._memory["model", block.algorithm][0]  # type: ignore[no-any-return]

    def _limits_of(self, block: _Block, plain: Sequence[Mapping[str, Any]]) -> Limits:
        """Limits of a network, shared by those of the same tiers and blocks."""
        kinds = tuple((d["tier"], d["topology"], d.get("name")) for d in plain)
        tiers = tuple(d.switch_tiers for d in self._network(plain).dimensions)
        key = (block.npus, block.algorithm, kinds, tiers)
        if key not in self._limits:
            empty = chain_graph([1.0], [None])
            design = self._design(block, plain, [empty] * len(block.jobs))
            self._limits[key] = design_limits(design)
            self._memory["model", block.algorithm] = (design.collectives,)
        return self._limits[key]

    def _source(self, data: dict[str, Any]) -> Source:
        return replace(self.space.source, data=data, problems=[], overridden={})

    def _design(
        self,
        block: _Block,
        plain: Sequence[Mapping[str, Any]],
        graphs: Sequence[StepGraph] | None = None,
    ) -> Design:
        """Design of a candidate, with graphs in place of its workloads' if they are given.

        Raises
        ------
        InputError
            If it cannot be built.
        """
        with self.clock.measure(Stage.BUILD):
            return self._built(block, plain, graphs)

    def _built(
        self,
        block: _Block,
        plain: Sequence[Mapping[str, Any]],
        graphs: Sequence[StepGraph] | None,
    ) -> Design:
        shared = dict(self.space.shared)
        if len(self.space.algorithms) > 1 or "collectives" in shared:
            given = shared.get("collectives", {})
            shared["collectives"] = given | {"algorithm": block.algorithm}
        items = [dict(job.item) for job in block.jobs]
        data = shared | {"network": list(plain), "workloads": items}
        source, problems = self._source(data), list[Problem]()
        parsed = read_design_file(source, problems)
        given = None if graphs is None else _stand_ins(block, graphs)
        if self._steps[0] is not block or len(self._steps[1]) >= _MOST_STEPS:
            self._steps = block, {}
        design = Assembly(source, problems, parsed, self._steps[1]).design(given)
        if design is None or problems:
            raise InputError(problems)
        return design

    def _solve(self, block: _Block, plain: Sequence[Mapping[str, Any]]) -> Row:
        """What solving a candidate gives."""
        try:
            result = optimize_design(self._design(block, plain))
        except (InfeasibleError, UnboundedError) as error:
            return {"status": Status.INFEASIBLE, "reason": str(error).split("\n")[0]}
        except SolverError as error:
            return {"status": Status.FAILED, "reason": f"solver: {error}"}
        except InputError as error:
            return {"status": Status.REFUSED, "reason": f"placement: {refuse_text(error)}"}
        return {
            "status": Status.SOLVED,
            "objective": result.objective_value,
            "objective_bound": result.objective_bound,
            "step_time_s": result.step_time,
            "network_cost_usd": result.network_cost,
            "network_power_w": result.network_power,
            "bandwidth_GBps": [b / 1e9 for b in result.bandwidth.tolist()],
        }


def _untrainable(space: Space, blocks: Sequence[_Block]) -> str:
    """What to say where every candidate is refused, or no degrees fit the NPUs."""
    if not blocks:
        return (
            f"no degrees multiply to the NPUs, got npus {list(space.npus)}. Give degrees that "
            "divide them, or auto, and leave dp out."
        )
    reasons = Counter(block.refused.split(":")[0] for block in blocks)
    words = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    return (
        f"no candidate can be trained, got refusals by reason: {words}. The first: "
        f"{blocks[0].refused.rstrip('.')}. Allow other degrees or more NPUs."
    )


def _stand_ins(block: _Block, graphs: Sequence[StepGraph]) -> tuple[Workload, ...]:
    """Workloads with other graphs than their jobs'."""
    return tuple(
        Workload(
            str(job.item.get("name") or job.item["model"]),
            graph,
            float(job.item.get("weight", 1.0)),
        )
        for job, graph in zip(block.jobs, graphs, strict=True)
    )


_FOUND = (
    "bound",
    "objective",
    "objective_bound",
    "step_time_s",
    "network_cost_usd",
    "network_power_w",
    "bandwidth_GBps",
)
