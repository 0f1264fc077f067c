"""How far the convex time model is from libra's own simulation, chunk by chunk, in random cases.

    python benchmarks/against_simulation.py              all tables, as Markdown, in a minute
    python benchmarks/against_simulation.py steps        whole steps at 64 chunks
    python benchmarks/against_simulation.py exactness    the formula of an all-reduce, random cases
    python benchmarks/against_simulation.py climbs       … and the worst that climbs find

The cases are those of the tests (`tests/loop_helpers.py`, `tests/collective_helpers.py`), drawn
with fixed seeds; nothing outside the repository is read. `docs/accuracy.md` quotes the output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from collective_helpers import (  # type: ignore
    all_reduce_formula,
    pipeline_time,
    random_times,
    there_and_back,
)
from loop_helpers import (  # type: ignore
    LOOPS,
    loop_graph,
    modelled,
    random_pipeline,
    random_step,
    simulated,
)

from libra.collectives import CollectiveModel

STEPS = 1000
PIPELINES = 200
CASES = 6000
CLIMBS = {2: 60, 3: 60, 4: 60, 5: 60, 16: 60, 64: 40}
"""Chunks, and from how many starts the worst case is climbed to."""

CLIMB = 300
"""Steps of a climb."""

EQUAL = 1e-9


# --- whole steps -------------------------------------------------------------------------------


def step_errors(kind: str, policy: str, count: int = STEPS) -> list[float]:
    """Modelled over simulated time less 1 of random layer tables in a training loop, 64 chunks."""
    model, errors = CollectiveModel(chunks=64), []
    for seed in range(count):
        net, layers, bandwidth = random_step(seed)
        found = loop_graph(layers, kind, policy)
        truth = simulated(found, net, model, bandwidth).time
        errors.append(modelled(found, net, model, bandwidth) / truth - 1)
    return errors


def pipeline_errors(virtual_stages: int, count: int = PIPELINES) -> list[float]:
    """The same of random pipelines."""
    model, errors = CollectiveModel(chunks=64), []
    for seed in range(count):
        net, found, bandwidth = random_pipeline(seed, virtual_stages)
        truth = simulated(found, net, model, bandwidth).time
        errors.append(modelled(found, net, model, bandwidth) / truth - 1)
    return errors


def step_table() -> list[str]:
    """Markdown rows: loop, cases, how many are equal, least, median and largest error."""
    cases: list[tuple[str, Callable[[], list[float]]]] = [
        (
            f"`{kind}`" + (f", {policy}" if policy else ""),
            lambda k=kind, p=policy: step_errors(k, p),
        )
        for kind, policy in LOOPS
    ]
    cases += [
        ("`1f1b`", lambda: pipeline_errors(1)),
        ("`interleaved`, 2 parts a stage", lambda: pipeline_errors(2)),
    ]
    lines = [
        "| training loop | cases | equal | least | median | largest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, measure in cases:
        errors = np.array(measure())
        equal = np.mean(np.abs(errors) < EQUAL)
        low, middle, high = (_percent(q) for q in np.quantile(errors, [0, 0.5, 1]))
        lines.append(f"| {name} | {len(errors)} | {equal:.0%} | {low} | {middle} | {high} |")
    return lines


def _percent(error: float) -> str:
    return "0 %" if abs(error) < EQUAL else f"{100 * error:+.2f} %"


# --- the formula of an all-reduce --------------------------------------------------------------


def formula_error(times: Sequence[float], chunks: int) -> float:
    """Formula over first come, first served, less 1."""
    truth: float = pipeline_time(there_and_back(list(times)), chunks)
    return float(all_reduce_formula(list(times), chunks)) / truth - 1


def worst_error(chunks: int, starts: int, seed: int = 0) -> float:
    """Lowest error that climbs from random times of 3 to 5 dimensions find."""
    rng, worst = np.random.default_rng([seed, chunks]), 0.0
    for _ in range(starts):
        times = 10 ** rng.uniform(-1, 0, int(rng.integers(3, 6)))
        error = formula_error(times, chunks)
        for k in range(CLIMB):
            moved = times * np.exp(rng.normal(0, 0.3 * 0.99**k, len(times)))
            found = formula_error(moved, chunks)
            if found <= error:
                times, error = moved, found
        worst = min(worst, error)
    return worst


def exactness_table() -> Iterator[str]:
    """Markdown rows: dimensions, random cases of 1 to 20 chunks, exact ones, lowest error."""
    rng = np.random.default_rng(2)
    errors: dict[int, list[float]] = {}
    for _ in range(CASES):
        times = random_times(rng)
        errors.setdefault(len(times), []).append(formula_error(times, int(rng.integers(1, 21))))
    yield from ("| dimensions | cases | exact | lowest |", "|--:|--:|--:|--:|")
    rows = [*sorted(errors.items()), ("all", [e for found in errors.values() for e in found])]
    for size, found in rows:
        exact = np.mean(np.abs(found) < EQUAL)
        yield f"| {size} | {len(found)} | {exact:.1%} | {_percent(min(found))} |"


def climb_table() -> Iterator[str]:
    """Markdown rows: chunks and the lowest error that was climbed to."""
    yield from ("| chunks | lowest that was found |", "|--:|--:|")
    for chunks, starts in CLIMBS.items():
        yield f"| {chunks} | {_percent(worst_error(chunks, starts))} |"


TABLES: dict[str, Callable[[], Iterable[str]]] = {
    "steps": step_table,
    "exactness": exactness_table,
    "climbs": climb_table,
}


def main(names: Sequence[str]) -> int:
    """Print the tables that are named, or all."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        print(f"no such table, got {unknown[0]}. Name {' or '.join(TABLES)}.", file=sys.stderr)
        return 2
    for name in names or TABLES:
        print("\n".join(TABLES[name]()) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
