"""Messages on stderr, and progress of what takes longer than a second; silent where asked to be."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import ParamSpec, TypeVar

__all__ = ["counted", "say", "silenced", "waited"]

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 1.0
"""Time after which a person wants to see that something happens [s]."""

_silent = ContextVar("silent", default=False)


@contextmanager
def silenced(silent: bool) -> Iterator[None]:
    """Keep back messages and progress for a while, or not."""
    before = _silent.set(silent)
    try:
        yield
    finally:
        _silent.reset(before)


def say(message: str) -> None:
    """Tell the user something on stderr that is neither data nor an error."""
    if not _silent.get():
        print(message, file=sys.stderr)


def waited(what: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function returns; says what it does and for how long, if it takes long."""
    with _ticking(lambda: what):
        return work(*args, **kwargs)


def counted(what: str, items: Iterable[T], total: int) -> Iterator[T]:
    """The items; says how many of the total are done, if it takes long."""
    done = 0
    with _ticking(lambda: f"{what} {done} of {total}"):
        for item in items:
            done += 1
            yield item


@contextmanager
def _ticking(text: Callable[[], str]) -> Iterator[None]:
    """Rewrite one line of stderr every second; it is gone at the end."""
    if _silent.get() or not sys.stderr.isatty():
        yield
        return
    stop = Event()
    ticker = Thread(target=_tick, args=(text, stop), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        stop.set()
        ticker.join()


def _tick(text: Callable[[], str], stop: Event) -> None:
    start, width = time.monotonic(), 0
    while not stop.wait(PATIENCE):
        line = f"{text()}, {time.monotonic() - start:.0f} s"
        sys.stderr.write(f"\r{line:<{width}}")
        sys.stderr.flush()
        width = max(width, len(line))
    if width:
        sys.stderr.write(f"\r{'':<{width}}\r")
        sys.stderr.flush()
