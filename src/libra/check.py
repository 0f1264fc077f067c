"""A design as it was understood, as plain data; nothing is solved."""

from __future__ import annotations

from typing import Any

from libra.collectives import CollectiveModel, Compatibility, Contention
from libra.design import Design, Workload
from libra.formats.astra_sim_policy import SIZE_CONVENTION, text_size
from libra.network import Network
from libra.units import GB_PER_S

__all__ = ["summarize_design"]


def summarize_design(design: Design) -> dict[str, Any]:
    """Plain data of ``libra check --json``: sizes, groups, collectives, prices, warnings."""
    network = design.network
    return {
        "network": network.shape,
        "npus": network.npus,
        "dimensions": list(network.names),
        "dimension_details": [
            {
                "name": name,
                "topology": d.topology.value,
                "size": d.size,
                "latency_s": d.latency,
                "tier": d.tier,
                "radix": d.radix,
                "choices_GBps": d.choices and [c.bandwidth / GB_PER_S for c in d.choices],
                **_first_rates(design, k),
            }
            for k, (name, d) in enumerate(zip(network.names, network.dimensions, strict=True))
        ],
        "workloads": [_workload(w, network) for w in design.workloads],
        "objective": design.objective.value,
        "training_loop": _training_loop(design),
        "collective_model": _collective_model(design.collectives),
        "constraints": [*(row.text for row in design.rows), *(x.text for x in design.time_limits)],
        "scenarios": _scenarios(design),
        "warnings": list(design.warnings),
    }


def _first_rates(design: Design, dimension: int) -> dict[str, float | None]:
    """What the first byte/s of a dimension costs and draws in the whole network."""
    pricing = design.pricing
    column = int((pricing.owner == dimension).argmax())
    watts = float(pricing.power[column] * GB_PER_S) if pricing.knows_power else None
    return {
        "price_usd_per_GBps": float(pricing.price[column] * GB_PER_S),
        "power_w_per_GBps": watts,
    }


def _training_loop(design: Design) -> str | None:
    """Name of the training loop; None: all workloads are models, whose schedule is their own."""
    modelled = all(workload.step is not None for workload in design.workloads)
    return None if modelled else design.training_loop.kind.value


def _scenarios(design: Design) -> dict[str, Any] | None:
    """What is made small over the scenarios, and their shares; None: there are none."""
    if not design.scenarios:
        return None
    return {
        "minimize": design.robustness.value,
        "cases": [{"name": s.name, "share": s.share} for s in design.scenarios],
    }


def _collective_model(model: CollectiveModel) -> str:
    if model.compat is Compatibility.LIBRA:
        return (
            "libra: a partial group keeps the whole dimension; hops, latency, optimiser update and "
            "recomputed compute cost nothing"
        )
    chunks = "best number of chunks" if model.chunks is None else f"{model.chunks} chunks"
    sharing = "queue" if model.contention is Contention.QUEUE else "do not disturb each other"
    return (
        f"{model.algorithm.value}, {chunks}; a partial group uses the links it reaches; "
        f"collectives that share links {sharing}"
    )


def _workload(workload: Workload, network: Network) -> dict[str, Any]:
    graph = workload.graph
    return {
        "name": workload.name,
        "source": workload.source,
        "weight": workload.weight,
        "tasks": graph.tasks,
        "compute_s": graph.total_fixed,
        "groups": {name: list(g.extents) for name, g in workload.groups.items()},
        "collectives": [
            {
                "kind": c.kind.value,
                "bytes": c.size,
                "count": float(count),
                "group": c.group.name,
                "extents": list(c.group.extents),
                "members": c.group.size,
                "size_counts": SIZE_CONVENTION.get(c.kind, "the message"),
                "bytes_in_file": text_size(c) if c.kind in SIZE_CONVENTION else None,
            }
            for c, count in zip(graph.collectives, graph.total_counts, strict=True)
        ],
        **_model(workload),
    }


def _model(workload: Workload) -> dict[str, Any]:
    """What a workload that names a model adds."""
    if workload.step is None:
        return {}
    from libra.model_summary import summarize_step

    return summarize_step(workload.step)
