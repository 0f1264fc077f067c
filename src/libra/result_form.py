"""What values a result file has where; a file written by hand, or cut, need not have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from libra.errors import Place

__all__ = ["misplaced"]

_LARGEST = 1e300


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """Whether a value is a number of any use."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_measure(value: Any) -> bool:
    """Whether a value is a number, or null: an infinite one, or one that is not known."""
    return value is None or _is_number(value)


@dataclass(frozen=True)
class _Maybe:
    """Form of the value of a key that need not be there, and may be null unless it is said."""

    form: Any
    null: bool = True


_WORKLOAD = {
    "name": _is_text,
    "step_time_s": _is_measure,
    "compute_s": _Maybe(_is_measure),
    "exposed_communication_s": _Maybe(_is_measure),
    "idle_s": _Maybe(_is_measure),
    "busy_s": _Maybe([_is_measure], null=False),
    "simulated_s": _Maybe(_is_measure),
    "slowdown": _Maybe(_is_measure),
    "collectives": _Maybe(
        [
            {
                "kind": _is_text,
                "bytes": _is_number,
                "count": _is_number,
                "group": _is_text,
                "time_s": _is_measure,
                "latency_s": _is_measure,
                "by_dimension_s": [_is_measure],
                "limited_by": [_is_text],
                "chunks": _is_measure,
            }
        ],
        null=False,
    ),
}
_FORM: Mapping[str, Any] = {
    "status": _is_text,
    "objective": _Maybe(_is_text),
    "network": _is_text,
    "dimensions": [_is_text],
    "bandwidth_GBps": [_is_measure],
    "step_time_s": _is_measure,
    "bound_s": _Maybe(_is_measure),
    "gap": _Maybe(_is_measure),
    "objective_value": _Maybe(_is_measure),
    "objective_bound": _Maybe(_is_measure),
    "network_cost_usd": _Maybe(_is_measure),
    "energy_cost_usd": _Maybe(_is_measure),
    "network_power_w": _Maybe(_is_measure),
    "continuous_objective": _Maybe(_is_measure),
    "speedup_vs_baseline": _Maybe(_is_measure),
    "baseline_GBps": _Maybe([_is_measure]),
    "workloads": [_WORKLOAD],
    "shadow_prices": _Maybe(
        [
            {
                "constraint": _is_text,
                "slack": _is_measure,
                "slack_unit": _is_text,
                "value": _is_measure,
                "unit": _is_text,
                "met": _is_flag,
            }
        ]
    ),
    "gains": _Maybe([{"dimension": _is_text, "more_GBps": _is_number, "saved_s": _is_measure}]),
    "scenarios": _Maybe(
        [
            {
                "name": _is_text,
                "share": _is_number,
                "step_time_s": _is_measure,
                "best_s": _is_measure,
                "regret": _is_measure,
                "nominal_step_time_s": _is_measure,
                "nominal_regret": _is_measure,
                "nominal_allowed": _Maybe(_is_flag),
            }
        ]
    ),
    "price_ranges": _Maybe(
        [
            {
                "part": _is_text,
                "price": _is_number,
                "unit": _is_text,
                "low_factor": _is_measure,
                "high_factor": _is_measure,
            }
        ]
    ),
    "bill_of_materials": _Maybe(
        [
            {
                "dimension": _is_text,
                "part": _is_text,
                "count": _is_number,
                "bandwidth_GBps": _is_number,
                "unit_price_usd": _is_measure,
                "price_usd": _is_measure,
                "power_w": _is_measure,
                "note": _is_text,
            }
        ]
    ),
    "solver": _Maybe({"iterations": _is_number, "cuts": _is_number, "seconds": _is_number}),
    "warnings": _Maybe([_is_text]),
    "design": _Maybe({"file": _is_text, "settings": lambda value: isinstance(value, dict)}),
}
"""Forms by key: a test, a list of a form, or a mapping of forms; other keys may be there, too."""


def misplaced(result: Mapping[str, Any]) -> Place | None:
    """First place of a result whose value is of another kind; None: there is none.

    Parameters
    ----------
    result : mapping
        With the keys that every result has.
    """
    place = _misplaced(result, _FORM)
    if place is not None:
        return place
    return _without_parts(result) or _of_other_length(result)


def _without_parts(result: Mapping[str, Any]) -> Place | None:
    """First part of a finite step time that is infinite, or not there."""
    for k, workload in enumerate(result["workloads"]):
        if workload["step_time_s"] is not None:
            for key in ("compute_s", "exposed_communication_s", "idle_s"):
                if key in workload and workload[key] is None:
                    return ("workloads", k, key)
    return None


def _of_other_length(result: Mapping[str, Any]) -> Place | None:
    """First list by dimension that has another length than the dimensions."""
    dimensions = len(result["dimensions"])
    lists: dict[Place, Any] = {
        (key,): result.get(key) for key in ("bandwidth_GBps", "baseline_GBps")
    }
    for k, workload in enumerate(result["workloads"]):
        lists["workloads", k, "busy_s"] = workload.get("busy_s")
        for j, item in enumerate(workload.get("collectives") or ()):
            lists["workloads", k, "collectives", j, "by_dimension_s"] = item["by_dimension_s"]
    odd = (place for place, values in lists.items() if values and len(values) != dimensions)
    return next(odd, None)


def _misplaced(value: Any, form: Any) -> Place | None:
    if isinstance(form, _Maybe):
        return None if value is None and form.null else _misplaced(value, form.form)
    if isinstance(form, list):
        if not isinstance(value, list):
            return ()
        parts: Mapping[Any, Any] = dict(enumerate(value))
        forms: Mapping[Any, Any] = dict.fromkeys(parts, form[0])
    elif isinstance(form, Mapping):
        if not isinstance(value, dict):
            return ()
        parts, forms = value, form
    else:
        test: Callable[[Any], bool] = form
        return None if test(value) else ()
    for key, inner in forms.items():
        if key not in parts:
            if not isinstance(inner, _Maybe):
                return (key,)
            continue
        place = _misplaced(parts.get(key), inner)
        if place is not None:
            return (key, *place)
    return None
