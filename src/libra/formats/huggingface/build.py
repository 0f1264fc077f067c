"""What readers of all architectures share: runs, norms, heads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from libra.errors import FieldError, Key, shown
from libra.formats.huggingface.keys import Keys
from libra.workload.blocks import Attention, Block
from libra.workload.model import LayerKind, OuterLayer, Run

__all__ = [
    "BrokenKeysError",
    "Context",
    "attention_like",
    "check_active",
    "divided",
    "final_norm",
    "group_blocks",
    "head_of",
    "norm",
    "positions",
    "stop_if_broken",
]

_CLASSIFIERS = ("ForSequenceClassification", "ForImageClassification", "ForTokenClassification")
_LM_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM",
             "ForPreTraining", "LMHead")  # fmt: skip


class BrokenKeysError(Exception):
    """Keys were wrong, and are noted: nothing can be built."""


@dataclass(frozen=True)
class Context:
    """What the readers of architectures are given.

    Attributes
    ----------
    name : str
        Name of the model.
    keys : Keys
        The object with the sizes.
    architecture : str
        First of ``architectures``, or empty.
    root : mapping
        The whole file; `keys` may be an object in it.
    """

    name: str
    keys: Keys
    architecture: str = ""
    root: Mapping[str, Any] = field(default_factory=dict)


def stop_if_broken(keys: Keys) -> None:
    """Raise `BrokenKeysError` if problems are noted, before anything is built from the keys."""
    if keys.problems:
        raise BrokenKeysError


def divided(keys: Keys, total: int, parts: int, key: str, by: str) -> int:
    """Quotient of two sizes that must divide; notes it on `key` where they do not."""
    if total % parts and not _wrong(keys) & {key, by}:
        keys.fail(key, f"must be a multiple of {by} = {parts}, got {total}. Correct one of them.")
    return total // parts


def check_active(keys: Keys, experts: int, active: int) -> tuple[int, int]:
    """Experts, and those a token visits; notes it where they are too many."""
    if active > experts and not _wrong(keys) & {keys.origin["experts"], keys.origin["active"]}:
        keys.fail(
            keys.origin["active"],
            f"a token cannot visit more than the {experts} experts, got {active}. Lower it.",
        )
    return experts, min(active, experts)


def _wrong(keys: Keys) -> set[Key]:
    """Keys that are known to be wrong."""
    return {error.place[-1] for error in keys.problems}


def attention_like(heads: int, kv_heads: int, head_dim: int, **rest: Any) -> Attention:
    """Attention whose values have the dimension of its queries and keys."""
    return Attention(heads, kv_heads, head_dim, head_dim, **rest)


def group_blocks(blocks: Iterable[Block]) -> tuple[Run, ...]:
    """Runs of equal blocks that follow each other."""
    return tuple(Run(block, len(list(group))) for block, group in itertools.groupby(blocks))


def norm(name: str, width: int, bias: bool) -> OuterLayer:
    """A norm outside the blocks."""
    return OuterLayer(name, LayerKind.VECTOR, 1, width, bias)


def final_norm(hidden: int, bias: bool) -> OuterLayer:
    """The norm after the last block."""
    return norm("final norm", hidden, bias)


def positions(rows: int, hidden: int) -> OuterLayer:
    """A learned position embedding."""
    return OuterLayer("position embedding", LayerKind.TABLE, rows, hidden)


def head_of(context: Context, hidden: int) -> tuple[bool, tuple[OuterLayer, ...]]:
    """Whether there is a language-model head, and the classifier if there is one, by architecture.

    ``...Model`` has neither. A classifier has ``num_labels`` outputs, or one for each entry of
    ``id2label``; the documented default of ``PretrainedConfig`` is 2. Without ``architectures`` a
    language model is read.
    """
    name = context.architecture
    if not name:
        context.keys.notes.append("architectures: missing, read as a language model with a head")
        return True, ()
    if name.endswith(_LM_HEADS):
        return True, ()
    if name.endswith("Model"):
        return False, ()
    keys = Keys(context.root, "PretrainedConfig", (), context.keys.problems, context.keys.notes)
    if name.endswith(_CLASSIFIERS):
        labels = keys.data.get("id2label")
        known = len(labels) if isinstance(labels, dict) and labels else 2
        if keys.has("num_labels") or known == 2:
            known = keys.integer("num_labels", "num_labels", default=2)
        kind = LayerKind.MATRIX if "Token" in name else LayerKind.POOLED
        bias = not name.startswith(("Llama", "Mistral", "Mixtral", "Qwen", "GPT2", "Gemma"))
        return False, (OuterLayer("classifier", kind, hidden, known, bias),)
    keys.problems.append(
        FieldError(
            "architectures",
            f"the head is not known, got {shown(name)}. Use ...ForCausalLM, ...Model or "
            "...ForSequenceClassification.",
        )
    )
    return True, ()
