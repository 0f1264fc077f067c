"""How much the error of `libra validate` rests on what is assumed of the software of each set.

    python tools/check_assumptions.py MEASUREMENTS.csv

Prints for each set the mean error of its tier-A rows with its assumptions
(`libra.training_rows.SOFTWARE`) and with the opposite of one of them at a time. Efficiencies stay
as they ship, although some were fitted under the first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from libra.training_rows import SOFTWARE, Software, read_training_rows
from libra.validation import validate_rows
from libra.workload.training_plan import Overlap

LEAST = 0.0005
"""Smallest change of the mean error that is printed."""


def opposites(software: Software) -> Iterator[tuple[str, Software]]:
    """Each assumption turned round, with its name."""
    for name in ("fused_attention", "dropout", "fused_accumulation"):
        turned: dict[str, Any] = {name: not getattr(software, name)}
        yield name, replace(software, **turned)
    yield "gradients of 2 or 4 bytes", replace(software, gradient=6.0 - software.gradient)
    for field in fields(Overlap):
        changed = not getattr(software.overlap, field.name)
        overlap = replace(software.overlap, **{field.name: changed})
        yield f"overlap of {field.name}", replace(software, overlap=overlap)


def mean_errors(path: Path, software: dict[str, Software]) -> dict[str, float]:
    """Mean error of the rows of each set."""
    rows, _ = read_training_rows(path, software)
    found = validate_rows([row for row in rows if row.tier == "A"])
    return {name: residuals.mean for name, residuals in found.sets().items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("measurements", type=Path)
    path = parser.parse_args().measurements
    base = mean_errors(path, dict(SOFTWARE))
    changed: dict[str, list[tuple[str, float]]] = {}
    for name, _ in opposites(next(iter(SOFTWARE.values()))):
        turned = {key: dict(opposites(software))[name] for key, software in SOFTWARE.items()}
        for key, error in mean_errors(path, turned).items():
            if key in SOFTWARE and abs(error - base[key]) >= LEAST:
                changed.setdefault(key, []).append((name, error))
    print("| set | as assumed | with the opposite |\n|---|--:|---|")
    for key in sorted(base.keys() & SOFTWARE.keys()):
        effects = ", ".join(f"{name}: {error:.1%}" for name, error in changed.get(key, ()))
        print(f"| {key} | {base[key]:.1%} | {effects or 'no change'} |")


if __name__ == "__main__":
    main()
