"""What a transformer block consists of, as sizes: attention, feed-forward network, experts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from libra.errors import FieldError, shown

__all__ = [
    "Attention",
    "Block",
    "FeedForward",
    "LatentAttention",
    "MixtureOfExperts",
    "QueryKeyNorm",
    "mean_keys",
    "require_sizes",
]

MOST_SIZE = 10**9
"""Largest size read; beyond it a number is a slip of the pen."""


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
