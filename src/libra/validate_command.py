"""What ``libra validate`` and ``libra calibrate`` do."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from libra.accelerator_yaml import format_yaml, plain_accelerator
from libra.accelerators import load_accelerator
from libra.calibrate import fit_cluster
from libra.calibrate_training import fit_training, prepare_row
from libra.errors import FieldError, InputError, Problem
from libra.files import read_text, write_whole
from libra.fitting import Residuals
from libra.fitting_table import new_table
from libra.measurements import place_row, read_collectives
from libra.progress import say
from libra.screen import print_to
from libra.training_rows import read_training_rows
from libra.validation import Validation, rank_layouts, validate_rows
from libra.workload.compute import Accelerator

__all__ = ["calibrate_command", "validate_command"]

_MOST_BYTES = 100_000_000


def validate_command(path: Path, tier: str, output: Path | None, *, as_json: bool) -> None:
    """Print predicted against measured step times of a table, and write them as JSON.

    Raises
    ------
    InputError
        The file cannot be read, lacks a column, or has no row that maps to a design.
    """
    rows, skipped = read_training_rows(path)
    if tier:
        rows = [row for row in rows if row.tier == tier]
        skipped = [row for row in skipped if row.tier == tier]
        if not rows and not skipped:
            raise InputError(f"--tier: no row is of this tier, got {tier!r}. Leave it out.")
    found = validate_rows(rows, skipped)
    if not found.predictions and not found.skipped:
        raise InputError(f"{path}: holds no rows, got a header alone. Add measured steps.")
    if not found.predictions:
        raise InputError(
            f"{path}: no row maps to a design, got {len(found.skipped)} that do not, the first "
            f"because: {found.skipped[0].reason.rstrip('.')}. Correct it."
        )
    text = json.dumps(plain_validation(found), indent=1, ensure_ascii=False) + "\n"
    if output is not None:
        write_whole(output, text)
    if as_json:
        sys.stdout.write(text)
    else:
        print_validation(found)
    if output is not None:
        say(f"wrote {output}")


def plain_validation(found: Validation) -> dict[str, Any]:
    """Plain data of ``libra validate --json``."""
    baseline = found.baseline()
    return {
        "rows": [
            {
                "id": p.row.id,
                "set": p.row.set,
                "predicted_s": p.predicted,
                "measured_s": p.row.seconds,
                "error": p.error,
                "predicted_bytes": p.memory,
                "measured_bytes": p.row.peak_memory,
            }
            for p in found.predictions
        ],
        "sets": {
            name: asdict(residuals) | {"flat_half_of_peak": asdict(baseline[name])}
            for name, residuals in found.sets().items()
        },
        "rankings": [asdict(ranking) for ranking in rank_layouts(found)],
        "skipped": [{"id": s.id, "set": s.set, "reason": s.reason} for s in found.skipped],
    }


def print_validation(found: Validation) -> None:
    """Tables of errors by set, of rankings, and of what was skipped and why."""
    console = Console(emoji=False)
    baseline = found.baseline()
    heads = [("Set", "left"), ("Rows", "right"), ("Median", "right"), ("Mean", "right")]
    heads += [("Worst", "right"), ("Bias", "right"), ("Mean at half of peak", "right")]
    table = new_table(heads, title="Error of seconds per step")
    sets = found.sets()
    for name in sorted(sets, key=lambda n: (n == "all", n)):
        r = sets[name]
        table.add_row(
            escape(name),
            str(r.count),
            f"{r.median:.1%}",
            f"{r.mean:.1%}",
            f"{r.worst:.0%}",
            f"{r.bias:+.1%}",
            f"{baseline[name].mean:.0%}",
        )
    print_to(console, table)
    rankings = rank_layouts(found)
    if rankings:
        heads = [("Layouts of", "left"), ("Rows", "right"), ("Slower than the best", "right")]
        table = new_table(heads, title="The layout predicted to be fastest, as measured")
        for ranking in rankings:
            table.add_row(escape(ranking.label), str(ranking.layouts), f"{ranking.loss:+.1%}")
        print_to(console, table)
    if found.skipped:
        table = new_table([("Skipped", "right"), ("Set", "left"), ("Reason", "left")])
        for (name, reason), n in sorted(Counter((s.set, s.reason) for s in found.skipped).items()):
            table.add_row(str(n), escape(name), escape(reason))
        print_to(console, table)


def calibrate_command(path: Path, output: Path, preset: str, *, as_json: bool) -> None:
    """Write an accelerator that is fitted to measurements, and print its residuals.

    A table with a column ``op`` holds collectives (nccl-tests), one with ``set`` training steps.

    Raises
    ------
    InputError
        The file cannot be read or says too little.
    """
    try:
        first = next(csv.reader(read_text(path, _MOST_BYTES).splitlines()), [])
    except ValueError as error:
        raise InputError(Problem(str(error), file=str(path))) from None
    if "op" in first:
        accelerator, residuals = _fit_collectives(path, preset)
    else:
        accelerator, residuals = _fit_steps(path, preset)
    write_whole(output, format_yaml(plain_accelerator(accelerator)))
    if as_json:
        data = {name: asdict(found) for name, found in residuals.items()}
        sys.stdout.write(
            json.dumps({"accelerator": str(output), "residuals": data}, indent=1) + "\n"
        )
        return
    for name, found in residuals.items():
        sys.stdout.write(f"{name}: {found}\n")
    sys.stdout.write(f"Wrote {output}.\n")


def _fit_collectives(path: Path, preset: str) -> tuple[Accelerator, Mapping[str, Residuals]]:
    if not preset:
        raise InputError(
            f"{path}: collectives do not say whose they are, got no --accelerator. Name a preset."
        )
    accelerator = load_accelerator(preset)
    if accelerator.cluster is None:
        raise InputError(f"--accelerator: has no cluster, got {preset!r}. Name one that has.")
    rows, _ = read_collectives(path)
    gpus = sorted({row.columns["gpu"] for row in rows if row.columns.get("gpu")})
    if len(gpus) > 1:
        raise InputError(f"{path}: rows of several GPUs, got {', '.join(gpus)}. Keep those of one.")
    placed = []
    for row in rows:
        try:
            placed.append(place_row(row, accelerator.cluster, row.columns.get("system", "")))
        except FieldError:
            continue
    try:
        fitted = fit_cluster(accelerator.cluster, placed)
    except FieldError as error:
        raise InputError(f"{path}: {error.message}") from None
    return replace(accelerator, cluster=fitted.cluster), fitted.residuals


def _fit_steps(path: Path, preset: str) -> tuple[Accelerator, Mapping[str, Residuals]]:
    rows, skipped = read_training_rows(path)
    names = sorted({row.accelerator.name for row in rows})
    if preset:
        rows = [row for row in rows if row.accelerator.name == preset]
    elif len(names) > 1:
        raise InputError(
            f"{path}: rows of several accelerators, got {', '.join(names)}. Choose one with "
            "--accelerator."
        )
    if not rows:
        reason = skipped[0].reason if skipped else "there is none"
        raise InputError(
            f"{path}: no row maps to a design of {preset or 'a preset'}, got {reason!r} for the "
            "first that does not. Correct it."
        )
    prepared = []
    for row in rows:
        try:
            prepared.append(prepare_row(row))
        except FieldError:
            continue
    kinds = ("attention", "attention_memory", "elementwise", "optimizer", "kernel_overhead")
    fitted = fit_training(prepared, rows[0].accelerator, kinds)
    return fitted.accelerator, {"all": fitted.residuals}
