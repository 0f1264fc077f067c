"""Policies of ASTRA-sim 1.0 text workloads: which NPUs each collective of a layer joins."""

from __future__ import annotations

from collections.abc import Mapping

from libra.collectives import Collective, CollectiveKind, Compatibility
from libra.errors import FieldError, InputError, Problem
from libra.formats.astra_sim import PHASES, POLICIES, TextPhase, TextWorkload
from libra.network import Network
from libra.placement import Group, nest_groups, place_groups, whole_group
from libra.workload.layers import Layer, Phase

__all__ = ["SIZE_CONVENTION", "place_text_workload", "text_size"]

_TRANSFORMER = POLICIES["HYBRID_TRANSFORMER"]
_EMBEDDING = ("all", "all", "all")


def place_text_workload(
    workload: TextWorkload,
    network: Network,
    groups: Mapping[str, Group] | None,
    compat: Compatibility | None = None,
) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """Layers with their collectives on a network's groups, and notes on what sends nothing.

    Parameters
    ----------
    workload : TextWorkload
        As read.
    network : Network
        Where it runs.
    groups : mapping of str to Group, or None
        The ``tp`` and ``dp`` groups of the design; None: the file's policy alone says.
    compat : Compatibility or None
        ``libra``: as the paper's tools count, the update takes no time and a recomputed forward
        pass communicates again but computes once. None: both take their time.

    Raises
    ------
    FieldError
        If neither says where the collectives run, or both do and disagree.
    InputError
        If the header's group does not fit the network.
    """
    scopes = _scope_groups(workload, network, groups)
    layers, silent = [], Silent()
    for k, layer in enumerate(workload.layers):
        names = _layer_scopes(workload.policy, layer.policy, k)
        phases = [
            Phase(p.compute, _collective(p, scopes[name], f"{layer.name} {label}", silent))
            for p, name, label in zip(layer.phases, names, PHASES, strict=True)
        ]
        forward, published = phases[0], compat is Compatibility.LIBRA
        again = Phase(0.0 if published else forward.compute, forward.collective)
        layers.append(
            Layer(
                layer.name,
                forward,
                phases[1],
                phases[2],
                0.0 if published else layer.update,
                again if k in workload.recomputed else None,
            )
        )
    return tuple(layers), silent.notes()


class Silent:
    """Collectives that send nothing, counted by the reason, so that the user hears of it."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def add(self, reason: str, where: str) -> None:
        """Count one."""
        self.found.setdefault(reason, []).append(where)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each reason."""
        return tuple(
            f"{len(where)} of its collectives send nothing, the first in {where[0]}: {reason}"
            for reason, where in self.found.items()
        )


def _collective(
    phase: TextPhase, group: Group | None, where: str, silent: Silent
) -> Collective | None:
    if phase.kind is None:
        return None
    if group is None:
        silent.add("the policy gives the phase no dimension", where)
    elif phase.size == 0:
        silent.add("the size is 0 bytes", where)
    elif group.size == 1:
        silent.add(f"the group {group.name} has one NPU", where)
    else:
        gathered = group.size if phase.kind is CollectiveKind.ALL_GATHER else 1
        return Collective(phase.kind, phase.size * gathered, group)
    return None


def _layer_scopes(header: str, layer: str, index: int) -> tuple[str, str, str]:
    if header.startswith("HYBRID_DLRM") and index == 0:
        return _EMBEDDING
    return POLICIES.get(layer or header, _TRANSFORMER)


def _scope_groups(
    workload: TextWorkload, network: Network, groups: Mapping[str, Group] | None
) -> dict[str, Group | None]:
    """Group of each scope word of `POLICIES`."""
    every = range(len(network.dimensions))
    scopes: dict[str, Group | None] = {
        "none": None,
        "all": whole_group(network, "all", every),
        "first": whole_group(network, network.names[0], [0]),
        "others": whole_group(network, "others", every[1:]),
    }
    if groups is not None:
        for role in ("tp", "dp"):
            scopes[role] = groups.get(role, Group(role, (1,) * len(every), (1,) * len(every)))
        for policy in dict.fromkeys(layer.policy or workload.policy for layer in workload.layers):
            _check_agreement(policy, workload, scopes, groups)
    elif workload.tensor_parallel is not None:
        scopes |= _header_groups(workload, network, workload.tensor_parallel)
    elif not workload.policy and not all(layer.policy for layer in workload.layers):
        raise FieldError(
            "",
            "the trace has no header, so nothing says which NPUs its collectives join, got "
            "neither parallel nor groups. Add parallel: {tp: …, dp: …} or groups:.",
        )
    return scopes


def _header_groups(workload: TextWorkload, network: Network, degree: int) -> dict[str, Group]:
    """Groups that ``model_parallel_NPU_group`` alone makes."""
    message = ""
    if network.npus % degree:
        message = (
            f"does not divide the network's {network.npus} NPUs, got {degree}. Correct it, or the "
            "network."
        )
    else:
        try:
            degrees = {"tp": degree, "dp": network.npus // degree}
            return nest_groups(network, place_groups(network.sizes, degrees))
        except ValueError as error:
            message = str(error)
    raise InputError(Problem(message, "model_parallel_NPU_group", workload.file, 1))


def _check_agreement(
    policy: str,
    workload: TextWorkload,
    scopes: Mapping[str, Group | None],
    groups: Mapping[str, Group],
) -> None:
    """Refuse groups of the design whose sizes are not those that a policy of the file implies."""
    names = POLICIES.get(policy)
    if names is None:
        return
    if workload.tensor_parallel is not None:
        implied = {"tp": workload.tensor_parallel}
    else:
        implied = {
            role: group.size if (group := scopes[scope]) else 1
            for role, scope in (("tp", names[0]), ("dp", names[2]))
        }
    for role, size in implied.items():
        if role in groups and groups[role].size != size:
            raise FieldError(
                role,
                f"the policy {policy} in {workload.file} makes {role} {size} but the design says "
                f"otherwise, got {role} {groups[role].size}. Correct one, or leave it to the "
                "trace: remove parallel and groups.",
            )


def text_size(collective: Collective) -> float:
    """Size of a collective as the text format counts it [bytes]: the shard of an all-gather."""
    gathered = collective.group.size if collective.kind is CollectiveKind.ALL_GATHER else 1
    return collective.size / gathered


SIZE_CONVENTION: Mapping[CollectiveKind, str] = {
    CollectiveKind.ALL_REDUCE: "the whole buffer",
    CollectiveKind.REDUCE_SCATTER: "the whole buffer before scattering",
    CollectiveKind.ALL_GATHER: "the whole buffer after gathering (the text file has the shard)",
    CollectiveKind.ALL_TO_ALL: "the whole buffer",
    CollectiveKind.BROADCAST: "the whole buffer",
    CollectiveKind.POINT_TO_POINT: "the message",
}
