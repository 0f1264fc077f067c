"""A large Chakra trace, made without building its messages one by one, and what reading it takes.

python benchmarks/traces.py FILE NODES    write such a trace
python benchmarks/traces.py DESIGN        load and optimise a design: seconds, and peak memory
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

import libra

DESIGN = """\
network: {shape: RI(4)_FC(8)_RI(4)_SW(32), tiers: [chiplet, package, node, pod]}
workloads: [{trace: big.et}]
constraints: [total <= 300 GB/s]
"""


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


def measure_design(path: Path) -> dict[str, float]:
    """Seconds of loading and of optimising, and the largest memory so far [MB]."""
    start = time.perf_counter()
    design = libra.load_design(path)
    loaded = time.perf_counter()
    result = libra.optimize_design(design)
    return {
        "load_s": loaded - start,
        "optimize_s": time.perf_counter() - loaded,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "nodes": design.workloads[0].graph.tasks,
        "gap": result.gap,
    }


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_large_trace(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        print(json.dumps(measure_design(Path(sys.argv[1]))))
