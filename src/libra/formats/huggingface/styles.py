"""What distinguishes decoders whose blocks are attention and a feed-forward network on RMS norms.

A `Style` holds what an architecture's code fixes and its configuration does not say, and the
documented defaults of its configuration class (github huggingface/transformers,
``models/*/configuration_*.py`` and ``modeling_*.py``; Baichuan and Qwen: the code beside the
published weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from libra.workload.blocks import QueryKeyNorm

__all__ = ["STYLES", "ExpertRule", "Style", "WindowRule"]


class WindowRule(StrEnum):
    """Which layers a window limits when ``layer_types`` does not say."""

    NONE = "none"
    ALL = "all"
    UPPER = "upper"  # Qwen: layers from max_window_layers on, if use_sliding_window
    ALTERNATE = "alternate"  # layers 0, 2, 4 …
    PATTERN = "pattern"  # Gemma 3: all but every sliding_window_pattern-th
    CHUNKS = "chunks"  # Llama 4: chunks in all but every no_rope_layer_interval-th


class ExpertRule(StrEnum):
    """How a configuration describes experts."""

    NONE = "none"
    EVERY = "every"  # Mixtral, gpt-oss: all layers, width intermediate_size
    STEP = "step"  # Qwen: every decoder_sparse_step-th but mlp_only_layers
    INTERLEAVED = "interleaved"  # Llama 4


@dataclass(frozen=True)
class Style:
    """What the code of an architecture fixes.

    Attributes
    ----------
    config : str
        Configuration class.
    qkv_bias, output_bias, mlp_bias : bool or str
        Whether there are such biases, or the key that says so, with `bias_default`.
    bias_default : bool
        Documented default of those keys.
    norms : int
        Norms of a block.
    norm_bias, gated, parallel, tied, lm_head_bias : bool
        As in `Block` and `Model`; `tied` is the default of ``tie_word_embeddings``.
    norm : QueryKeyNorm
        Norm of queries and keys.
    head_dim_rule : bool
        A missing head dimension is hidden size / heads, else it is required.
    kv_heads_rule : bool
        Missing key-value heads equal the heads, else they are required.
    head_dim_key : str
        Key of the head dimension.
    width_parts : int
        ``intermediate_size`` is the width of so many matrices together.
    windows : WindowRule
        Which layers a window limits.
    window_default : int or None
        Documented default of ``sliding_window`` where the key is missing; null means no window.
    experts : ExpertRule
        How it describes experts.
    shared_experts : bool
        It has a shared expert with a gate.
    sinks : bool
        A learned logit for each head, and biases of router and experts (gpt-oss).
    """

    config: str
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    bias_default: bool = False
    norms: int = 2
    norm_bias: bool = False
    gated: bool = True
    parallel: bool = False
    tied: bool = False
    lm_head_bias: bool = False
    norm: QueryKeyNorm = QueryKeyNorm.NONE
    head_dim_rule: bool = True
    kv_heads_rule: bool = False
    head_dim_key: str = "head_dim"
    width_parts: int = 1
    windows: WindowRule = WindowRule.NONE
    window_default: int | None = None
    experts: ExpertRule = ExpertRule.NONE
    shared_experts: bool = False
    sinks: bool = False


_BIAS = "attention_bias"
_HEAD = QueryKeyNorm.HEAD

STYLES = {
    "llama": Style("LlamaConfig", _BIAS, _BIAS, "mlp_bias", kv_heads_rule=True),
    "mistral": Style("MistralConfig", windows=WindowRule.ALL, window_default=4096),
    "mixtral": Style("MixtralConfig", windows=WindowRule.ALL, experts=ExpertRule.EVERY),
    # The community conversion of Grok-1 (architecture Grok1ModelForCausalLM): four norms a block.
    "grok-1": Style("Grok1Config", norms=4, experts=ExpertRule.EVERY),
    "qwen2": Style("Qwen2Config", qkv_bias=True, windows=WindowRule.UPPER, window_default=4096),
    "qwen2_moe": Style(
        "Qwen2MoeConfig", qkv_bias=True, windows=WindowRule.UPPER, window_default=4096,
        experts=ExpertRule.STEP, shared_experts=True,
    ),
    "qwen3": Style(
        "Qwen3Config", _BIAS, _BIAS, norm=_HEAD, head_dim_rule=False, windows=WindowRule.UPPER,
        window_default=4096,
    ),
    "qwen3_moe": Style(
        "Qwen3MoeConfig", _BIAS, _BIAS, norm=_HEAD, windows=WindowRule.UPPER, window_default=4096,
        experts=ExpertRule.STEP,
    ),
    "gemma": Style("GemmaConfig", _BIAS, _BIAS, tied=True, head_dim_rule=False),
    "gemma2": Style(
        "Gemma2Config", _BIAS, _BIAS, norms=4, tied=True, head_dim_rule=False,
        windows=WindowRule.ALTERNATE, window_default=4096,
    ),
    "gemma3_text": Style(
        "Gemma3TextConfig", _BIAS, _BIAS, norms=4, tied=True, norm=_HEAD, head_dim_rule=False,
        windows=WindowRule.PATTERN, window_default=4096,
    ),
    "gpt_oss": Style(
        "GptOssConfig", _BIAS, _BIAS, bias_default=True, head_dim_rule=False, sinks=True,
        windows=WindowRule.ALTERNATE, window_default=128, experts=ExpertRule.EVERY,
    ),
    "llama4_text": Style(
        "Llama4TextConfig", _BIAS, _BIAS, windows=WindowRule.CHUNKS, window_default=8192,
        experts=ExpertRule.INTERLEAVED,
    ),
    "phi": Style(
        "PhiConfig", qkv_bias=True, output_bias=True, mlp_bias=True, norms=1, norm_bias=True,
        gated=False, parallel=True, lm_head_bias=True, kv_heads_rule=True,
    ),
    "phi3": Style("Phi3Config", kv_heads_rule=True, windows=WindowRule.ALL),
    "stablelm": Style("StableLmConfig", qkv_bias="use_qkv_bias", norm_bias=True),
    "starcoder2": Style(
        "Starcoder2Config", "use_bias", "use_bias", "use_bias", bias_default=True, norm_bias=True,
        gated=False, tied=True, windows=WindowRule.ALL,
    ),
    "gpt_neox": Style(
        "GPTNeoXConfig", _BIAS, _BIAS, True, bias_default=True, norm_bias=True, gated=False,
        kv_heads_rule=True,
    ),
    "baichuan": Style("BaichuanConfig", kv_heads_rule=True),
    "qwen": Style(
        "QWenConfig", qkv_bias=True, head_dim_rule=False, head_dim_key="kv_channels",
        kv_heads_rule=True, width_parts=2,
    ),
}  # fmt: skip
