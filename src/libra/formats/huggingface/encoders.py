"""Encoders and encoder-decoders: BERT, RoBERTa, ViT, T5, Whisper.

What is not in a configuration is from the architecture's code and configuration class (github
huggingface/transformers, ``models/*``).
"""

from __future__ import annotations

from libra.errors import shown
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
from libra.workload.blocks import Attention, Block, FeedForward
from libra.workload.model import LayerKind, Model, OuterLayer, Run

__all__ = ["read_bert", "read_t5", "read_vit", "read_whisper"]

_TABLE, _MATRIX, _POOLED, _VECTOR = LayerKind


def _attention(
    heads: int, head_dim: int, *, bias: bool, causal: bool = False, key_bias: bool | None = None
) -> Attention:
    return attention_like(
        heads,
        heads,
        head_dim,
        query_bias=bias,
        key_bias=bias if key_bias is None else key_bias,
        value_bias=bias,
        output_bias=bias,
        causal=causal,
    )


def read_bert(context: Context) -> Model:
    """BERT, RoBERTa: the encoder with its pooler, as their sizes are published.

    With an architecture for masked words the head's product with the token embedding is counted as
    work; the transformation before it (hidden^2 + 3 hidden + vocabulary parameters) is not.
    """
    keys = context.keys
    hidden = keys.integer("hidden", "hidden_size")
    vocabulary = keys.integer("vocabulary", "vocab_size")
    layers = keys.layers("num_hidden_layers")
    heads = keys.integer("heads", "num_attention_heads")
    width = keys.integer("width", "intermediate_size")
    rows = keys.integer("positions", "max_position_embeddings", default=512)
    types = keys.integer("types", "type_vocab_size", default=2)
    keys.require("is_decoder", False, "a decoder of this kind is not read")
    kind = keys.text("position_embedding_type", "absolute")
    if kind != "absolute":
        keys.fail("position_embedding_type", f"is not read, got {shown(kind)}. Use absolute.")
    head_dim = divided(keys, hidden, heads, "hidden_size", "num_attention_heads")
    lm_head, classifier = head_of(context, hidden)
    stop_if_broken(keys)
    if lm_head:
        keys.notes.append(
            "architectures: the encoder with its pooler is counted, as published; the head's "
            "transformation is not"
        )
    block = Block(_attention(heads, head_dim, bias=True), FeedForward(width, False, True))
    return Model(
        context.name, hidden, vocabulary, (Run(block, layers),), norm_bias=True,
        lm_head=lm_head, tied=lm_head,
        before=(
            positions(rows, hidden),
            OuterLayer("token types", _TABLE, types, hidden),
            norm("embedding norm", hidden, True),
        ),
        after=(OuterLayer("pooler", _POOLED, hidden, hidden, True), *classifier),
        max_sequence=rows,
    )  # fmt: skip


def read_vit(context: Context) -> Model:
    """ViT: patches through a matrix, a class token, learned positions, no vocabulary."""
    keys = context.keys
    hidden = keys.integer("hidden", "hidden_size")
    layers = keys.layers("num_hidden_layers")
    heads = keys.integer("heads", "num_attention_heads")
    width = keys.integer("width", "intermediate_size")
    image = keys.integer("image", "image_size", default=224)
    patch = keys.integer("patch", "patch_size", default=16)
    channels = keys.integer("channels", "num_channels", default=3)
    bias = keys.flag("qkv_bias", True)
    head_dim = divided(keys, hidden, heads, "hidden_size", "num_attention_heads")
    side = divided(keys, image, patch, "image_size", "patch_size")
    lm_head, classifier = head_of(context, hidden)
    if lm_head:
        keys.fail(
            "architectures",
            f"an image encoder has no language-model head, got {shown(context.architecture)}. "
            "Use ViTForImageClassification or ViTModel.",
        )
    stop_if_broken(keys)
    patches = side * side
    attention = attention_like(
        heads, heads, head_dim, query_bias=bias, key_bias=bias, value_bias=bias, output_bias=True,
        causal=False,
    )  # fmt: skip
    # ViTModel alone has a pooler; the classifier reads the class token without one.
    pooler = () if classifier else (OuterLayer("pooler", _POOLED, hidden, hidden, True),)
    return Model(
        context.name, hidden, 0, (Run(Block(attention, FeedForward(width, False, True)), layers),),
        norm_bias=True, lm_head=False,
        before=(
            OuterLayer("patch embedding", _MATRIX, channels * patch * patch, hidden, True),
            OuterLayer("class token", _TABLE, 1, hidden),
            positions(patches + 1, hidden),
        ),
        after=(final_norm(hidden, True), *pooler, *classifier), max_sequence=patches + 1,
    )  # fmt: skip


def read_t5(context: Context) -> Model:
    """T5: relative positions (one table of buckets for each stack), RMS norms, no biases.

    The dimension of a head is required: it is not hidden size / heads in all sizes, and a trimmed
    file's default of 64 would be wrong for the largest.
    """
    keys = context.keys
    hidden = keys.integer("hidden", "d_model")
    vocabulary = keys.integer("vocabulary", "vocab_size")
    layers = keys.layers("num_layers")
    decoder_layers = keys.layers("num_decoder_layers", default=layers, rule="num_layers")
    heads = keys.integer("heads", "num_heads")
    head_dim = keys.integer("head_dim", "d_kv")
    width = keys.integer("width", "d_ff")
    buckets = keys.integer("buckets", "relative_attention_num_buckets", default=32)
    activation = keys.text("feed_forward_proj", "relu")
    tied = keys.flag("tie_word_embeddings", True)
    if context.architecture.endswith("EncoderModel"):
        keys.fail("architectures", f"the encoder alone is not read, got "
                  f"{shown(context.architecture)}. Use T5ForConditionalGeneration.")  # fmt: skip
    stop_if_broken(keys)
    attention = _attention(heads, head_dim, bias=False)
    masked = _attention(heads, head_dim, bias=False, causal=True)
    network = FeedForward(width, gated=activation.startswith("gated-"))
    encoder = Block(attention, network)
    decoder = Block(masked, network, norms=3, cross_attention=attention)
    return Model(
        context.name, hidden, vocabulary, (Run(decoder, decoder_layers),), (Run(encoder, layers),),
        tied=tied,
        before=(
            OuterLayer("relative positions, encoder", _TABLE, buckets, heads),
            OuterLayer("relative positions, decoder", _TABLE, buckets, heads),
        ),
        after=(norm("encoder norm", hidden, False), final_norm(hidden, False)),
    )  # fmt: skip


def read_whisper(context: Context) -> Model:
    """Whisper: two convolutions over the spectrogram, then an encoder-decoder; keys have no bias.

    The fixed sinusoids of the encoder are counted, as its checkpoints hold them.
    """
    keys = context.keys
    hidden = keys.integer("hidden", "d_model")
    vocabulary = keys.integer("vocabulary", "vocab_size")
    sizes = {}
    for stack in ("encoder", "decoder"):
        heads = keys.integer("heads", f"{stack}_attention_heads")
        head_dim = divided(keys, hidden, heads, "d_model", f"{stack}_attention_heads")
        width = keys.integer("width", f"{stack}_ffn_dim")
        sizes[stack] = keys.layers(f"{stack}_layers"), heads, head_dim, width
    mels = keys.integer("mels", "num_mel_bins", default=80)
    sources = keys.integer("sources", "max_source_positions", default=1500)
    targets = keys.integer("targets", "max_target_positions", default=448)
    tied = keys.flag("tie_word_embeddings", True)
    stop_if_broken(keys)
    blocks = {}
    for stack, (_, heads, head_dim, width) in sizes.items():
        network = FeedForward(width, False, True)
        crossed = _attention(heads, head_dim, bias=True, key_bias=False)
        own = _attention(heads, head_dim, bias=True, key_bias=False, causal=stack == "decoder")
        blocks[stack] = (
            Block(own, network, norms=3, cross_attention=crossed)
            if stack == "decoder"
            else Block(own, network)
        )
    return Model(
        context.name, hidden, vocabulary, (Run(blocks["decoder"], sizes["decoder"][0]),),
        (Run(blocks["encoder"], sizes["encoder"][0]),), norm_bias=True, tied=tied,
        before=(
            OuterLayer("first convolution", _MATRIX, 3 * mels, hidden, True),
            OuterLayer("second convolution", _MATRIX, 3 * hidden, hidden, True),
            OuterLayer("position embedding, encoder", _TABLE, sources, hidden),
            OuterLayer("position embedding, decoder", _TABLE, targets, hidden),
        ),
        after=(norm("encoder norm", hidden, True), final_norm(hidden, True)),
        max_sequence=targets,
    )  # fmt: skip
