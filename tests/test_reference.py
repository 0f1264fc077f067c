"""Published optima: another solver's bandwidths are as good as ours, and never better.

The reference files stand outside the repository (their origin: ../shared/reference/README.md); where
they are absent the rows typed here, with their inputs, are the check.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import GB

import libra

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
BLOCKS = {"Ring": "RI", "FullyConnected": "FC", "Switch": "SW"}
TIERS = {
    "InterChiplet": "chiplet",
    "InterPackage": "package",
    "InterNode": "node",
    "InterPod": "pod",
    "Tile": "chiplet",
    "Package": "package",
    "Node": "node",
    "Pod": "pod",
}
MULTIPLE = [
    "total == 1000 GB/s",
    "chiplet == 500 GB/s",
    "chiplet >= package",
    "package >= node",
    "node + pod == 200 GB/s",
]


def load(tmp_path, shape, tiers, prices, workloads, constraints, objective):
    """Design in the project's format, with the formulas of the paper."""
    data = {
        "network": {"shape": shape, "tiers": tiers},
        "collectives": {"compat": "libra"},
        "workloads": workloads,
        "prices": {
            tier: {part.lower(): f"{usd} USD/(GB/s)" for part, usd in parts.items()}
            for tier, parts in prices.items()
        },
        "constraints": constraints,
        "objective": objective,
    }
    path = tmp_path / "design.yaml"
    path.write_text(yaml.safe_dump(data))
    return libra.load_design(path)


def rows_of(path):
    path = REFERENCE / path
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def parametrize(rows, *keys):
    if not rows:
        skip = pytest.mark.skip(reason="../shared/reference is not there")
        return pytest.mark.parametrize("row", [pytest.param({}, marks=skip)])
    return pytest.mark.parametrize(
        "row", rows, ids=["-".join(row[k] for k in keys) for row in rows]
    )


def rounding(design, bandwidth, digits):
    """How far rounding the bandwidths [GB/s] to so many digits moves step time and cost."""
    half = 0.5 * 10.0**-digits * GB
    moved = 0.0
    for d in range(len(bandwidth)):
        ends = [
            libra.evaluate_design(design, bandwidth + sign * half * np.eye(len(bandwidth))[d])
            for sign in (1, -1)
        ]
        moved += abs(ends[0].step_time - ends[1].step_time) / 2
    return moved, half * float(design.bandwidth_prices.sum())


def check_optimum(design, bandwidth, time, equal_time, cost, digits=4):
    """Evaluated as published, and our optimum is as good, with proof."""
    known = libra.evaluate_design(design, bandwidth)
    moved_time, moved_cost = rounding(design, bandwidth, digits)
    assert known.step_time == pytest.approx(time, abs=moved_time + 1e-9 * time)
    assert known.network_cost == pytest.approx(cost, abs=moved_cost + 1e-9 * cost)
    equal = np.full(len(bandwidth), round(bandwidth.sum() / GB) * GB / len(bandwidth))
    assert libra.evaluate_design(design, equal).step_time == pytest.approx(equal_time, rel=1e-9)
    best = libra.optimize_design(design)
    product = design.objective == "time-cost"
    published = time * (cost if product else 1)
    moved = moved_time * (cost if product else 1) + product * time * moved_cost
    promise = 1e-5 if product else 1e-6
    assert best.gap <= promise
    assert best.objective_value <= published * (1 + promise) + moved
    assert best.objective_value >= published * (1 - 1e-6), "their gap is 1e-4"
    assert best.objective_bound <= published + moved


def libra_design(tmp_path, row):
    def read(path):
        return yaml.safe_load((REFERENCE / "libra" / path).read_text())

    dims, name = row["network"], row["workload"]
    network, prices = read(f"network/{dims}_network.yml"), read(f"cost_model/{dims}_cost_model.yml")
    (path,) = [
        p
        for p in (REFERENCE / "libra/communicator").iterdir()
        if p.stem.lower() == f"{name}_{dims}".lower()
    ]
    groups = read(f"communicator/{path.name}")
    workload = {
        "name": name.lower(),
        "trace": str(REFERENCE / f"libra/workload/{name}.txt"),
        "groups": {
            role: [max(1, e) for e in groups[key]]
            for role, key in (("tp", "Forward"), ("dp", "WeightGrad"))
        },
    }
    return load(
        tmp_path,
        "_".join(
            f"{BLOCKS[t]}({n})"
            for t, n in zip(network["Topology"], network["NpusCount"], strict=True)
        ),
        [TIERS[tier] for tier in network["CostDimension"]],
        {TIERS[tier]: parts for tier, parts in prices.items()},
        [workload],
        MULTIPLE if row["constraints"] != "total_bw" else [f"total == {row['total_bw_GBps']} GB/s"],
        "time" if row["objective"] == "PerfOpt" else "time-cost",
    )


OPTIMA = rows_of("libra/optima.csv")


@parametrize(OPTIMA, "workload", "network", "total_bw_GBps", "objective", "constraints")
def test_optima_of_the_reference_solver(row, tmp_path):
    bandwidth = np.array([float(row[f"bw{d}"]) for d in range(1, 5) if row[f"bw{d}"]]) * GB
    check_optimum(
        libra_design(tmp_path, row),
        bandwidth,
        float(row["time_ns"]) * 1e-9,
        float(row["equal_bw_time_ns"]) * 1e-9,
        float(row["cost_usd"]),
    )


def artifact_design(tmp_path, row):
    folder = REFERENCE / "artifact"
    network = json.loads((folder / f"network/{row['network'].lower()}.json").read_text())
    cost = json.loads((folder / "cost/cost.json").read_text())
    degrees = {"17B": (1, 1024), "175B": (16, 64), "1T": (128, 8)}
    prices = {}
    for topology, tier in zip(network["topology"], network["network-type"], strict=True):
        parts = dict(cost[tier])
        if topology != "Switch":
            parts["Link"] /= 2  # a cable between two NPUs counts once there
        prices[TIERS[tier]] = {"Nic": 0} | parts
    workloads = [
        {
            "name": name,
            "trace": str(folder / f"workload/transformer_{name}.txt"),
            "parallel": dict(zip(("tp", "dp"), degrees[name], strict=True)),
        }
        for name in row["workload"].split("+")
    ]
    return load(
        tmp_path,
        "_".join(
            f"{BLOCKS[t]}({n})"
            for t, n in zip(network["topology"], network["npus-count"], strict=True)
        ),
        [TIERS[tier] for tier in network["network-type"]],
        prices,
        workloads,
        ["total == 100 GB/s"],
        "time-cost" if row["objective"] == "perf-per-cost" else "time",
    )


@parametrize(rows_of("artifact/published_allocations.csv"), "objective", "network", "workload")
def test_published_allocations(row, tmp_path):
    design = artifact_design(tmp_path, row)
    published = np.array([float(b) for b in row["published_bandwidth_GBps"].split()])
    known = libra.evaluate_design(design, published * 100 * GB / published.sum())
    best = libra.optimize_design(design)
    excess = known.objective_value / best.objective_value - 1
    product = row["objective"] == "perf-per-cost"
    assert excess >= -(1e-5 if product else 1e-6)
    assert excess <= 1e-4
    assert best.bound_time is None if product else best.bound_time <= known.step_time
    prices = design.bandwidth_prices[:2]
    if not (product and prices[0] == prices[1]):  # else any exchange of the two is as good
        assert best.bandwidth / GB == pytest.approx(published, abs=0.05)


# --- typed rows --------------------------------------------------------------------------------

# github astra-sim/libra (MIT), inputs/network/4d_network.yml, cost_model/4d_cost_model.yml,
# communicator/GPT_3_4d.yml and ResNet_50_4d.yml.
SHAPE = "RI(4)_FC(8)_RI(4)_SW(32)"
PRICES = {
    "chiplet": {"link": 2.00001},
    "package": {"link": 4.00002, "switch": 13.00002},
    "node": {"link": 4.00003, "switch": 13.00003},
    "pod": {"link": 7.80004, "switch": 18.00004, "nic": 31.60004},
}
GROUPS = {
    "GPT_3": {"tp": [4, 4, 1, 1], "dp": [1, 2, 4, 32]},
    "ResNet_50": {"tp": [1, 1, 1, 1], "dp": [4, 8, 4, 32]},
}
# inputs/workload/GPT_3.txt and ResNet_50.txt, shortened: all compute in the first layer, equal
# collectives as often as there. Nothing overlaps, so neither order nor layers change the sum.
TRACES = {
    "GPT_3": """\
compute -1 684448242 NONE 0 0 NONE 0 0 ALLREDUCE 452984832 0
layer_1 -1 0 ALLREDUCE 805306368 0 ALLREDUCE 805306368 0 NONE 0 0
layer_2 -1 0 ALLREDUCE 805306368 0 ALLREDUCE 805306368 0 NONE 0 0
layer_3 -1 0 ALLREDUCE 805306368 0 ALLREDUCE 805306368 0 NONE 0 0
layer_4 -1 0 ALLREDUCE 805306368 0 ALLREDUCE 805306368 0 NONE 0 0
layer_5 -1 0 NONE 0 0 ALLGATHER 50331648 0 NONE 0 0
layer_6 -1 0 NONE 0 0 ALLGATHER 50331648 0 NONE 0 0
""",
    "ResNet_50": "all -1 1095314 NONE 0 0 NONE 0 0 ALLREDUCE 51005824 0\n",
}
# The same model solved by a commercial non-convex solver, ../shared/reference/libra/optima.csv:
# workload, constraints, objective, bandwidths [GB/s], time [ns], time at equal bandwidths, cost.
TYPED = [
    ("GPT_3", "total == 1000 GB/s", "time", [676.9585, 169.2396, 116.2597, 37.5422],
     703430012.6509889, 729746725.2, 19049899.151067503),
    ("GPT_3", "total == 1000 GB/s", "time-cost", [927.6383, 63.0155, 7.0649, 2.2814],
     775667445.0848993, 729746725.2, 9283827.602504088),
    ("GPT_3", "multiple", "time", [500.0, 300.0, 151.1811, 48.8189],
     708438743.3760067, 729746725.2, 22966069.36098154),
    ("ResNet_50", "total == 300 GB/s", "time-cost", [237.8925, 54.3972, 5.8283, 1.882],
     1505538.2832497703, 2115430.48, 3378053.5857892893),
]  # fmt: skip


@pytest.mark.parametrize("row", TYPED, ids=lambda row: "-".join(row[:3]))
def test_typed_optima(row, tmp_path):
    name, constraints, objective, gbps, time, equal, cost = row
    trace = tmp_path / f"{name}.txt"
    trace.write_text(TRACES[name])
    workload = {"name": "w", "trace": str(trace), "groups": GROUPS[name]}
    rows = MULTIPLE if constraints == "multiple" else [constraints]
    design = load(tmp_path, SHAPE, list(PRICES), PRICES, [workload], rows, objective)
    check_optimum(design, np.array(gbps) * GB, time * 1e-9, equal * 1e-9, cost)
