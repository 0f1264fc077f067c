"""The example workloads against the byte counts that were published with LIBRA and before.

Typed in from github astra-sim/libra (inputs/workload) and github willjwon/sc245-artifact
(workload/transformer_*.txt), both MIT; the whole files where the reference data lie beside the
project. Both keep two blocks; the former sums up the gradients of both into one all-reduce.
"""

from collections import Counter
from pathlib import Path

import pytest

from libra.accelerators import load_accelerator
from libra.collectives import CollectiveKind
from libra.errors import FieldError
from libra.formats.astra_sim import parse_text_workload
from libra.formats.astra_sim_policy import text_size
from libra.models import load_model
from libra.placement import Group
from libra.workload.activations import ActivationPlan
from libra.workload.layer_rows import fold_gradients, time_rows, transformer_rows
from libra.workload.layers import Layer, Phase
from libra.workload.memory import MemoryPlan, npu_block_parameters, npu_memory
from libra.workload.model import model_blocks
from libra.workload.training_plan import TrainingPlan
from libra.workload.transformer_collectives import block_collectives
from libra.workload.transformer_operators import block_operators, block_sections

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT.parent / "shared" / "reference"


def traffic(layers):
    """How often each phase sends each collective, sizes as the text has them."""
    return Counter(
        (name, phase.collective.kind.value, text_size(phase.collective))
        for layer in layers
        for name, phase in (
            ("forward", layer.forward),
            ("input gradient", layer.input_gradient),
            ("weight gradient", layer.weight_gradient),
        )
        if phase.collective is not None
    )


def gpt(activation, gathered, gradients):
    """Two published blocks: four all-reduces and a gather each, gradients as given."""
    return Counter(
        {
            ("forward", "all-reduce", activation): 4,
            ("input gradient", "all-reduce", activation): 4,
            ("input gradient", "all-gather", gathered): 2,
            ("weight gradient", "all-reduce", gradients): 1,
        }
    )


PUBLISHED = {
    "gpt-3.txt": gpt(805306368, 50331648, 452984832),
    "msft-1t.txt": gpt(805306368, 6291456, 226492416),
    "turing-nlg.txt": Counter({("weight gradient", "all-reduce", 869449728): 1}),
    "resnet-50.txt": Counter({("weight gradient", "all-reduce", 51005824): 1}),
    "dlrm.txt": Counter(
        {
            ("forward", "all-to-all", 4194304): 1,
            ("input gradient", "all-to-all", 4194304): 1,
            ("weight gradient", "all-reduce", 114823168): 1,
        }
    ),
}
FILES = {
    "gpt-3.txt": "GPT_3.txt",
    "msft-1t.txt": "MSFT_1T.txt",
    "turing-nlg.txt": "Turing_NLG.txt",
    "resnet-50.txt": "ResNet_50.txt",
    "dlrm.txt": "DLRM.txt",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_models_give_the_published_bytes(tool, name):
    layers = tool.example_layers(tool.EXAMPLES[name], blocks=2, one_bucket=True)
    assert traffic(layers) == PUBLISHED[name]


def file_traffic(path):
    workload = parse_text_workload(path.read_text())
    names = ("forward", "input gradient", "weight gradient")
    return Counter(
        (name, phase.kind.value, phase.size)
        for layer in workload.layers
        for name, phase in zip(names, layer.phases, strict=True)
        if phase.kind is not None
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_files_say_so(name):
    path = REFERENCE / "libra" / "workload" / FILES[name]
    if not path.exists():
        pytest.skip("the reference data are not beside the project")
    found = file_traffic(path)
    if name == "turing-nlg.txt":
        # What its tensor-parallel group of one NPU would send: 2 x 8 x 1,024 x 4,256 bytes.
        for phase, kind, count in (
            ("forward", "all-reduce", 4),
            ("input gradient", "all-reduce", 4),
            ("input gradient", "all-gather", 2),
        ):
            assert found.pop((phase, kind, 2 * 8 * 1024 * 4256)) == count
    assert found == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "file", "square"),
    # A gradient of hidden^2 / tp weights of 2 bytes; the feed-forward network's have four times it.
    [
        ("gpt-3.txt", "transformer_175B.txt", 18874368),
        ("msft-1t.txt", "transformer_1T.txt", 9437184),
        ("turing-nlg.txt", "transformer_17B.txt", 36227072),
    ],
)
def test_matrix_by_matrix_as_the_earlier_files(tool, name, file, square):
    layers = tool.example_layers(tool.EXAMPLES[name], blocks=1)
    sizes = [layer.weight_gradient.collective.size for layer in layers]
    assert sizes == [3 * square, square, 4 * square, 4 * square], "queries, keys, values are one"
    path = REFERENCE / "artifact" / "workload" / file
    if path.exists():
        found = Counter(s for (phase, _, s), n in file_traffic(path).items()
                        for _ in range(n) if phase == "weight gradient")  # fmt: skip
        assert found == {square: 8, 4 * square: 4}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_shipped_files_repeat_the_published_block(tool, name):
    """At full depth each block sends what the published ones do, half of the two together."""
    example = tool.EXAMPLES[name]
    published = PUBLISHED[name]
    path = tool.DEFAULT_DIRECTORY / name
    found = file_traffic(path)
    blocks = load_model(example.model).layers if example.sequence > 1 else 2
    for (phase, kind, size), count in published.items():
        if phase == "weight gradient":
            sent = sum(s * n for (p, k, s), n in found.items() if (p, k) == (phase, kind))
            assert sent == size * blocks / 2
        else:
            assert found[phase, kind, size] == count * blocks / 2
    assert {(p, k) for p, k, _ in found} == {(p, k) for p, k, _ in published}


# --- rows ----------------------------------------------------------------------------------------

GROUPS = {name: Group(name, (size,), (1,)) for name, size in (("tp", 4), ("cp", 1), ("dp", 8))}


def plan(**changes):
    memory = {
        k: changes.pop(k)
        for k in ("pp", "virtual_stages", "ep", "zero", "micro_batches")
        if k in changes
    }
    run = ActivationPlan(2, 1024, **{"tp": 4, **changes})
    return TrainingPlan(MemoryPlan(run, dp=8, **memory), gradient=2.0)


def test_sections_are_the_operators_of_a_block():
    for name in ("gpt-3-175b", "llama-3-8b", "deepseek-v2-lite"):
        model = load_model(name)
        for block in set(model_blocks(model)):
            whole, sections = (
                block_operators(model, block, plan()),
                block_sections(model, block, plan()),
            )
            for k in range(3):
                joined = [o for _, part in sections for o in part.phases()[k]]
                assert joined == whole.phases()[k]


def test_rows_have_the_collectives_and_the_weights_of_the_blocks():
    model = load_model("llama-3-8b")
    block = next(model_blocks(model))
    for distributed in (False, True):
        made = plan(distribute_saved_activations=distributed)
        rows = transformer_rows(model, made, GROUPS, 1)
        assert [row.name for row in rows] == [
            "attention_1", "attention_output_1", "feed_forward_1", "feed_forward_output_1",
        ]  # fmt: skip
        found = block_collectives(model, block, made, GROUPS)
        forward = Counter({c: n for _, c, n in found.forward})
        backward = Counter({c: n for _, c, n in found.backward})
        assert Counter(r.forward for r in rows if r.forward) == forward
        assert Counter(r.input_gradient for r in rows if r.input_gradient) == backward
        assert any(c.kind is CollectiveKind.ALL_GATHER for c in backward) == distributed
    dense, _ = npu_block_parameters(model, block, plan().memory)
    assert sum(row.updated for row in rows) == dense - 2 * model.hidden, "all but two norms"
    assert all(row.weight_gradient.size == 2 * row.updated for row in rows)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt-3-175b", {"pp": 2}, "pp: rows have none, got 2. Use 1."),
        ("gpt-3-175b", {"zero": 1}, "zero: rows have none, got 1. Use 0."),
        ("gpt-3-175b", {"ep": 2}, "ep: the model has no experts, got 2. Remove ep."),
        ("gpt-3-175b", {"micro_batches": 3}, "micro_batches: rows have none, got 3. Use 1."),
        ("gpt-3-175b", {"sequence_parallel": True}, "sequence_parallel: rows have none, got True. Use False."),
        ("gpt-3-175b", {"recomputation": "full"}, "recomputation: rows have none, got full. Use none."),
        ("gpt-3-175b", {"tp": 36}, "tp: must divide the 96 heads, got 36. Use a divisor."),
        ("mixtral-8x7b", {}, "runs: rows are of blocks with attention, then one feed-forward network, got another. Use a dense decoder or encoder."),
        ("falcon-40b", {}, "runs: rows are of blocks with attention, then one feed-forward network, got another. Use a dense decoder or encoder."),
    ],
)  # fmt: skip
def test_what_rows_cannot_say(name, changes, message):
    with pytest.raises(FieldError) as caught:
        transformer_rows(load_model(name), plan(**changes), GROUPS)
    assert f"{caught.value.field_name}: {caught.value.message}" == message


def test_one_bucket_has_one_collective():
    rows = transformer_rows(load_model("gpt-2"), plan(), GROUPS, 2)
    layers = time_rows(rows, plan(), load_accelerator("a100-80gb"))
    folded = fold_gradients(layers)
    assert folded[0].weight_gradient.collective.size == sum(
        layer.weight_gradient.collective.size for layer in layers
    )
    assert not any(layer.weight_gradient.collective for layer in folded[1:])
    assert [x.weight_gradient.compute for x in folded] == [
        x.weight_gradient.compute for x in layers
    ]
    other = Layer("other", Phase(0.0), Phase(0.0), Phase(0.0, layers[0].input_gradient.collective))
    with pytest.raises(FieldError, match="one bucket has one collective, got several"):
        fold_gradients([*layers, other])
    assert fold_gradients([Layer("bare", Phase(1.0), Phase(1.0), Phase(1.0))])[0].update == 0


def test_saved_activations_are_distributed():
    """The input of each block is kept once over the group instead of on every member."""
    model = load_model("gpt-3-175b")
    run = ActivationPlan(1, 2048, tp=8, recomputation="full")
    whole = npu_memory(model, MemoryPlan(run))
    split = ActivationPlan(1, 2048, tp=8, recomputation="full", distribute_saved_activations=True)
    spared = whole.kept - npu_memory(model, MemoryPlan(split)).kept
    assert spared == 96 * 2048 * 12288 * 2 * 7 / 8
    kept = ActivationPlan(1, 2048, tp=8)
    saved = ActivationPlan(1, 2048, tp=8, distribute_saved_activations=True)
    spared = npu_memory(model, MemoryPlan(kept)).kept - npu_memory(model, MemoryPlan(saved)).kept
    assert spared == pytest.approx(96 * 2048 * 12288 * 2 * 7 / 8)
    with pytest.raises(FieldError, match="sequence parallelism splits them already"):
        ActivationPlan(1, 2048, tp=8, sequence_parallel=True, distribute_saved_activations=True)
