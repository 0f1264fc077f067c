"""Compiled forms of the inner loops, made once they repay it.

Importing the compiler costs about half a second, more than a small design takes in all. So a loop
runs as plain Python until a process has spent about as much on it, then as machine code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from pickle import UnpicklingError
from typing import Any

__all__ = ["compiled", "faster"]

_REPAYS = 300_000
_spent: Counter[Callable[..., Any]] = Counter()


def faster(function: Callable[..., Any], work: int) -> Callable[..., Any]:
    """Form of a loop to run next.

    Parameters
    ----------
    function : callable
        Plain Python over numpy arrays, which also runs uncompiled.
    work : int
        Rounds of the loop that the call will take, of about a microsecond each.
    """
    _spent[function] += work
    return compiled(function) if _spent[function] > _REPAYS else function


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Machine code of a loop, kept between runs where a folder for it can be written.

    The folder is that of the environment variable ``NUMBA_CACHE_DIR``, else ``__pycache__`` beside
    the module, else one in the user's cache. Without any the loop is compiled again in each run.
    """
    import numba

    unkept: Callable[..., Any] = numba.njit(function)
    try:
        kept: Callable[..., Any] = numba.njit(cache=True)(function)
    except RuntimeError:  # No folder can be written.
        return unkept

    @wraps(function)
    def run(*arguments: Any) -> Any:
        try:
            return kept(*arguments)
        except (OSError, EOFError, UnpicklingError):
            # The folder is full or has gone, or a power cut has left half a file in it.
            return unkept(*arguments)

    return run
