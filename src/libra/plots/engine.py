"""The drawing engine: in this process, or started ahead in one of its own.

It takes a second to start and lets no other thread run meanwhile; a second process starts it while
the first loads designs and makes charts.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["draw_svg", "engine_ahead", "start_drawing"]


@dataclass(frozen=True)
class _Engine:
    """A process that draws, and a thread that asks it for one drawing after the other."""

    process: subprocess.Popen[str]
    asker: ThreadPoolExecutor


_AHEAD: list[_Engine] = []
"""The process that draws, while there is one."""

_NOTHING = {"mark": "point", "data": {"values": []}}


@contextmanager
def engine_ahead() -> Iterator[None]:
    """Have what is drawn drawn by a process that starts now, while the body does other things.

    Where it cannot be started, or ends, this process draws.
    """
    command = [sys.executable, "-m", __name__]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(  # noqa: S603 (this very module)
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
        )
    except OSError:
        yield
        return
    from concurrent.futures import ThreadPoolExecutor

    asker = ThreadPoolExecutor(1)
    _AHEAD.append(_Engine(process, asker))
    try:
        yield
    finally:
        _AHEAD.clear()
        process.kill()
        asker.shutdown(cancel_futures=True)
        process.communicate()


def start_drawing(spec: Mapping[str, Any], version: str | None = None) -> Callable[[], str]:
    """Start to draw a specification where `engine_ahead` has a process for it.

    Parameters
    ----------
    spec : mapping
        Vega-Lite specification.
    version : str or None
        Of Vega-Lite, such as "6.1"; None: the latest that the engine has.

    Returns
    -------
    callable
        Waits for the drawing and gives its SVG text.
    """
    if not _AHEAD:
        return lambda: _draw_here(spec, version)
    engine = _AHEAD[-1]
    asked = engine.asker.submit(_ask, engine.process, spec, version)

    def drawn() -> str:
        svg = asked.result()
        return _draw_here(spec, version) if svg is None else svg

    return drawn


def draw_svg(spec: Mapping[str, Any], version: str | None = None) -> str:
    """SVG text of a Vega-Lite specification of a version such as "6.1"."""
    return start_drawing(spec, version)()


def _draw_here(spec: Mapping[str, Any], version: str | None = None) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(dict(spec), vl_version=version)
    return svg


def _ask(
    process: subprocess.Popen[str], spec: Mapping[str, Any], version: str | None = None
) -> str | None:
    """SVG from the process; None if it ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(json.dumps([spec, version]) + "\n")
        process.stdin.flush()
        svg: str = json.loads(process.stdout.readline())
        return svg
    return None


def _serve(asked: IO[str], answers: IO[str]) -> None:
    """Draw what is asked, a specification and its version a line; a JSON text a line back."""
    import vl_convert

    vl_convert.vegalite_to_svg(_NOTHING)
    for line in asked:
        spec, version = json.loads(line)
        print(
            json.dumps(vl_convert.vegalite_to_svg(spec, vl_version=version)),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
