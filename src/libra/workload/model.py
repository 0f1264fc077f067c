"""A transformer as sizes: enough for exact parameters, FLOPs, communication and memory.

A `Model` is an embedding, runs of equal blocks, and heads. All sizes are counts of elements. No
default adds parameters without its docstring saying so.

`ParameterSplit` says what each kind of parallelism divides, after Megatron-LM (Shoeybi et al. 2019,
arXiv 1909.08053): the first matrix of a pair is cut by columns with its bias, the second by rows,
and its bias is on every member; norms and routers are on every member; experts are dealt out whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from libra.errors import FieldError
from libra.workload.blocks import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    MixtureOfExperts,
    QueryKeyNorm,
    mean_keys,
    require_sizes,
)

__all__ = [
    "Attention",
    "Block",
    "FeedForward",
    "LatentAttention",
    "LayerKind",
    "MixtureOfExperts",
    "Model",
    "OuterLayer",
    "ParameterSplit",
    "QueryKeyNorm",
    "Run",
    "active_parameters",
    "block_parameters",
    "embedding_parameters",
    "has_aligned_heads",
    "head_parameters",
    "inactive_parameters",
    "mean_keys",
    "model_blocks",
    "parameter_split",
    "parameters",
]

MOST_BLOCKS = 100_000


@dataclass(frozen=True)
class Run:
    """Equal blocks that follow each other."""

    block: Block
    count: int

    def __post_init__(self) -> None:
        require_sizes(self, "count")


class LayerKind(StrEnum):
    """What a layer outside the blocks does.

    ``TABLE`` looks a row up, ``MATRIX`` multiplies every token, ``POOLED`` one vector for each
    sequence, ``VECTOR`` scales and shifts (its `inputs` are vectors of `outputs` elements).
    """

    TABLE = "table"
    MATRIX = "matrix"
    POOLED = "pooled"
    VECTOR = "vector"


@dataclass(frozen=True)
class OuterLayer:
    """A layer outside the blocks other than the token embedding and the language-model head.

    Attributes
    ----------
    name : str
        E.g. ``position embedding``.
    kind : LayerKind
        What it does.
    inputs, outputs : int
        Rows and columns of its weights.
    bias : bool
        It has a bias of `outputs` elements.
    """

    name: str
    kind: LayerKind
    inputs: int
    outputs: int
    bias: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", LayerKind(self.kind))
        require_sizes(self, "inputs", "outputs")

    @property
    def parameters(self) -> int:
        """Weights and bias."""
        return (self.inputs + self.bias) * self.outputs


@dataclass(frozen=True)
class Model:
    """A transformer.

    Attributes
    ----------
    name : str
        Its name.
    hidden : int
        Width of the residual stream.
    vocabulary : int
        Rows of the token embedding; 0: none (images).
    runs : tuple of Run
        The blocks in order; of an encoder-decoder those of the decoder.
    encoder_runs : tuple of Run
        Blocks of the encoder of an encoder-decoder, else empty.
    norm_bias : bool
        Norms have a bias (LayerNorm) or not (RMSNorm).
    lm_head : bool
        Every token is projected onto the vocabulary.
    tied : bool
        The language-model head is the token embedding: one matrix, counted once.
    lm_head_bias : bool
        The head has a bias.
    embedding_width : int
        Columns of the token embedding; 0: the hidden size.
    before, after : tuple of OuterLayer
        Other layers at the input (positions, patches, norms) and at the output (final norm,
        pooler, classifier).
    max_sequence : int or None
        Most tokens that its positions allow, where the configuration says so.
    notes : tuple of str
        What was taken from the documented default of a configuration class, or left out.
    """

    name: str
    hidden: int
    vocabulary: int
    runs: tuple[Run, ...]
    encoder_runs: tuple[Run, ...] = ()
    norm_bias: bool = False
    lm_head: bool = True
    tied: bool = False
    lm_head_bias: bool = False
    embedding_width: int = 0
    before: tuple[OuterLayer, ...] = ()
    after: tuple[OuterLayer, ...] = ()
    max_sequence: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_sizes(self, "hidden")
        require_sizes(self, "vocabulary", "embedding_width", least=0)
        if self.max_sequence is not None:
            require_sizes(self, "max_sequence")
        if not self.runs:
            raise FieldError("runs", "a model has at least one block, got none. Add a run.")
        if self.layers > MOST_BLOCKS:
            raise FieldError(
                "runs", f"a model has at most {MOST_BLOCKS:,} blocks, got {self.layers:,}. "
                "Correct the counts.",
            )  # fmt: skip
        if not self.vocabulary and (self.lm_head or self.tied):
            raise FieldError("vocabulary", "a language-model head needs one, got 0. Give its size.")
        if self.tied and not self.lm_head:
            raise FieldError("tied", "there is no language-model head, got True. Remove it.")
        crossed = any(run.block.cross_attention for run in self.runs)
        if crossed != bool(self.encoder_runs):
            message = "cross attention and an encoder need each other, got one of them. Give both."
            raise FieldError("encoder_runs", message)

    @property
    def layers(self) -> int:
        """Number of blocks, those of an encoder included."""
        return sum(run.count for run in (*self.encoder_runs, *self.runs))

    @property
    def token_width(self) -> int:
        """Columns of the token embedding."""
        return self.embedding_width or self.hidden


def model_blocks(model: Model) -> Iterator[Block]:
    """Blocks one by one, the encoder's first."""
    for run in (*model.encoder_runs, *model.runs):
        yield from (run.block for _ in range(run.count))


ALIGNMENT = 8
"""Numbers of 16 bits whose multiples tensor cores read at full speed (NVIDIA, Matrix Multiplication
Background, Tensor Core requirements)."""


def has_aligned_heads(model: Model) -> bool:
    """Whether the dimensions of all heads are multiples of `ALIGNMENT`.

    Kernels of attention to other heads are slower by a factor that no efficiency by kind describes:
    a step of 13,824 hidden, 78 blocks took 38 % longer with 128 heads of 108 than with 96 of 144
    (rows T0742 and T0743 of docs/validation.md's measurements).
    """
    heads = [
        attention
        for run in (*model.encoder_runs, *model.runs)
        for attention in (run.block.attention, run.block.cross_attention)
        if attention is not None
    ]
    return not any(a.head_dim % ALIGNMENT or a.value_dim % ALIGNMENT for a in heads)


@dataclass(frozen=True)
class ParameterSplit:
    """Parameters by what divides them.

    Attributes
    ----------
    tensor : int
        Divided by tensor parallelism.
    key_value : int
        Divided by tensor parallelism up to one key-value head a member, then repeated.
    expert : int
        Of routed experts: dealt out by expert parallelism; matrices may be cut by tensor
        parallelism as well.
    expert_whole : int
        Of routed experts, dealt out by expert parallelism but never cut: biases after the second
        matrix.
    replicated : int
        On every member of a tensor- or expert-parallel group: norms, routers, biases after a
        second matrix, compressing projections of latent attention.
    """

    tensor: int = 0
    key_value: int = 0
    expert: int = 0
    expert_whole: int = 0
    replicated: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __add__(self, other: ParameterSplit) -> ParameterSplit:
        """Sum of each kind."""
        names = [field.name for field in fields(self)]
        return ParameterSplit(**{n: getattr(self, n) + getattr(other, n) for n in names})

    def __mul__(self, count: int) -> ParameterSplit:
        """So many times each kind."""
        names = [field.name for field in fields(self)]
        return ParameterSplit(**{n: getattr(self, n) * count for n in names})


def _attention(attention: Attention, hidden: int) -> ParameterSplit:
    if attention.latent is not None:
        return _latent_attention(attention, attention.latent, hidden)
    queries = (hidden + attention.query_bias) * attention.query_width
    keys = (hidden + attention.key_bias) * attention.kv_heads * attention.head_dim
    values = (hidden + attention.value_bias) * attention.kv_heads * attention.value_dim
    tensor = queries + attention.output_width * hidden + attention.sinks * attention.heads
    replicated = attention.output_bias * hidden
    key_value = keys + values
    if attention.norm is QueryKeyNorm.HEAD:
        replicated += 2 * attention.head_dim
    elif attention.norm is QueryKeyNorm.FULL:
        tensor += attention.query_width
        key_value += attention.kv_heads * attention.head_dim
    return ParameterSplit(tensor=tensor, key_value=key_value, replicated=replicated)


def _latent_attention(attention: Attention, latent: LatentAttention, hidden: int) -> ParameterSplit:
    """DeepSeek-V2 (arXiv 2405.04434), section 2.1; norms of the compressed vectors included."""
    rank, nope_dim = latent.key_value_rank, attention.head_dim - latent.rope_dim
    compress = (hidden + attention.key_bias) * (rank + latent.rope_dim) + rank
    expand = rank * attention.heads * (nope_dim + attention.value_dim)
    if latent.query_rank:
        compress += (hidden + attention.query_bias + 1) * latent.query_rank
        expand += latent.query_rank * attention.query_width
    else:
        expand += hidden * attention.query_width
    return ParameterSplit(
        tensor=expand + attention.output_width * hidden,
        replicated=compress + attention.output_bias * hidden,
    )


def _feed_forward(network: FeedForward, hidden: int) -> ParameterSplit:
    matrices = network.matrices * hidden * network.width
    up_biases = network.bias * (network.matrices - 1) * network.width
    return ParameterSplit(tensor=matrices + up_biases, replicated=network.bias * hidden)


def _experts(mixture: MixtureOfExperts, hidden: int) -> ParameterSplit:
    one = _feed_forward(mixture.expert, hidden)
    shared = ParameterSplit() if mixture.shared is None else _feed_forward(mixture.shared, hidden)
    router = (hidden + mixture.router_bias) * mixture.experts + mixture.shared_gate * hidden
    return shared + ParameterSplit(
        expert=mixture.experts * one.tensor,
        expert_whole=mixture.experts * one.replicated,
        replicated=router,
    )


def block_parameters(model: Model, block: Block) -> ParameterSplit:
    """Parameters of one block by what divides them.

    Parameters
    ----------
    model : Model
        For its hidden size and kind of norm.
    block : Block
        One of its blocks.
    """
    split = ParameterSplit(replicated=block.norms * (1 + model.norm_bias) * model.hidden)
    for attention in (block.attention, block.cross_attention):
        if attention is not None:
            split += _attention(attention, model.hidden)
    if isinstance(block.feed_forward, MixtureOfExperts):
        split += _experts(block.feed_forward, model.hidden)
    elif block.feed_forward is not None:
        split += _feed_forward(block.feed_forward, model.hidden)
    return split


def embedding_parameters(model: Model) -> ParameterSplit:
    """Parameters before the blocks: the token embedding (cut by rows of the vocabulary), others."""
    others = sum(layer.parameters for layer in model.before)
    return ParameterSplit(tensor=model.vocabulary * model.token_width, replicated=others)


def head_parameters(model: Model) -> ParameterSplit:
    """Parameters after the blocks; a tied head's matrix counts as the token embedding's."""
    matrix = 0 if model.tied or not model.lm_head else model.vocabulary * model.token_width
    bias = model.lm_head_bias * model.vocabulary
    others = sum(layer.parameters for layer in model.after)
    return ParameterSplit(tensor=matrix + bias, replicated=others)


def parameter_split(model: Model) -> ParameterSplit:
    """All parameters of a model by what divides them."""
    split = embedding_parameters(model) + head_parameters(model)
    for run in (*model.encoder_runs, *model.runs):
        split += block_parameters(model, run.block) * run.count
    return split


def parameters(model: Model) -> int:
    """Number of parameters, shared matrices once.

    Examples
    --------
    >>> attention = Attention(heads=12, kv_heads=12, head_dim=64, value_dim=64)
    >>> block = Block(attention, FeedForward(3072, gated=False))
    >>> parameters(Model("small", 768, 50257, (Run(block, 12),), tied=True))
    123550464
    """
    return parameter_split(model).total


def inactive_parameters(model: Model, block: Block) -> int:
    """Parameters of a block's experts that a token does not visit."""
    if block.experts is None:
        return 0
    one = _feed_forward(block.experts.expert, model.hidden).total
    return (block.experts.experts - block.experts.active) * one


def active_parameters(model: Model) -> int:
    """Parameters that take part in one token: all but those of the experts it does not visit."""
    runs = (*model.encoder_runs, *model.runs)
    return parameters(model) - sum(
        run.count * inactive_parameters(model, run.block) for run in runs
    )
