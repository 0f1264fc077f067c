"""The design of a command: its file under the settings of ``--set``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from libra.errors import FieldError, InputError, Problem

if TYPE_CHECKING:
    from libra.design import Design
    from libra.yaml_source import Override, Source

__all__ = ["design_reader", "load_settings", "read_overrides"]


@contextmanager
def design_reader(path: Path, settings: Sequence[str] | None) -> Iterator[Callable[[], Design]]:
    """Reader of a design, in whose context errors get the line of what they blame.

    Parameters
    ----------
    path : Path
        The file.
    settings : sequence of str or None
        Texts of ``--set``.

    Raises
    ------
    InputError
        If the design is wrong, or its solution finds out that it is.
    """
    from libra.load import DesignReader

    reader = DesignReader(path, read_overrides(settings))
    try:
        yield reader.read
    except FieldError as error:
        if not (error.place and error.place[0] in _design_keys()):
            raise
        raise InputError(reader.source.problem(error.place, error.message)) from None
    except InputError as error:
        raise InputError([_located(problem, reader.source) for problem in error.problems]) from None


def _located(problem: Problem, source: Source) -> Problem:
    """Problem of a whole key of a design, at its line; others as they are."""
    if problem.file or problem.path not in _design_keys():
        return problem
    return source.problem((problem.path,), problem.message)


def _design_keys() -> Sequence[str]:
    from libra.schema import FORMS

    return tuple(FORMS)


def load_settings(path: Path, settings: Sequence[str] | None) -> Design:
    """Design of a file under the texts of ``--set``.

    Raises
    ------
    InputError
        If the design or a setting is wrong.
    """
    from libra.load import load_design

    return load_design(path, read_overrides(settings))


def read_overrides(settings: Sequence[str] | None) -> list[Override]:
    """Overrides of texts ``PATH=VALUE``.

    Raises
    ------
    InputError
        If one is no such text.
    """
    from libra.yaml_source import Override

    overrides = []
    for text in settings or ():
        key, sign, value = text.partition("=")
        if not (sign and key.strip()):
            raise InputError(
                f"--set: needs PATH=VALUE, got {text!r}. Write e.g. objective=time-cost."
            )
        overrides.append(Override(key.strip(), value.strip()))
    return overrides
