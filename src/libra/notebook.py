"""A result as HTML in a notebook: the answer, and a row a dimension."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from libra.explain import answer_sentence
from libra.units import GB_PER_S, format_money, format_time

if TYPE_CHECKING:
    from libra.result import Result

__all__ = ["result_html"]

_BAR = "display:inline-block;height:.7em;background:#0072b2;border-radius:2px"


def result_html(result: Result) -> str:
    """The answer in one sentence above a table of the dimensions, each with a bar."""
    network, total = result.design.network, float(result.bandwidth.sum())
    costs = result.design.pricing.costs(result.bandwidth).tolist()
    head = ["Dimension", "Block", "GB/s per NPU", "Share", "Cost"]
    head += [f"Busy, {w.name}" for w in result.workloads]
    rows = []
    for d, (name, block) in enumerate(zip(network.names, network.dimensions, strict=True)):
        value = float(result.bandwidth[d])
        share = value / total if total else 0.0
        bar = f'<span style="{_BAR};width:{8 * share:.2f}em"></span> {share:.1%}'
        cells = [
            escape(name),
            f"{block.topology.code}({block.size})",
            f"{value / GB_PER_S:,.4f}",
            bar,
            escape(format_money(costs[d])),
            *(escape(format_time(w.busy[d])) for w in result.workloads),
        ]
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    titles = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    shape = escape(f"{network.shape}, {network.npus:,} NPUs")
    return (
        f"<p><strong>{shape}</strong><br>{escape(answer_sentence(result))}</p>"
        f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    )
