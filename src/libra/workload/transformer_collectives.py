"""Collectives of a transformer: what a block, a pipeline stage and a step communicate.

Tensor parallelism all-reduces the result of each pair of matrices; sequence parallelism gathers its
input and reduce-scatters its result instead (Korthikanti et al. 2022, section 4.2.2), and gathers
the input once more for the weight's gradient. Context parallelism exchanges keys and values;
experts exchange tokens by all-to-all, before and after, with a copy for each expert or for each
node that has some of a token's experts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from libra.collectives import Collective, CollectiveKind
from libra.placement import Group
from libra.workload.activations import Recomputation
from libra.workload.blocks import Attention, Block, MixtureOfExperts
from libra.workload.model import Model
from libra.workload.training_plan import ContextExchange, TokenDispatch, TrainingPlan

__all__ = [
    "Counts",
    "Groups",
    "PhaseCollectives",
    "add_tensor",
    "block_collectives",
    "gradient_counts",
    "ring_neighbours",
    "weight_counts",
]

Counts = tuple[tuple[Collective, float], ...]
Groups = Mapping[str, Group]


@dataclass
class PhaseCollectives:
    """Collectives of a part of a model for one micro-batch, by phase and role.

    Attributes
    ----------
    forward, backward, recomputation : list of (str, Collective, float)
        What overlaps it (a field of `Overlap`), collective, how often.
    """

    forward: list[tuple[str, Collective, float]] = field(default_factory=list)
    backward: list[tuple[str, Collective, float]] = field(default_factory=list)
    recomputation: list[tuple[str, Collective, float]] = field(default_factory=list)


def block_collectives(
    model: Model, block: Block, plan: TrainingPlan, groups: Groups
) -> PhaseCollectives:
    """Collectives of a block on one NPU for one micro-batch.

    Parameters
    ----------
    model : Model
        For its hidden size.
    block : Block
    plan : TrainingPlan
    groups : mapping of str to Group
        As `libra.workload.roles.place_roles` gives them.
    """
    found = PhaseCollectives()
    run = plan.memory.activations
    size = run.tokens * model.hidden * plan.communication
    attentions = [a for a in (block.attention, block.cross_attention) if a is not None]
    mixture = block.experts
    dense = block.feed_forward is not None and (mixture is None or mixture.shared is not None)
    pairs = len(attentions) + dense
    if block.parallel and pairs == 2:
        pairs = 1
    add_tensor(found, plan, groups, size, pairs)
    if run.distribute_saved_activations and run.tp > 1:
        saved = Collective(CollectiveKind.ALL_GATHER, size, groups["tp"])
        found.backward.append(("tp", saved, 1.0))
    for attention in attentions:
        _add_context(found, attention, plan, groups)
    if mixture is not None:
        _add_experts(found, model, mixture, plan, groups)
    if run.recomputation is Recomputation.FULL:
        found.recomputation = list(found.forward)
    return found


def add_tensor(
    found: PhaseCollectives, plan: TrainingPlan, groups: Groups, size: float, pairs: int
) -> None:
    """Collectives of so many pairs of cut matrices whose input and result have a size [bytes]."""
    group = groups["tp"]
    if group.size == 1 or not pairs:
        return
    gather, scatter, reduce = (
        Collective(kind, size, group)
        for kind in (
            CollectiveKind.ALL_GATHER,
            CollectiveKind.REDUCE_SCATTER,
            CollectiveKind.ALL_REDUCE,
        )
    )
    if plan.memory.activations.sequence_parallel:
        found.forward += [("tp", gather, pairs), ("tp", scatter, pairs)]
        found.backward += [
            ("tp", gather, pairs),
            ("tp_gradients", gather, pairs),
            ("tp_gradients", scatter, pairs),
        ]
    else:
        found.forward.append(("tp", reduce, pairs))
        found.backward.append(("tp_gradients", reduce, pairs))


def _add_context(
    found: PhaseCollectives, attention: Attention, plan: TrainingPlan, groups: Groups
) -> None:
    """Keys and values in both passes, and the gradients of them in the second.

    On a ring of n members each passes its neighbour a block of keys and values n - 1 times. In the
    backward pass their gradients travel as well, n times, because they end where they belong (Liu
    et al. 2023, arXiv 2310.01889, section 3 and appendix A).
    """
    run, group = plan.memory.activations, groups["cp"]
    if group.size == 1:
        return
    kv_heads = max(attention.kv_heads / run.tp, 1)
    width = kv_heads * (attention.head_dim + attention.value_dim)
    here = run.tokens * width * plan.communication
    if plan.exchange is ContextExchange.ALL_GATHER:
        gather = Collective(CollectiveKind.ALL_GATHER, here * group.size, group)
        scatter = Collective(CollectiveKind.REDUCE_SCATTER, here * group.size, group)
        found.forward.append(("cp", gather, 1.0))
        found.backward += [("cp", gather, 1.0), ("cp", scatter, 1.0)]
        return
    message = Collective(CollectiveKind.POINT_TO_POINT, here, ring_neighbours(group))
    found.forward.append(("cp", message, group.size - 1.0))
    found.backward.append(("cp", message, 2.0 * group.size - 1.0))


def ring_neighbours(group: Group) -> Group:
    """Two neighbours on a ring through a group; where it turns, they differ in all its dimensions.

    A step of the ring ends when the slowest pair has sent, so that this pair stands for all.
    """
    return replace(group, extents=tuple(min(e, 2) for e in group.extents))


def _add_experts(
    found: PhaseCollectives,
    model: Model,
    mixture: MixtureOfExperts,
    plan: TrainingPlan,
    groups: Groups,
) -> None:
    """All-to-alls of dispatch and combination in each pass; experts that are cut gather and reduce.

    Without sequence parallelism every member of tensor parallelism holds all tokens, of which it
    dispatches its share.
    """
    run = plan.memory.activations
    visits = run.tokens * mixture.active * plan.capacity / run.tp
    size = visits * model.hidden * plan.communication
    for group, copies in _dispatches(mixture, plan, groups["ep"]):
        exchange = Collective(CollectiveKind.ALL_TO_ALL, size * copies / mixture.active, group)
        found.forward.append(("ep", exchange, 2.0))
        found.backward.append(("ep", exchange, 2.0))
    if run.expert_tp > 1:
        whole = size * run.expert_tp
        gather = Collective(CollectiveKind.ALL_GATHER, whole, groups["expert_tp"])
        scatter = Collective(CollectiveKind.REDUCE_SCATTER, whole, groups["expert_tp"])
        found.forward += [("ep", gather, 1.0), ("ep", scatter, 1.0)]
        found.backward += [("ep", gather, 1.0), ("ep", scatter, 1.0)]
    if mixture.shared is None and run.tp > 1 and not run.sequence_parallel:
        result = run.tokens * model.hidden * plan.communication
        whole_again = Collective(CollectiveKind.ALL_GATHER, result, groups["tp"])
        found.forward.append(("tp", whole_again, 1.0))
        found.backward.append(("tp", whole_again, 1.0))


def _dispatches(
    mixture: MixtureOfExperts, plan: TrainingPlan, group: Group
) -> Iterator[tuple[Group, float]]:
    """All-to-alls that bring a token to its experts, and how many copies of it each sends.

    One of a copy for each expert, or one for each dimension that holds some of the group, whose
    copies are as many as there are members of this and the outer dimensions, told apart by their
    places in them, that hold one of the token's experts. Balanced routing is any choice of k of the
    E experts, all alike: of P places a token visits on average
    P (1 - C(E - E/P, k) / C(E, k)).
    """
    if group.size == 1:
        return
    if plan.dispatch is TokenDispatch.ALL_TO_ALL:
        yield group, float(mixture.active)
        return
    experts, active, places = mixture.experts, mixture.active, 1
    for d in reversed(range(len(group.extents))):
        extent = group.extents[d]
        if extent == 1:
            continue
        places *= extent
        missed = math.comb(experts - experts // places, active) / math.comb(experts, active)
        along = tuple(extent if k == d else 1 for k in range(len(group.extents)))
        yield replace(group, extents=along), places * (1 - missed)


def gradient_counts(dense: float, expert: float, plan: TrainingPlan, groups: Groups) -> Counts:
    """Reduction of the gradients of so many dense and expert parameters on one NPU."""
    kind = CollectiveKind.REDUCE_SCATTER if plan.memory.zero else CollectiveKind.ALL_REDUCE
    element = plan.gradient * plan.compression
    return _parameter_counts(kind, dense * element, expert * element, groups)


def weight_counts(dense: float, expert: float, plan: TrainingPlan, groups: Groups) -> Counts:
    """Gathering of so many dense and expert weights, which ZeRO splits, on one NPU."""
    kind = CollectiveKind.ALL_GATHER
    return _parameter_counts(kind, dense * plan.weight, expert * plan.weight, groups)


def _parameter_counts(kind: CollectiveKind, dense: float, expert: float, groups: Groups) -> Counts:
    return tuple(
        (Collective(kind, size, groups[role]), 1.0)
        for role, size in (("replicas", dense), ("expert_replicas", expert))
        if size and groups[role].size > 1
    )
