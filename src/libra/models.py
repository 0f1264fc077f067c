"""Models by name: presets, or the path of a configuration file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from libra.errors import InputError, nearest, shown
from libra.formats.huggingface import load_huggingface, model_of_keys
from libra.presets import load_presets
from libra.workload.model import Model, active_parameters, parameters

__all__ = ["list_models", "load_model"]


@cache
def preset_model(name: str) -> Model:
    """Model of a preset.

    Raises
    ------
    KeyError
        If there is none of this name.
    """
    return model_of_keys(load_presets("models")[name]["keys"], name)


def load_model(name: str, folder: Path | None = None) -> Model:
    """Model of a preset's name, or of the path of a ``config.json``.

    Parameters
    ----------
    name : str
        Name of a preset; else a path, which ends in ``.json``.
    folder : Path, optional
        Where a relative path begins; the working folder unless given.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        If there is no such preset, or the file is wrong.

    Examples
    --------
    >>> parameters(load_model("llama-3.1-8b"))
    8030261248
    """
    presets = load_presets("models")
    if name in presets:
        return preset_model(name)
    if name.endswith(".json"):
        return load_huggingface((folder or Path()) / name)
    advice = nearest(name, presets)
    raise InputError(
        f"unknown model, got {shown(name)}. {advice} Or give the path of a config.json."
    )


def list_models() -> list[dict[str, str]]:
    """Presets of models as rows of name, value and source."""
    rows = []
    for name, preset in load_presets("models").items():
        model = preset_model(name)
        total, active = parameters(model), active_parameters(model)
        value = f"{total:,} parameters"
        if active != total:
            value += f", {active:,} active"
        value += f"; {model.layers} blocks, hidden size {model.hidden:,}"
        rows.append({"name": name, "value": value, "source": preset["source"]})
    return rows
