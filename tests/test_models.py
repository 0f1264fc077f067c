"""Models by name: presets, and paths of configuration files."""

import json
import subprocess
import sys

import pytest

from libra.errors import InputError
from libra.models import list_models, load_model
from libra.presets import load_presets
from libra.workload.model import active_parameters, parameters

# Totals: of the classes of github huggingface/transformers 5.24, or as published.
TOTALS = {
    "gpt-3-175b": 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048 + 2) * 12288,
    "turing-nlg-17b": 78 * (12 * 4256**2 + 13 * 4256) + (50257 + 1024 + 2) * 4256,
    "msft-1t": 128 * (12 * 24576**2 + 13 * 24576) + (50257 + 2048 + 2) * 24576,
    "llama-2-7b": 6738415616,
    "llama-2-13b": 13015864320,
    "llama-2-70b": 68976648192,
    "llama-3-8b": 8030261248,
    "llama-3-70b": 70553706496,
    "llama-3.1-8b": 8030261248,
    "llama-3.1-70b": 70553706496,
    "llama-3.1-405b": 405853388800,
    "llama-4-maverick-17b-128e": 400711848960,
    "mistral-7b-v0.3": 7248023552,
    "mixtral-8x7b": 46702792704,
    "mixtral-8x22b": 140630071296,
    "qwen2-7b": 7615616512,
    "qwen2.5-32b": 32763876352,
    "qwen3-8b": 8190735360,
    "qwen3-32b": 32762123264,
    "qwen3-30b-a3b": 30532122624,
    "qwen3-235b-a22b": 235093634560,
    "deepseek-v2-lite": 15706484224,
    "deepseek-v2": 235741434880,
    "deepseek-v3": 671026404352 + 58 * 256,
    "kimi-k2": 1026408209408 + 60 * 384,
    "gpt-oss-20b": 20914757184,
    "gpt-oss-120b": 116829156672,
    "gemma-2-2b": 2614341888,
    "falcon-40b": 41303293952,
    "bloom-176b": 176247271424,
    "gpt-2": 124439808,
    "bert-base": 109482240,
    "bert-large": 335141888,
    "t5-small": 60506624,
    "t5-base": 222903552,
    "vit-base-16": 86567656,
}


def test_every_preset_has_its_parameters_and_a_source():
    assert {name: parameters(load_model(name)) for name in load_presets("models")} == TOTALS
    assert all(row["source"] for row in list_models())


def test_presets_leave_nothing_to_defaults():
    for name in load_presets("models"):
        notes = load_model(name).notes
        assert not [note for note in notes if "default of" in note], name


def test_active_parameters():
    assert active_parameters(load_model("mixtral-8x7b")) == 12879925248
    assert active_parameters(load_model("deepseek-v3")) == 37552297472


def test_a_model_from_a_file(tmp_path):
    keys = load_presets("models")["qwen3-8b"]["keys"]
    (tmp_path / "own.json").write_text(json.dumps(keys))
    model = load_model("own.json", tmp_path)
    assert model.name == "own"
    assert parameters(model) == TOTALS["qwen3-8b"]


def test_an_unknown_name():
    with pytest.raises(InputError) as caught:
        load_model("llama-3-80b")
    assert str(caught.value) == (
        "unknown model, got 'llama-3-80b'. Did you mean 'llama-3-8b'? Or give the path of a "
        "config.json."
    )


def test_listed_on_the_command_line():
    command = [sys.executable, "-m", "libra", "presets", "models", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    rows = json.loads(done.stdout)["models"]
    assert [row["name"] for row in rows] == list(TOTALS)
    assert rows[13]["value"] == (
        "46,702,792,704 parameters, 12,879,925,248 active; 32 blocks, hidden size 4,096"
    )
