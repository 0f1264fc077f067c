"""Decoders in the manner of Llama: one reader, with what differs in `styles`."""

from __future__ import annotations

from libra.errors import shown
from libra.formats.huggingface.build import (
    Context,
    attention_like,
    check_active,
    divided,
    final_norm,
    group_blocks,
    head_of,
    stop_if_broken,
)
from libra.formats.huggingface.keys import Keys
from libra.formats.huggingface.styles import ExpertRule, Style, WindowRule
from libra.workload.blocks import Block, FeedForward, MixtureOfExperts
from libra.workload.model import Model

__all__ = ["read_decoder"]

_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_decoder(context: Context, style: Style) -> Model:
    """Model of a decoder's configuration.

    Raises
    ------
    BrokenKeysError
        If keys are wrong; they are noted in the context.
    """
    keys = context.keys
    hidden = keys.integer("hidden", "hidden_size")
    vocabulary = keys.integer("vocabulary", "vocab_size")
    layers = keys.layers("num_hidden_layers")
    heads = keys.integer("heads", "num_attention_heads")
    kv_default = heads if style.kv_heads_rule else None
    kv_heads = keys.integer(
        "kv_heads", "num_key_value_heads", default=kv_default, rule="num_attention_heads"
    )
    head_dim = _head_dim(keys, style, hidden, heads)
    qkv_bias, output_bias = (_bias(keys, style, b) for b in (style.qkv_bias, style.output_bias))
    mlp_bias = _bias(keys, style, style.mlp_bias)
    tied = keys.flag("tie_word_embeddings", style.tied)
    parallel = style.parallel
    if style.config == "GPTNeoXConfig":
        parallel = keys.flag("use_parallel_residual", True)
    else:
        keys.require("use_parallel_residual", False, "parallel blocks are not read here")
    keys.require("qk_layernorm", False, "norms of queries and keys are not read here")
    windows = _windows(keys, style, layers)
    networks = _networks(keys, style, layers, mlp_bias)
    lm_head, classifier = head_of(context, hidden)
    stop_if_broken(keys)
    blocks = [
        Block(
            attention_like(
                heads, kv_heads, head_dim, query_bias=qkv_bias, key_bias=qkv_bias,
                value_bias=qkv_bias, output_bias=output_bias, norm=style.norm, window=window,
                chunked=window is not None and style.windows is WindowRule.CHUNKS,
                sinks=style.sinks,
            ),
            network,
            norms=style.norms,
            parallel=parallel,
        )
        for window, network in zip(windows, networks, strict=True)
    ]  # fmt: skip
    return Model(
        context.name, hidden, vocabulary, group_blocks(blocks), norm_bias=style.norm_bias,
        lm_head=lm_head, tied=tied and lm_head, lm_head_bias=style.lm_head_bias and lm_head,
        after=(final_norm(hidden, style.norm_bias), *classifier),
        max_sequence=keys.optional("max_sequence", "max_position_embeddings"),
    )  # fmt: skip


def _bias(keys: Keys, style: Style, bias: bool | str) -> bool:
    return keys.flag(bias, style.bias_default) if isinstance(bias, str) else bias


def _head_dim(keys: Keys, style: Style, hidden: int, heads: int) -> int:
    if keys.has(style.head_dim_key) or not style.head_dim_rule:
        return keys.integer("head_dim", style.head_dim_key)
    return divided(keys, hidden, heads, keys.origin["hidden"], keys.origin["heads"])


def _windows(keys: Keys, style: Style, layers: int) -> list[int | None]:
    """Window of each layer; None where it sees the whole sequence."""
    rule = style.windows
    if rule is WindowRule.NONE:
        return [None] * layers
    key = "attention_chunk_size" if rule is WindowRule.CHUNKS else "sliding_window"
    limited = (
        _layer_types(keys, layers) if keys.has("layer_types") else _limited(keys, rule, layers)
    )
    if not any(limited):
        return [None] * layers
    if key not in keys.data and style.window_default:
        window: int | None = keys.integer("window", key, default=style.window_default)
    else:
        window = keys.optional("window", key)
    return [window if flag else None for flag in limited]


def _limited(keys: Keys, rule: WindowRule, layers: int) -> list[bool]:
    if rule is WindowRule.CHUNKS:
        # Llama4TextConfig: 1 marks a layer with rotary positions, which has chunks.
        listed = keys.integers("no_rope_layers")
        if listed and len(listed) != layers:
            message = f"must have a number for each of the {layers} layers, got {len(listed)}."
            keys.fail("no_rope_layers", f"{message} Correct it.")
        if len(listed) == layers:
            return [flag == 1 for flag in listed]
        step = keys.integer("interval", "no_rope_layer_interval", default=4)
        return [(i + 1) % step != 0 for i in range(layers)]
    if rule is WindowRule.UPPER:
        if not keys.flag("use_sliding_window", False):
            return [False] * layers
        first = keys.integer("first", "max_window_layers", least=0)
        return [i >= first for i in range(layers)]
    if rule is WindowRule.ALTERNATE:
        return [i % 2 == 0 for i in range(layers)]
    if rule is WindowRule.PATTERN:
        step = keys.integer("pattern", "sliding_window_pattern", default=6)
        return [(i + 1) % step != 0 for i in range(layers)]
    return [True] * layers


def _layer_types(keys: Keys, layers: int) -> list[bool]:
    types = keys.data["layer_types"]
    if not isinstance(types, list):
        keys.fail("layer_types", f"must be a list, got {shown(types)}. Correct it.")
        return [False] * layers
    known = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
    unknown = [word for word in types if not isinstance(word, str) or word not in known]
    if unknown:
        words = ", ".join(known)
        keys.fail("layer_types", f"holds a kind of layer that is not modelled, got "
                  f"{shown(unknown[0])}. Use {words}.")  # fmt: skip
        return [False] * layers
    if len(types) != layers:
        keys.fail(
            "layer_types", f"must name each of the {layers} layers, got {len(types)}. Correct it."
        )
        return [False] * layers
    return [known[word] for word in types]


def _networks(
    keys: Keys, style: Style, layers: int, bias: bool
) -> list[FeedForward | MixtureOfExperts]:
    """Feed-forward network of each layer."""
    if style.experts is ExpertRule.NONE:
        for key in _EXPERT_COUNTS:
            if keys.data.get(key) not in (None, 0, 1):
                keys.fail(
                    key,
                    f"this architecture has no experts, got {shown(keys.data[key])}. "
                    "Correct model_type or remove the key.",
                )
        width = keys.integer("width", "intermediate_size")
        width = divided(keys, width, style.width_parts, "intermediate_size", "its matrices")
        return [FeedForward(width, style.gated, bias)] * layers
    rule = {
        ExpertRule.EVERY: _every_layer,
        ExpertRule.STEP: _every_step,
        ExpertRule.INTERLEAVED: _interleaved,
    }
    return rule[style.experts](keys, style, layers)


def _experts_of(keys: Keys) -> tuple[int, int]:
    experts = keys.integer("experts", *_EXPERT_COUNTS)
    active = keys.integer("active", "num_experts_per_tok", "experts_per_token")
    return check_active(keys, experts, active)


def _every_layer(keys: Keys, style: Style, layers: int) -> list[FeedForward | MixtureOfExperts]:
    experts, active = _experts_of(keys)
    width = keys.integer("width", "intermediate_size")
    expert = FeedForward(width, gated=True, bias=style.sinks)
    return [MixtureOfExperts(experts, active, expert, router_bias=style.sinks)] * layers


def _every_step(keys: Keys, style: Style, layers: int) -> list[FeedForward | MixtureOfExperts]:
    """Qwen2MoeDecoderLayer: experts where (layer + 1) is a multiple of decoder_sparse_step."""
    experts, active = _experts_of(keys)
    expert = FeedForward(keys.integer("width", "moe_intermediate_size"), gated=True)
    shared = None
    if style.shared_experts:
        shared = FeedForward(keys.integer("shared", "shared_expert_intermediate_size"), gated=True)
    else:
        keys.require("shared_expert_intermediate_size", 0, "this architecture has no shared expert")
    step = keys.integer("step", "decoder_sparse_step", default=1)
    dense_layers = keys.integers("mlp_only_layers")
    sparse = [i not in dense_layers and (i + 1) % step == 0 for i in range(layers)]
    mixture = MixtureOfExperts(experts, active, expert, shared, shared_gate=shared is not None)
    if all(sparse):
        return [mixture] * layers
    dense = FeedForward(keys.integer("width", "intermediate_size"), gated=True)
    return [mixture if flag else dense for flag in sparse]


def _interleaved(keys: Keys, style: Style, layers: int) -> list[FeedForward | MixtureOfExperts]:
    """Llama4TextDecoderLayer: experts every interleave_moe_layer_step-th layer, one shared."""
    experts, active = _experts_of(keys)
    expert = FeedForward(keys.integer("width", "intermediate_size"), gated=True)
    step = keys.integer("step", "interleave_moe_layer_step", default=1)
    sparse = [(i + 1) % step == 0 for i in range(layers)]
    if listed := keys.integers("moe_layers"):
        sparse = [i in listed for i in range(layers)]
    mixture = MixtureOfExperts(experts, active, expert, shared=expert)
    if all(sparse):
        return [mixture] * layers
    dense = FeedForward(keys.integer("width", "intermediate_size_mlp"), gated=True)
    return [mixture if flag else dense for flag in sparse]
