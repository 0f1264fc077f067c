"""Items of ``workloads:`` as a design file says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from libra.design import check_weight
from libra.errors import FieldError
from libra.formats.chakra_files import trace_name
from libra.formats.chakra_options import TraceOptions
from libra.long_form import unknown_key
from libra.units import SIZE
from libra.workload.schedule import TrainingLoop

if TYPE_CHECKING:
    from libra.model_entry import ModelEntry

__all__ = ["Parallel", "PipelineEntry", "WorkloadEntry"]

_ROLES = ("tp", "pp", "dp")


@dataclass(frozen=True)
class Parallel:
    """Degrees of parallelism, placed innermost first in this order.

    Attributes
    ----------
    tp, pp, dp : int
        Tensor, pipeline and data parallelism; they multiply to the number of NPUs.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for role in _ROLES:
            if getattr(self, role) < 1:
                raise FieldError(
                    role, f"a degree is at least 1, got {getattr(self, role)}. Correct it."
                )

    @property
    def degrees(self) -> dict[str, int]:
        """Degree of each role, innermost first; without pp if there is one stage."""
        return {role: getattr(self, role) for role in _ROLES if role != "pp" or self.pp > 1}


@dataclass(frozen=True)
class PipelineEntry:
    """How a step is cut over the pipeline stages of a text workload.

    Attributes
    ----------
    micro_batches : int
        Micro-batches a step; the trace's forward and backward passes are those of one.
    activation : float
        What a stage sends to the next for one micro-batch, and back [bytes].
    virtual_stages : int
        Parts of the model on each stage.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    micro_batches: int
    activation: Annotated[float, SIZE]
    virtual_stages: int = 1


@dataclass(frozen=True)
class WorkloadEntry:
    """One item of ``workloads:``; None or the default where it is missing or wrong.

    `right` says whether all of it is.
    """

    trace: str | None = None
    name: str | None = None
    parallel: Parallel | None = None
    groups: Mapping[str, tuple[int, ...]] | None = None
    weight: float | None = None
    training_loop: TrainingLoop | None = None
    pipeline: PipelineEntry | None = None
    chakra: TraceOptions | None = None
    compute_speed: float | None = None
    model: ModelEntry | None = None
    right: bool = True

    def faults(self) -> Iterator[FieldError]:
        """What is wrong with its values, though their types are right."""
        if self.name is not None and not self.name.strip():
            yield FieldError("name", f"a name is not empty, got {self.name!r}. Write one.")
        if self.parallel is not None and self.groups is not None:
            yield FieldError(
                "groups",
                "parallel and groups both place the workload, got both. Remove one of them.",
            )
        for role, extents in (self.groups or {}).items():
            if role not in _ROLES:
                yield FieldError(("groups", role), unknown_key(role, list(extents), _ROLES))
        if self.weight is not None:
            try:
                check_weight(self.weight)
            except FieldError as error:
                yield error
        speed = self.compute_speed
        if speed is not None and not 1e-6 <= speed <= 1e6:
            yield FieldError(
                "compute_speed",
                f"is how many times as fast as in the trace, from 1e-6 to 1e6, got {speed!r}. "
                "Correct it.",
            )

    @property
    def display_name(self) -> str | None:
        """Its name, else that of its file; None if neither is known."""
        if self.name is None and self.model is not None:
            return self.model.display_name
        return self.name or (trace_name(self.trace) if self.trace else None)
