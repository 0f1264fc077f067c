"""What ``libra presets`` prints."""

from __future__ import annotations

import json
import sys

from rich.console import Console

from libra.errors import InputError, nearest
from libra.fitting_table import new_table
from libra.models import list_models
from libra.presets import PRESET_KINDS, list_presets
from libra.screen import print_to

__all__ = ["print_presets"]


def print_presets(console: Console, kind: str, *, as_json: bool) -> None:
    """Print the presets of a kind, or of all, each number with its source.

    Raises
    ------
    InputError
        For an unknown kind.
    """
    if kind and kind not in PRESET_KINDS:
        raise InputError(f"presets: unknown kind, got {kind!r}. {nearest(kind, PRESET_KINDS)}")
    kinds = [kind] if kind else list(PRESET_KINDS)
    rows = {k: list_models() if k == "models" else list_presets(k) for k in kinds}
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return
    for k in kinds:
        columns = [("Name", "left"), ("Value", "left"), ("Source", "left")]
        table = new_table(columns, title=k.capitalize())
        for row in rows[k]:
            table.add_row(row["name"], row["value"], row["source"])
        print_to(console, table)
