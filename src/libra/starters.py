"""Example designs to start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from libra.errors import InputError, nearest
from libra.files import write_whole
from libra.presets import example_folder

__all__ = ["copy_example", "example_command"]


def example_command(example: str) -> str:
    """Command that an example is for: designs are optimised, spaces explored."""
    return "explore" if (example_folder() / "spaces" / f"{example}.yaml").exists() else "optimize"


def copy_example(directory: Path, example: str) -> Iterator[Path]:
    """Copy an example design, or space, and the traces that it names; yields the files written.

    Raises
    ------
    InputError
        If there is no such example, or a file of its name is there already: then none is written.
    """
    folder = example_folder()
    found = [*folder.glob("*.yaml"), *folder.glob("spaces/*.yaml")]
    examples = {p.stem: p for p in sorted(found)}
    if example not in examples:
        raise InputError(
            f"--example: unknown example, got {example!r}. {nearest(example, examples)}"
        )
    source = examples[example]
    text = source.read_text("utf-8")
    traces = [
        line.split("trace:")[1].split("#")[0].strip(" }")
        for line in text.splitlines()
        if "trace:" in line.split("#")[0]
    ]
    targets = {source: directory / source.name}
    targets |= {folder / t: directory / t for t in traces}
    existing = [str(t) for t in targets.values() if t.exists()]
    if existing:
        raise InputError(
            f"{existing[0]}: is there already, got {len(existing)} such files. "
            "Choose another folder; nothing was written."
        )
    for origin, target in targets.items():
        write_whole(target, origin.read_text("utf-8"), make_folder=True)
        yield target
