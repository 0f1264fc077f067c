"""Fingerprints of inputs: whether an input is still what it was when its name was given.

``frozen.json`` beside this file holds them. An input whose fingerprint changed is not measured
under its old name: runs before and after would be compared as if they were of one thing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from libra.workload.graph import StepGraph

__all__ = ["OUT", "changed", "folder_fingerprint", "frozen_fingerprints", "graph_fingerprint"]

_CHUNK = 1 << 20
OUT = "out"
"""Folder within that of the inputs for what the work writes."""
FROZEN = Path(__file__).with_name("frozen.json")


def folder_fingerprint(folder: Path) -> str:
    """Fingerprint of the files of a folder and of those below it, but for what `OUT` holds."""
    digest = hashlib.blake2b(digest_size=8)
    files = (p for p in folder.rglob("*") if p.is_file() and folder / OUT not in p.parents)
    for path in sorted(files):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
    return digest.hexdigest()


def graph_fingerprint(graph: StepGraph) -> str:
    """Fingerprint of a step graph: its tasks, their order and its collectives."""
    digest = hashlib.blake2b(digest_size=8)
    for array in graph.arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    for c in graph.collectives:
        says = (c.kind.value, c.size, tuple(c.group.extents), tuple(c.group.strides))
        digest.update(repr(says).encode())
    return digest.hexdigest()


def frozen_fingerprints() -> dict[str, str]:
    """Fingerprints by name of the input."""
    found: dict[str, str] = json.loads(FROZEN.read_text("utf-8"))
    return found


def changed(name: str, fingerprint: str) -> str:
    """What is wrong with an input; empty: it is what it was."""
    known = frozen_fingerprints().get(name)
    if known is None:
        return (
            f"input {name} is not frozen yet, got fingerprint {fingerprint}. Add it to "
            f"benchmarks/registry/{FROZEN.name}."
        )
    if known != fingerprint:
        return (
            f"input {name} is not what it was, got fingerprint {fingerprint} instead of {known}. "
            "Give what changed a new name."
        )
    return ""
