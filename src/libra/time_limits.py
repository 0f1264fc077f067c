"""Limits on step times: ``time(gpt-3) <= 900 ms`` and ``slowdown(gpt-3) <= 1.1``.

Both are convex in the bandwidths: a step time may be limited from above only. A slowdown compares a
workload's step time with the least that it could have alone under the same linear constraints. That
least is known up to a proven gap, so that no limit can be held nearer to it than `NEAREST` of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from libra.errors import nearest, shown
from libra.units import TIME, parse_number, parse_quantity

__all__ = ["NEAREST", "TimeLimit", "is_time_limit", "parse_time_limit"]

_FORM = re.compile(r"\s*(time|slowdown)\s*\(\s*([^()]*?)\s*\)\s*(<=|>=|==|<|>|=)\s*(.*?)\s*")

NEAREST = 1e-5
"""Part of its best by which a workload's limit lies above it at the least.

Nearer ones leave no room for a proof: a step time's distance from its best is that of the
bandwidths squared.
"""


@dataclass(frozen=True)
class TimeLimit:
    """A step time's upper limit.

    Attributes
    ----------
    text : str
        As the user wrote it.
    workload : str
        Name of the workload.
    relative : bool
        Whether `bound` is a multiple of the workload's own best time.
    bound : float
        [s], or the multiple, at least 1.
    file, line : str, int
        Where it stands; line 0: nowhere.
    """

    text: str
    workload: str
    relative: bool
    bound: float
    file: str = ""
    line: int = 0

    @property
    def held(self) -> float:
        """Bound that is held, in its unit: a slowdown of 1 is held to 1 + `NEAREST`."""
        return max(self.bound, 1 + NEAREST) if self.relative else self.bound


def is_time_limit(text: str) -> bool:
    """Whether a constraint speaks of a step time."""
    return re.match(r"\s*(time|slowdown)\b", text) is not None


def parse_time_limit(
    text: str, workloads: Sequence[str], file: str = "", line: int = 0
) -> TimeLimit:
    """Read a time limit.

    Parameters
    ----------
    text : str
        The constraint.
    workloads : sequence of str
        Names that it may use.
    file, line : str, int
        Where it stands.

    Raises
    ------
    ValueError
        If it is not ``time(NAME) <= TIME`` or ``slowdown(NAME) <= NUMBER``.

    Examples
    --------
    >>> parse_time_limit("slowdown(gpt-3) <= 1.1", ["gpt-3"]).bound
    1.1
    """
    example = "Write e.g. 'time(gpt-3) <= 900 ms' or 'slowdown(gpt-3) <= 1.1'."
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"a step time stands alone on the left side, got {shown(text)}. {example}")
    what, name, relation, right = match.groups()
    if relation != "<=":
        raise ValueError(
            f"a step time can be limited from above only, got {relation!r} in {shown(text)}. "
            "Write <=."
        )
    if name not in workloads:
        raise ValueError(f"unknown workload, got {shown(name)}. {nearest(name, workloads)}")
    if what == "time":
        bound = parse_quantity(right, TIME)
        if bound == 0:
            raise ValueError(f"a step takes more than no time, got {shown(text)}. Correct it.")
        return TimeLimit(text, name, False, bound, file, line)
    number = parse_number(right)
    if number is None or number[1] or not number[0] >= 1:
        raise ValueError(
            f"a slowdown is a plain number of at least 1, got {shown(right)}. {example}"
        )
    return TimeLimit(text, name, True, number[0], file, line)
