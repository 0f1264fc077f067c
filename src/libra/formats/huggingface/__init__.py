"""Hugging Face ``config.json`` (and DeepSeek's own form) → `Model`, exactly or not at all.

A size that is missing is an error, unless the configuration class documents a default or a rule for
it; then `Model.notes` say so. What the blocks of `Model` cannot express is refused by its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from libra.errors import FieldError, InputError, Problem, nearest, shown
from libra.files import read_text
from libra.formats.huggingface import encoders, gpt, latent
from libra.formats.huggingface.build import BrokenKeysError, Context
from libra.formats.huggingface.decoders import read_decoder
from libra.formats.huggingface.keys import Keys
from libra.formats.huggingface.styles import STYLES
from libra.formats.json_source import MAX_CHARACTERS, read_json
from libra.workload.model import Model

__all__ = ["MODEL_TYPES", "load_huggingface", "model_of_keys", "read_huggingface"]

_Reader = Callable[[Context], Model]

_READERS: dict[str, tuple[str, _Reader]] = {
    name: (style.config, partial(read_decoder, style=style)) for name, style in STYLES.items()
} | {
    "gpt2": ("GPT2Config", gpt.read_gpt2),
    "gpt_bigcode": ("GPTBigCodeConfig", gpt.read_gpt_bigcode),
    "gptj": ("GPTJConfig", gpt.read_gptj),
    "codegen": ("CodeGenConfig", gpt.read_gptj),
    "mixformer-sequential": ("MixFormerSequentialConfig", gpt.read_mixformer),
    "bloom": ("BloomConfig", gpt.read_bloom),
    "falcon": ("FalconConfig", gpt.read_falcon),
    "RefinedWeb": ("FalconConfig", gpt.read_falcon),
    "RefinedWebModel": ("FalconConfig", gpt.read_falcon),
    "mpt": ("MptConfig", gpt.read_mpt),
    "opt": ("OPTConfig", gpt.read_opt),
    "bert": ("BertConfig", encoders.read_bert),
    "roberta": ("RobertaConfig", encoders.read_bert),
    "vit": ("ViTConfig", encoders.read_vit),
    "t5": ("T5Config", encoders.read_t5),
    "whisper": ("WhisperConfig", encoders.read_whisper),
    "deepseek_v2": ("DeepseekV2Config", latent.read_deepseek),
    "deepseek_v3": ("DeepseekV3Config", latent.read_deepseek),
    "kimi_k2": ("DeepseekV3Config", latent.read_deepseek),
}

MODEL_TYPES = tuple(_READERS)
"""Values of ``model_type`` that are read."""

_CLASS = re.compile(r"(.+?)(?:For[A-Z]\w*|(?:With)?LMHeadModel|Model)")
# Types by the name of their class without what it is for.
_ARCHITECTURES = {
    "Llama4": "llama4_text", "Llama": "llama", "Mistral": "mistral", "Mixtral": "mixtral",
    "Grok1Model": "grok-1", "Qwen2Moe": "qwen2_moe", "Qwen3Moe": "qwen3_moe", "Qwen2": "qwen2",
    "Qwen3": "qwen3", "QWen": "qwen", "Gemma2": "gemma2", "Gemma3": "gemma3_text",
    "Gemma": "gemma", "GptOss": "gpt_oss", "Phi3": "phi3", "Phi": "phi", "StableLm": "stablelm",
    "Starcoder2": "starcoder2", "GPTNeoX": "gpt_neox", "Baichuan": "baichuan",
    "BaiChuan": "baichuan", "GPT2": "gpt2", "GPTBigCode": "gpt_bigcode", "GPTJ": "gptj",
    "CodeGen": "codegen", "MixFormerSequential": "mixformer-sequential", "Bloom": "bloom",
    "Falcon": "falcon", "RW": "falcon", "Mpt": "mpt", "MPT": "mpt", "OPT": "opt",
    "Bert": "bert", "Roberta": "roberta", "ViT": "vit", "T5": "t5", "Whisper": "whisper",
    "DeepseekV2": "deepseek_v2", "DeepseekV3": "deepseek_v3",
}  # fmt: skip
_SAME = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon", "kimi_k2": "deepseek_v3",
         "llama4": "llama4_text", "gemma3": "gemma3_text"}  # fmt: skip
_NESTED = ("llama4", "gemma3")
"""Types whose language model stands in ``text_config``."""

_BESIDE = "Use a configuration of the language model alone."
_OTHER = "Choose a model whose blocks are attention and feed-forward networks."
_UNREAD = {
    "vision_config": ("an image encoder beside the language model is not modelled", _BESIDE),
    "mm_vision_tower": ("an image encoder beside the language model is not modelled", _BESIDE),
    "audio_config": ("an audio encoder beside the language model is not modelled", _BESIDE),
    "audio_processor": ("an audio encoder beside the language model is not modelled", _BESIDE),
    "embd_layer": ("encoders beside the language model are not modelled", _BESIDE),
    "hybrid_override_pattern": ("Mamba layers (M) are not modelled", _OTHER),
    "layers_block_type": ("layers of several kinds are not modelled", _OTHER),
    "attn_layer_period": ("layers without attention are not modelled", _OTHER),
    "ssm_state_size": ("state-space layers are not modelled", _OTHER),
    "cross_attention_layers": ("layers that attend to images are not modelled", _OTHER),
    "block_configs": ("blocks of differing shape are not modelled", _OTHER),
    "index_head_dim": ("sparse attention by an indexer is not modelled", _OTHER),
}
"""Keys of parts that change sizes and that `Model` cannot express: why, and what to do."""


def read_huggingface(text: str, name: str, file: str = "") -> Model:
    """Model of the text of a ``config.json``.

    Parameters
    ----------
    text : str
        JSON.
    name : str
        Name of the model.
    file : str
        Name of the file, for messages.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        With every problem found, each with its line and key.

    Examples
    --------
    >>> read_huggingface('{"model_type": "llama"}', "x", "config.json")
    Traceback (most recent call last):
    ...
    libra.errors.InputError: config.json:1: hidden_size: is missing, and a size of LlamaConfig is \
never guessed, got nothing. Add hidden_size.
    ...
    """
    source = read_json(text, file)
    try:
        return model_of_keys(source.data, name)
    except ExceptionGroup as group:
        problems = [source.problem(e.place, e.message) for e in _leaves(group)]
        raise InputError(sorted(dict.fromkeys(problems), key=lambda p: p.line)) from None


def load_huggingface(path: Path, name: str = "") -> Model:
    """Model of a configuration file, named like the file unless told otherwise.

    Raises
    ------
    InputError
        If the file cannot be read, or as `read_huggingface`.
    """
    try:
        text = read_text(path, MAX_CHARACTERS)
    except ValueError as error:
        raise InputError(Problem(str(error), file=str(path))) from None
    return read_huggingface(text, name or path.stem, str(path))


def _leaves(group: ExceptionGroup[FieldError]) -> list[FieldError]:
    return [error for error in group.exceptions if isinstance(error, FieldError)]


def model_of_keys(data: Mapping[str, Any], name: str) -> Model:
    """Model of a configuration as plain data.

    Raises
    ------
    ExceptionGroup
        Of `FieldError`, each with the place of the key at fault.
    """
    keys = Keys(data)
    model = None
    kind, nested = _kind(keys, data)
    if not keys.problems:
        config, reader = _READERS.get(kind, ("DeepSeek's ModelArgs", latent.read_deepseek_native))
        keys = _text_keys(keys) if nested else keys
        keys.config = config
    if not keys.problems:
        architectures = data.get("architectures")
        architecture = architectures[0] if architectures else ""
        if nested:
            _refuse_unread(keys)
        try:
            model = reader(Context(name, keys, architecture, data))
        except BrokenKeysError:
            pass
        except FieldError as error:
            keys.problems.append(_by_key(error, keys))
    if keys.problems or model is None:
        raise ExceptionGroup("keys of a configuration", keys.problems)
    return replace(model, notes=tuple(keys.notes))


def _text_keys(keys: Keys) -> Keys:
    """Keys of ``text_config``, with the one of the whole file that concerns it."""
    inner, tied = keys.inner("text_config"), "tie_word_embeddings"
    if tied in keys.data:
        inner.data = {tied: keys.data[tied]} | dict(inner.data)
    return inner


def _by_key(error: FieldError, keys: Keys) -> FieldError:
    """The same error at the key that the field was read from."""
    field = str(error.place[-1]) if error.place else ""
    return FieldError((*keys.place, keys.origin.get(field, field)), error.message)


def _kind(keys: Keys, data: Mapping[str, Any]) -> tuple[str, bool]:
    """Type of the model, and whether its sizes stand in ``text_config``; problems are noted."""
    kind, architectures = data.get("model_type"), data.get("architectures")
    if kind is not None and not isinstance(kind, str):
        keys.fail("model_type", f"must be text, got {shown(kind)}. Correct it.")
    if architectures is not None and not (
        isinstance(architectures, list) and all(isinstance(a, str) for a in architectures)
    ):
        keys.fail("architectures", f"must be a list of names, got {shown(architectures)}. "
                  "Correct it.")  # fmt: skip
    if not keys.problems:
        _refuse_unread(keys)
    if keys.problems:
        return "", False
    architecture = architectures[0] if architectures else ""
    if not kind and not architecture:
        if all(key in data for key in latent.NATIVE_KEYS):
            return "", False
        keys.fail("model_type", "is missing, and architectures too, got nothing. Add model_type.")
        return "", False
    stem = _CLASS.fullmatch(architecture)
    by_class = _ARCHITECTURES.get(stem[1], "") if stem else ""
    if by_class == "grok-1" and kind == "mixtral":
        return by_class, False
    plain = _SAME.get(kind or "", kind or by_class)
    if plain not in _READERS:
        unknown, key = (kind, "model_type") if kind else (architecture, "architectures")
        advice = nearest(str(unknown), MODEL_TYPES if kind else _ARCHITECTURES)
        keys.fail(key, f"the architecture is not known, got {shown(unknown)}. {advice}")
        return "", False
    if architecture and plain != by_class:
        keys.fail(
            "architectures",
            f"is no known class of model_type {kind!r}, got {shown(architecture)}. Correct one of "
            "them.",
        )
    if kind in _NESTED and "text_config" in data:
        return plain, True
    return plain, False


def _refuse_unread(keys: Keys) -> None:
    for key, (why, advice) in _UNREAD.items():
        value = keys.data.get(key)
        if value:
            got = "an object" if isinstance(value, dict) else shown(value)
            keys.fail(key, f"{why}, got {got}. {advice}")
