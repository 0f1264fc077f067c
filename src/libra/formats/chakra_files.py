"""Which files hold a workload's Chakra traces, and all of them read."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from libra.errors import FieldError, InputError, Problem, shown
from libra.formats.chakra_options import TraceOptions, read_comm_groups
from libra.network import Network

if TYPE_CHECKING:
    from libra.formats.chakra import Trace
    from libra.formats.chakra_graph import PlacedTrace

__all__ = [
    "chakra_files",
    "is_chakra",
    "load_traces",
    "read_traces",
    "refuse_placement",
    "trace_name",
]

_SUFFIXES = (".et", ".json", ".gz")
_TEXT = frozenset(b"\t\n\v\f\r") | frozenset(range(0x20, 0x100)) - {0x7F}
_MOST_HASHED = 1 << 26


def is_chakra(path: Path) -> bool:
    """Whether a trace's name or content is that of a Chakra trace and not of a text workload."""
    if "*" in path.name or path.suffix in _SUFFIXES:
        return True
    if path.suffix in (".txt", ".yaml", ".yml"):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except (OSError, ValueError):
        return False
    return start.lstrip()[:1] == b"{" or not _TEXT.issuperset(start)


def chakra_files(path: Path, npus: int) -> list[Path]:
    """Files of a trace: one for all NPUs, or one each where the name has a ``*`` for its number.

    Parameters
    ----------
    path : Path
        E.g. ``w.et`` or ``w.*.et``.
    npus : int
        NPUs of the network.

    Raises
    ------
    ValueError
        If there is no such file, one is missing, or there are more or fewer than NPUs.
    """
    if "*" not in path.name:
        _require_file(path)
        return [path]
    before, _, after = path.name.partition("*")
    if "*" in after:
        raise ValueError(
            f"one * stands for the NPU's number, got {shown(path.name)}. Write e.g. w.*.et."
        )
    form = re.compile(re.escape(before) + r"([0-9]{1,9})" + re.escape(after))
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError as error:
        raise ValueError(
            f"cannot be read ({error.strerror}), got {str(path)[-80:]!r}. Check the name."
        ) from None
    found = {int(match[1]): path.parent / match[0] for match in map(form.fullmatch, names) if match}
    if not found:
        raise ValueError(f"there is no such file, got {shown(path.name)}. Check the name.")
    count = max(found) + 1
    missing = next((k for k in range(min(count, npus)) if k not in found), None)
    if missing is None and count < npus:
        missing = count
    if missing is not None:
        raise ValueError(
            f"the trace of NPU {missing} is missing, got {len(found)} files {shown(path.name)} for "
            f"{npus} NPUs. Add it, or correct the network's shape."
        )
    if count > npus:
        raise ValueError(
            f"there are traces of more NPUs than the network has, got NPU {max(found)} of {npus}. "
            "Correct the network's shape, or remove them."
        )
    return [found[k] for k in range(npus)]


def _require_file(path: Path) -> None:
    got = f"got {str(path)[-80:]!r}"
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot be read ({reason}), {got}. Check the name.") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise ValueError(f"is {kind}, {got}. Name a file.")


def read_traces(paths: Sequence[Path]) -> list[Trace]:
    """Read traces; files that hold the same are read once.

    Raises
    ------
    InputError
        If one of them is wrong, or together they hold too many nodes.
    """
    from libra.formats.chakra import MOST_NODES, read_trace

    known: dict[bytes, Trace] = {}
    traces, nodes = [], 0
    for path in paths:
        mark = _mark(path) if len(paths) > 1 else b""
        if mark not in known:
            known[mark] = read_trace(path)
            nodes += known[mark].nodes
            if nodes > MOST_NODES:
                message = f"the traces hold more than {MOST_NODES:,} nodes together. Give one step."
                raise InputError(Problem(message, file=str(path)))
        traces.append(replace(known[mark], file=str(path)))
    return traces


def _mark(path: Path) -> bytes:
    """Digest of a file, or its name if it is large or cannot be read."""
    try:
        if path.stat().st_size <= _MOST_HASHED:
            return hashlib.blake2b(path.read_bytes()).digest()
    except (OSError, ValueError):
        pass
    return str(path).encode("utf-8", "surrogateescape")


def load_traces(name: str, folder: Path, network: Network, options: TraceOptions) -> PlacedTrace:
    """Step graph of a workload's Chakra traces.

    Parameters
    ----------
    name : str
        As in the design: ``w.et`` or ``w.*.et``.
    folder : Path
        Of the design.
    network : Network
    options : TraceOptions

    Raises
    ------
    FieldError
        If files are missing.
    InputError
        If one is wrong.
    """
    from libra.formats.chakra_graph import trace_graph

    try:
        paths = chakra_files(folder / name, network.npus)
    except ValueError as error:
        raise FieldError("trace", str(error)) from None
    groups = None
    if options.comm_groups is not None:
        try:
            groups = read_comm_groups(folder / options.comm_groups)
        except ValueError as error:
            raise FieldError(("chakra", "comm_groups"), str(error)) from None
    placed = trace_graph(read_traces(paths), network, options, groups)
    if placed.graph.total_fixed == 0 and not placed.graph.collectives:
        raise FieldError(
            "trace",
            f"the workload computes nothing and communicates nothing, got {name!r}. Give its nodes "
            "their durations and sizes.",
        )
    return placed


def trace_name(trace: str) -> str:
    """Name of a workload whose entry gives none.

    Examples
    --------
    >>> trace_name("traces/w.*.et")
    'w'
    """
    return PurePath(trace.replace(".*", "").removesuffix(".gz")).stem


def refuse_placement(given: dict[str, object]) -> None:
    """Refuse keys of a workload entry that a Chakra trace says itself.

    Raises
    ------
    FieldError
    """
    for key, value in given.items():
        if value is not None:
            raise FieldError(
                key,
                f"a Chakra trace has its own groups and order, got {key} as well. Remove it.",
            )
