"""Time what a user waits for: solving, growth with the problem, the commands.

    python benchmarks/run.py            all cases, several repeats each
    python benchmarks/run.py --once     each once, to see that they run
    python benchmarks/run.py solve      the cases whose name contains "solve"

Times are in one process on one machine; compare them within a run. The reference inputs are read
from ``../shared/reference`` where that folder exists, and said to be skipped where it does not.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import traces as large_traces
import yaml

import libra
from libra.collectives import Collective, CollectiveKind, CollectiveModel, Contention
from libra.design import Objective
from libra.placement import Group
from libra.presets import example_folder
from libra.time_limits import TimeLimit
from libra.workload.graph import StepGraph, chain_graph

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT.parent / "shared" / "reference"
EXAMPLES = ("gpt-3", "msft-1t", "turing-nlg", "resnet-50", "dlrm")


@dataclass(frozen=True)
class Measurement:
    """Times of one case [s], and what it reached."""

    case: str
    seconds: tuple[float, ...]
    remark: str = ""

    def row(self) -> str:
        """One line of the table."""
        low, middle, high = (f(self.seconds) * 1e3 for f in (min, statistics.median, max))
        return f"{self.case:44s} {low:9.2f} {middle:9.2f} {high:9.2f}  {self.remark}"


def measure(work: Callable[[], object], repeats: int) -> tuple[float, ...]:
    """Wall time of each repeat [s], after one run that is not counted unless there is only one."""
    if repeats > 1:
        work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return tuple(seconds)


def rounds(result: libra.Result) -> int:
    """Cone programs that a result took."""
    return result.solver.iterations if result.solver is not None else 0


def solve_examples(repeats: int) -> Iterator[Measurement]:
    """Optimise each shipped example for each objective (under an equality; cost within 10 %)."""
    for name in EXAMPLES:
        for shape in ("3d", "4d"):
            design = libra.load_design(example_folder() / f"{name}-{shape}.yaml")
            total = replace(design.constraints[0], relation="==")
            for objective in Objective:
                within = tuple(
                    TimeLimit(f"slowdown({w.name}) <= 1.1", w.name, True, 1.1)
                    for w in design.workloads
                    if objective is Objective.COST
                )
                case = replace(
                    design, objective=objective, constraints=(total,), time_limits=within
                )
                result = libra.optimize_design(case)
                yield Measurement(
                    f"solve {name}-{shape} {objective.value}",
                    measure(partial(libra.optimize_design, case), repeats),
                    f"gap {result.gap:.0e}, {rounds(result)} cone programs",
                )


def solve_reference(repeats: int) -> Iterator[Measurement]:
    """Optimise the reference implementation's inputs: the median over all rows of an objective."""
    table = REFERENCE / "libra" / "optima.csv"
    checks = REFERENCE.parent / "checks"
    if not table.exists() or not (checks / "designs.py").exists():
        print(f"skipped: solve reference ({table} is not there)", file=sys.stderr)
        return
    sys.path.insert(0, str(checks))
    import designs  # type: ignore[import-not-found]

    times: dict[str, list[float]] = {"time": [], "time-cost": []}
    with tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(table.open()):
            path = Path(folder) / "design.yaml"
            path.write_text(yaml.safe_dump(designs.libra_case(row)))
            design = libra.load_design(path)
            times[design.objective.value].append(
                statistics.median(measure(partial(libra.optimize_design, design), repeats))
            )
    for objective, seconds in times.items():
        yield Measurement(
            f"solve reference {objective}", tuple(seconds), f"over {len(seconds)} rows"
        )


def growth(repeats: int) -> Iterator[Measurement]:
    """Non-merged layers, 10 to 100,000, and 1 to 8 workloads at once."""
    design = libra.load_design(example_folder() / "gpt-3-4d.yaml")
    workload = design.workloads[0]
    base = workload.graph
    order: list[Collective | None] = [None] * base.tasks
    for task, index in zip(base.count_task, base.count_index, strict=True):
        order[task] = base.collectives[index]
    for copies in (1, 10, 100):
        fixed = base.fixed.tolist() * copies
        start = time.perf_counter()
        graph = chain_graph(fixed, order * copies)
        built = time.perf_counter() - start
        case = replace(design, workloads=(replace(workload, graph=graph),))
        yield Measurement(
            f"growth {graph.tasks} tasks",
            measure(partial(libra.optimize_design, case), repeats),
            f"built in {built * 1e3:.0f} ms",
        )
    for count in (1, 2, 4, 8):
        many = tuple(replace(workload, name=f"w{k}", weight=1.0 + k) for k in range(count))
        case = replace(design, workloads=many)
        yield Measurement(
            f"growth {count} workloads",
            measure(partial(libra.optimize_design, case), repeats),
        )


def random_graph(tasks: int, seed: int = 1) -> StepGraph:
    """Random graph with 20 distinct collectives on the 4D network, built from arrays.

    Exponential compute (mean 0.1 ms); half of the tasks end with a collective; each waits for one
    to three of the tasks shortly before it.
    """
    rng = np.random.default_rng(seed)
    kinds = (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
    )
    found: list[Collective] = []
    while len(found) < 20:
        extents = tuple(n if rng.random() < 0.5 else 1 for n in (4, 8, 4, 32))
        if max(extents) > 1:
            size = float(np.exp(rng.uniform(np.log(1e5), np.log(1e8))))
            group = Group("g", extents, (1, 1, 1, 1))
            found.append(Collective(kinds[rng.integers(4)], size, group))
    ends = rng.random(tasks) < 0.5
    index = rng.integers(0, 20, int(ends.sum()))
    before = np.minimum(rng.integers(1, 4, tasks), np.arange(tasks))
    start = np.concatenate([[0], np.cumsum(before)])
    owner = np.repeat(np.arange(tasks), before)
    return StepGraph(
        fixed=rng.exponential(1e-4, tasks),
        collectives=tuple(found),
        count_start=np.concatenate([[0], np.cumsum(ends)]),
        count_index=index,
        count_value=np.ones(len(index)),
        predecessor_start=start,
        predecessor=np.maximum(owner - rng.geometric(0.05, len(owner)), 0),
    )


def graphs(repeats: int) -> Iterator[Measurement]:
    """Random graphs of 1,000 to 10,000,000 tasks: build from arrays, then optimise."""
    design = libra.load_design(example_folder() / "gpt-3-4d.yaml")
    model = CollectiveModel(contention=Contention.NONE)
    for tasks in GRAPH_SIZES if repeats > 1 else GRAPH_SIZES[:2]:
        start = time.perf_counter()
        graph = random_graph(tasks)
        built = time.perf_counter() - start
        workload = replace(design.workloads[0], graph=graph)
        case = replace(design, workloads=(workload,), collectives=model)
        for _ in range(4 if repeats > 1 and tasks <= 10_000 else 0):
            libra.optimize_design(case)  # until the compiled pass has repaid itself
        result = libra.optimize_design(case)
        yield Measurement(
            f"graph {tasks} tasks",
            measure(partial(libra.optimize_design, case), min(repeats, 3)),
            f"gap {result.gap:.0e}, {rounds(result)} rounds, built in {built * 1e3:.0f} ms",
        )


def traces(repeats: int) -> Iterator[Measurement]:
    """Chakra traces of up to 1,000,000 nodes, each read and optimised in a process of its own."""
    for nodes in (10_000, 100_000, 1_000_000) if repeats > 1 else (10_000,):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "design.yaml"
            path.write_text(large_traces.DESIGN)
            large_traces.write_large_trace(path.with_name("big.et"), nodes)
            command = [sys.executable, str(ROOT / "benchmarks" / "traces.py"), str(path)]
            found = []
            for _ in range(min(repeats, 4)):
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found.append(json.loads(done.stdout))
        kept = found[1:] or found  # the first may compile what later ones find compiled
        peak = max(f["peak_MB"] for f in found)
        for name in ("load", "optimize"):
            yield Measurement(
                f"trace {nodes} nodes, {name}",
                tuple(f[f"{name}_s"] for f in kept),
                f"peak {peak:.0f} MB, first run {found[0][f'{name}_s']:.1f} s",
            )


def commands(repeats: int) -> Iterator[Measurement]:
    """Whole processes, as a shell starts them."""
    design = str(example_folder() / "gpt-3-4d.yaml")
    for arguments in (["--help"], ["check", design], ["optimize", design]):
        command = [sys.executable, "-m", "libra", *arguments]
        yield Measurement(
            f"command libra {' '.join(arguments[:1])}",
            measure(
                lambda c=command: subprocess.run(c, check=True, stdout=subprocess.DEVNULL),
                repeats,
            ),
        )


GRAPH_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CASES: Mapping[str, Callable[[int], Iterator[Measurement]]] = {
    "solve examples": solve_examples,
    "solve reference": solve_reference,
    "growth": growth,
    "graph": graphs,
    "trace": traces,
    "command": commands,
}


def main() -> None:
    """Run the cases and print the table (ms)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("only", nargs="?", default="", help="part of a case's name")
    parser.add_argument("--once", action="store_true", help="each case once")
    arguments = parser.parse_args()
    repeats = 1 if arguments.once else 7
    print(f"{'case (ms)':44s} {'min':>9s} {'median':>9s} {'max':>9s}")
    for name, case in CASES.items():
        if arguments.only in name:
            for measurement in case(repeats):
                print(measurement.row(), flush=True)


if __name__ == "__main__":
    main()
