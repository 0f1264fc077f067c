"""Experts inside a node, across nodes, or both, and the dimension that then needs bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from drawing import bars, framed, stacks
from pages import Table

from libra.design import Design
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
SHORT = {QWEN: "Qwen3", MIXTRAL: "Mixtral"}
PLAIN, ONCE = "all-to-all", "deduplicated"
"""Dispatch of tokens: a copy for each expert, or for each place that has some of a token's."""


class Case(NamedTuple):
    """A model, the place of its experts, and how tokens travel to them."""

    model: str
    place: str
    dispatch: str = PLAIN


CASES = (
    *(Case(QWEN, place) for place in PLACEMENTS),
    *(Case(QWEN, place, ONCE) for place in PLACEMENTS),
    *(Case(MIXTRAL, place) for place in (INSIDE, ACROSS)),
)
"""Mixtral has an expert on each of 8 members: no copy would be saved."""


def figures() -> dict[str, Any]:
    """Optimise the network of each case, at will and in a slot, and run it on others."""
    reader = DesignReader(FOLDER / "design.yaml")
    free = {case: optimize_design(_design(reader, case, constraints=AT_WILL)) for case in CASES}
    slot = {case: optimize_design(_design(reader, case)) for case in CASES}
    sold = {case: evaluate_design(_design(reader, case), H100) for case in CASES}
    hidden = {
        case: evaluate_design(_design(reader, case, hidden=True), H100).step_time for case in CASES
    }
    on = {
        (run, network): _timed(free[Case(QWEN, run)], free[Case(QWEN, network)].bandwidth)
        for run in PLACEMENTS
        for network in PLACEMENTS
    }
    found: dict[str, Any] = {"free": free, "slot": slot, "sold": sold}
    found |= _numbers(free, slot, sold, hidden)
    found |= _wrong_networks(on)
    found |= _tables(free, slot, sold, hidden, on)
    found["shares"] = [
        {"case": _named(case), "dimension": name, "bandwidth": float(value) / 1e9}
        for case in CASES
        if case.dispatch == PLAIN  # labels of more bars would not fit
        for name, value in zip(("nvlink", "rail"), free[case].bandwidth, strict=True)
    ]
    found["networks"] = [
        {"run": _named(case), "network": name, "time": time}
        for case in CASES
        for name, time in (
            ("split at will", free[case].step_time),
            ("rail of 64 GB/s at most", slot[case].step_time),
            ("as sold: 450 + 50 GB/s", sold[case].step_time),
        )
    ]
    found["runs"] = [
        {"run": f"experts: {run}", "network": f"network for {network}", "time": on[run, network]}
        for run in PLACEMENTS
        for network in PLACEMENTS
    ]
    return found


def _design(
    reader: DesignReader, case: Case, *, constraints: str | None = None, hidden: bool = False
) -> Design:
    """Design of a case, under the file's constraints or others.

    Parameters
    ----------
    reader : DesignReader
    case : Case
    constraints : str, optional
    hidden : bool
        Whether all-to-alls run beside another micro-batch.
    """
    experts, order = PLACEMENTS[case.place]
    parallel = (
        f"{{pp: 8, dp: 128, ep: {experts}, zero: 1, order: {order}, dispatch: {case.dispatch}}}"
    )
    settings = {"workloads.moe.model": case.model, "workloads.moe.parallel": parallel}
    if hidden:
        settings["workloads.moe.overlap"] = "{ep: true}"
    if constraints is not None:
        settings["constraints"] = constraints
    return reader.read([Override(*item) for item in settings.items()])


def _numbers(
    free: Mapping[Case, Result],
    slot: Mapping[Case, Result],
    sold: Mapping[Case, Result],
    hidden: Mapping[Case, float],
) -> dict[str, Any]:
    """What the page's sentences quote of each case, such as ``both_once_sold``."""
    places = {INSIDE: "inside", ACROSS: "across", BOTH: "both"}
    found: dict[str, Any] = {}
    for case in CASES:
        name = ("mixtral_" if case.model == MIXTRAL else "") + places[case.place]
        name += "_once" if case.dispatch == ONCE else ""
        nvlink, rail = free[case].bandwidth / 1e9
        found |= {
            f"{name}_time": free[case].step_time,
            f"{name}_nvlink": nvlink,
            f"{name}_rail": rail,
            f"{name}_share": _all_to_all(free[case]),
            f"{name}_slot": slot[case].step_time,
            f"{name}_slot_loss": slot[case].step_time / free[case].step_time - 1,
            f"{name}_sold": sold[case].step_time,
            f"{name}_sold_share": _all_to_all(sold[case]),
            f"{name}_sold_loss": sold[case].step_time / free[case].step_time - 1,
            f"{name}_hidden": hidden[case],
        }
    inside, across, both = (Case(QWEN, place) for place in PLACEMENTS)
    once = {place: Case(QWEN, place, ONCE) for place in PLACEMENTS}
    nvlink, rail = slot[across].bandwidth / 1e9
    return found | {
        "slot_nvlink": nvlink,
        "slot_rail": rail,
        "gain_across": free[inside].step_time / free[across].step_time - 1,
        "cost_across": free[across].network_cost / free[inside].network_cost,
        "sold_ratio": sold[across].step_time / sold[inside].step_time,
        "sold_once_ratio": sold[once[ACROSS]].step_time / sold[once[INSIDE]].step_time,
        "mixtral_sold_ratio": found["mixtral_across_sold"] / found["mixtral_inside_sold"],
        "copies": 8 * _sizes(free[once[INSIDE]])[0] / _sizes(free[inside])[0],
        "copies_both": 8 * _sizes(free[once[BOTH]])[1] / _sizes(free[both])[0],
        **{
            f"{name}_once_saves": 1
            - sold[once[place]].step_time / sold[Case(QWEN, place)].step_time
            for place, name in places.items()
        },
    }


def _wrong_networks(on: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """What the networks for other placements cost."""
    worst = {
        network: max(on[run, network] / on[run, run] for run in PLACEMENTS)
        for network in PLACEMENTS
    }
    safest = min(PLACEMENTS, key=worst.__getitem__)
    return {
        "wrong": on[INSIDE, ACROSS] / on[INSIDE, INSIDE],
        "wrong_back": on[ACROSS, INSIDE] / on[ACROSS, ACROSS] - 1,
        "safest": safest,
        "safest_worst": worst[safest] - 1,
    }


def _tables(
    free: Mapping[Case, Result],
    slot: Mapping[Case, Result],
    sold: Mapping[Case, Result],
    hidden: Mapping[Case, float],
    on: Mapping[tuple[str, str], float],
) -> dict[str, Table]:
    network = {"NVLink, GB/s": ".0f", "rail, GB/s": ".0f", "M USD": ".1f", "step, s": ".2f"}
    case_columns = {"model": "", "experts over": "", "dispatch": ""}

    def solved(case: Case, result: Result) -> list[Any]:
        names = [SHORT[case.model], f"{case.place}, {_members(result)}", case.dispatch]
        bandwidths = [float(b) / 1e9 for b in result.bandwidth]
        return [*names, *bandwidths, result.network_cost / 1e6, result.step_time]

    return {
        "table": Table(
            {**case_columns, **network, "all-to-all": ".0%"},
            [[*solved(case, free[case]), _all_to_all(free[case])] for case in CASES],
        ),
        "slot_table": Table(
            {
                **case_columns,
                **network,
                "than at will": "+.0%",
                "as sold, s": ".2f",
                "of it all-to-all": ".0%",
                "hidden, s": ".2f",
            },
            [
                [
                    *solved(case, slot[case]),
                    slot[case].step_time / free[case].step_time - 1,
                    sold[case].step_time,
                    _all_to_all(sold[case]),
                    hidden[case],
                ]
                for case in CASES
            ],
        ),
        "matrix": Table(
            {"experts over": "", **{f"network for {place}, s": ".2f" for place in PLACEMENTS}},
            [[run, *(on[run, place] for place in PLACEMENTS)] for run in PLACEMENTS],
        ),
    }


def _named(case: Case) -> str:
    return f"{SHORT[case.model]}: {case.place}" + (", once" if case.dispatch == ONCE else "")


def _sizes(result: Result) -> list[float]:
    """Bytes of each all-to-all of a pass, the outermost dimension's first."""
    collectives = (row.collective for row in result.workloads[0].collectives)
    return [c.size for c in collectives if c.kind == "all-to-all"]


def _members(result: Result) -> str:
    """Members of expert parallelism in a node and over the rails."""
    collectives = (row.collective for row in result.workloads[0].collectives)
    groups = [c.group.extents for c in collectives if c.kind == "all-to-all"]
    return " x ".join(str(max(extents)) for extents in zip(*groups, strict=True))


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
            "What a slot allows: each placement on its best network (once: deduplicated)",
        ),
    )
