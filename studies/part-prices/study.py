"""How far prices may be wrong before another network is better."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from drawing import framed, lines
from pages import Table, file_block

from libra.evaluate import evaluate_design
from libra.load import DesignReader
from libra.optimize import Memory, optimize_design
from libra.price_range import PriceRange, price_ranges
from libra.result import Result
from libra.sweep import Axis, sweep_design
from libra.yaml_source import Override

FILE = Path(__file__).parent / "gpt-3-4d.yaml"
PRICES = {
    "chiplet": {"link": 2.0},
    "package": {"link": 4.0},
    "node": {"link": 4.0},
    "pod": {"link": 7.8, "switch": 18.0, "nic": 31.6},
}
"""Those of the file [USD per GB/s]."""
FACTORS = (0.1, 0.2, 0.4, 1.0, 2.5, 5.0, 10.0)
"""None makes two tiers cost the same, where their shares would be anyone's choice."""
TOLERANCE = 0.01
NPU = 25000
"""Not a price from a source, but one of the right order: see the page."""
POD_LISTS = {
    "LIBRA": PRICES["pod"],
    # 48 switches 0.55 to 0.75 M USD, transceivers and fibre 1.2 to 1.6 M USD for 1,024 GPUs with
    # 50 GB/s each (yobitel.com knowledge base, NDR fat tree, 2024); NIC as in LIBRA.
    "NDR fat tree, low": {"link": 23.4, "switch": 10.7, "nic": 31.6},
    "NDR fat tree, high": {"link": 31.3, "switch": 14.6, "nic": 31.6},
    # 20 to 50 M USD for 4,096 GPUs with 50 GB/s each, NICs included
    # (kshirol-dev.github.io/learnAI 06-network-topologies, 2025: a secondary source).
    "SuperPOD share, low": {"link": 0.0, "switch": 98.0, "nic": 0.0},
    "SuperPOD share, high": {"link": 0.0, "switch": 244.0, "nic": 0.0},
}


def figures() -> dict[str, Any]:
    """Ranges of single prices, losses under wrong ones, and other people's prices."""
    reader = DesignReader(FILE)
    nominal = optimize_design(reader.read([]))
    with_npus = optimize_design(reader.read(_WITH_NPUS))
    rows = _moved(reader, nominal)
    found: dict[str, Any] = {"rows": rows, "file": file_block(FILE), "npu": NPU}
    ranges = {r.part: r for r in price_ranges(nominal, TOLERANCE)}
    wider = {r.part: r for r in price_ranges(with_npus, TOLERANCE)}
    found["ranges"] = Table(
        {
            "price": "",
            "USD/(GB/s)": ".1f",
            "from": _factor,
            "to": _factor,
            "from, NPUs priced": _factor,
            "to, NPUs priced": _factor,
        },
        [[part, one.price * 1e9, *_ends(one), *_ends(wider[part])] for part, one in ranges.items()],
    )
    found["lists"] = Table(
        {
            "prices of the pod": "",
            "USD/(GB/s)": ".1f",
            **{f"{name}, GB/s": _three_digits for name in PRICES},
            "step, s": ".2f",
            "loss of LIBRA's answer": ".1%",
        },
        [_under(reader, nominal, name) for name in POD_LISTS],
    )
    for tier in PRICES:
        for factor, word in ((0.4, "cheaper"), (2.5, "dearer")):
            (row,) = (r for r in rows if r["tier"] == tier and r["factor"] == factor)
            found[f"{tier}_{word}"] = row["loss"]
    found["network_per_npu"] = nominal.network_cost / nominal.design.network.npus
    found["nic_high"] = ranges["pod.nic"].high
    found["chiplet_low"], found["chiplet_high"] = _ends(ranges["chiplet.link"])
    found["chiplet_share"] = nominal.bandwidth[0] / nominal.bandwidth.sum()
    found["wider_high"] = wider["chiplet.link"].high
    found["fat_tree_loss"], found["most_loss"] = (found["lists"].rows[k][-1] for k in (2, 4))
    return found


_WITH_NPUS = [
    Override("prices.npu", f"{NPU} USD"),
    Override("constraints", "[total <= 4000 GB/s]"),
]


def _moved(reader: DesignReader, nominal: Result) -> list[dict[str, Any]]:
    """Answer and loss of the nominal one for each tier's prices times each factor."""
    rows, memory = [], Memory()
    for at, (tier, parts) in enumerate(PRICES.items()):
        axis = Axis(f"prices.{tier}", tuple(_prices(parts, f) for f in FACTORS))
        solved = sweep_design(reader, [axis], memory)
        for factor, row in zip(FACTORS, solved, strict=True):
            assert row.result is not None
            rows.append(
                {
                    "tier": tier,
                    "factor": factor,
                    "loss": _loss(nominal, row.result),
                    "bandwidth": row.result.bandwidth[at] / 1e9,
                }
            )
    return rows


def _prices(parts: dict[str, float], factor: float = 1.0) -> str:
    """Prices of a tier as text of a design file."""
    texts = (f"{part}: {factor * price!r} USD/(GB/s)" for part, price in parts.items())
    return f"{{{', '.join(texts)}}}"


def _loss(nominal: Result, best: Result) -> float:
    """How much worse the nominal bandwidths are than the best ones at the best's prices."""
    there = evaluate_design(best.design, nominal.bandwidth)
    return max(there.objective_value / best.objective_value - 1, 0.0)


def _under(reader: DesignReader, nominal: Result, name: str) -> list[Any]:
    parts = POD_LISTS[name]
    best = optimize_design(reader.read([Override("prices.pod", _prices(parts))]))
    bandwidths = [b / 1e9 for b in best.bandwidth]
    return [name, sum(parts.values()), *bandwidths, best.step_time, _loss(nominal, best)]


def _ends(found: PriceRange) -> tuple[float, float]:
    return found.low, min(found.high, 100.0)


def _three_digits(number: float) -> str:
    """Number as exactly as a flat optimum says it."""
    return f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f}"


def _factor(factor: float) -> str:
    """Factor as text; price ranges end at a hundredth and a hundred times."""
    if factor == 0:
        return "any lower"
    return "any higher" if factor >= 100 else f"x {factor:.2f}"


def chart(figures: dict[str, Any]) -> Any:
    """Loss of the answer, and the bandwidth that should be bought, over the price."""
    rows, x = figures["rows"], ("factor", "price of the tier's parts, times the assumed one")
    percent = [row | {"loss": 100 * row["loss"]} for row in rows]
    return framed(
        lines(
            percent,
            x,
            ("loss", "time x cost lost, %"),
            "tier",
            "What keeping the answer costs if the price is another",
            log_x=True,
        ),
        lines(
            rows,
            x,
            ("bandwidth", "GB/s of the tier"),
            "tier",
            "What should be bought of a tier at its price",
            log=True,
            log_x=True,
        ),
    )
