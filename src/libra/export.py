"""Designs for other tools: Chakra traces, a folder that ASTRA-sim runs, ASTRA-sim 1.0 text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from libra.collectives import CollectiveKind
from libra.design import Design, Workload
from libra.errors import FieldError, InputError, Problem
from libra.files import read_text, write_whole
from libra.formats.astra_sim import MAX_BYTES, parse_text_workload
from libra.formats.astra_sim_config import (
    SimulatorNetwork,
    memory_configuration,
    network_configuration,
    simulator_network,
    system_configuration,
)
from libra.formats.astra_sim_cycles import expected_cycles
from libra.formats.astra_sim_write import chain_text, workload_text
from libra.formats.chakra import NodeType
from libra.formats.chakra_files import is_chakra
from libra.formats.chakra_lower import lower_graph
from libra.formats.chakra_npus import group_lists, message_peers, places_of_npus
from libra.formats.chakra_write import Address, TraceWriter, write_trace
from libra.network import Network
from libra.placement import Group

__all__ = [
    "ExportFormat",
    "Exported",
    "export_astra_sim",
    "export_chakra",
    "export_design",
    "export_text",
]

T = TypeVar("T")

MANY_CHUNKS = 64
"""Chunks for the simulator where the design's collectives take as many as they like."""


class ExportFormat(StrEnum):
    """What to write."""

    ASTRA_SIM = "astra-sim"
    CHAKRA = "chakra"
    ASTRA_SIM_1 = "astra-sim-1"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes
    ----------
    folder : Path
    workload : str
    npus, nodes : int
        Traces, and nodes of the longest.
    cycles : int or None
        What the simulator is expected to print [ns]; None: its rules for it are not known.
    remarks : tuple of str
        Where the format cannot say what the design says.
    """

    folder: Path
    workload: str
    npus: int
    nodes: int
    cycles: int | None = None
    remarks: tuple[str, ...] = ()


class _Traces:
    """Traces of a workload, ready to be written."""

    def __init__(self, workload: Workload, network: Network) -> None:
        graph = workload.graph
        if any(
            c.kind is CollectiveKind.POINT_TO_POINT and c.group.name == "cp"
            for c in graph.collectives
        ):
            raise FieldError(
                "parallel.context",
                "a ring through a group is not exported, got ring. Use all-gather.",
            )
        self.network = network
        self.nodes = lower_graph(graph)
        self.places = places_of_npus(graph, network, workload.groups, workload.npu_places)
        self.peers = message_peers(self.nodes, network, self.places)
        self.members: dict[str, list[int]] = {}
        self.names: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
        for collective in graph.collectives:
            if collective.kind is CollectiveKind.POINT_TO_POINT:
                continue
            self.check_group(collective.group)

    def check_group(self, group: Group) -> None:
        """Refuse groups that do not tile the network."""
        for size, extent, stride in zip(
            self.network.sizes, group.extents, group.strides, strict=True
        ):
            if size % (extent * stride):
                raise FieldError(
                    "groups",
                    f"groups of {extent} members {stride} apart do not fill a dimension of {size}, "
                    f"got {group.name}. Only groups that do can be exported.",
                )

    def name_groups(self) -> None:
        """Number the process groups of all collectives, from 1."""
        for row in self.nodes:
            for node in row:
                if node.type is not NodeType.COLLECTIVE or node.collective is None:
                    continue
                group = node.collective.group
                key = (group.extents, group.strides)
                if key not in self.names:
                    numbers = group_lists(group, self.network)
                    index: dict[int, str] = {}
                    for npu, number in enumerate(numbers.tolist()):
                        name = index.setdefault(number, str(len(self.members) + 1))
                        self.members.setdefault(name, []).append(npu)
                    self.names[key] = [index[n] for n in numbers.tolist()]

    def addresses(self, npu: int, network: SimulatorNetwork | None) -> list[Address]:
        """How each node of an NPU says who takes part."""
        found: list[Address] = []
        for node in self.nodes[int(self.places[npu])]:
            collective = node.collective
            if collective is None or node.type is not NodeType.COLLECTIVE:
                found.append(("", ()))
            elif self.names:
                group = collective.group
                found.append((self.names[group.extents, group.strides][npu], ()))
            else:
                assert network is not None
                found.append(("", tuple(network.involved(collective))))
        return found

    def write(self, folder: Path, name: str, network: SimulatorNetwork | None) -> None:
        """Write one trace an NPU; those that are the same share one file where links can be."""
        written: dict[int, Path] = {}
        writers = [TraceWriter(row) for row in self.nodes]
        for npu in range(self.network.npus):
            place = int(self.places[npu])
            path = folder / f"{name}.{npu}.et"
            shares = not self.names and not any(p is not None for p in self.peers[place])
            if shares and place in written and _link(written[place], path):
                continue
            path.unlink(missing_ok=True)  # it may be a link to another NPU's
            write_trace(path, self.trace(writers[place], npu, network))
            written[place] = path

    def trace(self, writer: TraceWriter, npu: int, network: SimulatorNetwork | None) -> bytes:
        """Trace of one NPU."""
        peers = [0 if p is None else int(p[npu]) for p in self.peers[int(self.places[npu])]]
        return writer.trace(self.addresses(npu, network), peers, npu)


def _link(source: Path, path: Path) -> bool:
    """Whether a hard link could be made."""
    try:
        path.unlink(missing_ok=True)
        os.link(source, path)
    except OSError:
        return False
    return True


def export_chakra(
    workload: Workload, network: Network, folder: Path, *, one: bool = False
) -> Exported:
    """Write a workload as Chakra traces, one an NPU, with its process groups.

    Parameters
    ----------
    workload : Workload
    network : Network
    folder : Path
        Gets ``NAME.<npu>.et`` and ``comm_groups.json``.
    one : bool
        Write ``NAME.et`` alone, the trace of NPU 0, which stands for all where all do the same.

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the workload cannot be said in traces, or nothing can be written there.
    """
    traces = _attempt(workload, lambda: _Traces(workload, network))
    traces.name_groups()
    folder.mkdir(parents=True, exist_ok=True)
    nodes = max(map(len, traces.nodes))
    if one:
        if len(traces.nodes) > 1 or any(p is not None for p in traces.peers[0]):
            raise InputError(
                f"{workload.name}: NPUs do different things or send messages, got one trace for "
                "all. Write one each: leave --one out."
            )
        data = traces.trace(TraceWriter(traces.nodes[0]), 0, None)
        write_trace(folder / f"{workload.name}.et", data)
    else:
        traces.write(folder, workload.name, None)
    if traces.members:
        write_whole(folder / "comm_groups.json", json.dumps(traces.members) + "\n")
    return Exported(folder, workload.name, 1 if one else network.npus, nodes)


def export_astra_sim(
    workload: Workload,
    design: Design,
    bandwidth: NDArray[np.float64],
    folder: Path,
    *,
    chunks: int | None = None,
    comm_groups: bool = False,
) -> Exported:
    """Write a folder that ASTRA-sim 2 runs: traces, network, system, memory and a README.

    Parameters
    ----------
    workload : Workload
        Of the design.
    design : Design
    bandwidth : ndarray, shape (dimensions,)
        [bytes/s], > 0.
    folder : Path
    chunks : int or None
        Parts that collectives are cut into; None: as the design says, or 64.
    comm_groups : bool
        Address collectives by process groups, which the simulator runs as flat rings, in place of
        dimensions.

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the simulator's files cannot say it, or nothing can be written there.
    """
    network, model = design.network, design.collectives
    if not (bandwidth > 0).all():
        raise InputError(
            "--bandwidth: the simulator needs some in each dimension, got 0 GB/s. Give each some."
        )
    traces = _attempt(workload, lambda: _Traces(workload, network))
    used = () if comm_groups else workload.graph.collectives
    parts = chunks or model.chunks or MANY_CHUNKS
    seen = _attempt(workload, lambda: simulator_network(network, used, model, bandwidth, parts))
    if comm_groups:
        traces.name_groups()
    cycles = None
    if not comm_groups:
        cycles = _attempt(workload, lambda: expected_cycles(traces.nodes, seen))
    folder.mkdir(parents=True, exist_ok=True)
    traces.write(folder, workload.name, seen)
    write_whole(folder / "network.yml", network_configuration(seen))
    write_whole(folder / "system.json", json.dumps(system_configuration(seen), indent=2) + "\n")
    write_whole(folder / "memory.json", json.dumps(memory_configuration(), indent=2) + "\n")
    if traces.members:
        write_whole(folder / "comm_groups.json", json.dumps(traces.members) + "\n")
    done = Exported(
        folder, workload.name, network.npus, max(map(len, traces.nodes)), cycles, seen.remarks
    )
    write_whole(folder / "README.md", _readme(done, design, bandwidth, seen, comm_groups))
    return done


def export_text(workload: Workload, design: Design, folder: Path) -> Exported:
    """Write a workload as ASTRA-sim 1.0 text, ``NAME.txt``.

    Parameters
    ----------
    workload : Workload
        Of the design: read from such a text, or a chain of tasks.
    design : Design
    folder : Path

    Returns
    -------
    Exported

    Raises
    ------
    InputError
        If the text cannot say it, or cannot be written there.
    """
    source = Path(design.file).parent / workload.source
    if workload.source and not is_chakra(source) and source.is_file():
        parsed = parse_text_workload(read_text(source, MAX_BYTES), str(source))
        text = _attempt(workload, lambda: workload_text(parsed, design.network, workload.groups))
    else:
        text = _attempt(workload, lambda: chain_text(workload.graph, design.network))
    write_whole(folder / f"{workload.name}.txt", text, make_folder=True)
    return Exported(folder, workload.name, 1, text.count("\n") - 2)


def export_design(
    design: Design,
    form: ExportFormat,
    folder: Path,
    bandwidth: NDArray[np.float64] | None = None,
    *,
    chunks: int | None = None,
    comm_groups: bool = False,
    one: bool = False,
) -> list[Exported]:
    """Write all workloads of a design; several get a folder each.

    Parameters
    ----------
    design : Design
    form : ExportFormat
    folder : Path
    bandwidth : ndarray, shape (dimensions,), or None
        For the simulator [bytes/s]; None: the form needs none.
    chunks, comm_groups, one
        See `export_astra_sim` and `export_chakra`.

    Raises
    ------
    InputError
        If the form cannot say it, or nothing can be written there.
    """
    found = []
    for workload in design.workloads:
        target = folder / workload.name if len(design.workloads) > 1 else folder
        if "/" in workload.name or workload.name in ("", ".", ".."):
            raise InputError(
                f"{workload.name!r}: a workload's name becomes a file's name, got a slash. "
                "Rename it."
            )
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"cannot be made ({reason}), got {str(target)!r}. Choose another place."
            raise InputError(Problem(message, file=str(target))) from None
        if form is ExportFormat.CHAKRA:
            found.append(export_chakra(workload, design.network, target, one=one))
        elif form is ExportFormat.ASTRA_SIM_1:
            found.append(export_text(workload, design, target))
        else:
            assert bandwidth is not None
            found.append(
                export_astra_sim(
                    workload, design, bandwidth, target, chunks=chunks, comm_groups=comm_groups
                )
            )
    return found


def _attempt(workload: Workload, work: Callable[[], T]) -> T:
    """Result of a step; a broken invariant is wrong input of the workload."""
    try:
        return work()
    except FieldError as error:
        raise InputError(Problem(error.message, path=workload.name)) from None


def _readme(
    done: Exported,
    design: Design,
    bandwidth: NDArray[np.float64],
    network: SimulatorNetwork,
    comm_groups: bool,
) -> str:
    """README of a folder for the simulator."""
    rows = "\n".join(
        f"| {name} | {d.topology.value} | {d.size} | {b / 1e9:.6g} | {d.latency * 1e9:g} |"
        for name, d, b in zip(
            design.network.names, design.network.dimensions, bandwidth, strict=True
        )
    )
    groups = " \\\n  --comm-group-configuration=comm_groups.json" if comm_groups else ""
    expected = _expected(done.cycles)
    remarks = "".join(f"- {remark}\n" for remark in done.remarks)
    if remarks:
        remarks = f"\n## What these files cannot say\n\n{remarks}"
    parts = len(network.dimensions)
    split = (
        ""
        if parts == len(design.network.dimensions)
        else (
            f" Dimensions that groups share are split, so that network.yml has {parts}: each part "
            "has the bandwidth that its groups reach."
        )
    )
    return f"""\
# {done.workload} on {design.network.shape}

Written by libra for ASTRA-sim 2, analytical network, congestion-unaware. Run in this folder:

```console
AstraSim_Analytical_Congestion_Unaware \\
  --workload-configuration={done.workload} \\
  --system-configuration=system.json \\
  --network-configuration=network.yml \\
  --remote-memory-configuration=memory.json{groups} \\
  --num-queues-per-dim=1
```

{expected}

| dimension | block | size | GB/s of an NPU | latency ns |
|---|---|--:|--:|--:|
{rows}

`network.yml` is in the simulator's units: its GB/s are 2^30 bytes/s, and a fully connected block
with direct collectives has the bandwidth of one link.{split} Collectives are cut into
{network.chunks} chunks. Computations are given as operations at 1 TFLOP/s, 1000 a nanosecond, since
durations in a trace are whole microseconds.
{remarks}"""


def _expected(cycles: int | None) -> str:
    """What the README says of the simulator's result."""
    if cycles is None:
        return (
            "Collectives are addressed by process groups, which the simulator runs as flat rings "
            "and not dimension by dimension: libra does not know the cycles to expect."
        )
    return (
        "Expected: every NPU prints `sys[i] finished, T cycles` (1 cycle = 1 ns), the last "
        f"with **T = {cycles}**. That is libra's simulation of the same rules: whole nanoseconds "
        "a message, one computation and one communication at a time on an NPU."
    )
