"""What a design says about a Chakra trace besides its name: ``chakra:`` of a workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from libra.errors import FieldError, InputError, Problem, shown
from libra.files import read_text
from libra.units import BANDWIDTH, FLOPS

__all__ = ["DurationUnit", "TraceOptions", "read_comm_groups"]

MOST_GROUP_BYTES = 50_000_000


class DurationUnit(StrEnum):
    """Unit of the durations in a trace: microseconds by the schema, or what a converter wrote."""

    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def seconds(self) -> float:
        """Of one unit."""
        return 1e-6 if self is DurationUnit.MICROSECONDS else 1e-9


@dataclass(frozen=True)
class TraceOptions:
    """How to read a Chakra trace.

    Attributes
    ----------
    comm_groups : str or None
        File with the members of the process groups, ``{"1": [0, 1], …}``, beside the design.
    durations : DurationUnit
        Unit of the durations in the file.
    peak : float or None
        Compute rate of an NPU, for nodes with operations but no duration [FLOP/s].
    memory : float or None
        Its memory bandwidth, for the same: such a node lasts
        ``max(operations / peak, bytes / memory)`` [bytes/s].
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    comm_groups: str | None = None
    durations: DurationUnit = DurationUnit.MICROSECONDS
    peak: Annotated[float, FLOPS] | None = None
    memory: Annotated[float, BANDWIDTH] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "durations", DurationUnit(self.durations))
        if (self.peak is None) != (self.memory is None):
            missing = "memory" if self.memory is None else "peak"
            raise FieldError(
                missing,
                "peak and memory make the roofline together, got only the other. Add "
                f"{'memory: 2 TB/s' if missing == 'memory' else 'peak: 300 TFLOP/s'} or the like.",
            )
        for name in ("peak", "memory"):
            if getattr(self, name) == 0:
                raise FieldError(name, "a rate is positive, got 0. Correct it.")


def read_comm_groups(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Members of each process group.

    Parameters
    ----------
    path : Path
        JSON: ``{"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}``.

    Raises
    ------
    ValueError
        If the file cannot be opened.
    InputError
        If it is not of that form.
    """
    text = read_text(path, MOST_GROUP_BYTES)

    def fail(message: str) -> InputError:
        return InputError(Problem(message, file=str(path)))

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or str(error)
        raise fail(f"is no JSON, got {shown(reason)}. Mend it.") from None
    if not isinstance(data, dict):
        raise fail(f'is a mapping of groups to NPUs, got {shown(data)}. Write {{"1": [0, 1]}}.')
    for name, members in data.items():
        right = isinstance(members, list) and all(
            isinstance(m, int) and not isinstance(m, bool) and 0 <= m < 2**40 for m in members
        )
        if not right or not members or len(set(members)) != len(members):
            raise fail(
                f"process group {shown(name)} is a list of NPUs, each once, got {shown(members)}. "
                "Correct it."
            )
    return {name: tuple(members) for name, members in data.items()}
