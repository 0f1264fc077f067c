"""Steps of transformers: published formulas, schedules stepped through, collectives by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.accelerators import load_accelerator
from libra.collectives import CollectiveKind, CollectiveModel, Contention
from libra.errors import FieldError
from libra.formats.huggingface import model_of_keys
from libra.models import load_model
from libra.network import Dimension, Network, Topology
from libra.placement import Group
from libra.timing import build_timing, critical_path
from libra.workload.activations import ActivationPlan
from libra.workload.compute import Accelerator, KindEfficiency, OperatorKind, Precision
from libra.workload.memory import MemoryPlan
from libra.workload.pipeline import Pipeline, _stage_order
from libra.workload.roles import place_roles
from libra.workload.slots import schedule_slots
from libra.workload.training_plan import Overlap, TrainingPlan
from libra.workload.transformer import build_step

AR, AG, RS, A2A, P2P = (
    CollectiveKind(word)
    for word in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "point-to-point")
)
NOTHING = Overlap(tp_gradients=False, dp=False, zero=False, pp=False, cp=False)
IDEAL = Accelerator(
    "ideal", {Precision.BF16: 1e15}, 1e15, 1e30, {kind: KindEfficiency() for kind in OperatorKind}
)
"""Memory costs nothing, so that a step takes its FLOPs."""


def gpt(layers=4, hidden=1024, heads=16, vocabulary=51200, sequence=2048):
    keys = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden,
        "n_layer": layers, "n_head": heads, "n_positions": sequence, "vocab_size": vocabulary,
    }  # fmt: skip
    return model_of_keys(keys, "gpt")


def plan(micro_batch=1, sequence=2048, overlap=NOTHING, options=None, **memory):
    run = {k: memory.pop(k) for k in list(memory) if k in ActivationPlan.__dataclass_fields__}
    activations = ActivationPlan(micro_batch, sequence, **run)
    return TrainingPlan(MemoryPlan(activations, **memory), overlap=overlap, **(options or {}))


def network(npus, inner=8):
    sizes = [inner, npus // inner] if npus > inner else [npus]
    return Network(
        tuple(Dimension(Topology.SWITCH, n, f"t{d}") for d, n in enumerate(sizes) if n > 1)
    )


def degrees(p):
    run = p.memory.activations
    return run.tp * run.cp * p.memory.pp * p.memory.dp


def step_of(model, p, accelerator=IDEAL, order=("tp", "cp", "dp", "pp")):
    net = network(degrees(p))
    groups = place_roles(net, p.memory, order)
    return build_step(model, p, accelerator, groups, net.sizes), net


def seconds(step, net, bandwidth=1e30, contention=Contention.NONE):
    timing = build_timing(step.graph, net, CollectiveModel(contention=contention))
    return critical_path(timing, np.full(len(net.dimensions), bandwidth)).time


def counts(step, stage=0):
    graph = step.graph
    found = {}
    for task, index, value in zip(
        graph.count_task, graph.count_index, graph.count_value, strict=True
    ):
        if graph.places[task] == stage:
            c = graph.collectives[index]
            key = (c.kind, c.group.name, c.size)
            found[key] = found.get(key, 0) + value
    return found


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("layers", [2, 8])
def test_flops_are_those_of_the_formula_of_megatron(tp, layers):
    """Narayanan et al. 2021, section 5.1, without its term for recomputation: 72 for 96."""
    model, batch, s, h, v = gpt(layers), 16, 2048, 1024, 51200
    p = plan(2, s, tp=tp, dp=2, micro_batches=4, fused_attention=False)
    step, _ = step_of(model, p)
    formula = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    flops = step.flops("forward", "input_gradient", "weight_gradient")
    assert flops == pytest.approx(formula, rel=1e-12)
    full, _ = step_of(model, plan(2, s, tp=tp, dp=2, micro_batches=4, fused_attention=False,
                                  recomputation="full"))  # fmt: skip
    again = 24 * batch * s * layers * h**2 * (1 + s / (6 * h))
    assert full.flops("recomputation") == pytest.approx(again, rel=1e-12)


def test_causal_attention_that_is_fused_computes_half_of_the_scores_and_once_more_backward():
    model, s = gpt(1), 2048
    step, _ = step_of(model, plan(1, s, dp=2))
    one = [o for o in step.parts[0][1][0].operators.forward if o.kind is OperatorKind.ATTENTION]
    assert [o.flops for o in one] == [pytest.approx(4 * s * 1024 * (s + 1) / 2)]
    back = step.parts[0][1][0].operators.input_gradient
    found = [o.flops for o in back if o.kind is OperatorKind.ATTENTION]
    assert found == [pytest.approx(2.5 * one[0].flops)]


def test_step_without_communication_takes_its_flops():
    step, net = step_of(gpt(), plan(1, 512, dp=2, micro_batches=3))
    flops = step.flops("forward", "input_gradient", "weight_gradient", "recomputation")
    assert seconds(step, net) == pytest.approx(flops / 2 / 1e15, rel=1e-9)


@pytest.mark.parametrize(
    ("pp", "virtual", "micro_batches"), [(4, 1, 8), (4, 1, 2), (4, 2, 8), (2, 4, 6)]
)
def test_bubble_is_that_of_the_schedule(pp, virtual, micro_batches):
    """(p - 1) / v slots of a whole stage (Narayanan et al. 2021, section 2.2), equal stages."""
    model = replace(gpt(layers=16), vocabulary=1, tied=False, lm_head=False, after=(), before=())
    p = plan(1, 512, pp=pp, virtual_stages=virtual, micro_batches=micro_batches)
    step, net = step_of(model, p)
    slot = step.flops("forward", "input_gradient", "weight_gradient") / micro_batches / pp / 1e15
    bubble = (pp - 1) * slot / virtual
    assert seconds(step, net) == pytest.approx(micro_batches * slot + bubble, rel=1e-6)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_slots_are_in_the_order_of_the_schedules(stages, virtual, rounds):
    if stages == 1:
        virtual = 1
    micro_batches = rounds * stages
    slots = schedule_slots(stages, virtual, micro_batches)
    pipeline = Pipeline(Group("pp", (stages,), (1,)), (stages,), micro_batches, 1.0, virtual)
    done = set()
    for k in range(len(slots.stage)):
        part, batch, forward = slots.part[k], slots.micro_batch[k], slots.forward[k]
        before = (part - 1, batch, True) if forward else (part + 1, batch, False)
        if not forward and part == stages * virtual - 1:
            before = (part, batch, True)
        if before[0] >= 0:
            assert before in done
            feed = slots.feed[k]
            assert (slots.part[feed], slots.micro_batch[feed], slots.forward[feed]) == before
        else:
            assert slots.feed[k] == -1
        done.add((part, batch, bool(forward)))
    for s in range(stages):
        mine = np.flatnonzero(slots.stage == s)
        found = [(slots.part[k], slots.micro_batch[k], bool(slots.forward[k])) for k in mine]
        expected = [(x.part, x.micro_batch, x.forward) for x in _stage_order(pipeline, s)]
        assert found == expected
        assert slots.previous[mine].tolist() == [-1, *mine[:-1].tolist()]


def test_collectives_of_tensor_parallelism():
    """Two all-reduces of 2 sbh bytes a block and pass, and those of embedding and head."""
    size = 2.0 * 2048 * 1024
    found = counts(step_of(gpt(4), plan(tp=8, dp=1, micro_batches=3))[0])
    assert found == {(AR, "tp", size): 3 * (4 * 4 + 2)}
    split = counts(step_of(gpt(4), plan(tp=8, micro_batches=3, sequence_parallel=True))[0])
    # Forward AG and RS, backward AG for each gradient and RS, for each of 8 pairs; then the
    # embedding's RS and AG, the head's AG, AG, AG and RS.
    assert split == {(AG, "tp", size): 3 * (8 * 3 + 4), (RS, "tp", size): 3 * (8 * 2 + 2)}
    again = counts(step_of(gpt(4), plan(tp=8, micro_batches=3, recomputation="full"))[0])
    assert again == {(AR, "tp", size): 3 * (4 * 6 + 2)}


def test_gpt_3_sends_the_published_bytes():
    """As the examples that ship, and github astra-sim/libra, have them."""
    p = plan(16, 2048, tp=16, dp=2)
    step, _ = step_of(load_model("gpt-3-175b"), p)
    assert counts(step)[AR, "tp", 805306368.0] == 4 * 96 + 2


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_gradients_and_weights_of_zero(zero):
    """Bytes of Rajbhandari et al. 2020, section 7: psi for each gather or reduction."""
    model = gpt(4)
    step, _ = step_of(model, plan(dp=8, zero=zero, micro_batches=2, overlap=Overlap()))
    total = {}
    for (kind, name, size), count in counts(step).items():
        total[kind, name] = total.get((kind, name), 0.0) + size * count
    psi = 4 * (12 * 1024**2 + 13 * 1024) + (51200 + 2048) * 1024 + 2 * 1024
    expected = {
        0: {(AR, "dp"): 4 * psi},
        1: {(RS, "dp"): 4 * psi, (AG, "dp"): 2 * psi},
        2: {(RS, "dp"): 2 * 4 * psi, (AG, "dp"): 2 * psi},
        3: {(RS, "dp"): 2 * 4 * psi, (AG, "dp"): 2 * 2 * 2 * psi},
    }[zero]
    assert total == {key: pytest.approx(value) for key, value in expected.items()}


def test_compression_and_precision_scale_the_gradients():
    whole = counts(step_of(gpt(), plan(dp=8))[0])
    less = counts(step_of(gpt(), plan(dp=8, options={"compression": 0.25, "gradient": 2.0}))[0])
    assert sum(s for _, _, s in less) == pytest.approx(sum(s for _, _, s in whole) / 8)


def test_experts_exchange_what_their_tokens_need():
    model = load_model("mixtral-8x7b")
    p = plan(1, 4096, dp=8, ep=8, options={"capacity": 1.25})
    found = counts(step_of(model, p)[0])
    size = 4096 * 2 * 1.25 * 4096 * 2.0
    assert found[A2A, "ep", size] == 4 * 32
    assert not any(name == "expert dp" for _, name, _ in found)


def test_sends_are_split_by_tensor_parallelism():
    found = counts(step_of(gpt(), plan(tp=2, pp=4, micro_batches=8))[0], stage=1)
    assert found[P2P, "pp", 2048 * 1024 * 2.0 / 2] == 16


def test_tied_embedding_is_reduced_between_the_first_and_last_stage():
    step, _ = step_of(gpt(), plan(pp=4, micro_batches=8))
    for stage, times in ((0, 1), (1, None), (3, 1)):
        assert counts(step, stage).get((AR, "embedding", 51200 * 1024 * 4.0)) == times


def test_overlap_never_slows_a_step_down():
    model = gpt()
    p = plan(tp=2, pp=2, dp=4, zero=1, micro_batches=4)
    slow, net = step_of(model, p)
    fast, _ = step_of(model, replace(p, overlap=Overlap(tp=True)))
    for bandwidth in (1e8, 1e10, 1e12):
        assert seconds(fast, net, bandwidth) <= seconds(slow, net, bandwidth) * (1 + 1e-9)
    assert seconds(fast, net, 1e10) < 0.9 * seconds(slow, net, 1e10)


def test_prefetched_weights_hide_behind_computation():
    model, chip = gpt(8), replace(IDEAL, peak={Precision.BF16: 1e12})
    p = plan(dp=8, zero=3, micro_batches=2, overlap=Overlap())
    step, net = step_of(model, p, chip)
    flops = step.flops("forward", "input_gradient", "weight_gradient") / 8 / 1e12
    assert seconds(step, net, 1e12) == pytest.approx(flops, rel=0.01)
    late, _ = step_of(model, replace(p, overlap=NOTHING), chip)
    # A gather's bytes travel (n - 1) / n times: forward, backward, and the reduction that ends it.
    assert seconds(late, net, 1e12) > seconds(step, net, 1e12)


def test_gpt_3_at_full_depth_is_small_enough_to_build_at_once():
    """96 blocks, 8 stages, 64 micro-batches: a task for each slot and send, not for each operator."""
    p = plan(tp=8, pp=8, dp=8, zero=1, micro_batches=64, sequence_parallel=True)
    step, _ = step_of(load_model("gpt-3-175b"), p, load_accelerator("a100-80gb"))
    slots, sends = 2 * 8 * 64, 2 * 7 * 64
    assert step.graph.tasks < slots + sends + 8 * 100


@pytest.mark.parametrize(
    ("memory", "order", "message"),
    [
        ({"tp": 3}, None, "the degrees multiply to 3 but the network has 8 NPUs"),
        ({"dp": 8}, ("tp", "cp", "dp"), "must name each of tp, cp, pp, dp once, got"),
        ({"dp": 8}, ("tp", "cp", "dp", "ep"), "unknown role, got 'ep'"),
        (
            {"cp": 2, "pp": 2, "dp": 2},
            ("tp", "cp", "pp", "dp"),
            "no regular grid along dimension 1",
        ),
    ],
)
def test_roles_that_do_not_fit(memory, order, message):
    p = plan(**memory)
    with pytest.raises(FieldError, match=message):
        place_roles(network(8), p.memory, order or ("tp", "cp", "dp", "pp"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"compression": 0.0}, "is the fraction of the gradients' bytes that is sent"),
        ({"capacity": 0.5}, "must be from 1 to 100, got 0.5"),
        ({"bucket": -1.0}, "must be finite and not negative, got -1.0"),
        ({"gradient": 0.0}, "must be above 0 and at most 8 bytes, got 0.0"),
    ],
)
def test_plans_that_are_wrong(fields, message):
    with pytest.raises(FieldError, match=message):
        plan(options=fields)


# --- rings of context parallelism ----------------------------------------------------------------


def ring_times(tokens, bandwidth=100e9):
    """By hand: seconds of a message, and of attention in either pass, of one block on one NPU.

    Keys and values of 16 heads of 64 in 2 bytes; two products of 2 FLOPs over (s + 1) / 2 keys of
    a causal mask, 2.5 times as many backward (arXiv 2307.08691).
    """
    message = tokens * 2 * 16 * 64 * 2 / bandwidth
    attention = 4 * tokens * (2048 + 1) / 2 * 16 * 64 / 1e15
    return message, attention, 2.5 * attention


@pytest.mark.parametrize("bandwidth", [1e9, 100e9, 1e12, 1e14])
def test_a_ring_sends_keys_and_values_to_its_neighbour(bandwidth):
    """Three messages forward; backward three, and four of the gradients, which return home."""
    run = {"cp": 4, "options": {"gradient": 1e-9}}
    alone, net = step_of(gpt(1), plan(**run))
    beside, _ = step_of(gpt(1), plan(**run, overlap=replace(NOTHING, cp=True)))
    gathered, _ = step_of(gpt(1), plan(cp=4, options={"gradient": 1e-9, "exchange": "all-gather"}))
    message, forward, backward = ring_times(2048 / 4, bandwidth)
    assert counts(alone)[P2P, "cp", 512 * 4096.0] == 3 + 7
    quiet = seconds(alone, net)
    assert seconds(alone, net, bandwidth) == pytest.approx(quiet + 10 * message, rel=1e-6)
    # Of four parts of attention three run beside messages; the fourth block is there.
    exposed = max(3 * message - 0.75 * forward, 0) + max(7 * message - 0.75 * backward, 0)
    assert seconds(beside, net, bandwidth) == pytest.approx(quiet + exposed, rel=1e-6)
    # Gathering moves the same bytes on a switch; the gradients one part less.
    assert seconds(gathered, net, bandwidth) == pytest.approx(quiet + 9 * message, rel=1e-6)


def test_where_a_ring_turns_its_message_passes_the_outer_dimension():
    """A gathering collective sends an eighth there, a ring each block whole, step by step."""
    ring, net = step_of(gpt(1), plan(cp=16, options={"gradient": 1e-9}))
    gathered, _ = step_of(gpt(1), plan(cp=16, options={"gradient": 1e-9, "exchange": "all-gather"}))
    message, _, _ = ring_times(2048 / 16)
    times = {}
    for name, step in (("ring", ring), ("gathered", gathered)):
        timing = build_timing(step.graph, net, CollectiveModel(contention=Contention.NONE))
        times[name] = critical_path(timing, np.array([1e30, 100e9])).time - seconds(step, net)
    assert times["ring"] == pytest.approx((15 + 31) * message, rel=1e-6)
    # Of 16 blocks that come, one node has 8; each of its members fetches one.
    assert times["gathered"] == pytest.approx(3 * message, rel=1e-6)


@pytest.mark.parametrize(
    ("topology", "factor"), [("ring", 2), ("fully-connected", 3), ("switch", 1)]
)
def test_a_ring_uses_the_link_to_its_neighbour_alone(topology, factor):
    net = Network((Dimension(Topology(topology), 4, "node"),))
    p = plan(cp=4, options={"gradient": 1e-9})
    step = build_step(gpt(1), p, IDEAL, place_roles(net, p.memory), net.sizes)
    message, _, _ = ring_times(2048 / 4)
    spent = seconds(step, net, 100e9) - seconds(step, net)
    assert spent == pytest.approx(10 * factor * message, rel=1e-6)


def test_recomputed_attention_passes_the_ring_once_more():
    step, _ = step_of(gpt(2), plan(cp=4, recomputation="full"))
    assert counts(step)[P2P, "cp", 512 * 4096.0] == 2 * (3 + 3 + 7)
