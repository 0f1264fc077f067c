"""Text files, read with limits and written whole."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from libra.errors import InputError, Problem

__all__ = ["files_kept", "keep_file", "read_text", "write_whole"]

# Two patterns, since one of characters beyond 255 and below takes 5 ms to compile.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_NO_CHARACTER = re.compile(r"[\ufffe\uffff]")

_KEPT: ContextVar[set[tuple[int, int]] | None] = ContextVar("kept", default=None)
"""Device and inode of the files that the command under way has read or written."""


@contextmanager
def files_kept() -> Iterator[None]:
    """Refuse, in this context, to write over a file that was read or written in it.

    A command has all its files from one line that a person typed, where a design's name in the
    place of a result's is an easy slip. A program that calls libra may write where it has read.
    """
    token = _KEPT.set(set())
    try:
        yield
    finally:
        _KEPT.reset(token)


def keep_file(status: os.stat_result) -> None:
    """Keep a file that is read, see `files_kept`."""
    kept = _KEPT.get()
    if kept is not None:
        kept.add((status.st_dev, status.st_ino))


def read_text(path: Path, max_bytes: int) -> str:
    r"""Text of a regular file that is UTF-8, its lines ended by ``\n`` alone.

    Raises
    ------
    ValueError
        If the file cannot be opened, is no regular file, or is too large.
    InputError
        If it is not text; says in which line.
    """
    data = _read_bytes(path, max_bytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text, got byte {data[error.start]:#04x}. Is it the right file?"
        raise InputError(Problem(message, file=str(path), line=line)) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    odd = _CONTROL.search(text) or _NO_CHARACTER.search(text)
    if odd:
        line = text.count("\n", 0, odd.start()) + 1
        message = f"is not text, got the character {odd[0]!r}. Is it the right file?"
        raise InputError(Problem(message, file=str(path), line=line))
    return text


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    got = f"got {str(path)[-80:]!r}"
    try:
        status = path.stat()
        size = status.st_size
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) and size <= max_bytes else None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot be read ({reason}), {got}. Check the name.") from None
    keep_file(status)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ValueError(f"is {kind}, {got}. Name a file.")
    if data is None:
        raise ValueError(
            f"the file is larger than {max_bytes / 1e6:g} MB, got {size / 1e6:,.1f} MB. "
            "Is it the right file?"
        )
    return data


def write_whole(path: Path, content: str | bytes, *, make_folder: bool = False) -> None:
    """Write a file so that it is there whole or not at all: a temporary file, then a rename.

    Parameters
    ----------
    path : Path
        The file.
    content : str or bytes
        What it shall hold.
    make_folder : bool
        Make its folder if there is none.

    Raises
    ------
    InputError
        If it cannot be written there.
    """
    target = path.resolve() if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp") if target.name else target
    data = content.encode() if isinstance(content, str) else content
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        if _is_device(target):
            target.write_bytes(data)
            return
        _refuse_kept(path)
        temporary.write_bytes(data)
        temporary.replace(target)
        keep_file(target.stat())
    except OSError as error:
        if temporary != target and temporary.exists():
            temporary.unlink()
        reason = error.strerror or str(error)
        message = f"cannot be written ({reason}), got {str(path)!r}. Choose another place."
        raise InputError(Problem(message, file=str(path))) from None


def _is_device(path: Path) -> bool:
    """Whether a path is there and neither a file nor a folder: a rename would replace it."""
    return path.exists() and not (path.is_file() or path.is_dir())


def _refuse_kept(path: Path) -> None:
    if not path.exists():
        return
    status = path.stat()
    if (status.st_dev, status.st_ino) in (_KEPT.get() or ()):
        message = (
            "this command has read or written the file already and would write over it, "
            f"got {str(path)!r}. Choose another name."
        )
        raise InputError(Problem(message, file=str(path)))
