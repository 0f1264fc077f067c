"""Design file → `Design`: every problem of the input at once, each with its line.

The parts of the file are read by `libra.schema`, each for itself; `libra.assembly` puts them
together. A `DesignReader` reads one file many times with different overrides, and keeps what they
leave unchanged: sweeps and scenarios are made of that.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from libra.assembly import Assembly
from libra.design import Design
from libra.errors import InputError, Place, Problem, in_file_order, shown
from libra.scenarios import add_scenarios
from libra.schema import read_design_file
from libra.yaml_source import (
    Override,
    Source,
    apply_overrides,
    read_yaml,
    split_path,
    value_at,
)

__all__ = ["DesignReader", "load_design", "restore_design"]


def load_design(path: str | Path, overrides: Sequence[Override] = ()) -> Design:
    """Read a design file.

    Parameters
    ----------
    path : str or Path
        The YAML file. Traces are found relative to its folder.
    overrides : sequence of Override
        ``path=value`` settings that replace values of the file.

    Returns
    -------
    Design

    Raises
    ------
    InputError
        With every problem of the design file and of the files it names, in file order.
    """
    return DesignReader(path, overrides).read()


def restore_design(file: str, settings: Mapping[str, Any]) -> Design:
    """Design of the settings that a result keeps.

    Parameters
    ----------
    file : str
        Where the design file stood: traces are found relative to its folder.
    settings : mapping
        Its plain data, overrides applied.

    Raises
    ------
    InputError
        With every problem of the settings and of the files they name.
    """
    return DesignReader(Source(file, copy.deepcopy(dict(settings)))).read()


class DesignReader:
    """Reads a design file under different overrides; parses it and its traces once.

    Parameters
    ----------
    path : str, Path or Source
        The YAML file, or what it holds.
    overrides : sequence of Override
        Settings that hold for every reading of a file.

    Raises
    ------
    InputError
        If the file cannot be read or is not YAML.
    """

    def __init__(self, path: str | Path | Source, overrides: Sequence[Override] = ()) -> None:
        self._source = path if isinstance(path, Source) else read_yaml(Path(path), overrides)
        self._memory: dict[Any, Any] = {}

    @property
    def source(self) -> Source:
        """The file's plain data, without the overrides of a reading."""
        return self._source

    def value(self, path: str) -> Any:
        """Value that an override of a path would replace; None: there is none.

        Raises
        ------
        ValueError
            If the path leads nowhere.
        """
        return value_at(self._source, path)

    def read(self, overrides: Sequence[Override] = ()) -> Design:
        """Design of the file with more overrides.

        Raises
        ------
        InputError
            With every problem of the design file and of the files it names, in file order.
        """
        source = _copied(self._source, overrides) if overrides else self._source
        return self._read(source)

    def _read(self, source: Source) -> Design:
        problems: list[Problem] = list(source.problems)
        design = None
        if isinstance(source.data, dict) and {"status", "bandwidth_GBps"} <= source.data.keys():
            message = (
                f"is a result, not a design, got status {shown(source.data['status'])}. Name the "
                "design; `libra compare` and `libra report` read results."
            )
            problems = [source.problem((), message)]
        elif isinstance(source.data, dict):
            parsed = read_design_file(source, problems, self._memory)
            assembly = Assembly(source, problems, parsed, self._memory)
            design = assembly.design()
            entry = parsed.scenarios
            if design is not None and entry is not None:
                nominal, read = design, partial(self._scenario, source)
                design = assembly.attempt((), lambda: add_scenarios(nominal, entry, read))
        else:
            message = f"a design is a mapping, got {shown(source.data)}. Start from `libra new`."
            problems.append(source.problem((), message))
        if design is None or problems:
            # The design file comes first, whatever was found first.
            raise in_file_order(sorted(problems, key=lambda p: p.file != source.file))
        return design

    def _scenario(self, source: Source, settings: Mapping[str, str], place: Place) -> Design:
        """Design of a source under a scenario's settings, which stand at a place of it."""
        overrides = [Override(path, value) for path, value in settings.items()]
        bare = replace(source, data={k: v for k, v in source.data.items() if k != "scenarios"})
        try:
            return self._read(_copied(bare, overrides))
        except InputError as error:
            raise InputError(
                [
                    source.problem(place, f"{p.path}: {p.message}" if p.path else p.message)
                    for p in error.problems
                ]
            ) from None


def _copied(source: Source, overrides: Sequence[Override]) -> Source:
    """Copy of a source, with overrides applied; what they leave alone stays the same object."""
    data = source.data
    if isinstance(data, dict):
        touched = {split_path(override.path)[0] for override in overrides}
        data = {k: copy.deepcopy(v) if k in touched else v for k, v in data.items()}
    result = replace(
        source,
        data=copy.deepcopy(data) if not isinstance(data, dict) else data,
        lines=dict(source.lines),
        overridden=dict(source.overridden),
        problems=list(source.problems),
    )
    apply_overrides(result, overrides)
    return result
