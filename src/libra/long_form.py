"""Short forms of a design file's parts, brought to the long form that the schema checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from libra.errors import Place, nearest, shown
from libra.network import Dimension, Topology, parse_shape
from libra.presets import load_presets

__all__ = [
    "Note",
    "expand_baseline",
    "expand_collectives",
    "expand_loop",
    "expand_network",
    "expand_power",
    "expand_prices",
    "expand_scenarios",
    "unknown_key",
]

Note = Callable[[Place, str], None]
"""Notes what is wrong at a place."""

_OF_MODELS = ("accelerator", "batch", "precision", "sequence_parallel", "zero", "ep", "cp")


def unknown_key(key: str, value: Any, valid: Any) -> str:
    """What to say of a key that a mapping may not have."""
    if key in _OF_MODELS and key not in valid:
        return f"belongs to a workload with model:, got {shown(value)}. Remove it."
    return f"unknown key, got {shown(key)}. {nearest(key, valid)}"


def expand_network(value: Any, note: Note) -> Any:
    """Long form of a network: one mapping a dimension; None after noting what is wrong."""
    blocks = _expand_shape(value, note)
    if not isinstance(blocks, list):
        return blocks
    return [_expand_choices(block) for block in blocks]


def _expand_choices(block: Any) -> Any:
    """Long form of a dimension's ``bandwidth_choices``: a mapping each."""
    if not (isinstance(block, dict) and isinstance(block.get("bandwidth_choices"), list)):
        return block
    choices = block["bandwidth_choices"]
    long = [c if isinstance(c, dict) else {"bandwidth": c} for c in choices]
    return block | {"bandwidth_choices": long}


def _expand_shape(value: Any, note: Note) -> Any:
    """Long form of a preset's name or a shape with its tiers."""
    if isinstance(value, str):
        presets = load_presets("networks")
        if value not in presets:
            advice = f"{nearest(value, presets)} Or give shape: and tiers:."
            return note((), f"unknown network, got {shown(value)}. {advice}")
        preset = presets[value]
        value = preset.get("dimensions") or {k: v for k, v in preset.items() if k != "source"}
    if not isinstance(value, dict):
        return value
    known = [_known_in_short_form(key, given, note) for key, given in value.items()]
    blocks = _read_shape(value.get("shape"), note)
    if blocks is None:
        return None
    lists: dict[str, Any] = {"tier": value.get("tiers")}
    if "names" in value:
        lists["name"] = value["names"]
    complete = [_one_for_each(key, items, value["shape"], note) for key, items in lists.items()]
    if not all(known + complete):
        return None
    return [
        {"topology": topology.value, "size": size} | {key: items[d] for key, items in lists.items()}
        for d, (topology, size) in enumerate(blocks)
    ]


def _known_in_short_form(key: str, value: Any, note: Note) -> bool:
    short = ("shape", "tiers", "names")
    if key in {f.name for f in fields(Dimension)}:
        advice = "Write a list of dimensions: '- {topology: …, size: …, tier: …}' each."
        note((key,), f"belongs to one dimension, got {shown(value)}. {advice}")
    elif key not in short:
        note((key,), unknown_key(key, value, short))
    return key in short


def _read_shape(shape: Any, note: Note) -> tuple[tuple[Topology, int], ...] | None:
    if not isinstance(shape, str):
        note(("shape",), f"a shape is text, got {shown(shape)}. Write e.g. RI(4)_SW(32).")
        return None
    try:
        return parse_shape(shape)
    except ValueError as error:
        note(("shape",), str(error))
        return None


def _one_for_each(key: str, items: Any, shape: str, note: Note) -> bool:
    """Whether a list has one item for each dimension of a shape."""
    count = shape.count("_") + 1
    complete = isinstance(items, list) and len(items) == count
    if not complete:
        note(
            (f"{key}s",),
            f"needs one {key} for each of the {count} dimensions of {shown(shape)}, got "
            f"{shown(items)}. Write {count} of them, innermost first.",
        )
    return complete


def expand_prices(value: Any, note: Note) -> Any:
    """Long form of prices, ``tiers``, ``npu``, ``energy``; None after noting what is wrong."""
    return _expand_list(value, note, "prices", ("npu", "direct_links", "energy"))


def expand_power(value: Any, note: Note) -> Any:
    """Long form of power, ``tiers`` and ``npu``; None after noting what is wrong."""
    return _expand_list(value, note, "power", ("npu", "direct_links"))


def _expand_list(value: Any, note: Note, kind: str, others: Sequence[str]) -> Any:
    """Long form of a price or power list.

    A mapping without tiers, ``{npu: 25000 USD}``, adds to the default list.
    """
    presets = load_presets(kind)
    own: dict[str, Any] = {}
    if isinstance(value, dict):
        own = {k: v for k, v in value.items() if k in others}
        tiers = {k: v for k, v in value.items() if k not in others}
        if tiers or not own:
            return own | {"tiers": tiers}
        value = "default"
    if isinstance(value, str):
        what = {"prices": "price list", "power": "power list"}[kind]
        if value not in presets:
            return note((), f"unknown {what}, got {shown(value)}. {nearest(value, presets)}")
        shared = ("tiers", "source", "unconfirmed")
        return own | {k: presets[value][k] for k in shared if k in presets[value]}
    return value


def expand_loop(value: Any, note: Note) -> Any:
    """Long form of a training loop: ``kind`` with its parameters."""
    return {"kind": value} if isinstance(value, str) else value


def expand_collectives(value: Any, note: Note) -> Any:
    """Long form of the collective model: ``chunks: auto`` is the default."""
    if isinstance(value, dict) and value.get("chunks") == "auto":
        return {k: v for k, v in value.items() if k != "chunks"}
    return value


def expand_baseline(value: Any, note: Note) -> Any:
    """Long form of a baseline: bandwidths; none for ``equal``."""
    if value == []:
        return note((), "needs one bandwidth a dimension, got []. Write them, or equal.")
    return [] if value == "equal" else value


def expand_scenarios(value: Any, note: Note) -> Any:
    """Long form of scenarios: ``cases`` may stand alone."""
    return {"cases": value} if isinstance(value, list) else value
