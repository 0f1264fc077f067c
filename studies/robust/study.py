"""One network for several futures: the plan, the mean, the worst case, the least regret."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drawing import bars, framed, lines
from pages import Table

from libra.design import Design
from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import optimize_design
from libra.yaml_source import Override, read_yaml

FOLDER = Path(__file__).parent
AT_WILL = Override("constraints", "[cost <= 10e6 USD]")
"""Constraints without the one that a slot sets to the rail."""

PLAN = "the plan"
RULES = {"mean": "expected", "worst case": "worst", "least regret": "regret"}
DEAR = "dear optics"
BUDGET = 10e6
FUTURES = 40
DEAREST = 1.4
OPTICS = {"link": 7.8, "nic": 31.6}
"""Prices of the pod's parts that may rise [USD per GB/s]."""


def figures() -> dict[str, Any]:
    """Solve each rule, time its network in each scenario and in futures that none was made for."""
    reader = DesignReader(FOLDER / "design.yaml")
    robust = {
        name: optimize_design(reader.read([AT_WILL, Override("scenarios.minimize", rule)]))
        for name, rule in RULES.items()
    }
    design = robust["least regret"].design
    plan = optimize_design(replace(design, scenarios=()))
    networks = {PLAN: plan.bandwidth} | {name: r.bandwidth for name, r in robust.items()}
    cases = {s.name: s.design for s in design.scenarios}
    bests = {s.name: s.best for s in robust["least regret"].scenarios}
    ran = {
        (name, case): evaluate_design(cases[case], list(bandwidth))
        for name, bandwidth in networks.items()
        for case in cases
    }
    regrets = {(n, c): r.step_time / bests[c] - 1 for (n, c), r in ran.items()}
    dear = {name: ran[name, DEAR].network_cost for name in networks}
    unseen = _futures(networks)
    found: dict[str, Any] = {
        "futures": FUTURES,
        "over": dear[PLAN] / BUDGET - 1,
        "over_million": (dear[PLAN] - BUDGET) / 1e6,
        "table": _table(networks, ran, regrets, dear, list(cases)),
        "unseen_table": Table(
            {"network": "", "mean": ".1%", "worst": ".1%", "over the budget, of futures": ".0%"},
            [
                [name, sum(seen) / len(seen), max(seen), over / FUTURES]
                for name, (seen, over) in unseen.items()
            ],
        ),
        "plan_over_share": unseen[PLAN][1] / FUTURES,
    }
    for key, name in (("plan", PLAN), ("mean", "mean"), ("least", "least regret")):
        nvlink, rail = networks[name] / 1e9
        allowed = [c for c in cases if name != PLAN or c != DEAR]
        found |= {
            f"{key}_nvlink": nvlink,
            f"{key}_rail": rail,
            f"{key}_ratio": nvlink / rail,
            f"{key}_premium": regrets[name, "as planned"],
            f"{key}_worst": max(regrets[name, case] for case in allowed),
            f"{key}_cost": plan.design.pricing.cost(networks[name]) / 1e6,
            f"{key}_unseen_worst": max(unseen[name][0]),
            f"{key}_unseen_mean": sum(unseen[name][0]) / FUTURES,
        }
    worst = networks["worst case"]
    found |= {
        "fastest_nvlink": worst[0] / 1e9,
        "fastest_rail": worst[1] / 1e9,
        "fastest_experts": regrets["worst case", "mostly experts"],
        **{
            f"fastest_{w.name}_step": w.step_time for w in ran["worst case", "as planned"].workloads
        },
    }
    found |= _in_a_slot(reader, bests)
    full = plan.design.pricing.cost(networks["least regret"]) / BUDGET
    spent = evaluate_design(cases["as planned"], list(networks["least regret"] / full)).step_time
    found["least_premium_full"] = spent / bests["as planned"] - 1
    found["regrets"] = [
        {"scenario": case, "network": name, "regret": max(regrets[name, case], 0.0)}
        for case in cases
        for name in networks
        if not (name == PLAN and case == DEAR)
    ]
    found["sorted"] = [
        {"rank": k + 1, "network": name, "regret": 100 * regret}
        for name, (seen, _) in unseen.items()
        for k, regret in enumerate(sorted(seen))
    ]
    return found


def _in_a_slot(reader: DesignReader, bests: dict[str, float]) -> dict[str, Any]:
    """The same rules where the rail is limited, and what the limit costs the best of a scenario.

    Parameters
    ----------
    reader : DesignReader
    bests : dict of str to float
        Least step time of each scenario without the limit [s].
    """
    robust = {
        name: optimize_design(reader.read([Override("scenarios.minimize", rule)]))
        for name, rule in RULES.items()
    }
    limited = {s.name: s.best for s in robust["least regret"].scenarios}
    plan = optimize_design(replace(robust["least regret"].design, scenarios=()))
    cases = {s.name: s.design for s in robust["least regret"].design.scenarios}
    rows, worst = [], {}
    for name, result in ({PLAN: plan} | robust).items():
        over = cases[DEAR].pricing.cost(result.bandwidth) > BUDGET * (1 + 1e-6)
        regrets = [
            None
            if over and case == DEAR
            else evaluate_design(design, list(result.bandwidth)).step_time / limited[case] - 1
            for case, design in cases.items()
        ]
        worst[name] = max(regret for regret in regrets if regret is not None)
        cost = plan.design.pricing.cost(result.bandwidth) / 1e6
        rows.append([name, *(float(b) / 1e9 for b in result.bandwidth), cost, *regrets])
    columns = {"network for": "", "NVLink, GB/s": ".0f", "rail, GB/s": ".0f", "M USD": ".2f"}
    return {
        "slot_table": Table(columns | dict.fromkeys(cases, ".1%"), rows),
        "slot_costs_plan": limited["as planned"] / bests["as planned"] - 1,
        "slot_costs_even": limited["even mix"] / bests["even mix"] - 1,
        "slot_costs_experts": limited["mostly experts"] / bests["mostly experts"] - 1,
        "slot_experts_time": limited["mostly experts"],
        "slot_experts_free_time": bests["mostly experts"],
        "slot_plan_worst": worst[PLAN],
        "slot_least_worst": worst["least regret"],
        "slot_bests": limited,
        "slot_least_nvlink": rows[-1][1],
        "slot_least_rail": rows[-1][2],
        "slot_costs": [
            {"scenario": case, "best network": name, "time": times[case]}
            for case in cases
            for name, times in (("split at will", bests), ("rail of 64 GB/s at most", limited))
        ],
    }


def _futures(networks: dict[str, Any]) -> dict[str, tuple[list[float], int]]:
    """Regret of each network in random futures, and in how many it is over the budget.

    The mix is anything between dense models alone and experts alone, optics cost up to 40 % more. A
    network that is over the budget is cut down in proportion until it fits.
    """
    source = read_yaml(FOLDER / "design.yaml")
    plain = {key: value for key, value in source.data.items() if key != "scenarios"}
    reader = DesignReader(replace(source, data=plain))
    draw = random.Random(1)  # noqa: S311
    found: dict[str, tuple[list[float], int]] = {name: ([], 0) for name in networks}
    for _ in range(FUTURES):
        design = reader.read(_future(draw.random(), draw.uniform(1, DEAREST)))
        best = optimize_design(design).step_time
        for name, bandwidth in networks.items():
            time, over = _affordable(design, bandwidth)
            seen, times_over = found[name]
            found[name] = ([*seen, time / best - 1], times_over + over)
    return found


def _future(experts: float, factor: float) -> list[Override]:
    """Settings of a future: share of steps that experts have, and price of optics over today's."""
    shares = {"dense": 10 * (1 - experts), "experts": 10 * experts}
    return [
        AT_WILL,
        *(Override(f"workloads.{name}.weight", repr(max(k, 1e-6))) for name, k in shares.items()),
        *(
            Override(f"prices.pod.{part}", f"{price * factor!r} USD/(GB/s)")
            for part, price in OPTICS.items()
        ),
    ]


def _affordable(design: Design, bandwidth: Any) -> tuple[float, bool]:
    """Step time of a network, cut down to the budget, and whether it had to be."""
    scale = min(1.0, BUDGET / design.pricing.cost(bandwidth))
    return evaluate_design(design, list(scale * bandwidth)).step_time, scale < 1 - 1e-6


def _table(networks: Any, ran: Any, regrets: Any, dear: Any, cases: Sequence[str]) -> Table:
    columns = {
        "network for": "",
        "NVLink, GB/s": ".0f",
        "rail, GB/s": ".0f",
        "M USD": ".2f",
        "M USD if dear": ".2f",
        **dict.fromkeys(cases, ".1%"),
    }
    rows = []
    for name, bandwidth in networks.items():
        cost = ran[name, "as planned"].network_cost
        over = dear[name] > BUDGET * (1 + 1e-6)
        seen = [None if over and case == DEAR else regrets[name, case] for case in cases]
        rows.append(
            [name, *(float(b) / 1e9 for b in bandwidth), cost / 1e6, dear[name] / 1e6, *seen]
        )
    return Table(columns, rows)


def chart(figures: dict[str, Any]) -> Any:
    """Regret of each network in the scenarios, and in futures unseen."""
    return framed(
        bars(
            figures["regrets"],
            ("regret", "step time over the best possible there"),
            "scenario",
            "network",
            "Regret of each network in each scenario",
            form=".1%",
        ),
        lines(
            figures["sorted"],
            ("rank", "futures, from the kindest to the worst for each network"),
            ("regret", "regret, %"),
            "network",
            "Regret in futures that no network was made for",
        ),
        bars(
            figures["slot_costs"],
            ("time", "least weighted step time, s"),
            "scenario",
            "best network",
            "What a slot of 64 GB/s costs: the best network of each scenario alone",
            form=".1f",
        ),
    )
