"""Compare libra's time model and simulation with results of ASTRA-sim.

    python benchmarks/accuracy.py               all tables, as Markdown
    python benchmarks/accuracy.py collectives   one of: collectives, training, chunks

Reads ``../shared/reference`` (see its README for the simulator's rules); without it there is
nothing to compare with, and the script says so.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml

from libra.collectives import (
    Algorithm,
    AllToAll,
    Collective,
    CollectiveKind,
    CollectiveModel,
)
from libra.constraints import parse_constraint
from libra.cost import PartPrices, PriceList
from libra.design import Design, Workload
from libra.formats.astra_sim import parse_text_workload
from libra.network import Dimension, Network, Topology
from libra.optimize import optimize_design
from libra.pieces import Schedule, collective_pieces
from libra.placement import Group, nest_groups, whole_group
from libra.queues import add_queues, links_of
from libra.simulate import Messages, Stage, message_rows, row_time, simulate_graph, stages_of
from libra.timing import StepTiming, Terms, critical_path, merge_terms
from libra.workload.graph import GraphBuilder, StepGraph
from libra.workload.layers import Layer, Phase
from libra.workload.schedule import LoopKind, TrainingLoop, build_graph

REFERENCE = Path(__file__).resolve().parent.parent.parent / "shared" / "reference"

TOPOLOGIES = {
    "Ring": Topology.RING,
    "FC": Topology.FULLY_CONNECTED,
    "FullyConnected": Topology.FULLY_CONNECTED,
    "Switch": Topology.SWITCH,
}
COLLECTIVES = {
    "AllReduce": CollectiveKind.ALL_REDUCE,
    "ReduceScatter": CollectiveKind.REDUCE_SCATTER,
    "AllGather": CollectiveKind.ALL_GATHER,
    "AllToAll": CollectiveKind.ALL_TO_ALL,
}
MESSAGES = {
    "ring": Messages.RING,
    "direct": Messages.DIRECT,
    "direct1": Messages.PAIRWISE,
    "halvingDoubling": Messages.HALVING_DOUBLING,
}
TICK = ENDPOINT = 1e-9
Row = Mapping[str, str]


def rows_of(name: str) -> list[dict[str, str]]:
    """Rows of a file of the reference."""
    with (REFERENCE / "astra_sim" / name).open() as file:
        return list(csv.DictReader(file))


def network_of(row: Row) -> Network:
    """Network of a row, innermost dimension first."""
    blocks = re.findall(r"([A-Za-z]+)\((\d+)\)", row["topology"])
    latency = float(row["latency_ns"]) * 1e-9
    return Network(
        tuple(
            Dimension(TOPOLOGIES[word], int(size), "pod", f"d{k}", latency=latency)
            for k, (word, size) in enumerate(blocks)
        )
    )


def bandwidth_of(row: Row) -> np.ndarray:
    """Bandwidth of an NPU in each dimension [bytes/s]."""
    return np.array([float(b) * 1e9 for b in row["bw_npu_GBps"].split(";")])


# --- one collective ----------------------------------------------------------------------------


def simulated_collective(row: Row) -> float:
    """Time of a row's collective by libra's simulation [s], with the simulator's own algorithms."""
    network, kind = network_of(row), COLLECTIVES[row["collective"]]
    exchange = kind is CollectiveKind.ALL_TO_ALL
    words = row["impl_a2a" if exchange else "impl"].split(";")
    # What the simulator was configured with: its "GB/s" is 2^30 bytes/s.
    speeds = [float(b) * 2**30 for b in row["bw_cfg"].split(";")]
    chunks, sizes = int(row["chunks"]), network.sizes
    data = [float(row["size_bytes"]) / chunks]
    for size in sizes:
        data.append(data[0] if exchange else data[-1] / size)
    up = [(d, CollectiveKind.REDUCE_SCATTER) for d in range(len(sizes))]
    down = [(d, CollectiveKind.ALL_GATHER) for d in reversed(range(len(sizes)))]
    last = len(sizes) - 1
    visits = {
        CollectiveKind.ALL_TO_ALL: [(d, kind) for d in range(len(sizes))],
        CollectiveKind.REDUCE_SCATTER: up,
        CollectiveKind.ALL_GATHER: down,
        CollectiveKind.ALL_REDUCE: [*up[:-1], (last, kind), *down[1:]],
    }[kind]
    stages = []
    for d, what in visits:
        dimension = network.dimensions[d]
        messages = message_rows(MESSAGES[words[d]], what, data[d], dimension.size)
        if dimension.topology is not Topology.RING:
            messages = [(1, size) for _, size in messages]
        hop = dimension.latency * (2 if dimension.topology is Topology.SWITCH else 1)
        stages.append(Stage((d, 0), row_time(messages, speeds[d], hop, ENDPOINT, TICK)))
    builder = GraphBuilder()
    builder.add("collective", 0.0, [(Collective(kind, 1.0, whole_group(network, "all", [0])), 1.0)])
    return simulate_graph(builder.build(), [stages], [chunks]).time


def modelled_collective(row: Row, algorithm: Algorithm = Algorithm.MULTI_RAIL) -> float:
    """Time of a row's collective by the convex model [s]."""
    network = network_of(row)
    exchange = AllToAll.PAIRWISE if "direct1" in row["impl_a2a"] else AllToAll.DIRECT
    model = CollectiveModel(
        algorithm=algorithm,
        chunks=int(row["chunks"]),
        all_to_all=exchange,
        endpoint_delay=ENDPOINT,
    )
    every = whole_group(network, "all", range(len(network.sizes)))
    collective = Collective(COLLECTIVES[row["collective"]], float(row["size_bytes"]), every)
    schedule = Schedule(model.chunks, algorithm)
    p = collective_pieces(collective, network, model, schedule)
    return float((p.alpha + p.coefficient @ (1 / (p.forms @ bandwidth_of(row)))).max())


def explained(row: Row) -> str:
    """Why the reference's README expects the model to differ from a row; empty if it does not."""
    if row["collective"] == "AllToAll" and "Ring" in row["topology"]:
        return "all-to-all on a ring: the simulator ignores the load of hops"
    return ""


def collective_table() -> Iterator[str]:
    """Errors by collective, topology, latency and chunks."""
    rows = [r for r in rows_of("collectives.csv") if r["model"] == "fixed-order"]
    off = [abs(simulated_collective(r) * 1e9 - float(r["sim_ns"])) for r in rows]
    yield f"Simulation: {len(rows)} rows, largest difference {max(off):.1e} ns.\n"
    errors: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    skipped: dict[str, int] = defaultdict(int)
    for row in rows:
        if why := explained(row):
            skipped[why] += 1
            continue
        error = modelled_collective(row) * 1e9 / float(row["sim_ns"]) - 1
        errors[row["collective"], row["topology"], row["latency_ns"], row["chunks"]].append(error)
    yield "| collective | topology | latency ns | chunks | rows | median | least | largest |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for key in sorted(errors, key=lambda k: (k[0], k[1], int(k[2]), int(k[3]))):
        e = errors[key]
        figures = " | ".join(f"{100 * f(e):+.2f} %" for f in (statistics.median, min, max))
        yield f"| {' | '.join(key)} | {len(e)} | {figures} |"
    late = [abs(e) for key, es in errors.items() if key[2] != "0" for e in es]
    every = [e for es in errors.values() for e in es]
    yield ""
    yield f"With latency, median absolute error {100 * statistics.median(late):.3f} %."
    low, high = 100 * min(every), 100 * max(every)
    yield f"Most optimistic of all {low:+.2f} %, most pessimistic {high:+.1f} %."
    for why, count in skipped.items():
        yield f"Not compared: {count} rows, {why}."
    fit = [
        abs(modelled_collective(r, Algorithm.BALANCED) * 1e9 / float(r["sim_ns"]) - 1)
        for r in rows_of("collectives.csv")
        if r["model"] == "balanced" and int(r["chunks"]) >= 16
    ]
    middle = 100 * statistics.median(fit)
    yield f"Balanced, at least 16 chunks: {len(fit)} rows, median error {middle:.1f} %."


# --- whole steps -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A row of training.csv as libra sees it."""

    network: Network
    bandwidth: np.ndarray
    graph: StepGraph
    chunks: int
    whole_dimension: bool

    def seen_by(self, collective: Collective) -> tuple[Collective, Network]:
        """A collective and the network as the simulator lets its group see it.

        With the ring algorithm a part of a fully connected block is a whole ring. An all-to-all's
        messages cross the hops of a ring, but do not load them.
        """
        group, kind = collective.group, collective.kind
        dimensions = []
        for d, e in zip(self.network.dimensions, group.extents, strict=True):
            seen = d
            if d.topology is Topology.FULLY_CONNECTED and self.whole_dimension:
                seen = replace(d, topology=Topology.RING, size=max(e, 2))
            if d.topology is Topology.RING and kind is CollectiveKind.ALL_TO_ALL:
                hops = d.size * d.size // 4 / (d.size - 1)
                seen = replace(d, topology=Topology.FULLY_CONNECTED, latency=hops * d.latency)
            elif kind is CollectiveKind.ALL_TO_ALL:
                seen = d
            dimensions.append(seen)
        alone = replace(group, strides=(1,) * len(dimensions)) if self.whole_dimension else group
        return replace(collective, group=alone), Network(tuple(dimensions))

    def model(self) -> CollectiveModel:
        """Collective model of the simulator's configuration."""
        return CollectiveModel(
            chunks=self.chunks, all_to_all=AllToAll.PAIRWISE, endpoint_delay=ENDPOINT
        )

    def modelled(self) -> float:
        """Step time by the convex model [s]."""
        model = self.model()
        schedule = Schedule(self.chunks, Algorithm.MULTI_RAIL)
        pieces = [
            collective_pieces(unit, seen, model, schedule)
            for unit, seen in map(self.seen_by, self.graph.collectives)
        ]
        terms = merge_terms(
            [Terms(p.alpha, p.coefficient, p.forms, np.array([0, len(p.alpha)])) for p in pieces],
            len(self.bandwidth),
        )
        queued = add_queues(self.graph, self.network, model)
        nothing = np.zeros((len(pieces), len(self.bandwidth)))
        return critical_path(StepTiming(queued, terms, nothing), self.bandwidth).time

    def simulated(self) -> float:
        """Step time by libra's simulation [s]."""
        stages = []
        for collective in self.graph.collectives:
            lanes = dict(links_of(collective, self.network))
            visits = stages_of(
                *self.seen_by(collective), self.model(), self.bandwidth, self.chunks, TICK
            )
            stages.append([Stage((v.link[0], lanes[v.link[0]]), v.time) for v in visits])
        return simulate_graph(self.graph, stages, [self.chunks] * len(stages)).time


def step_of(row: Row) -> Step:
    """Step of a row."""
    network = network_of(row)
    path = REFERENCE / "libra" / "workload" / f"{row['workload']}.txt"
    workload = parse_text_workload(path.read_text(), path.name)
    tp, dp = _groups(row, network)
    layers = []
    for layer in workload.layers:
        phases = [
            Phase(p.compute, _collective(p.kind, p.size, dp if k == 2 else tp))
            for k, p in enumerate(layer.phases)
        ]
        layers.append(Layer(layer.name, phases[0], phases[1], phases[2], layer.update))
    kind = LoopKind.NO_OVERLAP if row["loop"] == "no_overlap" else LoopKind.ASTRA_SIM
    if kind is LoopKind.NO_OVERLAP:
        # The simulator's update time follows every collective, not every layer.
        layers = [_with_updates(layer) for layer in layers]
    graph = build_graph(layers, TrainingLoop(kind), policy=row["header"], last_bottom=7)
    return Step(
        network, bandwidth_of(row), graph, int(row["chunks"]), row["fc_algorithm"] == "ring"
    )


def _with_updates(layer: Layer) -> Layer:
    count = sum(
        p.collective is not None
        for p in (layer.forward, layer.input_gradient, layer.weight_gradient)
    )
    return replace(layer, update=layer.update * count)


def _groups(row: Row, network: Network) -> tuple[Group, Group]:
    every = whole_group(network, "dp", range(len(network.sizes)))
    if row["header"] != "HYBRID_TRANSFORMER":
        return every, every
    folder = REFERENCE / "libra" / "communicator"
    name = f"{row['workload']}_{row['net']}.yml".lower()
    path = next(p for p in folder.iterdir() if p.name.lower() == name)
    given = yaml.safe_load(path.read_text())
    extents = {
        role: tuple(max(1, e) for e in given[key])
        for role, key in (("tp", "Forward"), ("dp", "WeightGrad"))
    }
    groups = nest_groups(network, extents)
    return groups["tp"], groups["dp"]


def _collective(kind: CollectiveKind | None, size: float, group: Group) -> Collective | None:
    if kind is None or group.size == 1:
        return None
    gathered = group.size if kind is CollectiveKind.ALL_GATHER else 1
    return Collective(kind, size * gathered, group)


def training_table() -> Iterator[str]:
    """Errors by loop, workload, network and treatment of fully connected blocks."""
    errors: dict[tuple[str, str, str, str], list[tuple[float, float]]] = defaultdict(list)
    skipped = 0
    for row in rows_of("training.csv"):
        if row["inter_dim_sched"] != "baseline":
            skipped += 1
            continue
        step, truth = step_of(row), float(row["sim_ns"]) * 1e-9
        key = (row["loop"], row["workload"], row["net"], row["fc_algorithm"])
        errors[key].append((step.simulated() / truth - 1, step.modelled() / truth - 1))
    yield (
        "| loop | workload | network | fully connected as | rows | simulation, worst | "
        "model, median | model, least | model, largest |"
    )
    yield "|---|---|---|---|--:|--:|--:|--:|--:|"
    for key, found in sorted(errors.items()):
        simulated = max(abs(s) for s, _ in found)
        modelled = [m for _, m in found]
        figures = " | ".join(f"{100 * f(modelled):+.3f} %" for f in (statistics.median, min, max))
        yield f"| {' | '.join(key)} | {len(found)} | {simulated:.1e} | {figures} |"
    yield f"\nNot compared: {skipped} rows with the simulator's own balanced scheduler."


# --- optimum at few chunks ---------------------------------------------------------------------


def chunk_table() -> Iterator[str]:
    """Simulated step time of the chunk-aware optimum and of the allocation for many chunks."""
    yield (
        "| workload | network | latency ns | chunks | allocation for many chunks ms | "
        "chunk-aware ms | gain in step | gain in communication |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    wanted = [("Turing_NLG", "4D"), ("ResNet_50", "4D"), ("MSFT_1T", "4D")]
    for workload, net in wanted:
        for latency in ("0", "500"):
            for chunks in ("1", "4", "16", "64"):
                yield _chunk_row(workload, net, latency, chunks)


def _chunk_row(workload: str, net: str, latency: str, chunks: str) -> str:
    base = next(r for r in rows_of("training.csv") if r["workload"] == workload and r["net"] == net)
    row = {**base, "latency_ns": latency, "chunks": chunks, "loop": "no_overlap",
           "fc_algorithm": "direct"}  # fmt: skip
    step = step_of(row)
    many = _optimum(step, CollectiveModel(), step.network)
    aware = _optimum(step, step.model(), step.network)
    times = [replace(step, bandwidth=b).simulated() for b in (many, aware)]
    compute = step.graph.total_fixed
    gain = times[0] / times[1] - 1
    exposed = (times[0] - compute) / (times[1] - compute) - 1
    return (
        f"| {workload} | {net} | {latency} | {chunks} | {times[0] * 1e3:.4f} | "
        f"{times[1] * 1e3:.4f} | {gain:+.2%} | {exposed:+.1%} |"
    )


def _optimum(step: Step, model: CollectiveModel, network: Network) -> np.ndarray:
    """Best bandwidths for 500 GB/s in all."""
    if model.chunks is None:
        network = Network(tuple(replace(d, latency=0.0) for d in network.dimensions))
    design = Design(
        network, (Workload("w", step.graph),), PriceList({"pod": PartPrices(0.0, 0.0, 0.0)}),
        (parse_constraint("total == 500 GB/s", network, None),), collectives=model,
    )  # fmt: skip
    return optimize_design(design).bandwidth


TABLES = {"collectives": collective_table, "training": training_table, "chunks": chunk_table}


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    if not (REFERENCE / "astra_sim").exists():
        print(f"skipped: {REFERENCE} is not there", file=sys.stderr)
        return
    for name, table in TABLES.items():
        if not arguments or name in arguments:
            print(f"\n## {name.capitalize()}\n")
            for line in table():
                print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
