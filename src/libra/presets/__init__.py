"""What ships with libra: networks, models, prices and power, each number with its source."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

__all__ = ["PRESET_KINDS", "example_folder", "list_presets", "load_presets"]

PRESET_KINDS = ("networks", "prices", "power", "models", "examples")


@cache
def load_presets(kind: str) -> dict[str, Any]:
    """Presets of a kind as plain data, by name.

    Parameters
    ----------
    kind : str
        ``networks``, ``prices``, ``power`` or ``models``.
    """
    text = resources.files("libra.presets").joinpath(f"{kind}.yaml").read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    presets: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader)
    return presets


def example_folder() -> Path:
    """Folder of the example designs that ship with libra."""
    return Path(str(resources.files("libra"))) / "examples"


def list_presets(kind: str) -> list[dict[str, str]]:
    """Presets of a kind as rows of name, value and source; models: see `libra.models`."""
    rows = []
    if kind == "networks":
        for name, network in load_presets(kind).items():
            value = f"{network['shape']}, tiers {', '.join(network['tiers'])}"
            rows.append({"name": name, "value": value, "source": network["source"]})
    elif kind in ("prices", "power"):
        for name, prices in load_presets(kind).items():
            for tier, parts in prices["tiers"].items():
                for part, value in parts.items():
                    key = f"{tier}.{part}"
                    rows.append(
                        {"name": f"{name} {key}", "value": value, "source": prices["sources"][key]}
                    )
    else:
        for path in sorted(example_folder().glob("*.yaml")):
            title = path.read_text("utf-8").splitlines()[0].lstrip("# ")
            rows.append({"name": path.stem, "value": title, "source": "docs: workloads"})
    return rows
