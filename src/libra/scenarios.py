"""Scenarios of a design file: the design under other settings, listed or sampled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from libra.design import Design, Objective, Robustness, Scenario
from libra.errors import FieldError, Place, shown
from libra.units import parse_number

__all__ = ["CaseEntry", "SampleEntry", "ScenariosEntry", "add_scenarios", "scenario_overrides"]

MOST_SCENARIOS = 1000


@dataclass(frozen=True)
class CaseEntry:
    """One item of ``scenarios: cases:``.

    Attributes
    ----------
    name : str
        What it is called.
    set : mapping of str to object
        Values by their paths in the design file, as for ``--set``.
    weight : float
        How likely it is, beside the others' weights.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    set: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise FieldError(
                "weight", f"must be finite and not negative, got {self.weight!r}. Correct it."
            )


@dataclass(frozen=True)
class SampleEntry:
    """``scenarios: samples:``: scenarios drawn at random.

    Attributes
    ----------
    count : int
        How many.
    seed : int
        Of the random numbers; the same seed draws the same scenarios.
    vary : mapping of str to object
        Values by their paths: a range ``0.6..0.9`` or ``4..8 USD/(GB/s)``, drawn uniformly, or a
        list, of which one is drawn.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    count: int
    seed: int
    vary: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_SCENARIOS:
            raise FieldError(
                "count", f"must be from 1 to {MOST_SCENARIOS}, got {self.count}. Correct it."
            )
        if not self.vary:
            raise FieldError("vary", "nothing varies, got {}. Name what does, with its range.")
        for path, spread in self.vary.items():
            if isinstance(spread, list) and spread:
                continue
            ends = _range_ends(spread) if isinstance(spread, str) else None
            if ends is None:
                raise FieldError(
                    ("vary", path),
                    f"must be a range or a list, got {shown(spread)}. Write e.g. 0.6..0.9, 4..8 "
                    "USD/(GB/s) or [1, 2].",
                )
            if not ends[0] <= ends[1]:
                raise FieldError(
                    ("vary", path), f"a range rises, got {shown(spread)}. Exchange its ends."
                )


def _range_ends(text: str) -> tuple[float, float, str] | None:
    """Ends of a range ``LOW..HIGH UNIT``, and the unit; None if it is none."""
    low, _, high = text.partition("..")
    first, last = parse_number(low), parse_number(high)
    if first is None or last is None or first[1] or not np.isfinite([first[0], last[0]]).all():
        return None
    return first[0], *last


@dataclass(frozen=True)
class ScenariosEntry:
    """``scenarios:`` of a design file.

    Attributes
    ----------
    minimize : Robustness
        The expected step time, the worst, or the largest regret.
    cases : tuple of CaseEntry
        Scenarios that are listed.
    samples : SampleEntry or None
        Scenarios that are drawn at random, beside them.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    minimize: Robustness = Robustness.EXPECTED
    cases: tuple[CaseEntry, ...] = ()
    samples: SampleEntry | None = None

    def __post_init__(self) -> None:
        if not self.cases and self.samples is None:
            raise FieldError("cases", "there are no scenarios, got none. Add cases: or samples:.")
        for k, case in enumerate(self.cases):
            if case.name in [c.name for c in self.cases[:k]]:
                raise FieldError(
                    ("cases", k, "name"),
                    f"two scenarios have one name, got {case.name!r}. Rename one.",
                )
        if self.samples is None and not sum(case.weight for case in self.cases) > 0:
            raise FieldError(
                "cases", "the scenarios' weights sum to nothing, got 0. Give one a weight above 0."
            )


def scenario_overrides(
    entry: ScenariosEntry,
) -> Iterator[tuple[str, float, Mapping[str, str], Place]]:
    """Name, weight, settings by path and place of each scenario; a sample's weight is 1."""
    for k, case in enumerate(entry.cases):
        settings = {path: _text(value) for path, value in case.set.items()}
        yield case.name, case.weight, settings, ("scenarios", "cases", k, "set")
    if entry.samples is None:
        return
    source = random.Random(entry.samples.seed)  # noqa: S311 (no secret)
    for k in range(entry.samples.count):
        settings = {path: _draw(spread, source) for path, spread in entry.samples.vary.items()}
        yield f"sample {k + 1}", 1.0, settings, ("scenarios", "samples", "vary")


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def _draw(spread: Any, source: random.Random) -> str:
    if isinstance(spread, list):
        return _text(source.choice(spread))
    ends = _range_ends(spread)
    assert ends is not None
    low, high, unit = ends
    return f"{source.uniform(low, high)!r} {unit}".strip()


def add_scenarios(
    design: Design,
    entry: ScenariosEntry,
    read: Callable[[Mapping[str, str], Place], Design],
) -> Design:
    """Design with its scenarios.

    Parameters
    ----------
    design : Design
        The nominal one.
    entry : ScenariosEntry
    read : callable
        Reads the design with settings by path; is told where they stand.

    Raises
    ------
    FieldError
        If a scenario changes what can be built, or the objective cannot be had over scenarios.
    """
    if design.objective is Objective.WORST_TIME:
        raise FieldError(
            "objective",
            "worst-time compares workloads, not scenarios, got both. Use time with "
            "scenarios.minimize: regret.",
        )
    if design.objective is not Objective.TIME and entry.minimize is not Robustness.EXPECTED:
        raise FieldError(
            ("scenarios", "minimize"),
            f"only step times have a worst case here, got {entry.minimize.value} with objective "
            f"{design.objective.value}. Use expected, or the objective time.",
        )
    found = list(scenario_overrides(entry))
    total = sum(weight for _, weight, _, _ in found)
    scenarios = []
    for name, weight, settings, place in found:
        if weight == 0:
            continue
        case = replace(read(settings, place), objective=design.objective)
        _require_same_network(design, case, name, place)
        scenarios.append(Scenario(name, weight / total, case))
    result = replace(design, scenarios=tuple(scenarios), robustness=entry.minimize)
    if design.objective is Objective.TIME_COST:
        _require_one_factor(result)
    return result


def _require_same_network(design: Design, case: Design, name: str, place: Place) -> None:
    """Refuse a scenario whose bandwidths are not those of the design."""
    ours, theirs = design.pricing, case.pricing
    built = [
        [(name, d.topology, d.size, d.radix) for name, d in zip(n.names, n.dimensions, strict=True)]
        for n in (design.network, case.network)
    ]
    same = built[0] == built[1] and np.array_equal(ours.owner, theirs.owner)
    same = same and np.array_equal(ours.width, theirs.width)
    for a, b in zip(ours.tables, theirs.tables, strict=False):
        same = same and (a is None) == (b is None)
        if same and a is not None and b is not None:
            same = np.array_equal(a.bandwidth, b.bandwidth)
    if not same:
        raise FieldError(
            place,
            "a scenario cannot change what can be built (dimensions, radixes, lanes, parts, "
            f"steps of prices), got {shown(name)}. Leave these as they are.",
        )


def _require_one_factor(design: Design) -> None:
    """Refuse time-cost where both times and costs vary: a sum of different products."""
    cases = [case for _, case in design.cases]
    first = cases[0]
    costs = any(
        not np.array_equal(c.pricing.price, first.pricing.price) or c.fixed_cost != first.fixed_cost
        for c in cases
    )
    times = any(
        c.network != first.network
        or repr(c.collectives) != repr(first.collectives)
        or [(w.graph, w.weight) for w in c.workloads]
        != [(w.graph, w.weight) for w in first.workloads]
        for c in cases
    )
    if costs and times:
        raise FieldError(
            ("scenarios",),
            "time-cost over scenarios that change both times and prices has no proven optimum, got "
            "both. Vary one of the two, or minimise time under a cost limit.",
        )
