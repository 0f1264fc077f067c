"""A transformer as sizes: enough for exact parameters, FLOPs, communication and memory.

A `Model` is an embedding, runs of equal blocks, and heads. All sizes are counts of elements. Nothing
here has a default that changes a number of parameters without saying so in its docstring.

`ParameterSplit` says what each kind of parallelism divides, after Megatron-LM (Shoeybi et al. 2019,
arXiv 1909.08053): the first matrix of a pair is cut by columns with its bias, the second by rows, and
its bias is on every member; norms and routers are on every member; experts are dealt out whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from libra.errors import FieldError, shown

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
    "head_parameters",
    "inactive_parameters",
    "mean_keys",
    "model_blocks",
    "parameter_split",
    "parameters",
]

MOST_SIZE = 10**9
"""Largest size read; beyond it a number is a slip of the pen."""
MOST_BLOCKS = 100_000


def require_sizes(value: object, *names: str, least: int = 1) -> None:
    """Refuse fields that are no integers between `least` and `MOST_SIZE`.

    Raises
    ------
    FieldError
        Naming the field.
    """
    for name in names:
        size = getattr(value, name)
        if isinstance(size, bool) or not isinstance(size, int):
            raise FieldError(name, f"must be an integer, got {shown(size)}. Correct it.")
        if not least <= size <= MOST_SIZE:
            raise FieldError(
                name, f"must be between {least} and {MOST_SIZE:,}, got {shown(size)}. Correct it."
            )


class QueryKeyNorm(StrEnum):
    """Norm of queries and keys: none, over each head with weights shared by heads, or over all."""

    NONE = "none"
    HEAD = "head"
    FULL = "full"


@dataclass(frozen=True)
class LatentAttention:
    """Low-rank projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    Attributes
    ----------
    query_rank : int
        Width of the compressed query; 0: queries are projected directly.
    key_value_rank : int
        Width of the compressed keys and values.
    rope_dim : int
        Part of a head's dimension that carries positions; its key is shared by all heads.
    """

    query_rank: int
    key_value_rank: int
    rope_dim: int

    def __post_init__(self) -> None:
        require_sizes(self, "query_rank", least=0)
        require_sizes(self, "key_value_rank", "rope_dim")


@dataclass(frozen=True)
class Attention:
    """Attention of one block.

    Attributes
    ----------
    heads, kv_heads : int
        Query heads, and heads of keys and values: equal (multi-head), fewer (grouped), 1
        (multi-query). With `latent` they are equal.
    head_dim : int
        Dimension of a head's queries and keys.
    value_dim : int
        Dimension of a head's values.
    query_bias, key_bias, value_bias, output_bias : bool
        Which projections have a bias. With `latent`, `query_bias` and `key_bias` belong to the
        compressing projections, and `value_bias` is not used.
    norm : QueryKeyNorm
        Norm of queries and keys, weights only.
    latent : LatentAttention or None
        Ranks of multi-head latent attention.
    causal : bool
        A query sees no later keys.
    window : int or None
        A query sees at most so many keys, itself included; None: no limit.
    chunked : bool
        The window is a fixed chunk of the sequence, not one that slides.
    sinks : bool
        A learned logit for each head.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    norm: QueryKeyNorm = QueryKeyNorm.NONE
    latent: LatentAttention | None = None
    causal: bool = True
    window: int | None = None
    chunked: bool = False
    sinks: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "heads", "kv_heads", "head_dim", "value_dim")
        if self.window is not None:
            require_sizes(self, "window")
        object.__setattr__(self, "norm", QueryKeyNorm(self.norm))
        if self.heads % self.kv_heads:
            raise FieldError(
                "kv_heads",
                f"must divide the {self.heads} heads, got {self.kv_heads}. Use a divisor.",
            )
        if self.latent is not None:
            if self.kv_heads != self.heads:
                raise FieldError(
                    "kv_heads",
                    f"latent attention has a key for each of the {self.heads} heads, got "
                    f"{self.kv_heads}. Make them equal.",
                )
            if self.latent.rope_dim >= self.head_dim:
                raise FieldError(
                    ("latent", "rope_dim"),
                    f"must be less than the head dimension {self.head_dim}, got "
                    f"{self.latent.rope_dim}. Correct one of them.",
                )
            if self.value_bias or self.norm is not QueryKeyNorm.NONE:
                name = "value_bias" if self.value_bias else "norm"
                raise FieldError(
                    name, f"latent attention has none, got {getattr(self, name)}. Remove it."
                )

    @property
    def query_width(self) -> int:
        """Width of all queries."""
        return self.heads * self.head_dim

    @property
    def output_width(self) -> int:
        """Width of all heads' results, what the output projection reads."""
        return self.heads * self.value_dim


@dataclass(frozen=True)
class FeedForward:
    """Feed-forward network: up, (gate,) activation, down.

    Attributes
    ----------
    width : int
        Width of the activation.
    gated : bool
        A gate multiplies the activation (SwiGLU, GeGLU): three matrices instead of two.
    bias : bool
        Every matrix has a bias.
    """

    width: int
    gated: bool
    bias: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "width")

    @property
    def matrices(self) -> int:
        """3 with a gate, else 2."""
        return 3 if self.gated else 2


@dataclass(frozen=True)
class MixtureOfExperts:
    """Experts of which a router picks a few for each token.

    Attributes
    ----------
    experts, active : int
        Routed experts, and how many of them a token visits.
    expert : FeedForward
        One routed expert.
    shared : FeedForward or None
        What every token passes: all shared experts together, widths added.
    shared_gate : bool
        A learned gate of the shared experts' result (hidden weights).
    router_bias : bool
        One value for each expert, a bias or a learned correction of the choice.
    """

    experts: int
    active: int
    expert: FeedForward
    shared: FeedForward | None = None
    shared_gate: bool = False
    router_bias: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "experts", "active")
        if self.active > self.experts:
            raise FieldError(
                "active",
                f"a token cannot visit more than the {self.experts} experts, got {self.active}. "
                "Lower it.",
            )
        if self.shared_gate and self.shared is None:
            raise FieldError("shared_gate", "there is no shared expert, got True. Remove it.")


@dataclass(frozen=True)
class Block:
    """One transformer block.

    Attributes
    ----------
    attention : Attention or None
        Self-attention.
    feed_forward : FeedForward or MixtureOfExperts or None
        What follows it.
    norms : int
        Norms over the hidden size.
    cross_attention : Attention or None
        Attention of the decoder to the encoder's result.
    parallel : bool
        Attention and feed-forward read the same input and their results add (GPT-J, Falcon).
    """

    attention: Attention | None
    feed_forward: FeedForward | MixtureOfExperts | None
    norms: int = 2
    cross_attention: Attention | None = None
    parallel: bool = False

    def __post_init__(self) -> None:
        require_sizes(self, "norms", least=0)
        if self.attention is None and self.feed_forward is None:
            raise FieldError("feed_forward", "a block computes nothing, got nothing. Give it one.")

    @property
    def experts(self) -> MixtureOfExperts | None:
        """The mixture of experts, if the block has one."""
        return self.feed_forward if isinstance(self.feed_forward, MixtureOfExperts) else None


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


def mean_keys(attention: Attention, queries: int, keys: int) -> float:
    """Keys that a query sees, averaged over a sequence.

    Parameters
    ----------
    attention : Attention
        For its mask and window.
    queries, keys : int
        Lengths of the sequences; equal in self-attention, and then causal masks count.

    Returns
    -------
    float
        ``(s + 1) / 2`` for a causal mask over s tokens; with a window or chunk of w < s tokens,
        what the shorter reach leaves.

    Examples
    --------
    >>> causal = Attention(heads=1, kv_heads=1, head_dim=1, value_dim=1)
    >>> mean_keys(causal, 4, 4)
    2.5
    """
    window = min(attention.window or keys, keys)
    if not attention.causal:
        return float(window)
    if queries != keys:
        raise FieldError(
            "queries", f"a causal mask needs as many as the {keys} keys, got {queries}. Equal them."
        )
    if attention.chunked:
        whole, rest = divmod(keys, window)
        return (whole * window * (window + 1) + rest * (rest + 1)) / (2 * keys)
    return window - window * (window - 1) / (2 * keys)
