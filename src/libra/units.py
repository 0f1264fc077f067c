"""Quantities: text with a unit at the border, SI floats (bytes, s, USD, W, FLOP/s, …) inside.

``GB/s`` is 1e9 bytes/s and ``GiB/s`` is 2**30 bytes/s; ``Gbit/s`` is 1e9/8 bytes/s. A bare number
where a unit is due is refused, as is a unit of the wrong kind: nothing is guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from libra.errors import shown

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "BANDWIDTH",
    "DURATION",
    "ENERGY_PRICE",
    "FLOPS",
    "FREQUENCY",
    "GB_PER_S",
    "MONEY",
    "POWER",
    "POWER_RATE",
    "PRICE_RATE",
    "SIZE",
    "TIME",
    "Kind",
    "format_bytes",
    "format_money",
    "format_power",
    "format_time",
    "parse_number",
    "parse_quantity",
]

GB_PER_S = 1e9
"""Bytes per second in one GB/s."""

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

# A dimension is a tuple of exponents of (byte, second, US dollar, watt, floating-point operation).
_Exponents = tuple[int, int, int, int, int]


def _atoms() -> dict[str, tuple[float, _Exponents]]:
    table: dict[str, tuple[float, _Exponents]] = {}
    for prefix, scale in (_DECIMAL | _BINARY).items():
        table[f"{prefix}B"] = (scale, (1, 0, 0, 0, 0))
        table[f"{prefix}bit"] = (scale / 8, (1, 0, 0, 0, 0))
    table["KB"] = (1e3, (1, 0, 0, 0, 0))
    for prefix, scale in {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}.items():
        table[f"{prefix}s"] = (scale, (0, 1, 0, 0, 0))
        table[f"{prefix}J"] = (scale, (0, 1, 0, 1, 0))
    for prefix in ("", "k", "M"):
        table[f"{prefix}USD"] = (_DECIMAL[prefix], (0, 0, 1, 0, 0))
    for prefix, scale in (_DECIMAL | {"m": 1e-3}).items():
        table[f"{prefix}W"] = (scale, (0, 0, 0, 1, 0))
    for prefix in ("", "k", "M", "G"):
        table[f"{prefix}Wh"] = (_DECIMAL[prefix] * 3600, (0, 1, 0, 1, 0))
    for prefix, scale in (_DECIMAL | {"E": 1e18}).items():
        table[f"{prefix}FLOP"] = (scale, (0, 0, 0, 0, 1))
        table[f"{prefix}Hz"] = (scale, (0, -1, 0, 0, 0))
    table["year"] = table["years"] = (365.25 * 86400, (0, 1, 0, 0, 0))
    return table


_ATOMS: Mapping[str, tuple[float, _Exponents]] = _atoms()


@dataclass(frozen=True)
class Kind:
    """A kind of quantity: what its unit measures, and an example for error messages.

    Used as the metadata of an ``Annotated[float, Kind]`` it makes pydantic read text with a unit.

    Attributes
    ----------
    name : str
        With its article, e.g. ``a bandwidth``.
    exponents : tuple of int
        Of byte, second, US dollar, watt and floating-point operation.
    example : str
        A value of this kind.
    least, most : str
        What a value other than 0 lies between: beyond it, numbers are slips of the pen that would
        only ruin the arithmetic.
    """

    name: str
    exponents: _Exponents
    example: str
    least: str = ""
    most: str = ""

    @cached_property
    def limits(self) -> tuple[float, float]:
        """`least` and `most` in SI units."""
        return _si(self.least), _si(self.most)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic read a quantity of this kind from text."""
        from pydantic_core import core_schema

        def read(value: object) -> float:
            result = parse_quantity(value, self)
            require_range(result, self, shown(value))
            return result

        return core_schema.no_info_plain_validator_function(read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: object) -> dict[str, Any]:
        """JSON Schema of the text: a number and what may be its unit."""
        return {
            "type": "string",
            "title": f"{self.name[0].upper()}{self.name[1:]}, with its unit",
            "pattern": rf"^\s*{_NUMBER.pattern}\s*[A-Za-zµ$(]",
            "examples": [self.example],
        }


BANDWIDTH = Kind("a bandwidth", (1, -1, 0, 0, 0), "100 GB/s", "1 kB/s", "1000 PB/s")
TIME = Kind("a time", (0, 1, 0, 0, 0), "20 ns", "1e-6 ns", "1e9 s")
DURATION = Kind("a time", (0, 1, 0, 0, 0), "4 years", "1 s", "100 years")
MONEY = Kind("an amount of money", (0, 0, 1, 0, 0), "25000 USD", "1e-3 USD", "1e18 USD")
PRICE_RATE = Kind(
    "a price per bandwidth", (-1, 1, 1, 0, 0), "4 USD/(GB/s)", "1e-9 USD/(GB/s)", "1e9 USD/(GB/s)"
)
POWER = Kind("a power", (0, 0, 0, 1, 0), "700 W", "1e-6 W", "1e15 W")
POWER_RATE = Kind(
    "a power per bandwidth", (-1, 1, 0, 1, 0), "0.3 W/(GB/s)", "1e-9 W/(GB/s)", "1e6 W/(GB/s)"
)
ENERGY_PRICE = Kind(
    "a price of energy", (0, -1, 1, -1, 0), "0.08 USD/kWh", "1e-6 USD/kWh", "1e3 USD/kWh"
)
SIZE = Kind("a size", (1, 0, 0, 0, 0), "64 MB", "1e-3 B", "1000 PB")
FLOPS = Kind("a rate of operations", (0, -1, 0, 0, 1), "989 TFLOP/s", "1 FLOP/s", "1e9 PFLOP/s")
FREQUENCY = Kind("a frequency", (0, -1, 0, 0, 0), "1 GHz", "1 Hz", "1000 GHz")
_KINDS = (
    BANDWIDTH,
    TIME,
    MONEY,
    PRICE_RATE,
    POWER,
    POWER_RATE,
    ENERGY_PRICE,
    SIZE,
    FLOPS,
    FREQUENCY,
)

_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_UNIT_TOKEN = re.compile(r"\s*([A-Za-zµ$]+|[()/*])")
_CONFUSED = {
    "Gb": "Gbit or GB",
    "Mb": "Mbit or MB",
    "Tb": "Tbit or TB",
    "gb": "GB or Gbit",
    "GBps": "GB/s",
    "GBPS": "GB/s",
    "Gbps": "Gbit/s",
    "GiBps": "GiB/s",
    "TBps": "TB/s",
    "$": "USD",
    "usd": "USD",
    "sec": "s",
    "b": "bit or B",
    "cycles": "a time such as ns",
    "TFLOPS": "TFLOP/s",
    "TFLOPs": "TFLOP/s",
    "TOPS": "TFLOP/s",
}


def parse_number(text: str) -> tuple[float, str] | None:
    """Split leading number and rest of a text; None if it does not begin with a number.

    Examples
    --------
    >>> parse_number("100 GB/s")
    (100.0, 'GB/s')
    """
    match = _NUMBER.match(text.strip())
    if match is None:
        return None
    return float(match[0].replace("_", "")), text.strip()[match.end() :].strip()


def parse_quantity(value: object, kind: Kind) -> float:
    """Value in SI units of a text with a unit.

    Parameters
    ----------
    value : object
        What the file holds; must be text such as ``"100 GB/s"``.
    kind : Kind
        The kind of quantity that is due.

    Returns
    -------
    float
        The value in SI units (bytes, seconds, USD and their quotients).

    Raises
    ------
    ValueError
        For a bare number, an unknown unit, a unit of another kind, a value that is not finite
        or is negative.

    Examples
    --------
    >>> parse_quantity("8 Gbit/s", BANDWIDTH)
    1000000000.0
    >>> parse_quantity("1 GiB/s", BANDWIDTH)
    1073741824.0
    """
    got, due = f"got {shown(value)}", f"Write {kind.name} with its unit, e.g. '{kind.example}'."
    if isinstance(value, bool | int | float):
        raise ValueError(f"{kind.name} needs a unit, {got}. {due}")
    split = parse_number(value) if isinstance(value, str) else None
    if split is None:
        raise ValueError(f"not a number with a unit, {got}. {due}")
    number, unit = split
    if not unit:
        raise ValueError(f"{kind.name} needs a unit, {got}. {due}")
    try:
        scale, exponents = parse_unit(unit)
    except UnitError as error:
        raise ValueError(f"{error.message}, {got}. {error.remedy}") from None
    if exponents != kind.exponents:
        other = kind_name(exponents)
        raise ValueError(f"the unit is not that of {kind.name} but of {other}, {got}. {due}")
    result = number * scale
    if not math.isfinite(result) or result < 0:
        raise ValueError(f"{kind.name} must be finite and not negative, {got}. {due}")
    return result


def require_range(value: float, kind: Kind, got: str) -> None:
    """Refuse a value of a file that is neither 0 nor between the limits of its kind.

    Raises
    ------
    ValueError
        With the limits and `got`.
    """
    least, most = kind.limits
    if value != 0 and not least <= abs(value) <= most:
        raise ValueError(
            f"{kind.name} must be 0 or between {kind.least} and {kind.most}, got {got}. Correct it."
        )


def kind_name(exponents: _Exponents) -> str:
    """Name of the kind of quantity that has these exponents."""
    names = [kind.name for kind in _KINDS if kind.exponents == exponents]
    return names[0] if names else "another kind of quantity"


def _si(text: str) -> float:
    """Value in SI units of a number with a unit."""
    split = parse_number(text)
    assert split is not None
    return split[0] * parse_unit(split[1])[0]


class UnitError(ValueError):
    """A unit that is not known.

    Attributes
    ----------
    message, remedy : str
        What is wrong and what to do, for a caller that knows the whole value.
    """

    def __init__(self, unit: str, word: str = "") -> None:
        self.message = f"unknown unit {shown(unit)}"
        self.remedy = _unit_help(word)
        super().__init__(f"{self.message}. {self.remedy}")


def parse_unit(text: str) -> tuple[float, _Exponents]:
    """Scale to SI and exponents of (byte, second, USD, W, FLOP) of a unit expression.

    Examples
    --------
    >>> parse_unit("USD/(GB/s)")
    (1e-09, (-1, 1, 1, 0, 0))
    """
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _UNIT_TOKEN.match(text, position)
        if match is None:
            raise UnitError(text, text)
        tokens.append(match[1])
        position = match.end()
    if len(tokens) > 16:
        raise UnitError(text)
    scale, exponents, rest = _product(tokens, text)
    if rest:
        raise UnitError(text)
    return scale, exponents


def _product(tokens: list[str], text: str) -> tuple[float, _Exponents, list[str]]:
    scale, exponents, rest = _factor(tokens, text)
    while rest and rest[0] in "*/":
        sign = 1 if rest[0] == "*" else -1
        scale_2, exponents_2, rest = _factor(rest[1:], text)
        scale *= scale_2**sign
        a, b, c, d, e = (x + sign * y for x, y in zip(exponents, exponents_2, strict=True))
        exponents = (a, b, c, d, e)
    return scale, exponents, rest


def _factor(tokens: list[str], text: str) -> tuple[float, _Exponents, list[str]]:
    if tokens and tokens[0] == "(":
        scale, exponents, rest = _product(tokens[1:], text)
        if rest and rest[0] == ")":
            return scale, exponents, rest[1:]
    elif tokens and tokens[0] in _ATOMS:
        return (*_ATOMS[tokens[0]], tokens[1:])
    word = next((t for t in tokens if t not in _ATOMS and t not in "()*/"), "")
    raise UnitError(text, word)


def _unit_help(word: str) -> str:
    if word in _CONFUSED:
        return f"Write {_CONFUSED[word]}."
    return (
        "Known units: B, kB, MB, GB, TB, PB, KiB … TiB, bit … Tbit, ns, us, ms, s, years, USD, W, "
        "kWh, FLOP, Hz."
    )


def _significant(value: float, digits: int = 4) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def format_time(seconds: float) -> str:
    """Time as text with the unit that suits it.

    Examples
    --------
    >>> format_time(0.70343)
    '703.4 ms'
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{_significant(seconds / scale)} {unit}"
    return f"{_significant(seconds / 1e-9)} ns"


def format_bytes(size: float) -> str:
    """Size as text in decimal units.

    Examples
    --------
    >>> format_bytes(805306368)
    '805.3 MB'
    """
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size) >= scale:
            return f"{_significant(size / scale)} {unit}"
    return f"{_significant(size)} B"


def format_money(usd: float) -> str:
    """Amount of money as text.

    Examples
    --------
    >>> format_money(19049899.15)
    '19.05 M USD'
    """
    for scale, unit in ((1e9, "G USD"), (1e6, "M USD"), (1e3, "k USD")):
        if abs(usd) >= scale:
            return f"{_significant(usd / scale)} {unit}"
    return f"{_significant(usd)} USD"


def format_power(watts: float) -> str:
    """Power as text.

    Examples
    --------
    >>> format_power(1234567.0)
    '1.235 MW'
    """
    for scale, unit in ((1e9, "GW"), (1e6, "MW"), (1e3, "kW")):
        if abs(watts) >= scale:
            return f"{_significant(watts / scale)} {unit}"
    return f"{_significant(watts)} W"
