"""What ships with libra: networks, accelerators, models, prices, power, with sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

__all__ = ["PRESET_KINDS", "example_folder", "list_presets", "load_presets"]

PRESET_KINDS = ("networks", "accelerators", "models", "prices", "power", "examples")

Row = dict[str, str]


@cache
def load_presets(kind: str) -> dict[str, Any]:
    """Presets of a kind as plain data, by name.

    Parameters
    ----------
    kind : str
        ``networks``, ``accelerators``, ``models``, ``prices`` or ``power``. Latencies and
        efficiencies of the first two that were fitted to measurements are put in their places.
    """
    presets = _read(kind)
    if kind == "networks":
        for source in (_calibration(), _calibration()["training"]):
            for name, parts in source["networks"].items():
                _calibrate_network(presets[name], parts)
    elif kind == "accelerators":
        for source in (_calibration(), _calibration()["training"]):
            for name, fitted in source["accelerators"].items():
                _calibrate_accelerator(presets[name], fitted)
    return presets


def _text(name: str) -> str:
    return resources.files("libra.presets").joinpath(name).read_text("utf-8")


def _calibration() -> dict[str, Any]:
    """Numbers that were fitted to measurements, by tools/calibrate_*.py."""
    data: dict[str, Any] = json.loads(_text("calibration.json"))
    return data


def _read(kind: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    presets: dict[str, Any] = yaml.load(_text(f"{kind}.yaml"), Loader=loader)  # noqa: S506 (a safe loader)
    return presets


def _calibrate_network(network: dict[str, Any], parts: Mapping[str, Any]) -> None:
    """Put fitted numbers into the dimensions of a cluster, by tier."""
    for dimension in network["dimensions"]:
        fitted = dict(parts.get(dimension["tier"], {}))
        if "efficiency_by_size" in fitted:
            known = dimension.get("efficiency_by_size", {})
            fitted["efficiency_by_size"] = known | fitted["efficiency_by_size"]
        source = fitted.pop("source", "")
        dimension.update(fitted)
        for key in fitted:
            network["sources"][f"{dimension['tier']}.{key}"] = source


def _calibrate_accelerator(accelerator: dict[str, Any], fitted: Mapping[str, Any]) -> None:
    """Put fitted numbers in the place of an accelerator's bounds."""
    own = dict(fitted)
    kinds = own.pop("efficiency", {})
    source = own.pop("source", "")
    accelerator |= own
    # The bounds are one mapping that many accelerators share.
    accelerator["efficiency"] = accelerator["efficiency"] | kinds
    accelerator["sources"] = accelerator["sources"] | dict.fromkeys(own, source)


def example_folder() -> Path:
    """Folder of the example designs that ship with libra."""
    return Path(str(resources.files("libra"))) / "examples"


def list_presets(kind: str) -> list[Row]:
    """Presets of a kind as rows of name, value and source, one for each number."""
    return list(_ROWS[kind]())


def _network_rows() -> Iterator[Row]:
    for name, network in load_presets("networks").items():
        if "dimensions" in network:
            yield from _cluster_rows(name, network)
        else:
            value = f"{network['shape']}, tiers {', '.join(network['tiers'])}"
            yield {"name": name, "value": value, "source": network["source"]}


def _cluster_rows(name: str, cluster: Mapping[str, Any]) -> Iterator[Row]:
    """One row for the cluster, and one for each of its numbers."""
    dimensions = cluster["dimensions"]
    codes = {"ring": "RI", "fully-connected": "FC", "switch": "SW"}
    shape = "_".join(f"{codes[d['topology']]}({d['size']})" for d in dimensions)
    tiers = ", ".join(d["tier"] for d in dimensions)
    yield {"name": name, "value": f"{shape}, tiers {tiers}", "source": cluster["source"]}
    taken = [d["tier"] for d in dimensions]
    for k, (dimension, bandwidth) in enumerate(zip(dimensions, cluster["bandwidth"], strict=True)):
        label = dimension["tier"] if taken.count(dimension["tier"]) == 1 else f"dim{k + 1}"
        numbers = {"size": dimension["size"], "bandwidth": bandwidth}
        numbers |= {key: dimension[key] for key in ("latency", "efficiency") if key in dimension}
        for kind, points in dimension.get("efficiency_by_size", {}).items():
            text = ", ".join(f"{p['fraction']:g} at {p['size']}" for p in points)
            numbers[f"efficiency_by_size.{kind}"] = text
        for key, value in numbers.items():
            place = f"{label}.{key.split('.')[0]}"
            if key != "size" or place in {*cluster["sources"], *cluster.get("unconfirmed", ())}:
                yield _number_row(name, f"{label}.{key}", place, value, cluster)
    if "collectives" in cluster:
        words = ", ".join(f"{key} {value}" for key, value in cluster["collectives"].items())
        yield _number_row(name, "collectives", "collectives", words, cluster)


def _accelerator_rows() -> Iterator[Row]:
    for name, preset in load_presets("accelerators").items():
        for precision, value in preset["peak"].items():
            yield _number_row(name, f"peak.{precision}", "peak", value, preset)
        for key in ("memory", "memory_bandwidth", "tdp", "kernel_overhead"):
            if key in preset:
                yield _number_row(name, key, key, preset[key], preset)
        if "cluster" in preset:
            source = "libra presets networks"
            yield {"name": f"{name} cluster", "value": preset["cluster"], "source": source}
        for kind, efficiency in preset["efficiency"].items():
            numbers = {k: v for k, v in efficiency.items() if k != "source"}
            value = ", ".join(f"{k} {v:g}" for k, v in numbers.items()) or "compute 1, memory 1"
            yield {
                "name": f"{name} efficiency.{kind}",
                "value": value,
                "source": efficiency["source"],
            }


def _number_row(name: str, key: str, place: str, value: object, preset: Mapping[str, Any]) -> Row:
    """Row of one number; says so if no source confirms it."""
    source = preset["sources"].get(place, "")
    if place in preset.get("unconfirmed", ()):
        source = f"unconfirmed: {source}" if source else "unconfirmed"
    return {"name": f"{name} {key}", "value": str(value), "source": source}


def _part_rows(kind: str) -> Iterator[Row]:
    for name, prices in load_presets(kind).items():
        for tier, parts in prices["tiers"].items():
            for part, value in parts.items():
                key = f"{tier}.{part}"
                source = prices["sources"][key]
                yield {"name": f"{name} {key}", "value": value, "source": source}


def _example_rows() -> Iterator[Row]:
    for path in sorted(example_folder().glob("*.yaml")):
        title = path.read_text("utf-8").splitlines()[0].lstrip("# ")
        yield {"name": path.stem, "value": title, "source": "docs: workloads"}


_ROWS: Mapping[str, Callable[[], Iterator[Row]]] = {
    "networks": _network_rows,
    "accelerators": _accelerator_rows,
    "prices": partial(_part_rows, "prices"),
    "power": partial(_part_rows, "power"),
    "examples": _example_rows,
}
