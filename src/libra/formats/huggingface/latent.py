"""DeepSeek-V2 and V3 (and Kimi K2): latent attention, dense first layers, shared experts.

Two forms: Hugging Face's, and the keys of DeepSeek's own inference code (github
deepseek-ai/DeepSeek-V3, inference/model.py and configs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from libra.formats.huggingface.build import (
    Context,
    check_active,
    final_norm,
    group_blocks,
    head_of,
    stop_if_broken,
)
from libra.formats.huggingface.keys import Keys
from libra.workload.blocks import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    MixtureOfExperts,
)
from libra.workload.model import Model

__all__ = ["NATIVE_KEYS", "read_deepseek", "read_deepseek_native"]

NATIVE_KEYS = ("dim", "n_layers", "n_heads", "inter_dim")
"""What tells a native configuration from Hugging Face's."""


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    vocabulary: int
    layers: int
    dense_layers: int
    every: int
    heads: int
    query_rank: int
    key_value_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    dense_width: int
    expert_width: int
    experts: int
    active: int
    shared: int
    router_bias: bool
    bias: bool = False


def _ranks(keys: Keys, heads: str) -> dict[str, Any]:
    """Sizes of latent attention, whose keys are the same in both forms."""
    return {
        "heads": keys.integer("heads", heads),
        "query_rank": keys.optional("query_rank", "q_lora_rank", least=0) or 0,
        "key_value_rank": keys.integer("key_value_rank", "kv_lora_rank"),
        "nope_dim": keys.integer("nope_dim", "qk_nope_head_dim"),
        "rope_dim": keys.integer("rope_dim", "qk_rope_head_dim"),
        "value_dim": keys.integer("value_dim", "v_head_dim"),
    }


def _blocks(sizes: _Sizes) -> list[Block]:
    attention = Attention(
        sizes.heads,
        sizes.heads,
        sizes.nope_dim + sizes.rope_dim,
        sizes.value_dim,
        query_bias=sizes.bias,
        key_bias=sizes.bias,
        output_bias=sizes.bias,
        latent=LatentAttention(sizes.query_rank, sizes.key_value_rank, sizes.rope_dim),
    )
    shared = FeedForward(sizes.shared * sizes.expert_width, gated=True) if sizes.shared else None
    mixture = MixtureOfExperts(
        sizes.experts,
        sizes.active,
        FeedForward(sizes.expert_width, gated=True),
        shared,
        router_bias=sizes.router_bias,
    )
    dense = Block(attention, FeedForward(sizes.dense_width, gated=True))
    sparse = Block(attention, mixture)
    return [
        sparse if i >= sizes.dense_layers and i % sizes.every == 0 else dense
        for i in range(sizes.layers)
    ]


def read_deepseek(context: Context) -> Model:
    """Configuration of ``DeepseekV2Config`` or ``DeepseekV3Config``.

    The block that predicts a further token (``num_nextn_predict_layers``) is not counted, as
    published sizes leave it out. The router has a correction of each expert's score where
    ``topk_method`` is noaux_tc, the default of V3.
    """
    keys = context.keys
    third = keys.config != "DeepseekV2Config"
    ranks = _ranks(keys, "num_attention_heads")
    if keys.has("num_key_value_heads"):
        keys.require("num_key_value_heads", ranks["heads"], "latent attention has a key for each "
                     "head")  # fmt: skip
    method = keys.text("topk_method", "noaux_tc" if third else "greedy")
    sizes = _Sizes(
        hidden=keys.integer("hidden", "hidden_size"),
        vocabulary=keys.integer("vocabulary", "vocab_size"),
        layers=keys.layers("num_hidden_layers"),
        dense_layers=keys.integer("dense_layers", "first_k_dense_replace", least=0),
        every=keys.integer("every", "moe_layer_freq", default=1),
        dense_width=keys.integer("dense_width", "intermediate_size"),
        expert_width=keys.integer("expert_width", "moe_intermediate_size"),
        experts=keys.integer("experts", "n_routed_experts"),
        active=keys.integer("active", "num_experts_per_tok"),
        shared=keys.integer("shared", "n_shared_experts", least=0),
        router_bias=method == "noaux_tc",
        bias=keys.flag("attention_bias", False),
        **ranks,
    )
    check_active(keys, sizes.experts, sizes.active)
    tied = keys.flag("tie_word_embeddings", False)
    further = keys.optional("further", "num_nextn_predict_layers", least=0)
    lm_head, classifier = head_of(context, sizes.hidden)
    stop_if_broken(keys)
    if further:
        keys.notes.append(
            f"num_nextn_predict_layers: {further}, not counted, as published sizes leave it out"
        )
    return Model(
        context.name, sizes.hidden, sizes.vocabulary, group_blocks(_blocks(sizes)),
        lm_head=lm_head, tied=tied and lm_head,
        after=(final_norm(sizes.hidden, False), *classifier),
        max_sequence=keys.optional("max_sequence", "max_position_embeddings"),
    )  # fmt: skip


def read_deepseek_native(context: Context) -> Model:
    """Configuration of DeepSeek's inference code.

    Its gate has a bias of each expert where ``dim`` is 7168 (``Gate`` in inference/model.py), and
    its head is never the token embedding.
    """
    keys = context.keys
    hidden = keys.integer("hidden", "dim")
    sizes = _Sizes(
        hidden=hidden,
        vocabulary=keys.integer("vocabulary", "vocab_size"),
        layers=keys.layers("n_layers"),
        dense_layers=keys.integer("dense_layers", "n_dense_layers", least=0),
        every=1,
        dense_width=keys.integer("dense_width", "inter_dim"),
        expert_width=keys.integer("expert_width", "moe_inter_dim"),
        experts=keys.integer("experts", "n_routed_experts"),
        active=keys.integer("active", "n_activated_experts"),
        shared=keys.integer("shared", "n_shared_experts", least=0),
        router_bias=hidden == 7168,
        **_ranks(keys, "n_heads"),
    )
    check_active(keys, sizes.experts, sizes.active)
    stop_if_broken(keys)
    return Model(
        context.name, hidden, sizes.vocabulary, group_blocks(_blocks(sizes)),
        after=(final_norm(hidden, False),),
    )  # fmt: skip
