"""Phases that read: design files, and Chakra traces made without building messages one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from libra.design import Design
from libra.load import load_design
from registry.cases import Case
from registry.frozen import folder_fingerprint
from registry.inputs import write_design
from registry.prepared import Note, Prepared

__all__ = ["prepare", "write_large_trace"]


def prepare(case: Case, folder: Path) -> Prepared:
    """Load a design, or one whose workload is a random Chakra trace."""
    kind, _, nodes = case.input.partition("-")
    path = write_design("trace" if kind == "trace" else case.input, folder)
    if kind == "trace" and not (folder / "big.et").exists():
        write_large_trace(folder / "big.et", int(nodes))
    files = [p for p in folder.rglob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files)

    def describe(outcome: object) -> Mapping[str, Note]:
        assert isinstance(outcome, Design)
        return {"tasks": sum(w.graph.tasks for w in outcome.workloads), "file_bytes": size}

    return Prepared(lambda: load_design(path), folder_fingerprint(folder), describe)


def write_large_trace(path: Path, nodes: int, seed: int = 1) -> None:
    """Write a random trace: half computations, half collectives, two dependencies each."""
    rng = np.random.default_rng(seed)
    distance = rng.geometric(0.05, (nodes, 2))
    communicates = rng.random(nodes) < 0.5
    which, micros = rng.integers(0, 20, nodes), rng.integers(10, 200, nodes)
    on_device = _bytes(10, _bytes(1, b"is_cpu_op") + _number(27, 0))
    dims = ([1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1])
    kinds = [
        _bytes(10, _bytes(1, b"comm_type") + _number(9, (0, 2, 6, 7)[k % 4]))
        + _bytes(10, _bytes(1, b"comm_size") + _number(9, 400_000 * (k + 1)))
        + _bytes(10, _bytes(1, b"involved_dim") + _bytes(28, _bytes(1, bytes(dims[k % 3]))))
        for k in range(20)
    ]
    metadata = _bytes(1, b"0.0.4")
    with path.open("wb") as file:
        file.write(_varint(len(metadata)) + metadata)
        for i in range(nodes):
            after = b"".join(_varint(i - d) for d in distance[i].tolist() if 0 <= i - d < i)
            waits = _bytes(5, after) if after else b""
            if communicates[i]:
                own = _bytes(2, b"layer%d collective" % i) + _number(3, 7) + waits + on_device
                own += kinds[which[i]]
            else:
                own = _bytes(2, b"layer%d compute" % i) + _number(3, 4) + waits
                own += _number(7, int(micros[i])) + on_device
            message = _number(1, i) + own
            file.write(_varint(len(message)) + message)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)
