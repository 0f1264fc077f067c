"""Tables of docs/validation.md, written from the measurements beside the repository.

python tools/validation_page.py [MEASUREMENTS.csv]

What stands between ``<!-- generated NAME -->`` and ``<!-- end NAME -->`` is written here; the rest
of the page is by hand. Without the file nothing is written. `tools/renew_docs.py` does it, too.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from calibrate_training import FITS

from libra.training_rows import read_training_rows, split_rows
from libra.validation import Validation, rank_layouts, validate_rows

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "validation.md"
MEASUREMENTS = ROOT.parent / "shared" / "reference" / "measured" / "training.csv"

GOALS = {
    "korthikanti-2022-table5": 0.025,
    "megatron-sc21-table1": 0.045,
    "vtrain-multi": 0.06,
    "llm-foundry": 0.10,
    "simumax-b200": 0.08,
    "bloom-jz": 0.12,
}
"""Mean error of the rows that were not fitted which is to be reached, see the page."""


def validate_filled_rows(measurements: Path) -> Validation:
    """Predictions of all rows of tier A, and those of them that are skipped."""
    rows, skipped = read_training_rows(measurements)
    return validate_rows([r for r in rows if r.tier == "A"], [s for s in skipped if s.tier == "A"])


def half_means(found: Validation) -> dict[tuple[str, str], tuple[float, float]]:
    """Mean errors of the fitted half and the other one, by set and accelerator."""
    errors = {p.row.id: abs(p.error) for p in found.predictions}
    means = {}
    for accelerator, (sets, _) in FITS.items():
        mine = [p.row for p in found.predictions if p.row.accelerator.name == accelerator]
        halves = split_rows([row for row in mine if row.set in sets])
        for name in sets:
            parts = [[errors[row.id] for row in half if row.set == name] for half in halves]
            means[name, accelerator] = float(np.mean(parts[0])), float(np.mean(parts[1]))
    return means


def _sets(found: Validation) -> Iterator[str]:
    sets, flat = found.sets(), found.baseline()
    yield "| set | rows | median | mean | worst | bias | mean at half of peak |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name in sorted(sets, key=lambda n: (n == "all", n)):
        r = sets[name]
        shown = "of these, aligned heads" if name.endswith(", aligned heads") else name
        yield (
            f"| {shown} | {r.count} | {r.median:.1%} | {r.mean:.1%} | {r.worst:.0%} "
            f"| {r.bias:+.1%} | {flat[name].mean:.0%} |"
        )


def _halves(found: Validation) -> Iterator[str]:
    yield "| set | accelerator | fitted half, mean | other half, mean | goal | |"
    yield "|---|---|--:|--:|--:|---|"
    for (name, accelerator), (fitted, other) in half_means(found).items():
        met = "met" if other <= GOALS[name] else "missed"
        yield f"| {name} | {accelerator} | {fitted:.1%} | {other:.1%} | {GOALS[name]:.1%} | {met} |"
    sets, goal = found.sets(), GOALS["bloom-jz"]
    mean, aligned = sets["bloom-jz"].mean, sets["bloom-jz, aligned heads"].mean
    met = "met" if mean <= goal else f"missed; {aligned:.1%} with aligned heads"
    yield f"| bloom-jz | a100-80gb | not fitted | {mean:.1%} | {goal:.1%} | {met} |"


def _layouts(found: Validation) -> Iterator[str]:
    yield "| layouts of | rows | slower than the best |"
    yield "|---|--:|--:|"
    for ranking in rank_layouts(found):
        yield f"| {ranking.label} | {ranking.layouts} | {ranking.loss:+.1%} |"


def _skipped(found: Validation) -> Iterator[str]:
    total = len(found.skipped) + len(found.predictions)
    yield (
        f"{len(found.skipped)} of {total} rows of tier A ({len(found.skipped) / total:.1%}), "
        "by set and with what `libra validate` prints as the reason:"
    )
    yield from ("", "| rows | set | reason |", "|--:|---|---|")
    for (name, reason), count in sorted(Counter((s.set, s.reason) for s in found.skipped).items()):
        yield f"| {count} | {name} | {reason} |"


_PARTS: dict[str, Callable[[Validation], Iterator[str]]] = {
    "sets": _sets,
    "halves": _halves,
    "layouts": _layouts,
    "skipped": _skipped,
}


def fill_page(text: str, found: Validation) -> str:
    """Page with its generated parts written anew.

    Raises
    ------
    ValueError
        If the page lacks a marker.
    """
    for name, write in _PARTS.items():
        pattern = rf"(<!-- generated {name} -->\n).*?(<!-- end {name} -->)"
        body = "\n".join(write(found)).replace("\\", r"\\")
        text, count = re.subn(pattern, rf"\1\n{body}\n\n\2", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"docs/validation.md: needs one part {name}, got {count}. Write <!-- generated "
                f"{name} --> and <!-- end {name} -->."
            )
    return text


def renew_page(measurements: Path = MEASUREMENTS) -> bool:
    """Write the page's tables; whether they changed. False without the measurements."""
    if not measurements.exists():
        return False
    old = PAGE.read_text("utf-8")
    new = fill_page(old, validate_filled_rows(measurements))
    PAGE.write_text(new, "utf-8")
    return new != old


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MEASUREMENTS
    if not path.exists():
        sys.exit(f"{path}: is not there. Name the table of measurements.")
    print("renewed docs/validation.md" if renew_page(path) else "docs/validation.md is up to date")
