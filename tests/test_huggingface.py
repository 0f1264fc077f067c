"""Configurations: exact counts, and one line for each key that is wrong.

The files stand outside the repository (their origin: ../shared/reference/README.md). COUNTED holds
what the classes of github huggingface/transformers 5.24 count for them when built without memory
(``torch.device("meta")``); of DeepSeek's own form and of classes that are not there, the published
sizes.
"""

import copy
import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra.errors import InputError
from libra.formats.huggingface import MODEL_TYPES, load_huggingface, read_huggingface
from libra.formats.json_source import MAX_CHARACTERS
from libra.workload.blocks import QueryKeyNorm
from libra.workload.model import Model, active_parameters, model_blocks, parameters

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
CONFIGS = REFERENCE / "hf_configs"
needs_reference = pytest.mark.skipif(
    not CONFIGS.is_dir(), reason="../shared/reference is not there"
)

CORRECTIONS = 58 * 256
"""Of DeepSeek-V3's router, which its class counts as a buffer and `Model` as parameters."""
COUNTED = {
    "DeepSeek-R1": 671026404352 + CORRECTIONS,
    "DeepSeek-V3": 671026404352 + CORRECTIONS,
    "deepseek-v3-native": 671026404352 + CORRECTIONS,
    "deepseek-v2-native": 235741434880,
    "deepseek-v2-lite-native": 15706484224,
    "Llama-2-7b-chat-hf": 6738415616,
    "Llama-4-Maverick-17B-128E": 400711848960,
    "falcon-40b": 41303293952,
    "gpt-oss-120b": 116829156672,
    "gpt2-n_inner-null": 124439808,
    "vit-base-patch16-224": 85800194,
    "partial/DeepSeek-V2": 235741434880,
    "partial/Baichuan2-13B": 13896668160,
    "partial/bloom-7b1": 7069016064,
    "partial/bloom-petals": 176247271424,
    "partial/gpt-j-6b": 6050882784,
    "partial/gpt2-large": 774030080,
    "partial/gpt2-medium": 354823168,
    "partial/gpt2-xl": 1557611200,
    "partial/mpt-30b": 29957200896,
    "partial/opt-6.7b": 6658473984,
    "partial/opt-66b": 65719701504,
    "partial/phi-1_5": 1418270720,
    "partial/phi-2": 2779683840,
    "shrunk/bloom": 564168704,
    "shrunk/codegen": 260116480,
    "shrunk/deepseekv3": 2976353280 + 64,
    "shrunk/falcon": 179318784,
    "shrunk/gptbigcode": 227059968,
    "shrunk/llama": 464531456,
    "shrunk/llama3": 1268789248,
    "shrunk/mistral": 231741440,
    "shrunk/mpt": 153622528,
    "shrunk/opt": 157517824,
    "shrunk/phi": 340871680,
    "shrunk/phi3": 310256640,
    "shrunk/qwen2": 1323056128,
    "shrunk/qwen3": 171314432,
    "shrunk/qwen3moe": 1245452544,
    "shrunk/stablelm": 462440448,
    "shrunk/t5": 23793664,
    "shrunk/whisper": 120023040,
    # No class of their own there: Grok-1's four norms a block; Qwen's halves of intermediate_size.
    "grok-1": 64 * (8 * 3 * 6144 * 32768 + 2 * 6144 * (6144 + 1024) + 6144 * 8 + 4 * 6144)
    + 2 * 131072 * 6144
    + 6144,
    "shrunk/baichuan": 2 * 125696 * 2048 + 4 * 2048**2 + 3 * 2048 * 13696 + 3 * 2048,
    "shrunk/qwen": 2 * 151936 * 2048 + 4 * 2048**2 + 3 * 2048 + 3 * 2048 * 11008 + 3 * 2048,
}
BESIDE = "Use a configuration of the language model alone."
OTHER = "Choose a model whose blocks are attention and feed-forward networks."
REFUSED = {
    "Nemotron-3-Nano-30B-A3B": [
        "20: hybrid_override_pattern: Mamba layers (M) are not modelled, got "
        f"'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'. {OTHER}",
        f"53: ssm_state_size: state-space layers are not modelled, got 128. {OTHER}",
    ],
    "partial/bloom-176b": [
        "1: hidden_size: is missing, and a size of BloomConfig is never guessed, got nothing. Add "
        "hidden_size (or n_embed)."
    ],
    "partial/flan-t5-xxl": [
        "1: d_kv: is missing, and a size of T5Config is never guessed, got nothing. Add d_kv."
    ],
    "partial/t5-11b": [
        "1: d_kv: is missing, and a size of T5Config is never guessed, got nothing. Add d_kv."
    ],
    "shrunk/git": [
        "27: vision_config: an image encoder beside the language model is not modelled, got an "
        f"object. {BESIDE}"
    ],
    "shrunk/llava": [
        "24: mm_vision_tower: an image encoder beside the language model is not modelled, got "
        f"'openai/clip-vit-large-patch14-336'. {BESIDE}"
    ],
    "shrunk/mllama": [
        "106: vision_config: an image encoder beside the language model is not modelled, got an "
        f"object. {BESIDE}"
    ],
    "shrunk/phi4": [
        "8: audio_processor: an audio encoder beside the language model is not modelled, got an "
        f"object. {BESIDE}",
        f"51: embd_layer: encoders beside the language model are not modelled, got an object. {BESIDE}",
    ],
}


def expected():
    with (REFERENCE / "expected_params.csv").open() as file:
        return {row["config"]: row for row in csv.DictReader(file)}


@needs_reference
def test_expected_parameters():
    rows = expected()
    assert len(rows) == 25
    for name, row in rows.items():
        model = load_huggingface(CONFIGS / f"{name}.json")
        assert parameters(model) == int(row["params_computed"]), name
        assert active_parameters(model) == int(row["active_params_computed"]), name


@needs_reference
def test_every_file_is_counted_or_refused():
    rows = expected()
    paths = {str(p.relative_to(CONFIGS))[:-5]: p for p in CONFIGS.rglob("*.json")}
    assert set(paths) == set(rows) | set(COUNTED) | set(REFUSED)
    for name, count in COUNTED.items():
        assert parameters(load_huggingface(paths[name])) == count, name
    for name, lines in REFUSED.items():
        with pytest.raises(InputError) as caught:
            load_huggingface(paths[name])
        assert str(caught.value).splitlines() == [f"{paths[name]}:{line}" for line in lines]


def test_counts_of_the_reference_implementation():
    # Random sizes and flags; counted by the classes of github huggingface/transformers 5.24.
    rows = json.loads((Path(__file__).parent / "data" / "huggingface_counts.json").read_text())
    assert len({row["config"]["model_type"] for row in rows}) > 30
    for row in rows:
        assert parameters(read(row["config"])) == row["parameters"], row["config"]


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN_MOE = LLAMA | {
    "model_type": "qwen2_moe",
    "architectures": ["Qwen2MoeForCausalLM"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [],
    "use_sliding_window": False,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "vocab_size": 100,
}
T5 = {
    "model_type": "t5",
    "d_model": 64,
    "d_ff": 128,
    "d_kv": 16,
    "num_heads": 4,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "vocab_size": 100,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "vocab_size": 100,
}
FORMS = {"llama": LLAMA, "mixtral": MIXTRAL, "qwen": QWEN_MOE, "deepseek": DEEPSEEK, "t5": T5, "bert": BERT}  # fmt: skip


def read(config, **changes):
    return read_huggingface(json.dumps(config | changes), "m", "c.json")


def test_dense_layers_among_experts():
    model = read(QWEN_MOE)
    assert [block.experts is not None for block in model_blocks(model)] == [False, True, False]
    model = read(QWEN_MOE, decoder_sparse_step=1, mlp_only_layers=[2])
    assert [block.experts is not None for block in model_blocks(model)] == [True, True, False]
    mixture = next(model_blocks(model)).experts
    assert (mixture.shared.width, mixture.shared_gate, mixture.router_bias) == (48, True, False)


def test_latent_attention_without_query_compression():
    model = read(DEEPSEEK)
    first, *rest = model_blocks(model)
    assert first.experts is None
    assert all(b.experts.shared.width == 64 and b.experts.router_bias for b in rest)
    h, heads = 64, 8
    attention = h * heads * 12 + h * (16 + 4) + 16 + 16 * heads * 16 + heads * 8 * h
    sparse = attention + 2 * h + (8 + 2) * 3 * h * 32 + 8 * h + 8
    dense = attention + 2 * h + 3 * h * 96
    assert parameters(model) == 2 * 100 * h + h + dense + 3 * sparse


def test_experts_in_every_second_layer():
    model = read(DEEPSEEK, moe_layer_freq=2, num_hidden_layers=6)
    assert [i for i, b in enumerate(model_blocks(model)) if b.experts] == [2, 4]


def test_gated_encoder_decoder():
    model = read(T5)
    h, attention, network = 64, 4 * 64 * 64, 3 * 64 * 128
    encoder, decoder = attention + network + 2 * h, 2 * attention + network + 3 * h
    assert parameters(model) == 2 * 100 * h + 2 * 32 * 4 + 2 * encoder + 3 * decoder + 2 * h
    assert [b.attention.causal for b in model_blocks(model)] == [False, False, True, True, True]


def test_windows():
    model = read(LLAMA, model_type="gemma2", architectures=["Gemma2ForCausalLM"], head_dim=8, sliding_window=7)  # fmt: skip
    assert [b.attention.window for b in model_blocks(model)] == [7, None, 7]
    model = read(LLAMA, model_type="qwen2", architectures=["Qwen2ForCausalLM"], sliding_window=7, use_sliding_window=True, max_window_layers=2)  # fmt: skip
    assert [b.attention.window for b in model_blocks(model)] == [None, None, 7]
    model = read(LLAMA, model_type="mistral", architectures=["MistralForCausalLM"])
    assert [b.attention.window for b in model_blocks(model)] == [4096] * 3
    assert "sliding_window: 4096, the default of MistralConfig" in model.notes
    types = ["full_attention", "sliding_attention", "full_attention"]
    model = read(LLAMA, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], head_dim=8, sliding_window=7, layer_types=types)  # fmt: skip
    assert [b.attention.window for b in model_blocks(model)] == [None, 7, None]
    assert all(b.attention.norm is QueryKeyNorm.HEAD and b.norms == 4 for b in model_blocks(model))


def test_heads_by_architecture():
    assert not read(LLAMA, architectures=["LlamaModel"]).lm_head
    labelled = read(LLAMA, architectures=["LlamaForSequenceClassification"], num_labels=5)
    assert parameters(labelled) == parameters(read(LLAMA, architectures=["LlamaModel"])) + 5 * 64
    assert read(LLAMA, architectures=None).notes == (
        "architectures: missing, read as a language model with a head",
    )
    names = read(BERT, architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "b", "2": "c"})  # fmt: skip
    assert parameters(names) == parameters(read(BERT)) + 3 * 65


def test_documented_defaults_are_noted():
    config = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "mlp_bias")}
    model = read(config)
    assert model.notes == (
        "num_key_value_heads: num_attention_heads, the default of LlamaConfig",
        "mlp_bias: False, the default of LlamaConfig",
    )
    assert next(model_blocks(model)).attention.kv_heads == 8


def test_projected_embedding():
    opt = {
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 64, "ffn_dim": 96,
        "num_attention_heads": 8, "num_hidden_layers": 1, "vocab_size": 100,
        "word_embed_proj_dim": 32, "max_position_embeddings": 10, "do_layer_norm_before": False,
    }  # fmt: skip
    block = 4 * (64 * 64 + 64) + (64 * 96 + 96) + (96 * 64 + 64) + 4 * 64
    assert parameters(read(opt)) == 100 * 32 + 12 * 64 + 2 * 32 * 64 + block


def without(config, key):
    return {k: v for k, v in config.items() if k != key}


BAD = [
    (without(LLAMA, "hidden_size"), ["hidden_size: is missing, and a size of LlamaConfig is never guessed, got nothing. Add hidden_size."]),
    (LLAMA | {"hidden_size": None}, ["hidden_size: is missing, and a size of LlamaConfig is never guessed, got nothing. Add hidden_size."]),
    (LLAMA | {"hidden_size": "64"}, ["hidden_size: must be an integer, got '64'. Correct it."]),
    (LLAMA | {"hidden_size": True}, ["hidden_size: must be an integer, got True. Correct it."]),
    (LLAMA | {"hidden_size": 64.0}, ["hidden_size: must be an integer, got 64.0. Correct it."]),
    (LLAMA | {"hidden_size": -1}, ["hidden_size: must be between 1 and 1,000,000,000, got -1. Correct it."]),
    (LLAMA | {"hidden_size": 2**40}, ["hidden_size: must be between 1 and 1,000,000,000, got 1099511627776. Correct it."]),
    (LLAMA | {"hidden_size": 65}, ["hidden_size: must be a multiple of num_attention_heads = 8, got 65. Correct one of them."]),
    (LLAMA | {"num_hidden_layers": 10**6}, ["num_hidden_layers: must be at most 10,000, got 1,000,000. Correct it."]),
    (LLAMA | {"num_key_value_heads": 3}, ["num_key_value_heads: must divide the 8 heads, got 3. Use a divisor."]),
    (LLAMA | {"tie_word_embeddings": "no"}, ["tie_word_embeddings: must be true or false, got 'no'. Correct it."]),
    (LLAMA | {"model_type": "lama"}, ["model_type: the architecture is not known, got 'lama'. Did you mean 'llama'?"]),
    (LLAMA | {"model_type": 3}, ["model_type: must be text, got 3. Correct it."]),
    (LLAMA | {"model_type": "qwen2"}, ["architectures: is no known class of model_type 'qwen2', got 'LlamaForCausalLM'. Correct one of them."]),
    (LLAMA | {"architectures": ["LlamaLlavaForCausalLM"]}, ["architectures: is no known class of model_type 'llama', got 'LlamaLlavaForCausalLM'. Correct one of them."]),
    (LLAMA | {"architectures": "LlamaForCausalLM"}, ["architectures: must be a list of names, got 'LlamaForCausalLM'. Correct it."]),
    (LLAMA | {"architectures": ["LlamaForQuestionAnswering"]}, ["architectures: the head is not known, got 'LlamaForQuestionAnswering'. Use ...ForCausalLM, ...Model or ...ForSequenceClassification."]),
    ({"hidden_size": 64}, ["model_type: is missing, and architectures too, got nothing. Add model_type."]),
    (LLAMA | {"num_experts": 8}, ["num_experts: this architecture has no experts, got 8. Correct model_type or remove the key."]),
    (LLAMA | {"vision_config": {"hidden_size": 8}}, [f"vision_config: an image encoder beside the language model is not modelled, got an object. {BESIDE}"]),
    (LLAMA | {"model_type": "llama4", "architectures": None, "text_config": 3}, ["text_config: must be an object, got 3. Correct it."]),
    (without(LLAMA | {"model_type": "mistral", "architectures": None}, "num_key_value_heads"), ["num_key_value_heads: is missing, and a size of MistralConfig is never guessed, got nothing. Add num_key_value_heads."]),
    (without(MIXTRAL, "num_local_experts"), ["num_local_experts: is missing, and a size of MixtralConfig is never guessed, got nothing. Add num_local_experts (or num_experts, n_routed_experts)."]),
    (MIXTRAL | {"num_experts_per_tok": 5}, ["num_experts_per_tok: a token cannot visit more than the 4 experts, got 5. Lower it."]),
    (MIXTRAL | {"num_experts": 5}, ["num_experts: means the same as num_local_experts = 4, got 5. Remove the wrong one."]),
    (QWEN_MOE | {"mlp_only_layers": 3}, ["mlp_only_layers: must be a list of integers, got 3. Correct it."]),
    (QWEN_MOE | {"decoder_sparse_step": 0}, ["decoder_sparse_step: must be between 1 and 1,000,000,000, got 0. Correct it."]),
    (without(DEEPSEEK, "kv_lora_rank"), ["kv_lora_rank: is missing, and a size of DeepseekV3Config is never guessed, got nothing. Add kv_lora_rank."]),
    (DEEPSEEK | {"num_key_value_heads": 2}, ["num_key_value_heads: latent attention has a key for each head, got 2. Use a configuration without it."]),
    (DEEPSEEK | {"index_head_dim": 64}, [f"index_head_dim: sparse attention by an indexer is not modelled, got 64. {OTHER}"]),
    (without(T5, "d_kv"), ["d_kv: is missing, and a size of T5Config is never guessed, got nothing. Add d_kv."]),
    (BERT | {"position_embedding_type": "relative_key"}, ["position_embedding_type: is not read, got 'relative_key'. Use absolute."]),
    (BERT | {"vocab_size": 0, "hidden_size": []}, ["vocab_size: must be between 1 and 1,000,000,000, got 0. Correct it.", "hidden_size: must be an integer, got []. Correct it."]),
    (
        LLAMA | {"model_type": "gemma2", "architectures": None, "head_dim": 8, "sliding_window": 7, "layer_types": ["full_attention"]},
        ["layer_types: must name each of the 3 layers, got 1. Correct it."],
    ),
    (
        LLAMA | {"model_type": "gemma2", "architectures": None, "head_dim": 8, "sliding_window": 7, "layer_types": ["linear_attention"] * 3},
        ["layer_types: holds a kind of layer that is not modelled, got 'linear_attention'. Use full_attention, sliding_attention, chunked_attention."],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "messages"), BAD, ids=range(len(BAD)))
def test_bad_keys(config, messages):
    with pytest.raises(InputError) as caught:
        read(config)
    problems = caught.value.problems
    assert sorted(f"{p.path}: {p.message}" for p in problems) == sorted(messages)


def test_lines_of_keys():
    text = json.dumps(
        {"a": [1, {"b": "}{"}], **LLAMA, "hidden_size": "x", "vocab_size": 0}, indent=1
    )
    with pytest.raises(InputError) as caught:
        read_huggingface(text, "m", "c.json")
    lines = text.split("\n")
    assert [lines[p.line - 1].strip().split('"')[1] for p in caught.value.problems] == [
        p.path for p in caught.value.problems
    ] == ["hidden_size", "vocab_size"]  # fmt: skip


def test_tied_head_of_a_nested_model():
    text = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"} | {"head_dim": 8}
    config = {"model_type": "gemma3", "text_config": text}
    assert read(config).tied
    assert not read(config, tie_word_embeddings=False).tied


def test_key_inside_text_config():
    config = {"model_type": "llama4", "text_config": {"hidden_size": 3}}
    with pytest.raises(InputError) as caught:
        read(config)
    assert all(p.path.startswith("text_config.") for p in caught.value.problems)


TEXTS = [
    ("", "c.json:1: is not JSON: expecting value, got nothing. Mend the text there."),
    ('{"a": 1,\n"b": }', "c.json:2: is not JSON: expecting value, got '\"b\": }'. Mend the text there."),
    ("[1]", "c.json:1: must be an object of keys and values, got [1]. Is it the right file?"),
    ('{"a": 1,\n"a": 2}', "c.json:2: a: the key stands twice, got 'a'. Remove one."),
    ('{"x": {"a": 1,\n"a": 2}}', "c.json:2: x.a: the key stands twice, got 'a'. Remove one."),
    ('{"a":\nNaN}', "c.json:2: a number must be finite, got NaN. Write a number."),
    ('{"a": -Infinity}', "c.json:1: a number must be finite, got -Infinity. Write a number."),
    ('{"a": 1e999}', "c.json:1: a number must be finite, got '1e999'. Write a number."),
    ('{"a": 1' + "0" * 5000 + "}", "c.json:1: an integer has at most 19 digits, got 5,001. Correct it."),
    ('{"a": ' + "[" * 40 + "]" * 40 + "}", "c.json:1: values nest at most 32 levels deep, got more. Is it the right file?"),
    ("[" * 100_000, "c.json:1: values nest at most 32 levels deep, got more. Is it the right file?"),
    (
        " " * (MAX_CHARACTERS + 1),
        "c.json: a configuration has at most 8,000,000 characters, got 8,000,001. Is it the right file?",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=range(len(TEXTS)))
def test_bad_text(text, message):
    with pytest.raises(InputError) as caught:
        read_huggingface(text, "m", "c.json")
    assert str(caught.value) == message


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read \(No such file or directory\)"):
        load_huggingface(tmp_path / "config.json")


values = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3)
odd = st.recursive(values, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=2), v, max_size=2), max_leaves=4)  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_any_value_gives_a_model_or_an_error(form, data):
    config = copy.deepcopy(FORMS[form])
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(config)))
        config[key] = data.draw(odd | st.sampled_from(MODEL_TYPES))
    problems = ()
    try:
        model = read(config)
    except InputError as error:
        problems = error.problems
    else:
        assert isinstance(model, Model)
        assert 0 < active_parameters(model) <= parameters(model)
    assert all(p.file == "c.json" and p.line and "got " in p.message for p in problems)


@given(st.text(max_size=40) | st.text(alphabet='{}[]",:1e-\\n ', max_size=40))
def test_any_text_gives_a_model_or_an_error(text):
    with pytest.raises(InputError):
        read_huggingface(text, "m", "c.json")
