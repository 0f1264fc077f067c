"""Experts inside a node, across nodes, or both, and the dimension that then needs bandwidth."""

from __future__ import annotations

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
    qwen = {place: _solved(reader, QWEN, place) for place in PLACEMENTS}
    mixtral = {place: _solved(reader, MIXTRAL, place) for place in (INSIDE, ACROSS)}
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
    found["table"] = Table(
        {
            "model": "",
            "experts over": "",
            "NVLink, GB/s": ".0f",
            "rail, GB/s": ".0f",
            "step, s": ".2f",
            "all-to-all": ".0%",
            "M USD": ".1f",
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
    found["runs"] = [
        {"run": f"experts: {run}", "network": f"network for {network}", "time": on[run, network]}
        for run in PLACEMENTS
        for network in PLACEMENTS
    ]
    return found


def _solved(reader: DesignReader, model: str, place: str) -> Result:
    experts, order = PLACEMENTS[place]
    parallel = f"{{pp: 8, dp: 128, ep: {experts}, zero: 1, order: {order}}}"
    settings = {"model": model, "parallel": parallel}
    return optimize_design(
        reader.read([Override(f"workloads.moe.{key}", value) for key, value in settings.items()])
    )


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
    )
