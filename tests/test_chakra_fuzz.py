"""Damaged Chakra files: one clear line or a result, never a crash, a hang or a full memory.

The long run takes its seconds from LIBRA_FUZZ_SECONDS, e.g. 600.
"""

import gzip
import json
import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
from chakra_helpers import GROUPS, SAMPLE, framed, receive, send, stream, varint, write_design

from libra.errors import InputError, LibraError
from libra.formats.chakra import BLOCK
from libra.formats.chakra_messages import Node
from libra.load import load_design
from libra.optimize import optimize_design

SECONDS = float(os.environ.get("LIBRA_FUZZ_SECONDS", "0"))
REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "chakra"
MOST_SECONDS = 30
MOST_BYTES = 3 << 30

NPUS = 8


def ring(npu):
    """Each NPU sends to the next."""
    return [
        send(0, (npu + 1) % NPUS, 1000, tag=3),
        receive(1, (npu - 1) % NPUS, 1000, tag=3),
        *SAMPLE[2:],
    ]


RING = ring(0)
JSON_FORM = json.dumps(
    {
        "schema": "1.1.1-chakra.0.0.4",
        "nodes": [
            {"id": 1, "name": "a", "type": 4, "data_deps": [], "duration_micros": 12},
            {
                "id": 2, "name": "b", "type": 7, "data_deps": [1],
                "attrs": [
                    {"name": "comm_type", "type": "int64", "value": 0},
                    {"name": "comm_size", "type": "int64", "value": 4096},
                ],
            },
        ],
    }
).encode()  # fmt: skip


def seeds():
    """Traces to damage."""
    found = [stream(SAMPLE), stream(RING), JSON_FORM, gzip.compress(stream(SAMPLE), mtime=0)]
    for path in sorted(REFERENCE.rglob("*.et"))[::7] + sorted(REFERENCE.rglob("*.json")):
        found.append(path.read_bytes())
    return found


def damaged(rng, data, others):
    """Data with some damage."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(9):
            case 0:
                del data[at:]
            case 1 if data:
                data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 2 if data:
                data[min(at, len(data) - 1)] = rng.randrange(256)
            case 3:
                data[at:at] = varint(rng.choice((0, 1, 127, 2**31, 2**60, 2**63, 2**64 - 1)))
            case 4:
                del data[at : at + rng.randrange(1, 20)]
            case 5:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + rng.randrange(200)]
            case 6:
                data[at:at] = rng.randbytes(rng.randrange(1, 12))
            case 7:
                data[at:at] = data[at : at + rng.randrange(1, 300)]
            case 8:
                data[at : at + 10] = b"\xff" * rng.randrange(11)
    if rng.random() < 0.03:
        return gzip.compress(bytes(data), 1)
    return bytes(data)


NUMBERS = (0, 1, 2, 7, 8, 100, 2**31 - 1, 2**40, 2**62, 2**63 - 1)


def altered(rng):
    """Well-formed trace whose values are odd."""
    nodes = []
    odd = rng.choice((0.05, 0.2, 0.5))
    for made in rng.choice((SAMPLE, RING)) * rng.choice((1, 1, 3)):
        copy = Node.FromString(made.SerializeToString())
        if rng.random() < odd:
            match rng.randrange(6):
                case 0:
                    copy.id = rng.choice(NUMBERS)
                case 1:
                    copy.type = rng.choice((-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2**31 - 1))
                case 2:
                    copy.data_deps.append(rng.randrange(8))
                case 3:
                    copy.duration_micros = rng.choice(NUMBERS)
                case 4 if copy.attr:
                    one = rng.choice(copy.attr)
                    one.int64_val = rng.choice((*NUMBERS, -1, -(2**63)))
                case 5 if copy.attr:
                    one = rng.choice(copy.attr)
                    one.string_val = rng.choice(("", "0", "1", "x" * 1000, "\x00\x1b"))
        nodes.append(copy)
    if len({n.id for n in nodes}) < len(nodes) and rng.random() < 0.8:
        for k, made in enumerate(nodes):
            made.id = k
    return stream(nodes, version=rng.choice(("0.0.4", "0.0.4", "", "1.0.0", "9.9")))


def stop(*_):
    raise TimeoutError(f"no end after {MOST_SECONDS} s")


def attempt(folder, design, data):
    """Load and optimise a design of the data; what comes must be a result or one line."""
    (folder / "w.et").write_bytes(data)
    (folder / "m.0.et").write_bytes(data)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        optimize_design(load_design(design))
        outcome, text = "solved", ""
    except InputError as error:
        outcome, text = "refused", str(error)
    except LibraError as error:
        outcome, text = error.status, str(error)
    finally:
        signal.alarm(0)
    if outcome == "refused":
        assert len(text.splitlines()) == 1, text
        assert ", got " in text, text
        assert len(text) < 1000, text
    return outcome


def fuzz(folder, rng, *, seconds=0.0, rounds=0):
    """Outcomes by kind."""
    options = "    chakra: {comm_groups: g.json, peak: 1 TFLOP/s, memory: 1 TB/s}\n"
    (folder / "g.json").write_text(json.dumps(GROUPS))
    designs = []
    for name in ("w.et", "m.*.et"):
        designs.append(write_design(folder, name, extra=options).rename(folder / f"{name[0]}.yaml"))
    for npu in range(NPUS):
        (folder / f"m.{npu}.et").write_bytes(stream(ring(npu)))
    known, counts, start = seeds(), {}, time.monotonic()
    number = 0
    while number < rounds or time.monotonic() - start < seconds:
        number += 1
        data = altered(rng) if rng.random() < 0.4 else damaged(rng, rng.choice(known), known)
        try:
            outcome = attempt(folder, rng.choice(designs), data)
        except BaseException:
            (folder.parent / "crash.et").write_bytes(data)
            raise
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


def test_damaged_files_end_in_one_line(tmp_path):
    counts = fuzz(tmp_path, random.Random(1), rounds=400)
    assert counts["solved"] > 10
    assert counts["refused"] > 200


@pytest.mark.slow
@pytest.mark.skipif(not SECONDS, reason="needs LIBRA_FUZZ_SECONDS")
def test_damaged_files_for_long(tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    counts = fuzz(tmp_path, random.Random(seed), seconds=SECONDS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"seed {seed}: {counts}, {peak / 1e6:.0f} MB at most")
    assert peak < MOST_BYTES


# --- sizes that would fill the memory ----------------------------------------------------------


def refusal(folder, data, suffix="et"):
    (folder / f"w.{suffix}").write_bytes(data)
    write_design(folder, f"w.{suffix}")
    with pytest.raises(InputError) as caught:
        load_design(folder / "d.yaml")
    (line,) = str(caught.value).splitlines()
    return line.removeprefix(f"{folder}/")


def test_a_length_of_2_to_the_60_is_refused(tmp_path):
    """First message, later message, and inside one; 2^60 takes nine bytes, ten with a long zero."""
    long = varint(2**60)[:-1] + bytes([varint(2**60)[-1] | 128, 0])
    assert len(long) == 10
    line = refusal(tmp_path, long + b"x")
    assert line == (
        "w.et: is damaged or no Chakra trace, got a first message of 1,152,921,504,606,846,976 "
        "bytes. Write it again."
    )
    start = framed(b"\n\x050.0.4")
    line = refusal(tmp_path, start + long + b"x")
    assert line == (
        "w.et: is damaged or no Chakra trace, got a message of more than 64 MiB at byte 8, in "
        "message 2. Write it again."
    )
    line = refusal(tmp_path, start + framed(b"\x12" + long))
    assert line == (
        "w.et: is damaged or no Chakra trace, got a field that reaches beyond its message at byte "
        "9, in message 2. Write it again."
    )


def test_a_file_of_zeros_is_refused(tmp_path):
    line = refusal(tmp_path, bytes(3 * BLOCK))
    assert line == (
        "w.et: is damaged or no Chakra trace, got an empty message at byte 1, in message 2. Write "
        "it again."
    )


def test_a_compressed_bomb_is_refused(tmp_path, monkeypatch):
    """Small nodes without end: the count stops it."""
    monkeypatch.setattr("libra.formats.chakra.MOST_NODES", 100_000)
    one = framed(b"\x08\x01")
    data = framed(b"\n\x050.0.4") + one * 300_000
    line = refusal(tmp_path, gzip.compress(data), "et.gz")
    assert line == "w.et.gz: holds more than 100,000 nodes. Give one step of one NPU."
