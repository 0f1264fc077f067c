"""Constraints: arithmetic on names, parsed into linear rows, never evaluated as code.

A constraint compares two linear expressions in the bandwidths: ``total <= 1000 GB/s``,
``chiplet >= 2 * package``, ``node + pod == 200 GB/s``, ``cost <= 15e6 USD``. Names: a dimension by
its name or tier or as ``dim1`` … ``dimD``; ``total``, the sum of all; the network's ``cost`` and
``power``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra.errors import nearest, shown
from libra.network import Network
from libra.units import (
    BANDWIDTH,
    MONEY,
    POWER,
    Kind,
    UnitError,
    kind_name,
    parse_number,
    parse_unit,
    require_range,
)

__all__ = ["LinearConstraint", "bound_constraints", "parse_constraint"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinearConstraint:
    """One row ``coefficients . B <relation> bound``.

    Attributes
    ----------
    text : str
        As the user wrote it.
    coefficients : ndarray, shape (columns,)
        Left side less right side [1, or USD or W per byte/s]; columns are dimensions unless prices
        rise, see `libra.pricing`.
    relation : str
        ``<=``, ``>=`` or ``==``.
    bound : float
        Constant part of the right side less that of the left [bytes/s, USD or W].
    kind : Kind
        Whether both sides are bandwidths, money or power.
    file, line : str, int
        Where it stands; line 0: nowhere.
    multiple : float
        How often the network's cost or power stands in it.
    scenario : int or None
        Which scenario of a design it holds in; None: it is the design's own.
    """

    text: str
    coefficients: Floats
    relation: str
    bound: float
    kind: Kind
    file: str = ""
    line: int = 0
    multiple: float = 0.0
    scenario: int | None = None

    @property
    def unit(self) -> tuple[str, float]:
        """Unit of its right side for people, and its size in SI units."""
        return _UNITS[self.kind.name]

    def slack(self, columns: Floats, amount: float | None = None) -> float:
        """How much room is left [bytes/s, USD or W]; negative: violated.

        Parameters
        ----------
        columns : ndarray, shape (columns,)
            Bandwidths [bytes/s].
        amount : float or None
            The network's cost or power, where the row is of that; None: as the columns say.
        """
        left = float(self.coefficients @ columns) if amount is None else self.multiple * amount
        difference = left - self.bound
        if self.relation == "==":
            return -abs(difference)
        return difference if self.relation == ">=" else -difference


@dataclass(frozen=True)
class _Linear:
    """A linear expression: constant plus coefficients, of a kind (None: a plain number).

    `multiple` counts the network's cost or power in it.
    """

    coefficients: Floats
    constant: float
    kind: Kind | None
    multiple: float = 0.0


_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_µ][A-Za-z0-9_]*)|(?P<symbol><=|>=|==|!=|[-+*/()<>=≤≥]))",
    re.ASCII,
)
_RELATIONS = ("<=", ">=", "==")
_INSTEAD = {"<": "<=", ">": ">=", "=": "==", "≤": "<=", "≥": ">=", "!=": "<= or >="}
_EXAMPLE = "Write e.g. 'total <= 1000 GB/s' or 'chiplet >= 2 * package'."
_UNITS = {BANDWIDTH.name: ("GB/s", 1e9), MONEY.name: ("USD", 1.0), POWER.name: ("W", 1.0)}
_LONGEST = 1000
_DEEPEST = 32
_FARTHEST = 1e12


def parse_constraint(
    text: str,
    network: Network,
    prices: Floats | None,
    file: str = "",
    line: int = 0,
    *,
    power: Floats | None = None,
    owner: Ints | None = None,
) -> LinearConstraint:
    """Row of a constraint in text form.

    Parameters
    ----------
    text : str
        The constraint.
    network : Network
        Gives the names.
    prices, power : ndarray, shape (columns,), or None
        What ``cost`` and ``power`` stand for, see `libra.pricing.Pricing`; None: not known.
    file, line : str, int
        Where it stands.
    owner : ndarray of int, shape (columns,), or None
        Dimension of each column; None: columns are dimensions.

    Raises
    ------
    ValueError
        If it is not a linear comparison of names and numbers of one kind, or limits a cost or power
        from below that is convex only.

    Examples
    --------
    >>> from libra.network import Dimension, Topology
    >>> net = Network((Dimension(Topology.RING, 4, "node"), Dimension(Topology.SWITCH, 8, "pod")))
    >>> row = parse_constraint("node >= 2 * pod", net, None)
    >>> row.coefficients, row.relation, row.bound
    (array([ 1., -2.]), '>=', 0.0)
    """
    tokens = _tokenize(text)
    relations = [k for k, t in enumerate(tokens) if t in _RELATIONS or t in _INSTEAD]
    if len(relations) != 1:
        raise ValueError(
            f"a constraint is one comparison with <=, >= or ==, got {shown(text)}. {_EXAMPLE}"
        )
    relation = tokens[relations[0]]
    if relation not in _RELATIONS:
        reason = "a strict bound has no optimum" if relation in "<>" else "not a relation"
        raise ValueError(
            f"{reason}, got {relation!r} in {shown(text)}. Write {_INSTEAD[relation]}."
        )
    reader = _Reader(text, network, {"cost": prices, "power": power}, owner)
    with np.errstate(over="ignore", invalid="ignore"):
        left = reader.read(tokens[: relations[0]])
        right = reader.read(tokens[relations[0] + 1 :])
        if left.kind is None or right.kind is None or left.kind is not right.kind:
            raise ValueError(f"{_mismatch(left.kind, right.kind)}, got {shown(text)}. {_EXAMPLE}")
        coefficients = left.coefficients - right.coefficients
        bound = right.constant - left.constant
    if not coefficients.any():
        raise ValueError(f"no bandwidth is left in the constraint, got {shown(text)}. {_EXAMPLE}")
    _require_scale(coefficients, bound, text, left.kind)
    multiple = left.multiple - right.multiple
    convex = owner is not None and len(owner) > len(network.dimensions)
    if multiple and convex and relation != ("<=" if multiple > 0 else ">="):
        raise ValueError(
            "a cost or power that rises in steps can be limited from above only, got "
            f"{shown(text)}. Write <=."
        )
    return LinearConstraint(text, coefficients, relation, bound, left.kind, file, line, multiple)


def bound_constraints(network: Network, owner: Ints | None = None) -> tuple[LinearConstraint, ...]:
    """Rows of the least and largest bandwidths that the dimensions carry."""
    rows = []
    columns = np.arange(len(network.dimensions)) if owner is None else owner
    for d, (name, dimension) in enumerate(zip(network.names, network.dimensions, strict=True)):
        if dimension.min_bandwidth is dimension.max_bandwidth is None:
            continue
        unit = (columns == d).astype(np.float64)
        for relation, value in (
            (">=", dimension.min_bandwidth),
            ("<=", dimension.max_bandwidth),
        ):
            if value is not None:
                text = f"{name} {relation} {value / 1e9:g} GB/s"
                rows.append(LinearConstraint(text, unit, relation, value, BANDWIDTH))
    return tuple(rows)


def _named_dimensions(network: Network) -> dict[str, int | None]:
    """Names a constraint may use for bandwidths, with the dimension of each; None: all of them."""
    names: dict[str, int | None] = {"total": None}
    for d, name in enumerate(network.names):
        names[name] = names[f"dim{d + 1}"] = d
    return names


def _require_scale(coefficients: Floats, bound: float, text: str, kind: Kind) -> None:
    """Refuse numbers so large, small or far apart that no arithmetic can honour them."""
    sizes = np.abs(coefficients[coefficients != 0])
    if not (np.isfinite(sizes).all() and sizes.max() <= _FARTHEST * sizes.min()):
        raise ValueError(
            f"the factors of the bandwidths differ by more than {_FARTHEST:g}, got {shown(text)}. "
            "Correct the numbers."
        )
    if kind is BANDWIDTH:
        require_range(bound / float(sizes.max()), kind, f"{shown(text)}, which says otherwise")
    else:
        require_range(bound, kind, f"{shown(text)}, which says otherwise")


def _tokenize(text: str) -> list[str]:
    if len(text) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} characters, got {shown(text)}. Split it.")
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            bad = text[position:].strip()[0]
            raise ValueError(
                f"a constraint is arithmetic on names and numbers, got {bad!r} in {shown(text)}. "
                f"{_EXAMPLE}"
            )
        tokens.append(match[0].strip())
        position = match.end()
    return tokens


def _mismatch(left: Kind | None, right: Kind | None) -> str:
    names = [kind.name if kind else "a number without a unit" for kind in (left, right)]
    return f"the sides do not have the same kind: {names[0]} and {names[1]}"


class _Reader:
    """Recursive descent over the tokens of one side: sums of products of factors."""

    def __init__(
        self,
        text: str,
        network: Network,
        amounts: Mapping[str, Floats | None],
        owner: Ints | None,
    ) -> None:
        self.text = text
        self.names = _named_dimensions(network)
        self.owner = np.arange(len(network.dimensions)) if owner is None else owner
        self.tiers: Sequence[str] = [d.tier for d in network.dimensions]
        self.amounts = amounts
        self.zero = np.zeros(len(self.owner))

    def read(self, tokens: Sequence[str]) -> _Linear:
        self.tokens = list(tokens)
        self.depth = 0
        value = self.sum()
        if self.tokens:
            raise self.error(f"cannot read {self.tokens[0]!r} here")
        return value

    def error(self, what: str, remedy: str = _EXAMPLE) -> ValueError:
        return ValueError(f"{what}, got {shown(self.text)}. {remedy}")

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def sum(self) -> _Linear:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error("too deeply nested")
        value = self.product()
        while self.peek() in ("+", "-"):
            sign = 1 if self.tokens.pop(0) == "+" else -1
            other = self.product()
            if value.kind is not other.kind:
                raise self.error(_mismatch(value.kind, other.kind))
            value = _Linear(
                value.coefficients + sign * other.coefficients,
                value.constant + sign * other.constant,
                value.kind,
                value.multiple + sign * other.multiple,
            )
        self.depth -= 1
        return value

    def product(self) -> _Linear:
        value = self.factor()
        while self.peek() in ("*", "/"):
            divide = self.tokens.pop(0) == "/"
            other = self.factor()
            if value.kind is not None and other.kind is not None:
                what = "a product of two bandwidths" if not divide else "a quotient of bandwidths"
                raise self.error(
                    f"{what} is not linear", "Use sums and multiples by plain numbers."
                )
            if divide:
                if other.kind is not None or other.constant == 0:
                    raise self.error("can divide by a plain number other than 0 only")
                other = _Linear(self.zero, 1 / other.constant, None)
            number, term = (value, other) if value.kind is None else (other, value)
            by = number.constant
            value = _Linear(
                term.coefficients * by, term.constant * by, term.kind, term.multiple * by
            )
        return value

    def factor(self) -> _Linear:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.tokens.pop(0) == "-" else sign
        value = self.primary()
        return _Linear(
            sign * value.coefficients, sign * value.constant, value.kind, sign * value.multiple
        )

    def primary(self) -> _Linear:
        if not self.tokens:
            raise self.error("something is missing at the end of a side")
        token = self.tokens.pop(0)
        if token == "(":
            value = self.sum()
            if self.peek() != ")":
                raise self.error("a bracket is not closed")
            self.tokens.pop(0)
            return value
        if token[0].isdigit() or token[0] == ".":
            return self.quantity(token)
        if token[0].isalpha() or token[0] == "_":
            return self.name(token)
        raise self.error(f"cannot read {token!r} here")

    def quantity(self, token: str) -> _Linear:
        """Read a number, with the unit that follows it."""
        split = parse_number(token)
        assert split is not None
        number = split[0]
        if not np.isfinite(number):
            raise self.error(f"{shown(token)} is not finite")
        unit = self.unit()
        if not unit:
            return _Linear(self.zero, number, None)
        try:
            scale, exponents = parse_unit(unit)
        except UnitError as error:
            raise self.error(error.message, error.remedy) from None
        for kind in (BANDWIDTH, MONEY, POWER):
            if kind.exponents == exponents:
                return _Linear(self.zero, number * scale, kind)
        raise self.error(f"{unit} is the unit of {kind_name(exponents)}", "Write GB/s, USD or W.")

    def unit(self) -> str:
        """Take the tokens of a unit: a word, and ``/ word`` if the word begins a bandwidth."""
        word = self.peek()
        if not (word and word[0].isalpha()) or word in self.names or word in self.amounts:
            return ""
        unit = self.tokens.pop(0)
        if len(self.tokens) >= 2 and self.tokens[0] == "/" and self.tokens[1] == "s":
            unit += "/s"
            del self.tokens[:2]
        return unit

    def name(self, token: str) -> _Linear:
        if token in self.names:
            d = self.names[token]
            mine = np.ones_like(self.zero) if d is None else (self.owner == d).astype(np.float64)
            return _Linear(mine, 0.0, BANDWIDTH)
        if token in self.amounts:
            amount = self.amounts[token]
            kind, what = (MONEY, "prices") if token == "cost" else (POWER, "power figures")
            if amount is None:
                key = "prices" if token == "cost" else "power"
                raise self.error(
                    f"the {what} are not known, so {token!r} has no value", f"Add {key}: default."
                )
            return _Linear(amount, 0.0, kind, 1.0)
        if token in ("time", "slowdown"):
            raise self.error(
                f"{token}(…) stands alone on the left side",
                "Write e.g. 'time(gpt-3) <= 900 ms' or 'slowdown(gpt-3) <= 1.1'.",
            )
        if token in self.tiers:
            owners = [f"dim{d + 1}" for d, tier in enumerate(self.tiers) if tier == token]
            raise self.error(
                f"{token!r} is the tier of several dimensions", f"Write {' or '.join(owners)}."
            )
        raise self.error(
            f"unknown name {shown(token)}", nearest(token, [*self.names, *self.amounts])
        )
