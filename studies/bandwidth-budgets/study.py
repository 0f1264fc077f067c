"""Best time and best performance per cost against an equal split, for budgets of bandwidth."""

from __future__ import annotations

from typing import Any

from drawing import framed, lines
from pages import Table

from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.presets import example_folder
from libra.sweep import Axis, sweep_design
from libra.units import format_time

MODELS = ("turing-nlg", "gpt-3", "msft-1t")
NETWORKS = ("3D", "4D")
BUDGETS = range(100, 1001, 100)
NPU = 25000.0
"""Price of an NPU with its share of the machine [USD], an assumption.

A secondary source (kshirol-dev.github.io/learnAI, 2025) puts the network of a SuperPOD of 4,096
GPUs at 20 to 50 M USD and 15 to 25 % of the cost: with low and high together the rest is 28,000 to
37,000 USD for a GPU.
"""

REFERENCE = {
    # (model, network, GB/s): time at the time optimum [ns], time at the optimum per cost [ns], its
    # cost [USD], time of the equal split [ns], as a commercial solver finds them for the inputs of
    # github.com/astra-sim/libra (two layers of each model, compute times of its own).
    ("turing-nlg", "3D", 300): (332943578, 340990404, 5123176, 343450844),
    ("turing-nlg", "3D", 1000): (328887137, 334731920, 16763638, 332039317),
    ("turing-nlg", "4D", 300): (332943578, 356419623, 2677502, 344537657),
    ("turing-nlg", "4D", 1000): (328887137, 343181027, 8593503, 332365360),
    ("gpt-3", "3D", 300): (756101131, 793218142, 5307772, 828270926),
    ("gpt-3", "3D", 1000): (705944109, 730624207, 17129383, 727595047),
    ("gpt-3", "4D", 300): (747720811, 851012378, 3055532, 835443186),
    ("gpt-3", "4D", 1000): (703430013, 775667445, 9283828, 729746725),
    ("msft-1t", "3D", 300): (236147049, 285141666, 6366847, 310278854),
    ("msft-1t", "3D", 1000): (189840694, 217569984, 19292747, 212080236),
    ("msft-1t", "4D", 300): (236147080, 303411112, 4223742, 320801314),
    ("msft-1t", "4D", 1000): (189840702, 239881870, 11559874, 215236974),
}


PER_BANDWIDTH = {"3D": 4 + 4 + 57.4, "4D": 2 + 4 + 4 + 57.4}
"""Sum of the dimensions' prices in the reference's cost model [USD per GB/s]."""


def figures() -> dict[str, Any]:
    """Solve every budget of every model on both networks for both objectives."""
    rows = [row for model in MODELS for network in NETWORKS for row in _budgets(model, network)]
    found: dict[str, Any] = {"rows": rows}
    at = {(row["model"], row["network"], row["budget"]): row for row in rows}
    for key in ("speedup", "gain"):
        best, least = max(rows, key=lambda r: r[key]), min(rows, key=lambda r: r[key])
        found |= {f"most_{key}": best[key], f"least_{key}": least[key]}
        found |= {
            f"most_{key}_of": f"{best['model']} on {best['network']} at {best['budget']} GB/s"
        }
    found["most_slower"] = max(row["slower"] for row in rows)
    found |= _with_npus(rows, at)
    wins = [row for row in rows if row["gain_speedup"] >= 1]
    found |= {"wins": len(wins), "cases": len(rows)}
    found["table"] = Table(
        {
            "model": "",
            "network": "",
            "GB/s": ",d",
            "equal split": format_time,
            "best time": format_time,
            "speed-up": ".2f",
            "its gain per cost": ".2f",
            "best gain per cost": ".2f",
            "its speed-up": ".2f",
        },
        [_shown(at[m, n, b]) for m in MODELS for n in NETWORKS for b in (100, 300, 1000)],
    )
    found["reference"] = Table(
        {
            "model": "",
            "network": "",
            "GB/s": ",d",
            "communication": "",
            "speed-up of the best time": "",
            "best gain per cost": "",
        },
        [_beside(key, at) for key in REFERENCE],
    )
    return found


def _budgets(model: str, network: str) -> list[dict[str, Any]]:
    """One row a budget: what both optima gain over the equal split."""
    reader = DesignReader(example_folder() / f"{model}-{network.lower()}.yaml")
    budgets = Axis("constraints", tuple(f"[total == {b} GB/s]" for b in BUDGETS))
    solved = [row.result for row in sweep_design(reader, [_OBJECTIVES, budgets])]
    priced = [Axis("objective", ("time-cost",)), Axis("prices", (f"{{npu: {NPU} USD}}",)), budgets]
    systems = [row.result for row in sweep_design(reader, priced)]
    rows = []
    answers = zip(solved[: len(BUDGETS)], solved[len(BUDGETS) :], systems, strict=True)
    for budget, (fast, cheap, system) in zip(BUDGETS, answers, strict=True):
        assert fast is not None
        assert cheap is not None
        assert system is not None
        count, npus = len(fast.bandwidth), fast.design.network.npus * NPU
        equal = evaluate_design(fast.design, [budget * 1e9 / count] * count)
        base = equal.step_time * equal.network_cost
        whole = equal.step_time * (npus + equal.network_cost)
        rows.append(
            {
                "model": model,
                "network": network,
                "budget": budget,
                "equal": equal.step_time,
                "best": fast.step_time,
                "speedup": equal.step_time / fast.step_time,
                "gain_speedup": equal.step_time / cheap.step_time,
                "gain_of_fast": base / (fast.step_time * fast.network_cost),
                "gain": base / (cheap.step_time * cheap.network_cost),
                "slower": cheap.step_time / fast.step_time - 1,
                "system_of_fast": whole / (fast.step_time * (npus + fast.network_cost)),
                "system_of_cheap": whole / (cheap.step_time * (npus + cheap.network_cost)),
                "system": whole / (system.step_time * (npus + system.network_cost)),
                "system_speedup": equal.step_time / system.step_time,
                "system_slower": system.step_time / fast.step_time - 1,
                "system_saves": 1 - system.network_cost / fast.network_cost,
            }
        )
    return rows


def _with_npus(rows: list[dict[str, Any]], at: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """What becomes of the gains where the NPUs are part of the bill."""
    most = max(rows, key=lambda row: row["system"])
    lost = max(rows, key=lambda row: row["system"] / row["system_of_cheap"])
    columns = {
        "model": "",
        "network": "",
        "GB/s": ",d",
        "of the best time": ".2f",
        "of the best per network cost": ".2f",
        "best gain per system cost": ".2f",
        "its speed-up": ".2f",
        "slower than the best time": ".1%",
        "network cheaper by": ".0%",
    }
    keys = ("model", "network", "budget", "system_of_fast", "system_of_cheap", "system")
    keys += ("system_speedup", "system_slower", "system_saves")
    shown = [at[m, n, b] for m in MODELS for n in NETWORKS for b in (100, 300, 1000)]
    return {
        "npu": NPU,
        "npus_million": 4096 * NPU / 1e6,
        "least_system": min(row["system"] for row in rows),
        "most_system": most["system"],
        "most_system_of": f"{most['model']} on {most['network']} at {most['budget']} GB/s",
        "most_lost": lost["system"] / lost["system_of_cheap"] - 1,
        "most_lost_of": f"{lost['model']} on {lost['network']} at {lost['budget']} GB/s",
        "system_slower": max(row["system_slower"] for row in rows),
        "system_wins": sum(row["system_speedup"] >= 1 for row in rows),
        "system_saves": max(row["system_saves"] for row in rows),
        "fast_loses": max(row["system"] / row["system_of_fast"] for row in rows) - 1,
        "npu_table": Table(columns, [[_not_below_zero(row[k]) for k in keys] for row in shown]),
    }


def _not_below_zero(cell: Any) -> Any:
    """A gain that rounding makes negative is none."""
    return cell if isinstance(cell, str) else max(cell, 0)


_OBJECTIVES = Axis("objective", ("time", "time-cost"))


def _shown(row: dict[str, Any]) -> list[Any]:
    keys = ("model", "network", "budget", "equal", "best", "speedup", "gain_of_fast", "gain")
    return [row[key] for key in (*keys, "gain_speedup")]


def _beside(key: tuple[str, str, int], at: dict[Any, dict[str, Any]]) -> list[Any]:
    """The reference's gains, from its times and its prices of an equal split, beside ours."""
    model, network, budget = key
    row, (fast, cheap, cost, equal) = at[key], REFERENCE[key]
    equal_cost = 4096 * budget / int(network[0]) * PER_BANDWIDTH[network]
    there = {b: REFERENCE[model, network, b][0] for b in (300, 1000)}
    here = {b: at[model, network, b]["best"] for b in (300, 1000)}
    shares = [_communication(times, budget) for times in (there, here)]
    return [
        model,
        network,
        budget,
        f"{shares[0]:.0%} / {shares[1]:.0%}",
        f"{equal / fast:.2f} / {row['speedup']:.2f}",
        f"{equal * equal_cost / (cheap * cost):.2f} / {row['gain']:.2f}",
    ]


def _communication(times: dict[int, float], budget: int) -> float:
    """Share of communication in the best time: without overlap it is the part in 1 / budget."""
    part = (times[300] - times[1000]) / (1 / 300 - 1 / 1000)
    return part / budget / times[budget]


def chart(figures: dict[str, Any]) -> Any:
    """Gains over the equal split against the budget."""
    rows = [row | {"series": f"{row['model']}, {row['network']}"} for row in figures["rows"]]
    x = ("budget", "budget of an NPU, GB/s")
    return framed(
        lines(rows, x, ("speedup", "speed-up"), "series", "Best time over the equal split"),
        lines(
            rows, x, ("gain", "gain"), "series", "Best performance per cost over the equal split"
        ),
        lines(
            rows,
            x,
            ("system", "gain"),
            "series",
            f"The same with NPUs of {NPU:,.0f} USD in the cost",
        ),
    )
