"""Memory of an NPU: the published formulas, schedules stepped through, and measurements.

The measurements stand outside the repository (their origin: ../shared/reference/README.md).
"""

import csv
import statistics
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra.errors import FieldError
from libra.formats.huggingface import model_of_keys
from libra.models import load_model
from libra.workload.activations import ActivationPlan, Recomputation, block_activations
from libra.workload.memory import (
    DEEPSPEED_BF16,
    DEEPSPEED_FP16,
    FP32,
    MEGATRON_MIXED,
    MemoryPlan,
    StateBytes,
    chunk_sizes,
    in_flight_chunks,
    npu_memory,
    stage_memory,
)
from libra.workload.model import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    MixtureOfExperts,
    Model,
    QueryKeyNorm,
    Run,
    parameter_split,
    parameters,
)
from libra.workload.runtime_memory import deepspeed_bf16_reserved, deepspeed_fp16_reserved

MEASURED = Path(__file__).parents[2] / "shared" / "reference" / "measured"
needs_reference = pytest.mark.skipif(
    not MEASURED.is_dir(), reason="../shared/reference is not there"
)
GIB = 2**30
COUNT = StateBytes(weights=1, gradients=0, optimizer=0)


def gpt(layers, hidden, heads, sequence, vocabulary):
    keys = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden,
        "n_layer": layers, "n_head": heads, "n_positions": sequence, "vocab_size": vocabulary,
    }  # fmt: skip
    return model_of_keys(keys, "gpt")


degrees = st.sampled_from([1, 2, 4, 8])


@given(
    heads=st.integers(1, 4).map(lambda k: 8 * k),
    dim=st.integers(1, 16),
    s=st.integers(1, 32).map(lambda k: 8 * k),
    b=st.integers(1, 4),
    t=degrees,
    split=st.booleans(),
    selective=st.booleans(),
)
def test_the_formulas_of_korthikanti(heads, dim, s, b, t, split, selective):
    # arXiv 2205.05198, equations (2), (3), (4), (5): dropout everywhere, scores kept.
    h, a = heads * dim, heads
    block = Block(Attention(heads, heads, dim, dim), FeedForward(4 * h, gated=False))
    plan = ActivationPlan(
        b, s, tp=t, sequence_parallel=split, fused_attention=False, dropout=True,
        recomputation="selective" if selective else "none",
    )  # fmt: skip
    scores = 0 if selective else 5 * a * s / h
    expected = (34 + scores) / t if split else 10 + (24 + scores) / t
    assert block_activations(h, block, plan) == pytest.approx(s * b * h * expected)
    full = replace(plan, recomputation=Recomputation.FULL)
    assert block_activations(h, block, full) == pytest.approx(2 * s * b * h / (t if split else 1))


def test_activations_of_a_gated_block_by_hand():
    # Llama-3 8B, 8192 tokens, FlashAttention: tensors that backward reads, in elements a token.
    block = load_model("llama-3-8b").runs[0].block
    norms, inputs = 2 * 4096, 2 * 4096
    attention = 4096 + 1024 + 1024 + 4096
    elements = norms + inputs + attention + 3 * 14336
    plan = ActivationPlan(1, 8192)
    assert block_activations(4096, block, plan) == 8192 * (2 * elements + 4 * 32)
    cut = replace(plan, tp=8, sequence_parallel=True, cp=2)
    assert block_activations(4096, block, cut) == 8192 / 16 * (2 * elements + 4 * 32)
    # 16 members, 8 key-value heads: each pair holds the same one.
    twice = replace(plan, tp=16, sequence_parallel=True)
    kv = 2 * 2 * 128 * 8192
    share = 8192 * (2 * (elements - 2048) + 4 * 32) / 16
    assert block_activations(4096, block, twice) == share + kv


def test_activations_of_experts_by_hand():
    expert = FeedForward(32, gated=True)
    mixture = MixtureOfExperts(8, 2, expert, shared=FeedForward(64, gated=True))
    block = Block(Attention(4, 4, 8, 8), mixture)
    dense = Block(Attention(4, 4, 8, 8), None)
    plan = ActivationPlan(1, 16)
    own = 2 * 32 + 4 * 8 + 2 * 2 * (2 * 32 + 3 * 32) + 2 * 3 * 64
    assert block_activations(32, block, plan) == block_activations(32, dense, plan) + 16 * own
    # Tokens are dealt out over tensor parallelism; a whole expert on each member.
    plan = replace(plan, tp=4, sequence_parallel=True)
    assert block_activations(32, block, plan) == pytest.approx(
        block_activations(32, dense, plan) + 16 * own / 4
    )


def test_activations_of_other_attention_by_hand():
    plan = ActivationPlan(1, 16, fused_attention=False, recomputation="selective")

    def kept(attention, plan=plan):
        return block_activations(32, Block(attention, None, norms=0), plan) / 16

    own = 2 * (32 + 4 * 4 * 8)
    assert kept(Attention(4, 4, 8, 8)) == own
    # Queries and keys before their norm; latent vectors before and after theirs, one rotary key.
    assert kept(Attention(4, 4, 8, 8, norm=QueryKeyNorm.HEAD)) == own + 2 * 2 * 4 * 8
    latent = Attention(4, 4, 8, 8, latent=LatentAttention(5, 6, 3))
    assert kept(latent) == own + 2 * (2 * (5 + 6) + 3)
    # Scores: a softmax over the keys that a window lets through.
    none = replace(plan, recomputation=Recomputation.NONE)
    assert kept(Attention(4, 4, 8, 8), none) == own + 2 * 4 * 16
    assert kept(Attention(4, 4, 8, 8, window=6), none) == own + 2 * 4 * 6
    assert kept(Attention(4, 4, 8, 8, window=60), none) == own + 2 * 4 * 16


def test_parallel_blocks_share_their_input():
    attention, network = Attention(4, 4, 8, 8), FeedForward(64, gated=False)
    plan = ActivationPlan(1, 16)
    serial = block_activations(32, Block(attention, network, norms=1), plan)
    assert block_activations(32, Block(attention, network, 1, parallel=True), plan) == (
        serial - 16 * 2 * 32
    )


def schedule_peak(pp, virtual, stage, count):
    """Forward passes held at most, for each part, stepping through Megatron's schedule."""
    total = count * virtual
    warm = min(2 * (pp - stage - 1) + (virtual - 1) * pp, total) if virtual > 1 else min(pp - stage - 1, total)  # fmt: skip

    def part(k, reverse=False):
        p = k % (pp * virtual) // pp if virtual > 1 else 0
        return virtual - 1 - p if reverse else p

    held, peak, forward, backward = [0] * virtual, [0] * virtual, 0, 0
    while backward < total:
        if forward < total and forward - backward <= warm:
            held[part(forward)] += 1
            forward += 1
            peak = max(peak, held.copy(), key=sum)
        else:
            held[part(backward, reverse=True)] -= 1
            backward += 1
    return peak


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 5), st.data())
def test_micro_batches_in_flight_by_stepping_through(pp, virtual, groups, data):
    # Megatron asks for a multiple of pp micro-batches with virtual stages.
    count = groups * pp if virtual > 1 else data.draw(st.integers(1, 12))
    stage = data.draw(st.integers(0, pp - 1))
    plan = MemoryPlan(ActivationPlan(1, 8), pp=pp, virtual_stages=virtual, micro_batches=count)
    counts = in_flight_chunks(plan, stage)
    assert sum(counts) == sum(schedule_peak(pp, virtual, stage, count))
    if stage == 0 and groups > 2:
        assert sum(counts) / virtual == pytest.approx(min(count, pp * (1 + (pp - 1) / (pp * virtual))) if virtual > 1 else min(count, pp))  # fmt: skip


MIXTURE = MixtureOfExperts(
    8, 2, FeedForward(16, True, bias=True), FeedForward(8, True), router_bias=True
)
LATENT = Attention(8, 8, 12, 8, latent=LatentAttention(6, 5, 4), output_bias=True)
GROUPED = Attention(8, 2, 4, 4, query_bias=True, key_bias=True, value_bias=True, sinks=True)
MIXED = Model(
    "mixed",
    16,
    64,
    (Run(Block(GROUPED, FeedForward(32, False, bias=True)), 2), Run(Block(GROUPED, MIXTURE), 2)),
    norm_bias=True,
)
PURE = Model(
    "latent", 16, 64, (Run(Block(LATENT, MIXTURE), 3), Run(Block(LATENT, None), 1)), tied=True
)


@given(st.sampled_from([MIXED, PURE]), degrees, st.sampled_from([1, 2, 4]), degrees, st.booleans())
def test_parameters_over_all_npus_add_up(model, tp, pp, ep, cut_experts):
    run = ActivationPlan(1, 8, tp=tp, expert_tp=tp if cut_experts else 1)
    plan = MemoryPlan(run, pp=pp, dp=8, ep=ep, states=COUNT)
    held = sum(stage_memory(model, plan, stage).weights for stage in range(pp))
    split = parameter_split(model)
    # Copies that are no part of the whole, of one tensor-parallel group's members.
    kv_copies = max(tp // 2, 1) if model is MIXED else 1
    dense = split.tensor + split.key_value * kv_copies + split.replicated * tp
    tied_copy = model.vocabulary * model.hidden * (model.tied and pp > 1)
    etp = run.expert_tp
    experts = (split.expert / etp + split.expert_whole) / ep
    assert held == pytest.approx((dense + tied_copy) / tp + experts)
    if tp == ep == 1:
        assert held == parameters(model) + tied_copy


@given(st.sampled_from([MIXED, PURE]), degrees, degrees, degrees, st.sampled_from([1, 2]))
def test_zero_splits_states_over_replicas(model, dp, ep, tp, cp):
    if (dp * cp * tp) % ep:
        return
    run = ActivationPlan(1, 16, tp=tp, cp=cp)
    memory = [stage_memory(model, MemoryPlan(run, dp=dp, ep=ep, zero=z), 0) for z in range(4)]
    whole = memory[0]
    for zero, kinds in ((1, "optimizer"), (2, "gradients"), (3, "weights")):
        for name in ("weights", "gradients", "optimizer"):
            split = name == "optimizer" or (zero >= 2 and name == "gradients") or zero == 3
            value = getattr(memory[zero], name)
            assert value <= getattr(whole, name)
            assert split or value == getattr(whole, name)
        assert getattr(memory[zero], kinds) >= getattr(whole, kinds) / (dp * cp * tp) - 1e-9
    # Summed over the NPUs that share a state there is one of it, and experts once.
    dense_only = replace(model, runs=(Run(Block(GROUPED, FeedForward(32, False)), 2),))
    parts = [stage_memory(dense_only, MemoryPlan(run, dp=dp, zero=z), 0) for z in (0, 3)]
    assert parts[1].states == pytest.approx(parts[0].states / (dp * cp))


@given(
    st.sampled_from([MIXED, PURE]),
    st.sampled_from(["micro_batch", "sequence"]),
    st.sampled_from(list(Recomputation)),
    st.booleans(),
    st.booleans(),
)
def test_more_work_is_never_less_memory(model, name, recomputation, fused, dropout):
    run = ActivationPlan(2, 16, 2, recomputation=recomputation, fused_attention=fused, dropout=dropout)  # fmt: skip
    plan = MemoryPlan(run, pp=2, micro_batches=4)
    more = replace(plan, activations=replace(run, **{name: 2 * getattr(run, name)}))
    assert npu_memory(model, more).total > npu_memory(model, plan).total
    keep = replace(plan, activations=replace(run, recomputation=Recomputation.NONE))
    assert stage_memory(model, plan, 0).kept <= stage_memory(model, keep, 0).kept
    split = replace(plan, activations=replace(run, sequence_parallel=True))
    assert npu_memory(model, split).total <= npu_memory(model, plan).total


def test_the_parts_add_up():
    memory = npu_memory(MIXED, MemoryPlan(ActivationPlan(1, 8), reserved=5.0, states=FP32))
    fields = asdict(memory)
    assert memory.total == sum(v for k, v in fields.items() if k != "stage")
    assert memory.states == 16 * parameters(MIXED)
    assert memory.activations == memory.kept + memory.working


def test_experts_have_their_own_replicas():
    # 8 x 2 x 2 NPUs; experts over 4 of each 16 members that may differ: 8 replicas of each.
    run = ActivationPlan(1, 16, tp=2, cp=2)
    plan = MemoryPlan(run, dp=8, ep=4, zero=1, states=StateBytes(0, 0, 1))
    assert plan.expert_replicas == 8
    only = Model("m", 16, 0, (Run(Block(None, MIXTURE, norms=0), 1),), lm_head=False)
    split = parameter_split(only)
    dense = (split.tensor / 2 + split.replicated) / 16
    experts = (split.expert + split.expert_whole) / 4 / 8
    assert npu_memory(only, plan).optimizer == pytest.approx(dense + experts)


def test_gathered_weights_and_gradients_of_one_block():
    model = replace(MIXED, runs=(Run(Block(GROUPED, FeedForward(32, False)), 4),))
    block = (parameters(model) - 2 * 16 * 64) / 4
    base, *more = (npu_memory(model, MemoryPlan(ActivationPlan(1, 8), dp=2, zero=z)) for z in (1, 2, 3))  # fmt: skip
    assert [m.working - base.working for m in more] == [4 * block, 4 * block + 2 * 2 * block]


def test_the_gradient_of_the_token_embedding():
    # One micro-batch after another: its activations are gone when the embedding's gradient is made.
    model = replace(MIXED, vocabulary=100_001, tied=True)
    run = ActivationPlan(1, 8, tp=2)
    one, two = (stage_memory(model, MemoryPlan(run, pp=2, micro_batches=m), 0) for m in (1, 2))
    # Rows of the vocabulary are dealt out whole: 50,001 on one member.
    assert one.working == two.working == 2 * 50_001 * 16
    padded = replace(model, vocabulary=100_002)
    assert stage_memory(padded, MemoryPlan(run, pp=2), 0).weights == one.weights
    assert one.kept == 0
    assert two.kept == sum(block_activations(16, model.runs[0].block, run) for _ in range(2))


def test_dropout_of_the_embedding():
    small = replace(MIXED, vocabulary=1)
    plans = [MemoryPlan(ActivationPlan(1, 8, dropout=d), pp=2, micro_batches=4) for d in (False, True)]  # fmt: skip
    kept = [stage_memory(small, plan, 0).kept for plan in plans]
    blocks = [
        2 * 2 * block_activations(16, small.runs[0].block, plan.activations) for plan in plans
    ]
    assert kept[1] - kept[0] == blocks[1] - blocks[0] + 2 * 8 * 16


def test_uneven_parts():
    plan = MemoryPlan(ActivationPlan(1, 8), pp=2, micro_batches=4, chunks=(1, 3))
    assert chunk_sizes(MIXED, plan) == (1, 3)
    first, last = (stage_memory(MIXED, plan, stage) for stage in (0, 1))
    assert npu_memory(MIXED, plan) == max(first, last, key=lambda m: m.total)


def plan_of(**changes):
    run = {k: changes.pop(k) for k in list(changes) if k in ActivationPlan.__dataclass_fields__}
    return MemoryPlan(ActivationPlan(**({"micro_batch": 1, "sequence": 8} | run)), **changes)


BAD = [
    (lambda: plan_of(micro_batch=0), "micro_batch", "must be between 1 and 1,000,000,000, got 0. Correct it."),
    (lambda: plan_of(tp=4, expert_tp=3), "expert_tp", "must divide tp = 4, got 3. Use a divisor."),
    (lambda: plan_of(cp=3), "cp", "must divide the sequence of 8 tokens, got 3. Use a divisor."),
    (
        lambda: plan_of(tp=16, sequence_parallel=True),
        "tp",
        "sequence parallelism splits 8 tokens, got tp = 16. Use a divisor, or sequence_parallel: false.",
    ),
    (lambda: plan_of(element=0), "element", "must be above 0 and at most 8 bytes, got 0. Correct it."),
    (lambda: plan_of(zero=4), "zero", "must be 0, 1, 2 or 3, got 4. Correct it."),
    (lambda: plan_of(reserved=-1.0), "reserved", "must not be negative, got -1.0. Correct it."),
    (lambda: plan_of(virtual_stages=2), "virtual_stages", "need more than one pipeline stage, got 2. Raise pp."),
    (
        lambda: plan_of(dp=4, ep=3),
        "ep",
        "must divide the 4 members that share experts (dp x cp x tp / expert_tp), got 3. Use a divisor.",
    ),
    (lambda: StateBytes(2, 4, -1), "optimizer", "must be between 0 and 64 bytes a parameter, got -1. Correct it."),
    (lambda: npu_memory(MIXED, plan_of(tp=3)), "tp", "must divide the 8 heads, got 3. Use a divisor."),
    (
        lambda: npu_memory(replace(MIXED, runs=(Run(Block(Attention(12, 3, 4, 4), None), 2),)), plan_of(tp=2)),
        "tp",
        "must divide the 3 key-value heads or be a multiple, got 2. Use a divisor.",
    ),
    (
        lambda: npu_memory(MIXED, plan_of(pp=3)),
        "pp",
        "4 blocks do not divide into pp x virtual_stages = 3 equal parts, got pp = 3. Use a divisor, or give "
        "blocks, those of each part.",
    ),
    (
        lambda: npu_memory(MIXED, plan_of(pp=2, chunks=(1, 2))),
        "blocks",
        "must be 2 numbers that add up to the 4 blocks, got 2 that add up to 3. Correct them.",
    ),
    (lambda: npu_memory(MIXED, plan_of(dp=16, ep=16)), "ep", "must divide the 8 experts, got 16. Use a divisor."),
    (
        lambda: npu_memory(replace(MIXED, runs=(Run(Block(None, MixtureOfExperts(2, 1, FeedForward(9, True))), 1),)), plan_of(tp=2, expert_tp=2)),
        "expert_tp",
        "must divide the width 9 of an expert, got 2. Use a divisor.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("build", "field", "message"), BAD, ids=range(len(BAD)))
def test_bad_plans(build, field, message):
    with pytest.raises(FieldError) as caught:
        build()
    assert (caught.value.field_name, caught.value.message) == (field, message)


# Korthikanti et al. 2022 (arXiv 2205.05198), figures 1 and 7: model, recomputation and sequence
# parallelism, activations of the first stage as a share of those without either.
SHARES = [
    ("22b", "none", True, 66.84),
    ("22b", "selective", False, 49.42),
    ("22b", "full", False, 7.64),
    ("175b", "none", True, 62.04),
    ("175b", "selective", True, 18.49),
    ("530b", "none", True, 58.31),
    ("1t", "selective", False, 62.04),
    ("1t", "selective", True, 20.27),
]
GPT = {
    # layers, hidden, heads, pp, virtual stages, micro-batch: table 3 there; tp = 8
    "22b": (48, 6144, 64, 1, 1, 4),
    "175b": (96, 12288, 96, 8, 3, 1),
    "530b": (105, 20480, 128, 35, 3, 1),
    "1t": (128, 25600, 160, 64, 1, 1),
}


def korthikanti(name, recomputation="none", split=False):
    layers, hidden, heads, pp, virtual, micro = GPT[name]
    run = ActivationPlan(
        micro, 2048, tp=8, sequence_parallel=split, recomputation=recomputation,
        fused_attention=False, dropout=True,
    )  # fmt: skip
    plan = MemoryPlan(run, pp=pp, virtual_stages=virtual, micro_batches=8 * pp)
    return stage_memory(gpt(layers, hidden, heads, 2048, 51200), plan, 0)


@pytest.mark.parametrize(("name", "recomputation", "split", "share"), SHARES)
def test_published_shares_of_activations(name, recomputation, split, share):
    base = korthikanti(name).kept
    assert 100 * korthikanti(name, recomputation, split).kept / base == pytest.approx(
        share, rel=0.05
    )


@needs_reference
def test_measured_memory():
    names = {"GPT-22B": "22b", "GPT-175B": "175b", "GPT-530B": "530b", "GPT-1T": "1t"}
    with (MEASURED / "memory.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 17
    for row in rows:
        kind = row["recompute"].replace("n/a", "none")
        recomputation = next((k for k in ("selective", "full") if k in kind), "none")
        memory = korthikanti(names[row["model"]], recomputation, "seq" in kind)
        value = memory.kept / GIB
        if "%" in row["quantity"]:
            value = 100 * memory.kept / korthikanti(names[row["model"]]).kept
        elif "parameters" in row["quantity"]:
            value = memory.states / GIB
        assert value == pytest.approx(float(row["value"]), rel=0.10), row


def row_model(row):
    size = {k: int(row[k]) for k in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")}
    name = row["model"].split()[0]
    if row["set"] == "bloom-jz":
        keys = {"model_type": "bloom", "n_layer": size["layers"], "n_head": size["heads"]}
    elif name.startswith("llama3"):
        keys = {
            "model_type": "llama", "intermediate_size": size["ffn"],
            "num_key_value_heads": size["kv_heads"], "tie_word_embeddings": False,
        }  # fmt: skip
    else:
        # Ranks and head dimensions are those of the published models.
        same = load_model("deepseek-v3").runs[0].block.attention
        keys = {
            "model_type": "deepseek_v3" if name == "deepseekv3" else "deepseek_v2",
            "intermediate_size": size["ffn"], "moe_intermediate_size": int(row["moe_ffn"]),
            "first_k_dense_replace": 1, "n_routed_experts": int(row["experts"]),
            "num_experts_per_tok": int(row["top_k"]),
            "n_shared_experts": 1 if name == "deepseekv3" else 2,
            "kv_lora_rank": same.latent.key_value_rank, "q_lora_rank": same.latent.query_rank,
            "qk_rope_head_dim": same.latent.rope_dim, "v_head_dim": same.value_dim,
            "qk_nope_head_dim": same.head_dim - same.latent.rope_dim,
        }  # fmt: skip
    common = {"hidden_size": size["hidden"], "vocab_size": size["vocab"]}
    if row["set"] != "bloom-jz":
        common |= {"num_hidden_layers": size["layers"], "num_attention_heads": size["heads"]}
    return model_of_keys(keys | common, name)


def even_parts(layers, pp):
    """Blocks of each stage: with the embeddings as two more where that divides, else in turn."""
    if layers % pp and (layers + 2) % pp == 0:
        whole = (layers + 2) // pp
        return (whole - 1, *[whole] * (pp - 2), whole - 1)
    whole, rest = divmod(layers, pp)
    return tuple(whole + (k < rest) for k in range(pp))


def row_memory(row):
    """Peak of a row [GiB], from its columns and the framework of its set."""
    number = {k: int(row[k] or 1) for k in ("tp", "pp", "dp", "ep", "cp", "vpp", "micro_batch", "global_batch", "seq", "layers")}  # fmt: skip
    bloom, model = row["set"] == "bloom-jz", row_model(row)
    run = ActivationPlan(
        number["micro_batch"], number["seq"], tp=number["tp"], cp=number["cp"],
        sequence_parallel=row["sequence_parallel"] == "1", recomputation=row["recompute"],
        fused_attention=not bloom,
    )  # fmt: skip
    half = row["precision"] == "fp16"
    states = (DEEPSPEED_FP16 if half else DEEPSPEED_BF16) if bloom else MEGATRON_MIXED
    plan = MemoryPlan(
        run, pp=number["pp"], virtual_stages=number["vpp"], dp=number["dp"], ep=number["ep"],
        micro_batches=max(number["global_batch"] // (number["micro_batch"] * number["dp"]), 1),
        zero=int(row["zero_stage"]), states=states,
        chunks=even_parts(number["layers"], number["pp"]),
    )  # fmt: skip
    if bloom:
        reserved = deepspeed_fp16_reserved if half else deepspeed_bf16_reserved
        plan = replace(plan, reserved=reserved(model, plan))
    return npu_memory(model, plan).total / GIB


@needs_reference
def test_measured_peaks_of_training():
    # simumax-b200 reads the framework's allocations (Megatron-LM), bloom-jz the device, whose
    # allocator keeps more than is in use (Megatron-DeepSpeed, on the stage with the embedding).
    with (MEASURED / "training.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["peak_mem_gib"]]
    assert len(rows) == 84
    errors = {}
    for row in rows:
        error = row_memory(row) / float(row["peak_mem_gib"]) - 1
        errors.setdefault((row["set"], row["precision"]), []).append(abs(error))
    assert statistics.median(e for part in errors.values() for e in part) < 0.07
    assert statistics.median(errors["simumax-b200", "bf16"]) < 0.02
    assert max(errors["simumax-b200", "bf16"]) < 0.08
    assert statistics.median(errors["bloom-jz", "fp16"]) < 0.10
    assert statistics.median(errors["bloom-jz", "bf16"]) < 0.18
