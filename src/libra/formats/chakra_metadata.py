"""The first message of a Chakra trace, GlobalMetadata, and the schema versions that are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from libra.errors import InputError, Problem, shown
from libra.formats.chakra_wire import MOST_MESSAGE

__all__ = ["VERSIONS", "check_version", "read_metadata"]

_VERSION = re.compile(r"(?:[0-9.]+-chakra\.)?(?:0\.0\.4|1\.0\.\d+)", re.ASCII)
_LOOKS_LIKE_VERSION = re.compile(r"[0-9.]*-chakra\..*|[0-9]+(\.[0-9]+)+", re.ASCII)
VERSIONS = "0.0.4 or 1.0.x"
"""Schema versions whose fields have the numbers and meanings that are read."""


def check_version(text: str, file: str, *, is_schema: bool = False) -> None:
    """Refuse a schema version whose fields are not known to be those read here.

    Parameters
    ----------
    text : str
        E.g. ``0.0.4`` or ``1.1.1-chakra.0.0.4``; empty: the file does not say.
    file : str
        What messages call the file.
    is_schema : bool
        It is the ``schema`` attribute, which other generators use for a name.

    Raises
    ------
    InputError
    """
    if not text or _VERSION.fullmatch(text):
        return
    if is_schema and not _LOOKS_LIKE_VERSION.fullmatch(text):
        return
    message = f"unknown version of the Chakra schema, got {shown(text)}. Use {VERSIONS}."
    raise InputError(Problem(message, file=file))


def read_metadata(data: bytes, file: str) -> int:
    """Check the first message of a stream, the GlobalMetadata.

    Parameters
    ----------
    data : bytes
        Beginning of the stream.
    file : str
        What messages call it.

    Returns
    -------
    int
        Where the message ends; 0: it is a node (old files have no metadata); -1: it is not whole.

    Raises
    ------
    InputError
        If it is no message, or of an unknown version.
    """
    length, at = _varint(data, 0)
    if at == 0:
        return -1
    if not 0 <= length <= MOST_MESSAGE:
        what = f"a first message of {length:,} bytes"
        raise InputError(
            Problem(f"is damaged or no Chakra trace, got {what}. Write it again.", file=file)
        )
    end = at + length
    if end > len(data):
        return -1
    fields = list(_fields(data, at, end))
    if any(number not in (1, 2) or value is None for number, value in fields):
        return 0
    for number, value in fields:
        assert value is not None
        if number == 1 and value[:1] != b"\n":
            check_version(value.decode("utf-8", "replace"), file)
            continue
        # Before it had a version, the metadata had its attributes in field 1.
        attribute = {n: v for n, v in _fields(value, 0, len(value)) if v is not None}
        if attribute.get(1) == b"schema":
            text = attribute.get(29, b"").decode("utf-8", "replace")
            check_version(text, file, is_schema=True)
    return end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Number and where it ends; (…, 0) if it is not whole or has more than 64 bits."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return (-1, at) if shift >= 70 else (0, 0)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, bytes | None]]:
    """Field numbers with their bytes, None where the value is a number or the message is bad."""
    while at < end:
        key, at = _varint(data, at)
        if at == 0 or key & 7 != 2:
            yield 0, None
            return
        length, at = _varint(data, at)
        if at == 0 or length < 0 or at + length > end:
            yield 0, None
            return
        yield key >> 3, data[at : at + length]
        at += length
