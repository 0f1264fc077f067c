"""What ``libra import`` and ``libra export`` do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from libra.design import Design
from libra.errors import InputError, nearest
from libra.export import Exported, ExportFormat, export_design
from libra.import_trace import ImportOptions, import_trace
from libra.load import load_design
from libra.progress import say

__all__ = ["export_command", "import_command"]


def import_command(
    trace: Path,
    target: Path,
    words: tuple[str, str, str, str, str, str],
    comm_groups: Path | None,
    *,
    as_json: bool,
) -> None:
    """Write a design for a trace, load it, and say what it holds.

    Parameters
    ----------
    trace, target : Path
    words : tuple of str
        Network, tiers, durations, peak, memory and degrees of parallelism as given.
    comm_groups : Path or None
    as_json : bool

    Raises
    ------
    InputError
        If the trace or an option is wrong; then no design is left behind.
    """
    network, tiers, durations, peak, memory, parallel = words
    options = ImportOptions(
        network,
        tuple(t.strip() for t in tiers.split(",")) if tiers else (),
        comm_groups,
        durations,
        peak,
        memory,
        _degrees(parallel),
    )
    import_trace(trace, target, options)
    try:
        design = load_design(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    (workload,) = design.workloads
    data = {
        "design": str(target),
        "network": design.network.shape,
        "npus": design.network.npus,
        "tasks": workload.graph.tasks,
        "collectives": float(workload.graph.total_counts.sum()),
        "compute_s": workload.graph.most_compute,
        "warnings": list(design.warnings),
    }
    if as_json:
        _print_json(data)
        return
    print(
        f"{target}: {workload.graph.tasks:,} tasks, {data['collectives']:,.0f} collectives and "
        f"messages, on {design.network.shape}, {design.network.npus:,} NPUs"
    )
    for line in design.warnings:
        say(f"warning: {line}")
    say(f"Next: add constraints, then libra optimize {target}")


def _degrees(text: str) -> tuple[tuple[str, int], ...]:
    """Degrees of ``tp=16,dp=256``."""
    found = []
    for part in text.split(",") if text else ():
        role, _, degree = part.partition("=")
        if not degree.strip().isascii() or not degree.strip().isdigit():
            raise InputError(
                f"--parallel: needs ROLE=DEGREE, got {part.strip()!r}. Write e.g. tp=16,dp=256."
            )
        found.append((role.strip(), int(degree)))
    return tuple(found)


def export_command(
    design: Design,
    form: str,
    folder: Path,
    bandwidth: Sequence[float] | None,
    chunks: int | None,
    *,
    comm_groups: bool,
    one: bool,
    as_json: bool,
) -> None:
    """Write a design for another tool, and say what was written.

    Parameters
    ----------
    design : Design
    form : str
        Name of an `ExportFormat`.
    folder : Path
    bandwidth : sequence of float or None
        [bytes/s]; None: the best, where the format needs them.
    chunks : int or None
    comm_groups, one, as_json : bool

    Raises
    ------
    InputError
        If an option is wrong, or the format cannot say the design.
    """
    words = [f.value for f in ExportFormat]
    if form not in words:
        raise InputError(f"--to: unknown format, got {form!r}. {nearest(form, words)}")
    kind = ExportFormat(form)
    if kind is not ExportFormat.ASTRA_SIM:
        for name, value in (
            ("--bandwidth", bandwidth),
            ("--chunks", chunks),
            ("--comm-groups", comm_groups or None),
        ):
            if value is not None:
                raise InputError(f"{name}: is for astra-sim, got it for {form}. Leave it out.")
    if one and kind is not ExportFormat.CHAKRA:
        raise InputError(f"--one: is for chakra, got it for {form}. Leave it out.")
    if chunks is not None and chunks < 1:
        raise InputError(f"--chunks: a collective has at least 1 chunk, got {chunks}. Correct it.")
    values = None
    if kind is ExportFormat.ASTRA_SIM:
        values = _chosen(design, bandwidth)
    found = export_design(
        design, kind, folder, values, chunks=chunks, comm_groups=comm_groups, one=one
    )
    _print_exported(found, form, as_json=as_json)


def _print_exported(found: Sequence[Exported], form: str, *, as_json: bool) -> None:
    """Say what was written."""
    rows = [
        {
            "folder": str(e.folder),
            "workload": e.workload,
            "npus": e.npus,
            "nodes": e.nodes,
            "expected_cycles": e.cycles,
            "remarks": list(e.remarks),
        }
        for e in found
    ]
    if as_json:
        _print_json({"format": form, "exported": rows})
        return
    for e in found:
        expected = "" if e.cycles is None else f", expected {e.cycles:,} cycles"
        print(f"{e.folder}: {e.workload}, {e.npus:,} NPUs, {e.nodes:,} nodes{expected}")
        for remark in e.remarks:
            say(f"warning: {remark}")


def _chosen(design: Design, bandwidth: Sequence[float] | None) -> np.ndarray:
    """Given bandwidths, or the best."""
    dimensions = len(design.network.dimensions)
    if bandwidth is None:
        from libra.optimize import optimize_design

        return optimize_design(design).bandwidth
    if len(bandwidth) != dimensions:
        raise InputError(
            f"--bandwidth: needs one for each of the {dimensions} dimensions of "
            f"{design.network.shape}, got {len(bandwidth)}. Give {dimensions}, innermost first."
        )
    return np.array(bandwidth, dtype=np.float64)


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
