"""Sizes of a model: counted a second time from lists of matrices, and what is refused."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra.errors import FieldError
from libra.workload.model import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    LayerKind,
    MixtureOfExperts,
    Model,
    OuterLayer,
    ParameterSplit,
    QueryKeyNorm,
    Run,
    active_parameters,
    block_parameters,
    embedding_parameters,
    head_parameters,
    mean_keys,
    model_blocks,
    parameter_split,
    parameters,
)


def attention_shapes(a, h):
    """Every weight of attention as (rows, columns), written out by hand."""
    if a.latent:
        rank, rope = a.latent.key_value_rank, a.latent.rope_dim
        shapes = [(h, rank + rope), (1, rank)]
        shapes += [(rank, a.heads * (a.head_dim - rope)), (rank, a.heads * a.value_dim)]
        if a.latent.query_rank:
            q = a.latent.query_rank
            shapes += [(h, q), (1, q), (q, a.heads * a.head_dim)] + [(1, q)] * a.query_bias
        else:
            shapes += [(h, a.heads * a.head_dim)]
        shapes += [(1, rank + rope)] * a.key_bias
    else:
        q, k, v = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim
        shapes = [(h, q), (h, k), (h, v)]
        shapes += [(1, q)] * a.query_bias + [(1, k)] * a.key_bias + [(1, v)] * a.value_bias
        if a.norm is QueryKeyNorm.HEAD:
            shapes += [(1, a.head_dim)] * 2
        if a.norm is QueryKeyNorm.FULL:
            shapes += [(1, q), (1, k)]
    shapes += [(a.heads * a.value_dim, h)] + [(1, h)] * a.output_bias
    return shapes + [(1, a.heads)] * a.sinks


def network_shapes(f, h):
    if isinstance(f, FeedForward):
        up = [(h, f.width)] + [(1, f.width)] * f.bias
        return up * (2 if f.gated else 1) + [(f.width, h)] + [(1, h)] * f.bias
    shapes = network_shapes(f.expert, h) * f.experts + [(h, f.experts)]
    shapes += [(1, f.experts)] * f.router_bias + [(h, 1)] * f.shared_gate
    return shapes + (network_shapes(f.shared, h) if f.shared else [])


def block_count(model, block):
    shapes = [(1, model.hidden)] * (block.norms * (2 if model.norm_bias else 1))
    for attention in (block.attention, block.cross_attention):
        shapes += attention_shapes(attention, model.hidden) if attention else []
    shapes += network_shapes(block.feed_forward, model.hidden) if block.feed_forward else []
    return sum(rows * columns for rows, columns in shapes)


flags = st.booleans()
small = st.integers(1, 9)


@st.composite
def attentions(draw):
    kv_heads, groups = draw(small), draw(st.integers(1, 4))
    if draw(flags):
        heads = kv_heads * groups
        latent = LatentAttention(draw(st.integers(0, 9)), draw(small), draw(small))
        return Attention(
            heads, heads, latent.rope_dim + draw(small), draw(small), query_bias=draw(flags),
            key_bias=draw(flags), output_bias=draw(flags), latent=latent,
        )  # fmt: skip
    return Attention(
        kv_heads * groups, kv_heads, draw(small), draw(small), draw(flags), draw(flags),
        draw(flags), draw(flags), norm=draw(st.sampled_from(QueryKeyNorm)), sinks=draw(flags),
    )  # fmt: skip


networks = st.builds(FeedForward, small, flags, flags)


@st.composite
def mixtures(draw):
    experts = draw(small)
    shared = draw(st.none() | networks)
    return MixtureOfExperts(
        experts, draw(st.integers(1, experts)), draw(networks), shared,
        shared_gate=draw(flags) and shared is not None, router_bias=draw(flags),
    )  # fmt: skip


blocks = st.builds(
    Block, attentions(), networks | mixtures(), norms=st.integers(0, 4), parallel=flags
)
models = st.builds(
    Model,
    st.just("m"),
    st.integers(1, 20),
    st.integers(1, 50),
    st.lists(st.builds(Run, blocks, st.integers(1, 5)), min_size=1, max_size=3).map(tuple),
    norm_bias=flags,
    tied=flags,
    lm_head_bias=flags,
    before=st.just((OuterLayer("positions", LayerKind.TABLE, 7, 3, bias=True),)),
)


@given(models)
def test_parameters_are_those_of_the_matrices(model):
    total = 24 + model.vocabulary * model.hidden * (1 if model.tied else 2)
    total += model.vocabulary * model.lm_head_bias
    total += sum(block_count(model, block) for block in model_blocks(model))
    assert parameters(model) == total


@given(models)
def test_splits_add_up(model):
    split = parameter_split(model)
    assert split.total == parameters(model)
    parts = embedding_parameters(model) + head_parameters(model)
    for run in model.runs:
        parts += block_parameters(model, run.block) * run.count
    assert parts == split
    kinds = dataclasses.astuple(split)
    assert sum(kinds) == split.total
    assert min(kinds) >= 0


@given(models)
def test_inactive_experts_are_all_that_does_not_take_part(model):
    every = tuple(
        Run(
            dataclasses.replace(
                run.block,
                feed_forward=dataclasses.replace(
                    run.block.experts, active=run.block.experts.experts
                ),
            )
            if run.block.experts
            else run.block,
            run.count,
        )
        for run in model.runs
    )
    assert active_parameters(model) <= parameters(model)
    dense = dataclasses.replace(model, runs=every)
    assert active_parameters(dense) == parameters(dense) == parameters(model)


@given(st.integers(1, 40), st.integers(1, 50), flags, flags, flags)
def test_mean_keys_counts_the_mask(length, window, causal, limited, chunked):
    if not causal and limited and chunked:
        return
    attention = Attention(
        1, 1, 1, 1, causal=causal, window=window if limited else None, chunked=limited and chunked
    )
    seen = 0
    for query in range(length):
        for key in range(query + 1 if causal else length):
            if not limited or not causal:
                seen += 1
            elif chunked:
                seen += key // window == query // window
            else:
                seen += query - key < window
    if not causal and limited:
        seen = length * min(window, length)
    assert mean_keys(attention, length, length) == pytest.approx(seen / length)


def test_mean_keys_of_cross_attention():
    assert mean_keys(Attention(1, 1, 1, 1, causal=False), 3, 50) == 50
    with pytest.raises(FieldError, match="a causal mask needs as many as the 50 keys, got 3"):
        mean_keys(Attention(1, 1, 1, 1), 3, 50)


ATTENTION = Attention(4, 4, 8, 8)
BLOCK = Block(ATTENTION, FeedForward(16, gated=False))
BAD = [
    (lambda: Attention(4, 3, 8, 8), "kv_heads", "must divide the 4 heads, got 3. Use a divisor."),
    (lambda: Attention(0, 3, 8, 8), "heads", "must be between 1 and 1,000,000,000, got 0. Correct it."),
    (lambda: Attention(True, 1, 8, 8), "heads", "must be an integer, got True. Correct it."),
    (lambda: Attention(4, 4, 8.0, 8), "head_dim", "must be an integer, got 8.0. Correct it."),
    (lambda: Attention(4, 4, 8, 8, window=0), "window", "must be between 1 and 1,000,000,000, got 0. Correct it."),
    (
        lambda: Attention(4, 2, 8, 8, latent=LatentAttention(1, 2, 3)),
        "kv_heads",
        "latent attention has a key for each of the 4 heads, got 2. Make them equal.",
    ),
    (
        lambda: Attention(4, 4, 8, 8, latent=LatentAttention(1, 2, 8)),
        "latent.rope_dim",
        "must be less than the head dimension 8, got 8. Correct one of them.",
    ),
    (
        lambda: Attention(4, 4, 8, 8, value_bias=True, latent=LatentAttention(1, 2, 3)),
        "value_bias",
        "latent attention has none, got True. Remove it.",
    ),
    (lambda: FeedForward(10**10, gated=True), "width", "must be between 1 and 1,000,000,000, got 10000000000. Correct it."),
    (
        lambda: MixtureOfExperts(4, 5, FeedForward(8, True)),
        "active",
        "a token cannot visit more than the 4 experts, got 5. Lower it.",
    ),
    (
        lambda: MixtureOfExperts(4, 2, FeedForward(8, True), shared_gate=True),
        "shared_gate",
        "there is no shared expert, got True. Remove it.",
    ),
    (lambda: Block(None, None), "feed_forward", "a block computes nothing, got nothing. Give it one."),
    (lambda: Model("m", 8, 10, ()), "runs", "a model has at least one block, got none. Add a run."),
    (
        lambda: Model("m", 8, 10, (Run(BLOCK, 100_001),)),
        "runs",
        "a model has at most 100,000 blocks, got 100,001. Correct the counts.",
    ),
    (
        lambda: Model("m", 8, 0, (Run(BLOCK, 1),)),
        "vocabulary",
        "a language-model head needs one, got 0. Give its size.",
    ),
    (
        lambda: Model("m", 8, 10, (Run(BLOCK, 1),), lm_head=False, tied=True),
        "tied",
        "there is no language-model head, got True. Remove it.",
    ),
    (
        lambda: Model("m", 8, 10, (Run(BLOCK, 1),), encoder_runs=(Run(BLOCK, 1),)),
        "encoder_runs",
        "cross attention and an encoder need each other, got one of them. Give both.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("build", "field", "message"), BAD, ids=[b[1] for b in BAD])
def test_bad_sizes(build, field, message):
    with pytest.raises(FieldError) as caught:
        build()
    assert (caught.value.field_name, caught.value.message) == (field, message)


def test_a_split_multiplies():
    assert ParameterSplit(1, 2, 3, 4, 5) * 2 == ParameterSplit(2, 4, 6, 8, 10)
