"""Accelerators and clusters as YAML, in the form that `libra.accelerators` reads."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import yaml

from libra.cluster import Cluster
from libra.collectives import CollectiveModel
from libra.efficiency import EfficiencyCurves
from libra.network import Dimension
from libra.units import (
    BANDWIDTH,
    FLOPS,
    FREQUENCY,
    MONEY,
    POWER,
    SIZE,
    TIME,
    Kind,
    parse_quantity,
    parse_unit,
)
from libra.workload.compute import Accelerator
from libra.workload.systolic import SystolicArray

__all__ = [
    "format_yaml",
    "plain_accelerator",
    "plain_cluster",
    "plain_curves",
    "quantity_text",
]

_UNITS = {
    BANDWIDTH: ("TB/s", "GB/s", "B/s"),
    FLOPS: ("TFLOP/s", "FLOP/s"),
    FREQUENCY: ("GHz", "MHz", "Hz"),
    MONEY: ("USD",),
    POWER: ("W",),
    SIZE: ("GiB", "MiB", "KiB", "GB", "MB", "B"),
    TIME: ("s", "ms", "us", "ns"),
}


def quantity_text(value: float, kind: Kind) -> str:
    """Shortest text that reads back as the value, but for the rounding of the unit's scale.

    Examples
    --------
    >>> quantity_text(2.65e-06, TIME)
    '2.65 us'
    >>> quantity_text(67108864.0, SIZE)
    '64 MiB'
    """
    texts = []
    for unit in _UNITS[kind]:
        scale = parse_unit(unit)[0]
        for digits in range(1, 18):
            text = f"{value / scale:.{digits}g}"
            read = parse_quantity(f"{text} {unit}", kind)
            if "e" not in text and math.isclose(read, value, rel_tol=1e-15):
                texts.append(f"{text} {unit}")
                break
    return min(texts, key=len) if texts else f"{value!r} {_UNITS[kind][-1]}"


def plain_accelerator(accelerator: Accelerator) -> dict[str, Any]:
    """Accelerator as plain data; what has its default is left out."""
    data: dict[str, Any] = {
        "name": accelerator.name,
        "peak": {p.value: quantity_text(v, FLOPS) for p, v in accelerator.peak.items()},
        "memory": quantity_text(accelerator.memory, SIZE),
        "memory_bandwidth": quantity_text(accelerator.memory_bandwidth, BANDWIDTH),
    }
    if accelerator.tdp is not None:
        data["tdp"] = quantity_text(accelerator.tdp, POWER)
    if accelerator.kernel_overhead:
        data["kernel_overhead"] = quantity_text(accelerator.kernel_overhead, TIME)
    if accelerator.array is not None:
        data["array"] = _plain_array(accelerator.array)
    data["efficiency"] = {
        kind.value: _changed(efficiency) for kind, efficiency in accelerator.efficiency.items()
    }
    if accelerator.cluster is not None:
        data["cluster"] = plain_cluster(accelerator.cluster)
    return data | _origins(accelerator)


def plain_cluster(cluster: Cluster) -> dict[str, Any]:
    """Cluster as plain data; what has its default is left out."""
    data: dict[str, Any] = {
        "name": cluster.name,
        "dimensions": [_plain_dimension(dimension) for dimension in cluster.dimensions],
        "bandwidth": [quantity_text(value, BANDWIDTH) for value in cluster.bandwidth],
        "collectives": _plain_model(cluster.collectives),
        "source": cluster.source,
    }
    return {key: value for key, value in data.items() if value} | _origins(cluster)


def plain_curves(curves: EfficiencyCurves) -> dict[str, list[dict[str, Any]]]:
    """Efficiencies by kind and size as plain data."""
    return {
        kind.value: [
            {"size": quantity_text(p.size, SIZE), "fraction": p.fraction}
            | ({"members": p.members} if p.members else {})
            for p in points
        ]
        for kind, points in curves.items()
    }


def format_yaml(data: Any) -> str:
    """Plain data as YAML, one line for what is not nested; equal parts that are one are anchors."""
    text: str = yaml.safe_dump(
        data, default_flow_style=None, sort_keys=False, width=100, allow_unicode=True
    )
    return text


def _changed(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that do not have their default."""
    return {
        f.name: getattr(value, f.name)
        for f in fields(value)
        if getattr(value, f.name) != f.default and getattr(value, f.name) != {}
    }


def _as_text(data: dict[str, Any], **kinds: Kind) -> None:
    """Turn the numbers of some keys, where they are there, into text with their unit."""
    for key, kind in kinds.items():
        if key in data:
            data[key] = quantity_text(data[key], kind)


def _plain_dimension(dimension: Dimension) -> dict[str, Any]:
    data = _changed(dimension) | {"topology": dimension.topology.value}
    _as_text(data, latency=TIME, min_bandwidth=BANDWIDTH, max_bandwidth=BANDWIDTH, lane=BANDWIDTH)
    if dimension.bandwidth_choices is not None:
        choices = [_changed(choice) for choice in dimension.bandwidth_choices]
        for choice in choices:
            _as_text(choice, bandwidth=BANDWIDTH, price=MONEY, power=POWER)
        data["bandwidth_choices"] = choices
    if dimension.efficiency_by_size:
        data["efficiency_by_size"] = plain_curves(dimension.efficiency_by_size)
    return data


def _plain_model(model: CollectiveModel) -> dict[str, Any]:
    data = _changed(model)
    for key in ("compat", "algorithm", "all_to_all", "contention"):
        if key in data:
            data[key] = data[key].value
    if "endpoint_delay" in data:
        data["endpoint_delay"] = quantity_text(data["endpoint_delay"], TIME)
    if model.efficiency:
        data["efficiency"] = plain_curves(model.efficiency)
    return data


def _plain_array(array: SystolicArray) -> dict[str, Any]:
    data = _changed(array) | {"clock": quantity_text(array.clock, FREQUENCY)}
    for key in ("weight_buffer", "activation_buffer", "accumulator"):
        data[key] = quantity_text(getattr(array, key), SIZE)
    return data


def _origins(value: Accelerator | Cluster) -> dict[str, Any]:
    data = {"sources": dict(value.sources), "unconfirmed": list(value.unconfirmed)}
    return {key: part for key, part in data.items() if part}
