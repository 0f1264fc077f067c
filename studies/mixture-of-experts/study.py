"""Experts inside a node, across nodes, or both, and the dimension that then needs bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drawing import bars, framed, stacks
from pages import Table

from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.result import Result
from libra.yaml_source import Override

FOLDER = Path(__file__).parent
AT_WILL = "[total <= 500 GB/s]"
"""Constraints without the one that a slot sets to the rail."""

H100 = (450e9, 50e9)
INSIDE, ACROSS, BOTH = "node", "rails", "both"
REPLICAS_INSIDE, STAGES_INSIDE = "[tp, cp, dp, pp]", "[tp, cp, pp, dp]"
PLACEMENTS = {
    INSIDE: (8, REPLICAS_INSIDE),
    ACROSS: (8, STAGES_INSIDE),
    BOTH: (64, REPLICAS_INSIDE),
}
"""Expert parallelism and order of the roles, innermost first."""

QWEN, MIXTRAL = "qwen3-30b-a3b", "mixtral-8x22b"


def figures() -> dict[str, Any]:
    """Optimise the network for each placement, and run each placement on each network."""
    reader = DesignReader(FOLDER / "design.yaml")
    qwen = {place: _solved(reader, QWEN, place, AT_WILL) for place in PLACEMENTS}
    mixtral = {place: _solved(reader, MIXTRAL, place, AT_WILL) for place in (INSIDE, ACROSS)}
    sold = {place: _timed(result, H100) for place, result in qwen.items()}
    sold_share = {
        place: _all_to_all(evaluate_design(result.design, H100)) for place, result in qwen.items()
    }
    on = {
        (run, network): _timed(qwen[run], qwen[network].bandwidth)
        for run in PLACEMENTS
        for network in PLACEMENTS
    }
    worst = {
        network: max(on[run, network] / on[run, run] for run in PLACEMENTS)
        for network in PLACEMENTS
    }
    safest = min(PLACEMENTS, key=worst.__getitem__)
    found: dict[str, Any] = {
        f"{name}_{key}": value
        for name, place in (("inside", INSIDE), ("across", ACROSS), ("both", BOTH))
        for key, value in (
            ("time", qwen[place].step_time),
            ("nvlink", qwen[place].bandwidth[0] / 1e9),
            ("rail", qwen[place].bandwidth[1] / 1e9),
            ("cost", qwen[place].network_cost / 1e6),
            ("sold", sold[place]),
            ("share", _all_to_all(qwen[place])),
            ("sold_share", sold_share[place]),
            ("worst", worst[place]),
        )
    }
    found |= {
        "wrong": on[INSIDE, ACROSS] / on[INSIDE, INSIDE],
        "wrong_back": on[ACROSS, INSIDE] / on[ACROSS, ACROSS] - 1,
        "gain_across": on[INSIDE, INSIDE] / on[ACROSS, ACROSS] - 1,
        "cost_across": qwen[ACROSS].network_cost / qwen[INSIDE].network_cost,
        "sold_ratio": sold[ACROSS] / sold[INSIDE],
        "sold_inside_over_own": sold[INSIDE] / on[INSIDE, INSIDE] - 1,
        "safest": safest,
        "safest_worst": worst[safest] - 1,
        "compute": qwen[INSIDE].workloads[0].compute,
        "mixtral_inside_share": _all_to_all(mixtral[INSIDE]),
        "mixtral_inside_nvlink": mixtral[INSIDE].bandwidth[0] / 1e9,
        "mixtral_across_nvlink": mixtral[ACROSS].bandwidth[0] / 1e9,
        "mixtral_sold_ratio": _timed(mixtral[ACROSS], H100) / _timed(mixtral[INSIDE], H100),
    }
    short = {QWEN: "Qwen3", MIXTRAL: "Mixtral"}
    cases = [(QWEN, place, result) for place, result in qwen.items()]
    cases += [(MIXTRAL, place, result) for place, result in mixtral.items()]
    slot = {(model, place): _solved(reader, model, place) for model, place, _ in cases}
    found |= _limited(slot, cases)
    found["table"] = Table(
        {
            "model": "",
            "experts over": "",
            "NVLink, GB/s": ".0f",
            "rail, GB/s": ".0f",
            "step, s": ".2f",
            "all-to-all": ".0%",
            "M USD": ".1f",
            "in a slot, s": ".2f",
            "as sold, s": ".2f",
        },
        [
            [
                short[model],
                f"{place}, {_members(result)}",
                *(float(b) / 1e9 for b in result.bandwidth),
                result.step_time,
                _all_to_all(result),
                result.network_cost / 1e6,
                slot[model, place].step_time,
                _timed(result, H100),
            ]
            for model, place, result in cases
        ],
    )
    found["matrix"] = Table(
        {"experts over": "", **{f"network for {place}, s": ".2f" for place in PLACEMENTS}},
        [[run, *(on[run, network] for network in PLACEMENTS)] for run in PLACEMENTS],
    )
    found["shares"] = [
        {"case": f"{short[model]}: {place}", "dimension": name, "bandwidth": float(value) / 1e9}
        for model, place, result in cases
        for name, value in zip(("nvlink", "rail"), result.bandwidth, strict=True)
    ]
    found["networks"] = [
        {"run": f"{short[model]}: {place}", "network": name, "time": time}
        for model, place, result in cases
        for name, time in (
            ("split at will", result.step_time),
            ("rail of 64 GB/s at most", slot[model, place].step_time),
            ("as sold: 450 + 50 GB/s", _timed(result, H100)),
        )
    ]
    found["runs"] = [
        {"run": f"experts: {run}", "network": f"network for {network}", "time": on[run, network]}
        for run in PLACEMENTS
        for network in PLACEMENTS
    ]
    return found


def _solved(reader: DesignReader, model: str, place: str, constraints: str | None = None) -> Result:
    """Best network of a model and placement, under the design's constraints or others."""
    experts, order = PLACEMENTS[place]
    parallel = f"{{pp: 8, dp: 128, ep: {experts}, zero: 1, order: {order}}}"
    settings = {"workloads.moe.model": model, "workloads.moe.parallel": parallel}
    if constraints is not None:
        settings["constraints"] = constraints
    return optimize_design(reader.read([Override(*item) for item in settings.items()]))


def _limited(slot: Mapping[Any, Result], cases: Sequence[Any]) -> dict[str, Any]:
    """What the limit of the rail costs each placement, and the network that all then want."""
    costs = {
        (model, place): slot[model, place].step_time / result.step_time - 1
        for model, place, result in cases
    }
    networks = [result.bandwidth / 1e9 for result in slot.values()]
    nvlink, rail = networks[0]
    assert all(abs(other - networks[0]).max() < 0.5 for other in networks), networks
    return {
        "slot_nvlink": nvlink,
        "slot_rail": rail,
        "slot_usd": slot[QWEN, INSIDE].network_cost / 1e6,
        "slot_inside": costs[QWEN, INSIDE],
        "slot_across": costs[QWEN, ACROSS],
        "slot_both": costs[QWEN, BOTH],
        "slot_mixtral_inside": costs[MIXTRAL, INSIDE],
        "slot_mixtral_across": costs[MIXTRAL, ACROSS],
        "slot_inside_time": slot[QWEN, INSIDE].step_time,
        "slot_across_time": slot[QWEN, ACROSS].step_time,
        "slot_saves": 1 - slot[QWEN, INSIDE].network_cost / cases[0][2].network_cost,
    }


def _members(result: Result) -> str:
    """Members of expert parallelism in a node and over the rails."""
    collectives = (row.collective for row in result.workloads[0].collectives)
    group = next(c.group for c in collectives if c.kind == "all-to-all")
    return " x ".join(map(str, group.extents))


def _timed(result: Result, bandwidth: Any) -> float:
    return evaluate_design(result.design, list(bandwidth)).step_time


def _all_to_all(result: Result) -> float:
    """Share of the step that waits for all-to-alls, along the critical path."""
    rows = result.workloads[0].collectives
    return sum(row.time for row in rows if row.collective.kind == "all-to-all") / result.step_time


def chart(figures: dict[str, Any]) -> Any:
    """Where the bandwidth belongs, and what the network for another placement costs."""
    return framed(
        stacks(
            figures["shares"],
            ("case", "model: experts over"),
            ("bandwidth", "GB/s of a GPU"),
            "dimension",
            "Best network for each place of the experts",
        ),
        bars(
            figures["runs"],
            ("time", "step, s"),
            "run",
            "network",
            "Qwen3-30B-A3B on the networks of the other placements",
        ),
        bars(
            figures["networks"],
            ("time", "step, s"),
            "run",
            "network",
            "What a slot allows: each placement on its best network",
        ),
    )
