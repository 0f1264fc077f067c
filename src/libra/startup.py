"""How the ``libra`` command starts and ends quickly: what libraries would do for nothing."""

from __future__ import annotations

import atexit
import copy
import gc
import os
from collections.abc import Sequence

import typer

__all__ = ["program_for", "spare_time"]


def spare_time() -> None:
    """Set the process up for one command: no plugins, no second thread, little garbage collection.

    Environment variables that are set already stay as they are.
    """
    # Plugins could change what a design file means; looking for them costs 25 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # No matrix here is worth a second thread; OpenBLAS's would spin for 100 ms while numpy loads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports allocate much and free little: looking for garbage after every 700 objects costs 20 %,
    # after every 50,000 still 8 %.
    gc.set_threshold(500_000)
    # Python would look once more at its end, for 100 ms; the system takes all memory back anyway.
    atexit.register(gc.freeze)


def program_for(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Program that knows only the called command: to make the parsers of all takes 40 ms.

    Parameters
    ----------
    app : Typer
        With all commands.
    words : sequence of str
        Of the command line.

    Returns
    -------
    Typer
        With all commands, too, if the first word names none.
    """
    called = [
        command
        for command in app.registered_commands
        if command.callback and words[:1] == [command.name or command.callback.__name__]
    ]
    program = copy.copy(app)
    program.registered_commands = called or app.registered_commands
    return program
