"""Case studies: their figures computed a second time, by hand or by trying everything."""

import itertools
import re

import numpy as np
import pytest
from test_studies import computed, trace_totals

from libra.evaluate import evaluate_design
from libra.load import DesignReader, load_design
from libra.units import GB_PER_S
from libra.yaml_source import Override

MBIT = 1e6 / 8


def rows_of(name, **where):
    rows = computed(name)[1]["rows"]
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def round_time(flops_device, flops_cloud, sent, averaged, steps, edge, cloud):
    """Time of a step of edge-cloud: passes, activations over both links, and the average."""
    compute = 3 * (flops_device / 1e12 + flops_cloud / (156e12 / 16))
    way = sent / edge + sent / cloud
    average = max(2 * averaged * 15 / 16 / edge, 2 * averaged / 16 * 63 / 64 / cloud)
    return compute + 2 * way + average / steps


@pytest.mark.parametrize(("cut", "steps"), [(6, 1), (6, 16), (3, 1), (5, 8)])
def test_edge_cloud_by_hand(cut, steps):
    study, _ = computed("edge-cloud")
    parts = study.resnet(32)
    flops = [part.flops for part in parts]
    arguments = (
        sum(flops[:cut]),
        sum(flops[cut:]),
        2 * parts[cut - 1].output if cut < 6 else 0.0,
        2 * sum(part.weights for part in parts[:cut]),
        steps,
    )
    (row,) = rows_of("edge-cloud", model="ResNet-50", cut=cut, steps=steps)
    edge, cloud = row["edge"] * MBIT, row["uplink"] * MBIT / 16
    assert 1024 * (160 * edge + 1600 * cloud) / GB_PER_S == pytest.approx(33280, rel=1e-6)
    assert row["time"] == pytest.approx(round_time(*arguments, edge, cloud), rel=1e-5)
    spent = np.linspace(0.02, 0.98, 4000)
    budget = 33280 / 1024 * GB_PER_S
    tried = [round_time(*arguments, s * budget / 160, (1 - s) * budget / 1600) for s in spent]
    assert min(tried) * (1 - 1e-3) <= row["time"] <= min(tried) * (1 + 1e-6)


def test_resnet_of_edge_cloud_is_the_published_one():
    parts = computed("edge-cloud")[0].resnet(1)
    assert sum(part.weights for part in parts) == 25557032
    assert sum(part.flops for part in parts) / 2 == pytest.approx(3.86e9, rel=0.001)


def test_parallelisation_by_hand():
    """TP 32 fills chiplets and packages, DP 128 nodes and pods: bytes over bandwidths."""
    figures = computed("parallelisation")[1]
    shares = {row["dimension"]: row["bandwidth"] for row in figures["shares"] if row["tp"] == 32}
    chiplet, package, node, pod = (
        shares[d] * GB_PER_S for d in ("chiplet", "package", "node", "pod")
    )
    assert sum(shares.values()) == pytest.approx(1000)
    hidden, tokens = 24576, 512 * 2048 // 128
    activations, weights = 2 * tokens * hidden, 2 * 12 * hidden**2 // 32
    gather = max(activations * 3 / 4 / chiplet, activations / 4 * 7 / 8 / package)
    reduce = max(2 * weights * 3 / 4 / node, 2 * weights / 4 * 31 / 32 / pod)
    communication = 128 * ((4 * 2 + 1) * gather + reduce)
    assert figures["best"] == 32
    assert figures["best_time"] == pytest.approx(figures["compute"] + communication, rel=1e-5)


def test_parallelisation_of_128_has_the_published_bytes():
    table = computed("parallelisation")[0].layer_table(128, 256)
    assert table.count("all-reduce 805306368 B tp") == 4
    gradients = [int(size) for size in re.findall(r"all-reduce (\d+) B dp", table)]
    assert sum(gradients) == 113246208


def test_bill_of_the_rails_by_hand():
    """1,024 nodes on 64-port switches: 32 leaves and 16 spines for each of 8 rails."""
    figures = computed("h100-8192")[1]
    bill = {(row[0], row[1]): row for row in figures["bill"].rows}
    assert bill["rail", "switch of 64 ports"][2] == 8 * (1024 // 32 + 1024 // 64)
    assert bill["rail", "cable"][2] == 8 * 1024 * 2
    assert bill["rail", "NIC"][2] == 8192
    assert sum(row[5] for row in figures["bill"].rows) == pytest.approx(figures["cost"])
    assert figures["agrees"] == pytest.approx(0, abs=1e-9)
    watts = 8192 * (450 * (0.044 + 0.125) + 50 * (2 * 0.32 + 3 * 0.125 + 0.5))
    assert figures["built_power"] * 1e6 == pytest.approx(watts)


@pytest.mark.parametrize(
    ("name", "npu", "limit"),
    [
        ("time x network cost, below 1 MW", 0, 1e6),
        ("time x system cost, below 1 MW", 25000, 1e6),
        ("time x system cost, no limit", 25000, np.inf),
    ],
)
def test_least_time_x_cost_of_whole_parts_among_all_pairs(name, npu, limit):
    """Each pair of lanes and NIC timed, its cost and power by the prices of the page."""
    study, figures = computed("h100-8192")
    design = load_design(study.FOLDER / "design.yaml")
    found = {}
    for lanes in range(1, 19):
        for nic in (25, 50, 100):
            watts = 8192 * (lanes * 25 * (0.044 + 0.125) + nic * (2 * 0.32 + 3 * 0.125 + 0.5))
            cost = 8192 * (npu + lanes * 25 * 17 + nic * (2 * 13.67 + 3 * 4.23 + 31.6))
            if watts <= limit:
                bandwidth = [lanes * 25 * GB_PER_S, nic * GB_PER_S]
                found[lanes * 25, nic] = evaluate_design(design, bandwidth).step_time * cost
    result = figures["solved"][name]
    best = min(found, key=found.__getitem__)
    assert tuple(result.bandwidth / 1e9) == pytest.approx(best)
    assert result.objective_value == pytest.approx(found[best], rel=1e-9)


def test_best_per_system_cost_of_turing_nlg_by_trying_step_times():
    """Gradients over all NPUs: each dimension gets what a step time asks, the cheapest the rest."""
    compute, size = trace_totals("turing-nlg")
    each = {
        "3D": ([15 / 16, 7 / 8 / 16, 31 / 32 / 128], [4, 4, 57.4]),
        "4D": ([3 / 4, 7 / 8 / 4, 3 / 4 / 32, 31 / 32 / 128], [2, 4, 4, 57.4]),
    }
    for row in rows_of("bandwidth-budgets", model="turing-nlg"):
        traffic, prices = (np.array(values) for values in each[row["network"]])
        total = row["budget"]
        fastest = 2 * size * traffic.sum() / (total * GB_PER_S)
        waits = fastest * np.linspace(1, 1.5, 5001)
        needed = 2 * size * traffic / waits[:, None] / GB_PER_S
        spare = total - needed.sum(axis=1)
        cost = 4096 * (25000 + needed @ prices + spare * prices.min())
        best = ((compute + waits) * cost).min()
        equal = compute + 2 * size * traffic.max() / (total / len(traffic) * GB_PER_S)
        gain = equal * 4096 * (25000 + prices.mean() * total) / best
        assert row["system"] == pytest.approx(gain, rel=1e-5)


def test_each_placement_of_experts_is_best_on_its_own_network():
    figures = computed("mixture-of-experts")[1]
    for k, row in enumerate(figures["matrix"].rows):
        assert min(row[1:]) == row[1 + k]
    for row in figures["table"].rows:
        assert row[3] + row[4] == pytest.approx(500)


@pytest.mark.parametrize("dispatch", ["all-to-all", "deduplicated"])
@pytest.mark.parametrize("place", ["node", "rails", "both"])
def test_in_a_slot_no_split_is_faster(place, dispatch):
    """All splits of 500 GB/s with at most 64 GB/s of rail, timed one by one."""
    study, figures = computed("mixture-of-experts")
    reader = DesignReader(study.FOLDER / "design.yaml")
    experts, order = study.PLACEMENTS[place]
    parallel = f"{{pp: 8, dp: 128, ep: {experts}, zero: 1, order: {order}, dispatch: {dispatch}}}"
    design = reader.read([Override("workloads.moe.parallel", parallel)])
    rails = np.linspace(10, 64, 109)
    tried = [evaluate_design(design, [(500 - x) * GB_PER_S, x * GB_PER_S]).step_time for x in rails]
    result = figures["slot"][study.Case(study.QWEN, place, dispatch)]
    if place == "node":
        assert rails[np.argmin(tried)] == pytest.approx(result.bandwidth[1] / 1e9, abs=0.5)
    else:
        assert np.argmin(tried) == len(rails) - 1
        assert result.bandwidth / 1e9 == pytest.approx([436, 64])
    assert min(tried) * (1 - 1e-4) <= result.step_time <= min(tried) * (1 + 1e-6)


def visited(places, experts, chosen):
    """Places that a token's experts lie on, on average, from the probability of each number.

    Experts are drawn one by one, as many to a place: the next lies on a new place unless it is one
    of those left over on the places that were drawn.
    """
    each = experts // places
    chance = {0: 1.0}
    for drawn in range(chosen):
        after: dict[int, float] = {}
        for held, part in chance.items():
            known = (held * each - drawn) / (experts - drawn)
            after[held] = after.get(held, 0.0) + part * known
            after[held + 1] = after.get(held + 1, 0.0) + part * (1 - known)
        chance = after
    return sum(held * part for held, part in chance.items())


def test_places_visited_are_those_of_all_choices():
    """All 28 and 70 choices of 2 and 4 of 8 experts on 4 places."""
    for chosen in (2, 4):
        choices = list(itertools.combinations(range(8), chosen))
        mean = sum(len({expert // 2 for expert in choice}) for choice in choices) / len(choices)
        assert visited(4, 8, chosen) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize(
    ("place", "dispatch", "copies"),
    [
        ("node", "all-to-all", {0: 8.0}),
        ("rails", "all-to-all", {1: 8.0}),
        ("node", "deduplicated", {0: visited(8, 128, 8)}),
        ("rails", "deduplicated", {1: visited(8, 128, 8)}),
        ("both", "deduplicated", {1: visited(8, 128, 8), 0: visited(64, 128, 8)}),
    ],
)
def test_waiting_for_experts_by_hand(place, dispatch, copies):
    """As sold: 23 slots of 6 blocks, each with 6 exchanges of the tokens of a micro-batch."""
    study, figures = computed("mixture-of-experts")
    slots, blocks = 2048 // 128 + 8 - 1, 48 // 8
    exchanges = 2 + 2 + 2  # there and back: forward, recomputed, backward
    token = 2048 * 2
    bandwidth, latency = (450e9, 50e9), (0.0, 2 * 2.5e-6)
    wait = sum(
        4096 * token * each * 7 / 8 / bandwidth[d] + latency[d] for d, each in copies.items()
    )
    result = figures["sold"][study.Case(study.QWEN, place, dispatch)]
    rows = [r for r in result.workloads[0].collectives if r.collective.kind == "all-to-all"]
    assert sum(r.time for r in rows) == pytest.approx(slots * blocks * exchanges * wait, rel=1e-9)
    assert sum(r.collective.size for r in rows) == pytest.approx(
        4096 * token * sum(copies.values()), rel=1e-12
    )


def times_of(cases, case, nvlink, rail):
    """Step times of the workloads of a scenario [s] at bandwidths in GB/s."""
    result = evaluate_design(cases[case], [nvlink * GB_PER_S, rail * GB_PER_S])
    return [w.step_time for w in result.workloads]


def test_regrets_in_a_slot_against_all_networks_of_the_budget():
    """Networks with at most 64 GB/s of rail: all that cost 10 M USD, at both prices of optics."""
    study, figures = computed("robust")
    design = load_design(study.FOLDER / "design.yaml")
    cases = {s.name: s.design for s in design.scenarios}
    weights = {name: [w.weight for w in case.workloads] for name, case in cases.items()}
    least = dict.fromkeys(cases, np.inf)
    worst = np.inf
    for rail in np.linspace(40, 64, 49):
        cheap, dear = ((10e6 / 1024 - rail * (18 + p)) / 17 for p in (39.4, 55.16))
        times = {name: times_of(cases, name, cheap, rail) for name in cases}
        times["dear optics"] = times_of(cases, "dear optics", dear, rail)
        for name in cases:
            least[name] = min(least[name], np.dot(weights[name], times[name]))
    for name, best in figures["slot_bests"].items():
        assert best == pytest.approx(least[name], rel=1e-5)
    for rail in np.linspace(56, 64, 33):
        dear = (10e6 / 1024 - rail * (18 + 55.16)) / 17
        times = {name: np.dot(weights[name], times_of(cases, name, dear, rail)) for name in cases}
        worst = min(worst, max(times[name] / least[name] for name in cases) - 1)
    assert figures["slot_least_worst"] == pytest.approx(worst, abs=1e-4)


def test_least_regret_against_all_networks_of_the_budget():
    """Step times of both models on networks that spend the budget where optics are dear."""
    study, figures = computed("robust")
    reader = DesignReader(study.FOLDER / "design.yaml")
    cases = {s.name: s.design for s in reader.read([study.AT_WILL]).scenarios}
    bests = dict.fromkeys(cases, np.inf)

    def times(case, nvlink, prices):
        return times_of(cases, case, nvlink, (10e6 / 1024 - nvlink * 17) / (18 + prices))

    weights = {name: [w.weight for w in case.workloads] for name, case in cases.items()}
    cheap = [times("as planned", x, 39.4) for x in np.linspace(120, 420, 61)]
    dear = [times("dear optics", x, 55.16) for x in np.linspace(120, 420, 61)]
    for name in cases:
        found = dear if name == "dear optics" else cheap
        bests[name] = min(np.dot(weights[name], t) for t in found)
    worst = [max(np.dot(weights[name], t) / bests[name] for name in cases) - 1 for t in dear]
    assert min(worst) - 4e-3 <= figures["least_worst"] <= min(worst) + 1e-6
    k = int(np.argmin(worst))
    assert np.linspace(120, 420, 61)[k] == pytest.approx(figures["least_nvlink"], abs=6)
