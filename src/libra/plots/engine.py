"""The drawing engine: in this process, or started ahead in one of its own.

It takes a second to start and lets no other thread run meanwhile; a second process starts it while
the first loads designs and makes charts.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["draw_svg", "engine_ahead"]

_AHEAD: list[subprocess.Popen[str]] = []
"""The process that draws, while there is one."""

_NOTHING = {"mark": "point", "data": {"values": []}}


@contextmanager
def engine_ahead() -> Iterator[None]:
    """Have `draw_svg` use a process that starts now, while the body does other things first.

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
    _AHEAD.append(process)
    try:
        yield
    finally:
        _AHEAD.clear()
        process.kill()
        process.communicate()


def draw_svg(spec: Mapping[str, Any], version: str) -> str:
    """SVG text of a Vega-Lite specification of a version such as "6.1"."""
    if _AHEAD:
        drawn = _ask(_AHEAD[-1], spec, version)
        if drawn is not None:
            return drawn
        _AHEAD.clear()
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(dict(spec), vl_version=version)
    return svg


def _ask(process: subprocess.Popen[str], spec: Mapping[str, Any], version: str) -> str | None:
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
