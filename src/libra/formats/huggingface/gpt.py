"""Decoders in the manner of GPT-2: LayerNorm and plain feed-forward networks, one reader each.

What is not in a configuration is from the architecture's code and configuration class (github
huggingface/transformers, ``models/*``; MixFormer: the code beside the weights of phi-1.5).
"""

from __future__ import annotations

from libra.formats.huggingface.build import (
    Context,
    attention_like,
    divided,
    final_norm,
    head_of,
    norm,
    positions,
    stop_if_broken,
)
from libra.formats.huggingface.keys import Keys
from libra.workload.blocks import Attention, Block, FeedForward
from libra.workload.model import LayerKind, Model, OuterLayer, Run

__all__ = [
    "read_bloom",
    "read_falcon",
    "read_gpt2",
    "read_gpt_bigcode",
    "read_gptj",
    "read_mixformer",
    "read_mpt",
    "read_opt",
]

_HEADS = ("n_head", "num_attention_heads")
_LAYERS = ("n_layer", "num_hidden_layers")


def _model(
    context: Context,
    sizes: tuple[int, int, int],
    block: Block,
    *,
    tied: bool,
    before: tuple[OuterLayer, ...] = (),
    norm_bias: bool = True,
    lm_head_bias: bool = False,
    max_sequence: int | None = None,
) -> Model:
    """Model of equal blocks; `sizes` are hidden size, vocabulary and number of blocks."""
    hidden, vocabulary, layers = sizes
    lm_head, classifier = head_of(context, hidden)
    stop_if_broken(context.keys)
    return Model(
        context.name,
        hidden,
        vocabulary,
        (Run(block, layers),),
        norm_bias=norm_bias,
        lm_head=lm_head,
        tied=tied and lm_head,
        lm_head_bias=lm_head_bias and lm_head,
        before=before,
        after=(final_norm(hidden, norm_bias), *classifier),
        max_sequence=max_sequence,
    )


def _biased(heads: int, kv_heads: int, head_dim: int, bias: bool = True) -> Attention:
    """Attention all of whose projections have a bias, or none."""
    return attention_like(
        heads, kv_heads, head_dim, query_bias=bias, key_bias=bias, value_bias=bias, output_bias=bias
    )


def _inner_width(keys: Keys, hidden: int, name: str = "n_inner") -> int:
    """Width of the feed-forward network; null: four times the hidden size."""
    return keys.integer("width", name, default=4 * hidden, rule=f"4 * {keys.origin['hidden']}")


def _common(context: Context, *hidden_names: str) -> tuple[int, int, int, int, int]:
    """Hidden size, vocabulary, layers, heads, and dimension of a head."""
    keys = context.keys
    hidden = keys.integer("hidden", *hidden_names)
    vocabulary = keys.integer("vocabulary", "vocab_size")
    layers = keys.layers(*_LAYERS, "n_layers")
    heads = keys.integer("heads", *_HEADS, "n_heads")
    head_dim = divided(keys, hidden, heads, keys.origin["hidden"], keys.origin["heads"])
    return hidden, vocabulary, layers, heads, head_dim


def read_gpt2(context: Context) -> Model:
    """GPT-2: learned positions, every matrix with a bias, tied head."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "n_embd", "hidden_size")
    rows = keys.integer("positions", "n_positions", "max_position_embeddings", default=1024)
    width = _inner_width(keys, hidden)
    keys.require("add_cross_attention", False, "cross attention without an encoder is not read")
    tied = keys.flag("tie_word_embeddings", True)
    stop_if_broken(keys)
    block = Block(_biased(heads, heads, head_dim), FeedForward(width, gated=False, bias=True))
    return _model(
        context, (hidden, vocabulary, layers), block, tied=tied,
        before=(positions(rows, hidden),), max_sequence=rows,
    )  # fmt: skip


def read_gpt_bigcode(context: Context) -> Model:
    """GPT-BigCode (StarCoder): GPT-2 with one key-value head if ``multi_query``."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "n_embd", "hidden_size")
    rows = keys.integer("positions", "n_positions", "max_position_embeddings", default=1024)
    width = _inner_width(keys, hidden)
    kv_heads = 1 if keys.flag("multi_query", True) else heads
    tied = keys.flag("tie_word_embeddings", True)
    stop_if_broken(keys)
    block = Block(_biased(heads, kv_heads, head_dim), FeedForward(width, gated=False, bias=True))
    return _model(
        context, (hidden, vocabulary, layers), block, tied=tied,
        before=(positions(rows, hidden),), max_sequence=rows,
    )  # fmt: skip


def read_gptj(context: Context) -> Model:
    """GPT-J, CodeGen: rotary positions, one norm, parallel, biases in the feed-forward network."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "n_embd", "hidden_size")
    width = _inner_width(keys, hidden)
    tied = keys.flag("tie_word_embeddings", False)
    stop_if_broken(keys)
    block = Block(
        _biased(heads, heads, head_dim, bias=False),
        FeedForward(width, gated=False, bias=True),
        norms=1,
        parallel=True,
    )
    return _model(
        context, (hidden, vocabulary, layers), block, tied=tied, lm_head_bias=True,
        max_sequence=keys.optional("max_sequence", "n_positions", "max_position_embeddings"),
    )  # fmt: skip


def read_mixformer(context: Context) -> Model:
    """MixFormer (phi-1, phi-1.5 as first published): GPT-J with biases in attention."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "n_embd", "hidden_size")
    width = _inner_width(keys, hidden)
    tied = keys.flag("tie_word_embeddings", False)
    keys.require("n_head_kv", None, "grouped key-value heads are not read here")
    stop_if_broken(keys)
    block = Block(
        _biased(heads, heads, head_dim),
        FeedForward(width, gated=False, bias=True),
        norms=1,
        parallel=True,
    )
    return _model(
        context, (hidden, vocabulary, layers), block, tied=tied, lm_head_bias=True,
        max_sequence=keys.optional("max_sequence", "n_positions"),
    )  # fmt: skip


def read_bloom(context: Context) -> Model:
    """BLOOM: no position embedding (ALiBi), a norm after the token embedding, biases, tied head."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "hidden_size", "n_embed")
    keys.require("n_inner", 4 * hidden, "BloomMLP is always four times the hidden size wide")
    tied = keys.flag("tie_word_embeddings", True)
    stop_if_broken(keys)
    network = FeedForward(4 * hidden, gated=False, bias=True)
    return _model(
        context, (hidden, vocabulary, layers), Block(_biased(heads, heads, head_dim), network),
        tied=tied, before=(norm("embedding norm", hidden, True),),
        max_sequence=keys.optional("max_sequence", "seq_length"),
    )  # fmt: skip


def read_falcon(context: Context) -> Model:
    """Falcon: multi-query or grouped heads, parallel blocks with one or two norms, tied head."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "hidden_size")
    width = _inner_width(keys, hidden, "ffn_hidden_size")
    bias = keys.flag("bias", False)
    new = keys.flag("new_decoder_architecture", False)
    parallel = keys.flag("parallel_attn", True) or new
    if new:
        kv_heads = keys.integer("kv_heads", "num_kv_heads", "n_head_kv", default=heads,
                                rule=keys.origin["heads"])  # fmt: skip
        norms = keys.integer("norms", "num_ln_in_parallel_attn", default=2)
    else:
        kv_heads = 1 if keys.flag("multi_query", True) else heads
        norms = 1 if parallel else 2
    tied = keys.flag("tie_word_embeddings", True)
    stop_if_broken(keys)
    block = Block(
        _biased(heads, kv_heads, head_dim, bias),
        FeedForward(width, gated=False, bias=bias),
        norms=norms,
        parallel=parallel,
    )
    return _model(
        context, (hidden, vocabulary, layers), block, tied=tied,
        max_sequence=keys.optional("max_sequence", "max_position_embeddings"),
    )  # fmt: skip


def read_mpt(context: Context) -> Model:
    """MPT: ALiBi unless told otherwise, no biases, norms without bias, always a tied head."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "d_model", "hidden_size")
    ratio = keys.integer("ratio", "expansion_ratio", default=4)
    keys.require("no_bias", True, "biases are not read here")
    keys.require("tie_word_embeddings", True, "the head is always the token embedding")
    inner = keys.inner("attn_config")
    inner.require("qk_ln", False, "norms of queries and keys are not read here")
    kinds = {"multihead_attention": heads, "multiquery_attention": 1}
    kind = inner.text("attn_type", "multihead_attention")
    if kind == "grouped_query_attention":
        kv_heads = inner.integer("kv_heads", "kv_n_heads")
    else:
        if kind not in kinds:
            inner.fail("attn_type", f"is not known, got {kind!r}. Use one of: {', '.join(kinds)}.")
        kv_heads = kinds.get(kind, heads)
    rows = 0
    if not inner.flag("alibi", True) and keys.flag("learned_pos_emb", True):
        rows = keys.integer("positions", "max_seq_len")
    stop_if_broken(keys)
    network = FeedForward(ratio * hidden, gated=False)
    return _model(
        context, (hidden, vocabulary, layers),
        Block(attention_like(heads, kv_heads, head_dim), network), tied=True, norm_bias=False,
        before=(positions(rows, hidden),) if rows else (),
        max_sequence=keys.optional("max_sequence", "max_seq_len"),
    )  # fmt: skip


def read_opt(context: Context) -> Model:
    """OPT: learned positions with an offset of 2, biases, tied head; OPT-350M norms afterwards."""
    keys = context.keys
    hidden, vocabulary, layers, heads, head_dim = _common(context, "hidden_size")
    width = keys.integer("width", "ffn_dim")
    rows = keys.integer("positions", "max_position_embeddings", default=2048)
    embedding = keys.integer("embedding", "word_embed_proj_dim", default=hidden, rule="hidden_size")
    keys.require("layer_norm_elementwise_affine", True, "norms without weights are not read")
    bias = keys.flag("enable_bias", True)
    norm_first = keys.flag("do_layer_norm_before", True)
    no_final = keys.flag("_remove_final_layer_norm", False)
    tied = keys.flag("tie_word_embeddings", True)
    lm_head, classifier = head_of(context, embedding)
    stop_if_broken(keys)
    matrix = LayerKind.MATRIX
    before, after = [positions(rows + 2, hidden)], [*classifier]
    if norm_first and not no_final:
        after.insert(0, final_norm(hidden, True))
    if embedding != hidden:
        before.append(OuterLayer("input projection", matrix, embedding, hidden))
        after.append(OuterLayer("output projection", matrix, hidden, embedding))
    block = Block(_biased(heads, heads, head_dim, bias), FeedForward(width, False, bias))
    return Model(
        context.name, hidden, vocabulary, (Run(block, layers),), norm_bias=True, lm_head=lm_head,
        tied=tied and lm_head, embedding_width=embedding, before=tuple(before), after=tuple(after),
        max_sequence=rows,
    )  # fmt: skip
