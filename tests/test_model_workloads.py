"""Design files whose workloads name a model: what they become, and what is refused."""

import json
from pathlib import Path

import pytest

from libra.check import summarize_design
from libra.errors import InputError
from libra.load import load_design
from libra.optimize import optimize_design

DESIGN = """\
network:
  - {topology: switch, size: 8, tier: node}
  - {topology: switch, size: 16, tier: pod}
workloads:
  - model: MODEL
    accelerator: h100
    parallel: PARALLEL
    batch: BATCH
    precision: bf16
constraints:
  - total <= 500 GB/s
"""
PARALLEL = "{tp: 8, pp: 4, dp: 4, sequence_parallel: true, zero: 1}"
BATCH = "{global: 64, micro: 1, sequence: 8192}"


def write(tmp_path, model="llama-3-70b", parallel=PARALLEL, batch=BATCH, extra="", design=DESIGN):
    text = design.replace("MODEL", model).replace("PARALLEL", parallel).replace("BATCH", batch)
    path = tmp_path / "d.yaml"
    path.write_text(text.replace("precision: bf16\n", f"precision: bf16\n{extra}"))
    return path


def test_model_becomes_a_step_with_its_numbers(tmp_path):
    design = load_design(write(tmp_path))
    (workload,) = json.loads(json.dumps(summarize_design(design)))["workloads"]
    assert workload["name"] == "llama-3-70b"
    assert workload["parameters"] == workload["active_parameters"] == 70_553_706_496
    # 6 FLOPs a token and parameter of a matrix, and attention of causal scores (2.5 backward).
    tokens = 64 * 8192
    matrices = 70_553_706_496 - 128256 * 8192 - (2 * 80 + 1) * 8192
    attention = 3.5 * 4 * 8192 * 80 * (8192 + 1) / 2
    assert workload["flops_per_step"] == pytest.approx(tokens * (6 * matrices + attention))
    memory = workload["bytes_per_npu"]
    parts = ("weights", "gradients", "optimizer", "activations", "reserved")
    assert memory["total"] == pytest.approx(sum(memory[key] for key in parts))
    assert memory["optimizer"] == pytest.approx(memory["weights"] * 12 / 2 / 4)
    assert workload["fits"] is True
    forward = [p for p in workload["phases"] if p["phase"] == "forward" and p["group"] == "tp"]
    # 20 blocks a stage, two pairs of matrices, 16 micro-batches, and the last stage's head.
    assert {(p["kind"], p["count"]) for p in forward} in (
        {("all-gather", 16 * 41), ("reduce-scatter", 16 * 40)},
        {("all-gather", 16 * 40), ("reduce-scatter", 16 * 41)},
    )
    assert all(p["bytes"] == 8192 * 8192 * 2 for p in forward)
    assert optimize_design(design).gap < 1e-6


def test_configuration_file_is_read_from_the_design_s_folder(tmp_path):
    (tmp_path / "own").mkdir()
    keys = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    Path(tmp_path / "own" / "config.json").write_text(json.dumps(keys))
    (workload,) = load_design(write(tmp_path, "own/config.json")).workloads
    assert workload.name == "own"
    assert workload.step.model.layers == 32


def test_blocks_of_each_part_where_they_do_not_divide(tmp_path):
    """126 blocks on 16 stages: 7 on the first and the last, 8 on the others (arXiv 2407.21783)."""
    blocks = [7, *[8] * 14, 7]
    parallel = f"{{tp: 8, pp: 16, dp: 1, blocks: {blocks}, zero: 1, sequence_parallel: true}}"
    (workload,) = load_design(
        write(tmp_path, "llama-3.1-405b", parallel=parallel, extra="    recomputation: full\n")
    ).workloads
    found = [sum(n for piece, n in part if piece.expert == 0) for part in workload.step.parts]
    assert found == [8, *[8] * 14, 8], "with embedding and head"


def test_heads_that_are_not_aligned_are_warned_of(tmp_path):
    slow = "heads whose dimension is no multiple of 8 run slower than predicted on tensor cores"
    keys = {
        "model_type": "llama", "hidden_size": 3456, "num_hidden_layers": 8,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False,
        "head_dim": 108,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert any(slow in w for w in load_design(write(tmp_path, "config.json")).warnings)
    (tmp_path / "config.json").write_text(json.dumps(keys | {"head_dim": 112}))
    assert not any(slow in w for w in load_design(write(tmp_path, "config.json")).warnings)


CASES = [
    (
        {"parallel": "{tp: 8, pp: 4, dp: 2}"},
        "d.yaml:7: workloads[0].parallel: the degrees multiply to 64 but the network has 128 NPUs, "
        "got tp 8 x cp 1 x pp 4 x dp 2. Change one of the degrees or the network's shape.",
    ),
    (
        {"batch": "{global: 66, micro: 1, sequence: 8192}"},
        "d.yaml:8: workloads[0].batch.global: must be a multiple of dp x micro = 4 x 1 = 4, got "
        "66. Use 64.",
    ),
    (
        {"parallel": "{tp: 128}", "batch": "{global: 1, micro: 1, sequence: 8192}"},
        "d.yaml:7: workloads[0].parallel.tp: must divide the 64 heads, got 128. Use a divisor.",
    ),
    (
        {"model": "llama-3-71b"},
        "d.yaml:5: workloads[0].model: unknown model, got 'llama-3-71b'.",
    ),
    (
        {"parallel": "{tpp: 8}"},
        "d.yaml:7: workloads[0].parallel.tpp: unknown key, got 'tpp'. Did you mean 'tp'?",
    ),
    (
        {"batch": "{micro: 1, sequence: 8192}"},
        "d.yaml:8: workloads[0].batch.global: is missing, got nothing. Add global:.",
    ),
    (
        {"extra": "    training_loop: 1f1b\n"},
        "d.yaml:10: workloads[0].training_loop: unknown key, got 'training_loop'.",
    ),
    (
        {"extra": "    recomputation: some\n"},
        "d.yaml:10: workloads[0].recomputation: unknown value, got 'some'.",
    ),
    (
        {"parallel": "{tp: 8, dp: 16}"},
        "d.yaml:7: workloads[0].parallel: does not fit the 80 GB of h100, got",
    ),
    (  # some of the changes that would make it fit leave too few replicas for its experts
        {"model": "deepseek-v3", "parallel": "{dp: 128, ep: 128}",
         "batch": "{global: 128, micro: 1, sequence: 4096}"},
        "d.yaml:7: workloads[0].parallel: does not fit the 80 GB of h100, got",
    ),
    (
        {"parallel": "{tp: 8, pp: 16, virtual_stages: 5, zero: 1}",
         "batch": "{global: 8, micro: 1, sequence: 8192}"},
        "d.yaml:7: workloads[0].parallel.virtual_stages: the interleaved schedule needs a multiple "
        "of the 16 stages as micro-batches of each replica, got 8. Change the batch, or use 1.",
    ),
    (
        {"parallel": "{tp: 8, pp: 8, dp: 2, virtual_stages: 3, zero: 1}"},
        "d.yaml:7: workloads[0].parallel.pp: 80 blocks do not divide into pp x virtual_stages = 24",
    ),
    (
        {"parallel": "{tp: 8, pp: 4, dp: 4, blocks: [19, 20, 20, 20], zero: 1}"},
        "d.yaml:7: workloads[0].parallel.blocks: must be 4 numbers that add up to the 80 blocks, "
        "got 4 that add up to 79. Correct them.",
    ),
    (
        {"parallel": "{tp: 8, dp: 16, sequence_parallel: true}",
         "extra": "    distribute_saved_activations: true\n"},
        "d.yaml:10: workloads[0].distribute_saved_activations: sequence parallelism splits them "
        "already, got true with sequence_parallel: true. Remove one of them.",
    ),
    (
        {"model": "mixtral-8x7b", "parallel": "{tp: 1, dp: 128, ep: 16}",
         "batch": "{global: 128, micro: 1, sequence: 4096}"},
        "d.yaml:7: workloads[0].parallel.ep: must divide the 8 experts, got 16. Use a divisor.",
    ),
    (
        {"parallel": "{tp: 8, pp: 4, dp: 4, ep: 4}"},
        "d.yaml:7: workloads[0].parallel.ep: the model has no experts, got 4. Remove ep.",
    ),
    (
        {"extra": "    overlap: 5\n", "design": DESIGN.replace("h100", "5")},
        "d.yaml:6: workloads[0].accelerator: must be the name of an accelerator, or a mapping, got "
        "5. Correct it.\nd.yaml:10: workloads[0].overlap: must be a mapping",
    ),
    (
        {"extra": "    trace: w.txt\n"},
        "d.yaml:10: workloads[0].trace: model and trace both say what is trained, got both.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "message"), CASES)
def test_refusals(tmp_path, monkeypatch, parts, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **parts)
    with pytest.raises(InputError) as caught:
        load_design("d.yaml")
    assert str(caught.value).startswith(message)


def test_a_training_loop_that_no_workload_takes_is_warned_of(tmp_path):
    path = write(tmp_path)
    design = load_design(path)
    assert design.warnings == ()
    assert summarize_design(design)["training_loop"] is None
    path.write_text(f"training_loop: tp-dp-overlap\n{path.read_text()}")
    assert load_design(path).warnings == (
        "training_loop: no workload takes it, since models have a schedule of their own, of "
        "parallel, batch and overlap, and Chakra traces their recorded order.",
    )


def test_what_does_not_fit_says_what_would(tmp_path):
    path = write(tmp_path, parallel="{tp: 8, dp: 16}")
    with pytest.raises(InputError) as caught:
        load_design(path)
    text = str(caught.value)
    assert "weights 17.6 GB, gradients 35.3 GB, optimizer 105.8 GB, activations" in text
    assert "It fits with " in text
    remedy = (
        text.split("It fits with ")[1]
        .split(",", maxsplit=1)[0]
        .split(" or", maxsplit=1)[0]
        .strip(". ")
    )
    key, value = remedy.split(": ")
    parallel = f"{{tp: 8, dp: 16, {key}: {value}}}"
    assert load_design(write(tmp_path, parallel=parallel)).workloads[0].step.memory.total < 80e9


def test_an_accelerator_may_be_a_file_beside_the_design(tmp_path):
    own = "{name: own, peak: {bf16: 400 TFLOP/s}, memory: 640 GB, memory_bandwidth: 2 TB/s, "
    own += "efficiency: {matmul: {}, attention: {}, elementwise: {}, embedding: {}, optimizer: {}}}"
    design = tmp_path / "d.yaml"
    text = (
        "network: [{topology: switch, size: 8, tier: node}]\n"
        "workloads:\n  - model: llama-3-8b\n    accelerator: ACCELERATOR\n"
        "    parallel: {tp: 8}\n    batch: {global: 1, micro: 1, sequence: 512}\n"
        "    precision: bf16\n"
    )
    design.write_text(text.replace("ACCELERATOR", own))
    (tmp_path / "own.yaml").write_text(own)
    inside = load_design(design)
    design.write_text(text.replace("ACCELERATOR", "own.yaml"))
    beside = load_design(design)
    assert beside.workloads[0].graph.most_compute == inside.workloads[0].graph.most_compute
    (tmp_path / "own.yaml").write_text(own.replace("640 GB", "640"))
    with pytest.raises(InputError, match=r"own\.yaml:1: memory: a size needs a unit, got 640"):
        load_design(design)
    design.write_text(text.replace("ACCELERATOR", "none.yaml"))
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read"):
        load_design(design)
