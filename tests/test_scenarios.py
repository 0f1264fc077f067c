"""Scenarios: robust optima against line searches and grids, sampling, and what is refused."""

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers import GB, design, network, random_graph
from numpy.random import default_rng

from libra.check import summarize_design
from libra.choices import Choice
from libra.design import Robustness, Scenario, time_design
from libra.errors import InfeasibleError, InputError, UnboundedError
from libra.evaluate import evaluate_design
from libra.load import load_design
from libra.network import Network
from libra.optimize import optimize_design
from libra.scenarios import SampleEntry, ScenariosEntry, scenario_overrides
from libra.screen import check_table, render
from libra.timing import critical_path

TRACE = (
    "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n2\n"
    "a -1 1000000 ALLREDUCE 40000000 900000 ALLREDUCE 30000000 800000 ALLREDUCE 90000000 10\n"
    "b -1 100 ALLREDUCE 1000000 100 NONE 0 100 ALLREDUCE 200000000 10\n"
)
BASE = """network:
  - {topology: ring, size: 4, tier: node}
  - {topology: switch, size: 8, tier: pod}
workloads:
  - {name: w, trace: w.txt}
  - {name: v, trace: w.txt, compute_speed: 2, weight: 2}
constraints: [total <= 100 GB/s]
"""


def robust_design(seed, robustness, objective="time", scenarios=3):
    """Design of two dimensions whose graphs and efficiencies differ between scenarios."""
    rng = default_rng(seed)
    rows = ["a + b <= 100 GB/s"]
    found = []
    for k in range(scenarios):
        net = network("RI(4)_SW(8)", efficiency=[1.0, float(rng.uniform(0.4, 1))])
        graphs = [random_graph(rng, net, 4, 3), random_graph(rng, net, 4, 3)]
        weights = [float(rng.uniform(0.5, 3)), 1.0]
        case = design(net, graphs, rows, weights=weights, objective=objective)
        found.append(Scenario(f"s{k}", 0.0, case))
    shares = rng.dirichlet(np.ones(scenarios))
    found = [dataclasses.replace(s, share=float(x)) for s, x in zip(found, shares, strict=True)]
    return dataclasses.replace(found[0].design, scenarios=tuple(found), robustness=robustness)


@cache
def timings_of(case):
    """Time models of a scenario."""
    return time_design(case)


def value_at(d, bandwidth, best):
    """Robust objective from the definition."""
    times = []
    for _, case in d.cases:
        timings = timings_of(case)
        times.append(
            sum(
                w.weight * critical_path(t, bandwidth).time
                for w, t in zip(case.workloads, timings, strict=True)
            )
        )
    times = np.array(times)
    return {
        "expected": float(np.array([share for share, _ in d.cases]) @ times),
        "worst": float(times.max()),
        "regret": float((times / best).max()),
    }[d.robustness.value]


@pytest.mark.parametrize("robustness", list(Robustness))
@pytest.mark.parametrize("seed", range(8))
def test_against_a_fine_grid(seed, robustness):
    d = robust_design(seed, robustness)
    result = optimize_design(d)
    grid = [np.array([x, 100 - x]) * GB for x in np.linspace(0.5, 99.5, 800)]
    exact = np.array([optimize_design(case).step_time for _, case in d.cases])
    least = min(value_at(d, b, exact) for b in grid)
    assert result.objective_value <= least * (1 + 1e-6)
    assert result.objective_value == pytest.approx(least, rel=5e-3)
    assert result.gap <= 1e-6
    assert value_at(d, result.bandwidth, exact) == pytest.approx(result.objective_value, rel=1e-6)
    for s, least_ in zip(result.scenarios, exact, strict=True):
        assert s.best == pytest.approx(least_, rel=1e-6)
        assert s.regret >= 1 - 1e-6
        assert s.nominal_regret >= 1 - 1e-6
    again = evaluate_design(d, result.bandwidth)
    assert again.objective_value == pytest.approx(result.objective_value, rel=1e-6)
    assert [s.step_time for s in again.scenarios] == pytest.approx(
        [s.step_time for s in result.scenarios]
    )


@pytest.mark.parametrize("robustness", list(Robustness))
def test_whole_parts_against_enumeration(robustness):
    d = robust_design(5, robustness)
    choices = tuple(Choice(b * GB) for b in (10.0, 25.0, 40.0, 60.0, 85.0))

    def in_parts(case):
        dims = [dataclasses.replace(x, bandwidth_choices=choices) for x in case.network.dimensions]
        return dataclasses.replace(case, network=Network(tuple(dims)), scenarios=())

    cases = tuple(dataclasses.replace(s, design=in_parts(s.design)) for s in d.scenarios)
    d = dataclasses.replace(in_parts(d), scenarios=cases, robustness=robustness)
    best = np.array([optimize_design(case).step_time for _, case in d.cases])
    values = {
        (x.bandwidth, y.bandwidth): value_at(d, np.array([x.bandwidth, y.bandwidth]), best)
        for x in choices
        for y in choices
        if x.bandwidth + y.bandwidth <= 100 * GB
    }
    result = optimize_design(d)
    assert result.objective_value == pytest.approx(min(values.values()), rel=1e-6)
    assert tuple(result.bandwidth) in values


def test_one_scenario_is_the_design_itself():
    d = robust_design(3, Robustness.EXPECTED, scenarios=1)
    alone = optimize_design(d.scenarios[0].design)
    assert optimize_design(d).step_time == pytest.approx(alone.step_time, rel=1e-6)


def write(folder, scenarios, extra=""):
    Path(folder, "w.txt").write_text(TRACE)
    path = Path(folder, "d.yaml")
    path.write_text(BASE + extra + "scenarios:\n" + scenarios)
    return path


def test_file_with_cases_and_samples(tmp_path):
    path = write(
        tmp_path,
        "  minimize: worst\n"
        "  cases:\n"
        "    - {name: as is}\n"
        "    - {name: slow, weight: 3, set: {network.pod.efficiency: 0.5}}\n"
        "    - {name: never, weight: 0}\n"
        "  samples: {count: 2, seed: 4, vary: {workloads.w.weight: 1..2, "
        "prices.pod.link: 4..8 USD/(GB/s)}}\n",
        "prices: {node: {link: 1 USD/(GB/s)}, pod: {link: 2 USD/(GB/s), switch: 0 USD/(GB/s), "
        "nic: 0 USD/(GB/s)}}\n",
    )
    d = load_design(path)
    assert [s.name for s in d.scenarios] == ["as is", "slow", "sample 1", "sample 2"]
    assert [s.share for s in d.scenarios] == pytest.approx([1 / 6, 3 / 6, 1 / 6, 1 / 6])
    assert d.scenarios[1].design.network.dimensions[1].efficiency == 0.5
    weights = [s.design.workloads[0].weight for s in d.scenarios[2:]]
    assert all(1 <= w <= 2 for w in weights)
    assert weights[0] != weights[1]
    assert load_design(path).scenarios[2].design.workloads[0].weight == weights[0]
    result = optimize_design(d)
    assert result.objective_value == pytest.approx(max(s.step_time for s in result.scenarios))


def test_cost_limits_hold_in_every_scenario(tmp_path):
    path = write(
        tmp_path,
        "  - {name: cheap}\n  - {name: dear, set: {prices.pod.link: 9 USD/(GB/s)}}\n",
        "prices: {node: {link: 1 USD/(GB/s)}, pod: {link: 2 USD/(GB/s), switch: 0 USD/(GB/s), "
        "nic: 0 USD/(GB/s)}}\n",
    )
    text = path.read_text().replace("[total <= 100 GB/s]", "[cost <= 3000 USD]")
    path.write_text(text)
    d = load_design(path)
    result = optimize_design(d)
    dear = d.scenarios[1].design.pricing
    assert dear.cost(result.bandwidth) == pytest.approx(3000, rel=1e-6)
    # The design without scenarios spends all on cheap prices: where they are dear it breaks the limit.
    nominal = optimize_design(dataclasses.replace(d, scenarios=()))
    assert dear.cost(nominal.bandwidth) > 3001
    assert [s.nominal_allowed for s in result.scenarios] == [True, False]
    assert json.loads(result.to_json())["scenarios"][1]["nominal_allowed"] is False
    rows = [line for line in str(result).splitlines() if line.startswith(" dear ")]
    assert rows[0].split("%")[-1].strip() == "breaks a limit"


def test_samples_are_uniform_over_their_range():
    entry = ScenariosEntry(samples=SampleEntry(1000, 7, {"x": "2..6 GB/s", "y": [1, 5]}))
    drawn = [settings for _, _, settings, _ in scenario_overrides(entry)]
    values = np.array([float(s["x"].split()[0]) for s in drawn])
    assert values.min() >= 2
    assert values.max() <= 6
    assert values.mean() == pytest.approx(4, abs=0.15)
    assert {s["y"] for s in drawn} == {"1", "5"}


BAD = [
    ("  cases:\n    - {name: a, weight: 0}\n", "scenarios.cases: the scenarios' weights sum to nothing, got 0."),
    ("  cases:\n    - {name: a}\n    - {name: a}\n", "two scenarios have one name, got 'a'"),
    ("  - {name: a, set: {network.pod.efficency: 0.5}}\n", "unknown key, got 'efficency'"),
    ("  - {name: a, set: {network.rack.efficiency: 0.5}}\n", "the path leads nowhere, got 'rack'"),
    ("  - {name: a, set: {network.pod.lane: 5 GB/s, network.pod.max_lanes: 3}}\n", "cannot change what can be built"),
    ("  minimize: regrets\n  cases: [{name: a}]\n", "Did you mean 'regret'?"),
    ("  samples: {count: 2, vary: {workloads.w.weight: 1..2}}\n", "seed: is missing"),
    ("  samples: {count: 2, seed: 1, vary: {workloads.w.weight: 1-2}}\n", "must be a range or a list, got '1-2'"),
    ("  samples: {count: 2, seed: 1, vary: {workloads.w.weight: 1..abc}}\n", "must be a range or a list, got '1..abc'"),
    ("  samples: {count: 2, seed: 1, vary: {workloads.w.weight: 1e..3}}\n", "must be a range or a list, got '1e..3'"),
    ("  samples: {count: 2, seed: 1, vary: {workloads.w.weight: 3..1}}\n", "a range rises, got '3..1'"),
    ("  - {name: a, set: {network.pod.size: 16}}\n", "cannot change what can be built"),
    ("  - {name: a, set: {network.pod.topology: ring}}\n", "cannot change what can be built"),
    ("  samples: {count: 0, seed: 1, vary: {workloads.w.weight: 1..2}}\n", "must be from 1 to 1000, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_scenarios(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        load_design(write(tmp_path, text))
    assert message in str(caught.value)
    assert "d.yaml:" in str(caught.value)


def test_objectives_that_scenarios_do_not_have(tmp_path):
    with pytest.raises(InputError, match="worst-time compares workloads"):
        load_design(write(tmp_path, "  - {name: a}\n", "objective: worst-time\n"))
    text = "  minimize: worst\n  cases: [{name: a}]\n"
    extra = "objective: time-cost\nprices: {npu: 1 USD}\n"
    with pytest.raises(InputError, match="only step times have a worst case"):
        load_design(write(tmp_path, text, extra))
    both = "  - {name: a}\n  - {name: b, set: {network.pod.efficiency: 0.5, prices.npu: 2 USD}}\n"
    with pytest.raises(InputError, match="both times and prices"):
        load_design(write(tmp_path, both, extra))
    one = "  - {name: a}\n  - {name: b, set: {prices.npu: 3 USD}}\n"
    d = load_design(write(tmp_path, one, extra))
    result = optimize_design(d)
    plain = optimize_design(
        load_design(write(tmp_path, "  - {name: a}\n", extra.replace("1 USD", "2 USD")))
    )
    assert result.objective_value == pytest.approx(plain.objective_value, rel=1e-5)


LANES = """network:
  - {topology: ring, size: 4, tier: node, lane: 10 GB/s, max_lanes: 10}
  - {topology: switch, size: 8, tier: pod, FIELDS}
workloads: [{name: w, trace: w.txt}]
constraints: [cost <= 4000 USD, pod <= 50 GB/s]
prices: {node: {link: 1 USD/(GB/s)}, pod: {link: 1 USD/(GB/s), switch: 0 USD/(GB/s), nic: 0 USD/(GB/s)}}
scenarios:
  - {name: as is}
  - {name: dear, set: {PATH: PRICE}}
"""


@pytest.mark.parametrize(
    ("fields", "path", "price"),
    [
        ("lane: 10 GB/s, max_lanes: 10", "prices.pod.link", "3 USD/(GB/s)"),
        (
            "bandwidth_choices: [{bandwidth: 10 GB/s, price: 10 USD}, "
            "{bandwidth: 40 GB/s, price: 45 USD}, {bandwidth: 60 GB/s, price: 60 USD}]",
            "network.pod.bandwidth_choices.1.price",
            "300 USD",
        ),
    ],
)
def test_cost_limits_of_parts_hold_in_every_scenario(tmp_path, fields, path, price):
    Path(tmp_path, "w.txt").write_text(TRACE)
    text = LANES.replace("FIELDS", fields).replace("PATH", path).replace("PRICE", price)
    file = Path(tmp_path, "d.yaml")
    file.write_text(text)
    d = load_design(file)
    result = optimize_design(d)
    costs = [case.pricing.cost(result.bandwidth) for _, case in d.cases]
    assert max(costs) <= 4000 * (1 + 1e-9)
    options = [
        np.array([x.bandwidth, y.bandwidth])
        for x in d.network.dimensions[0].choices
        for y in d.network.dimensions[1].choices
    ]
    least = min(
        sum(s * critical_path(t, b).time for (s, _), t in zip(d.cases, time_design(d), strict=True))
        for b in options
        if max(case.pricing.cost(b) for _, case in d.cases) <= 4000 and b[1] <= 50 * GB
    )
    assert result.objective_value == pytest.approx(least, rel=1e-6)
    assert [p.constraint for p in result.shadow_prices] == [
        "cost <= 4000 USD",
        "pod <= 50 GB/s",
        "dear: cost <= 4000 USD",
    ]
    assert result.shadow_prices[2].slack == pytest.approx(4000 - costs[1])


LIMITS = "constraints: [total <= 100 GB/s, time(w) <= 60 ms]\n"


def test_time_limits_are_those_of_the_scenarios(tmp_path):
    path = write(
        tmp_path, "  - {name: as is}\n  - {name: slow, set: {network.pod.efficiency: 0.5}}\n"
    )
    path.write_text(path.read_text().replace("constraints: [total <= 100 GB/s]\n", LIMITS))
    d = load_design(path)
    result = optimize_design(d)
    times = [
        critical_path(time_design(case)[0], result.bandwidth).time
        for case in (x for _, x in d.cases)
    ]
    for other in (result, evaluate_design(d, result.bandwidth)):
        slacks = {p.constraint: p.slack for p in other.shadow_prices if p.slack_unit == "s"}
        assert slacks == pytest.approx(
            {
                "as is: time(w) <= 60 ms": 0.06 - times[0],
                "slow: time(w) <= 60 ms": 0.06 - times[1],
            }
        )


def test_time_limits_that_a_scenario_cannot_meet_name_it_and_the_way_out(tmp_path):
    path = write(
        tmp_path,
        "  - {name: slow, set: {network.pod.efficiency: 0.5}}\n"
        "  - {name: slower, set: {network.pod.efficiency: 0.2}}\n"
        "  - {name: slow too, set: {network.pod.efficiency: 0.5}}\n",
    )
    text = path.read_text().replace("constraints: [total <= 100 GB/s]\n", LIMITS)
    path.write_text(text.replace("60 ms", "14 ms"))
    with pytest.raises(InfeasibleError) as caught:
        optimize_design(load_design(path))
    lines = str(caught.value).splitlines()
    assert [x.split("d.yaml")[1] for x in lines[1:3]] == [
        ":7: slow too: time(w) <= 14 ms",
        ":7: total <= 100 GB/s",
    ]
    way_out = lines[3].split("'")[1]
    path.write_text(text.replace("time(w) <= 60 ms", way_out))
    slowest = max(s.step_time for s in optimize_design(load_design(path)).scenarios)
    assert slowest > 0


@pytest.mark.parametrize(
    ("limit", "extra"),
    [
        ("time(w) <= 60 ms", "objective: cost\n"),
        ("cost >= 0 USD", "objective: time-cost\nprices: {npu: 25000 USD}\n"),
    ],
)
def test_objectives_that_need_no_limits_on_bandwidths(tmp_path, limit, extra):
    slow = "  - {name: as is}\n  - {name: slow, set: {network.pod.efficiency: 0.5}}\n"
    path = write(tmp_path, slow, extra)
    path.write_text(path.read_text().replace("total <= 100 GB/s", limit))
    result = optimize_design(load_design(path))
    assert result.gap <= 1e-5
    assert [(s.best, s.regret) for s in result.scenarios] == [(None, None)] * 2
    assert "no limit" in str(result)
    assert json.loads(result.to_json())["scenarios"][0]["best_s"] is None
    assert evaluate_design(result.design, result.bandwidth).objective_value == pytest.approx(
        result.objective_value, rel=1e-6
    )


def test_check_shows_parts_limits_and_scenarios(tmp_path):
    Path(tmp_path, "w.txt").write_text(TRACE)
    path = Path(tmp_path, "d.yaml")
    path.write_text(
        BASE.replace("tier: node", "tier: node, lane: 10 GB/s, max_lanes: 6")
        .replace("tier: pod", "tier: pod, radix: 4")
        .replace("GB/s]", "GB/s, time(w) <= 90 ms]")
        + "power: default\nscenarios:\n  minimize: worst\n  cases:\n    - {name: as is}\n"
        "    - {name: slow, weight: 3, set: {network.pod.efficiency: 0.5}}\n"
    )
    summary = summarize_design(load_design(path))
    assert summary["constraints"] == ["total <= 100 GB/s", "time(w) <= 90 ms"]
    assert summary["dimension_details"][0]["choices_GBps"] == [10, 20, 30, 40, 50, 60]
    assert summary["dimension_details"][1]["radix"] == 4
    assert summary["scenarios"]["cases"][1] == {"name": "slow", "share": 0.75}
    text = render(check_table(summary))
    for part in (
        "10, 20, …, 60",
        "any",
        "switch, radix 4",
        "W per GB/s",
        "time(w) <= 90 ms",
        "worst over as is (25.0%), slow (75.0%)",
    ):
        assert part in text


def write_design(folder, rows, scenarios):
    (folder / "w.txt").write_text(TRACE)
    path = folder / "d.yaml"
    path.write_text(BASE.replace("[total <= 100 GB/s]", rows) + scenarios)
    return load_design(path)


@pytest.mark.parametrize(
    ("rows", "setting", "error", "message"),
    [
        (
            "[total <= 100 GB/s, pod >= 50 GB/s]",
            "constraints.total: 40 GB/s",
            InfeasibleError,
            "infeasible in scenario 'tight': these constraints cannot hold together",
        ),
        (
            "[node <= 100 GB/s, pod <= 50 GB/s]",
            "constraints: [node <= 4 GB/s]",
            UnboundedError,
            "unbounded in scenario 'tight': nothing limits pod",
        ),
    ],
)
def test_a_scenario_without_optimum_is_named(tmp_path, rows, setting, error, message):
    cases = f"scenarios:\n  - {{name: fine}}\n  - {{name: tight, set: {{{setting}}}}}\n"
    with pytest.raises(error) as caught:
        optimize_design(write_design(tmp_path, rows, cases))
    assert str(caught.value).startswith(message)
