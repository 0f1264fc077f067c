"""Collectives that use a network as well as can be, on a torus made for them or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from drawing import bars, framed, lines
from pages import Table, file_block

from libra.design import Design
from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.units import format_time
from libra.yaml_source import Override

FILE = Path(__file__).parent / "torus.yaml"
READER = DesignReader(FILE)
EQUAL = [90e9] * 3
FIXED, BALANCED, IDEAL = "multi-rail", "balanced", "ideal"
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128)
CHUNKED = "msft-1t"


def figures() -> dict[str, Any]:
    """Time every workload on the equal torus and on its own best one, in two ways."""
    designs = {a: _load(a) for a in (FIXED, IDEAL)}
    rows = [_row(designs, workload.name) for workload in designs[IDEAL].workloads]
    at = {row["workload"]: row for row in rows}
    found: dict[str, Any] = {"rows": rows, "file": file_block(FILE)}
    found["times"] = Table(
        {
            "workload": "",
            "compute": format_time,
            "fixed order, equal": format_time,
            "fixed order, best": format_time,
            "synthesised, equal": format_time,
            "synthesised, best": format_time,
        },
        [[row[k] for k in ("workload", "compute", *_CASES, "codesigned")] for row in rows],
    )
    found["bandwidths"] = Table(
        {
            "workload": "",
            "x, fixed order": ".1f",
            "y, fixed order": ".1f",
            "z, fixed order": ".1f",
            "x, synthesised": ".1f",
            "y + z, synthesised": ".1f",
        },
        [
            [row["workload"], *row["fixed_bandwidth"], x, y + z]
            for row in rows
            if row["unique"]
            for x, y, z in (row["bandwidth"],)
        ],
    )
    for name, row in at.items():
        for key in _CASES:
            found[f"{name.replace('-', '_')}_{key}"] = row[key] / row["codesigned"] - 1
    spanning = [row for row in rows if not row["unique"]]
    found["spanning"] = len(spanning)
    lost = [row["fixed_equal"] / row["codesigned"] - 1 for row in spanning]
    found |= {"least_lost": min(lost), "most_lost": max(lost)}
    found["chunks"] = _chunk_rows()
    by_kind = {(row["kind"], row["chunks"]): row["time"] for row in found["chunks"]}
    for count in (4, 64):
        found[f"balanced_{count}"] = by_kind["balanced", count] / by_kind["synthesised", count] - 1
    return found


_CASES = {
    "fixed_equal": "fixed order on the equal torus",
    "fixed_best": "fixed order on its best torus",
    "ideal_equal": "synthesised on the equal torus",
}


def _row(designs: dict[str, Design], name: str) -> dict[str, Any]:
    """Step times of one workload, and the best bandwidths [GB/s]."""
    fixed, ideal = (_alone(designs[a], name) for a in (FIXED, IDEAL))
    best, codesigned = optimize_design(fixed), optimize_design(ideal)
    equal = evaluate_design(ideal, EQUAL).step_time
    return {
        "workload": name,
        "compute": codesigned.workloads[0].compute,
        "fixed_equal": evaluate_design(fixed, EQUAL).step_time,
        "fixed_best": best.step_time,
        "ideal_equal": equal,
        "codesigned": codesigned.step_time,
        "fixed_bandwidth": [b / 1e9 for b in best.bandwidth],
        "bandwidth": [b / 1e9 for b in codesigned.bandwidth],
        # Where the equal torus is as good, so are many others: there is no one best to show.
        "unique": equal > 1.0001 * codesigned.step_time,
    }


def _chunk_rows() -> list[dict[str, Any]]:
    """Time of one workload on the equal torus for numbers of chunks."""
    kinds = {FIXED: "fixed order", BALANCED: "balanced", IDEAL: "synthesised"}
    return [
        {
            "kind": kind,
            "chunks": count,
            "time": evaluate_design(_alone(_load(a, count), CHUNKED), EQUAL).step_time,
        }
        for a, kind in kinds.items()
        for count in CHUNKS
    ]


def _load(algorithm: str, chunks: int | str = "auto") -> Design:
    how = f"{{algorithm: {algorithm}, chunks: {chunks}}}"
    return READER.read([Override("collectives", how)])


def _alone(design: Design, name: str) -> Design:
    return replace(design, workloads=tuple(w for w in design.workloads if w.name == name))


def chart(figures: dict[str, Any]) -> Any:
    """What each of three cheaper ways loses against co-design, and the effect of chunks."""
    losses = [
        {
            "workload": row["workload"],
            "kind": kind,
            "loss": round(row[key] / row["codesigned"] - 1, 6),
        }
        for row in figures["rows"]
        for key, kind in _CASES.items()
    ]
    return framed(
        bars(
            losses,
            ("loss", "step longer by"),
            "workload",
            "kind",
            "Against synthesised collectives on their best torus",
            form=".1%",
        ),
        lines(
            figures["chunks"],
            ("chunks", "chunks of a collective"),
            ("time", "step time, s"),
            "kind",
            "MSFT-1T on the equal torus",
            log_x=True,
        ),
    )
