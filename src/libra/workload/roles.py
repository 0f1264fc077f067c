"""Where the roles of a transformer's parallelism lie on a network: tp, cp, dp, pp and experts.

Experts are dealt out over NPUs that otherwise hold the same or other tokens: the members of tensor
parallelism that do not cut an expert, then those of context and of data parallelism, each from the
inside of its own place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from libra.errors import FieldError, nearest
from libra.network import Network
from libra.placement import Group, nest_groups, place_groups
from libra.workload.memory import MemoryPlan

__all__ = ["DEFAULT_ORDER", "MEGATRON_ORDER", "place_roles"]

ROLES = ("tp", "cp", "pp", "dp")
DEFAULT_ORDER = ("tp", "cp", "pp", "dp")
"""Innermost first, as a design file's `parallel:` places a trace."""
MEGATRON_ORDER = ("tp", "cp", "dp", "pp")
"""Order of Megatron-LM and DeepSpeed: pipeline stages farthest apart."""


def place_roles(
    network: Network, plan: MemoryPlan, order: Sequence[str] = DEFAULT_ORDER
) -> dict[str, Group]:
    """Groups of each role on a network.

    Parameters
    ----------
    network : Network
        As many NPUs as the degrees multiply to.
    plan : MemoryPlan
        The degrees.
    order : sequence of str
        The roles, innermost first.

    Returns
    -------
    dict of str to Group
        ``tp``, ``cp``, ``pp``, ``dp``; ``replicas``, NPUs that hold the same dense weights (dp and
        cp); ``ep``; ``expert_tp``; ``expert_replicas``, those that hold the same experts.

    Raises
    ------
    FieldError
        Degrees that do not multiply to the NPUs or do not fit the dimensions; an order that is
        none, or leaves a group no regular grid.
    """
    _check_order(order)
    run = plan.activations
    degrees = {"tp": run.tp, "cp": run.cp, "pp": plan.pp, "dp": plan.dp}
    product = math.prod(degrees.values())
    if product != network.npus:
        factors = " x ".join(f"{role} {degrees[role]}" for role in order)
        raise FieldError(
            "",
            f"the degrees multiply to {product} but the network has {network.npus} NPUs, got "
            f"{factors}. Change one of the degrees or the network's shape.",
        )
    parts = _parts(plan, order, degrees)
    try:
        extents = place_groups(network.sizes, parts)
    except ValueError as error:
        raise FieldError("", str(error)) from None
    placed = nest_groups(network, extents)

    def merged(name: str, *roles: str) -> Group:
        return _merge(name, [placed[part] for part in parts if part.split()[0] in roles])

    def experts(name: str, word: str) -> Group:
        return _merge(name, [placed[part] for part in parts if word in part])

    return {
        **{role: merged(role, role) for role in ROLES},
        "replicas": merged("dp", "cp", "dp"),
        "ep": experts("ep", "(experts)"),
        "expert_tp": _merge("expert_tp", [placed["tp"]]),
        "expert_replicas": experts("expert dp", "(copies)"),
    }


def _check_order(order: Sequence[str]) -> None:
    for role in order:
        if role not in ROLES:
            raise FieldError("order", f"unknown role, got {role!r}. {nearest(role, ROLES)}")
    if sorted(order) != sorted(ROLES):
        raise FieldError(
            "order",
            f"must name each of {', '.join(ROLES)} once, got {list(order)}. Complete it.",
        )


def _parts(plan: MemoryPlan, order: Sequence[str], degrees: Mapping[str, int]) -> dict[str, int]:
    """Degrees of parts of the roles, innermost first: within an expert, over experts, copies."""
    need, within = plan.ep, plan.activations.expert_tp
    parts: dict[str, int] = {}
    for role in order:
        degree = degrees[role]
        if role == "tp":
            parts["tp"] = within
            degree //= within
        elif role == "pp":
            parts["pp"] = degree
            continue
        taken = math.gcd(need, degree)
        parts[f"{role} (experts)"], parts[f"{role} (copies)"] = taken, degree // taken
        need //= taken
    if need > 1:
        raise FieldError(
            "ep", f"does not fit the members of tp, cp and dp in this order, got {plan.ep}. Use a "
            "divisor of the data-parallel degree.",
        )  # fmt: skip
    return parts


def _merge(name: str, groups: Iterable[Group]) -> Group:
    """Group of several that nest, innermost first."""
    found = list(groups)
    extents, strides = list(found[0].extents), list(found[0].strides)
    for group in found[1:]:
        for d, (extent, stride) in enumerate(zip(group.extents, group.strides, strict=True)):
            if extent == 1:
                continue
            if extents[d] == 1:
                strides[d] = stride
            elif strides[d] * extents[d] != stride:
                raise FieldError(
                    "order",
                    f"the members of {name} are no regular grid along dimension {d + 1}, because "
                    f"another role lies between them, got {name}. Place cp and dp side by side.",
                )
            extents[d] *= extent
    return Group(name, tuple(extents), tuple(strides))
