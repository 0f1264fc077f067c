"""Convolutional networks and DLRM: published parameter counts, FLOPs, bytes, refusals."""

import pytest

from libra.check import summarize_design
from libra.collectives import CollectiveKind
from libra.errors import InputError
from libra.evaluate import evaluate_design
from libra.load import load_design
from libra.optimize import optimize_design
from libra.workload.cnn import CNNS, cnn_parameters

# Sizes of torchvision's models, whose layers are those of the papers.
PARAMETERS = {
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "vgg-11": 132_863_336,
    "vgg-13": 133_047_848,
    "vgg-16": 138_357_544,
    "vgg-19": 143_667_240,
}
DESIGN = """\
network:
  - {topology: switch, size: 8, tier: node}
  - {topology: switch, size: 4, tier: pod}
workloads:
  - model: MODEL
    accelerator: a100-80gb
    parallel: {dp: 32}
    batch: {global: 1024, micro: 32}
    precision: bf16
constraints:
  - total <= 500 GB/s
"""


def load(tmp_path, model="resnet-50", **changes):
    text = DESIGN.replace("MODEL", model)
    for old, new in changes.values():
        text = text.replace(old, new)
    (tmp_path / "d.yaml").write_text(text)
    return load_design(tmp_path / "d.yaml")


def test_parameters_are_the_published_ones():
    assert {name: cnn_parameters(name) for name in CNNS} == PARAMETERS


def test_resnet_50_s_multiply_adds_and_gradients(tmp_path):
    design = load(tmp_path)
    (workload,) = summarize_design(design)["workloads"]
    assert workload["parameters"] == PARAMETERS["resnet-50"]
    # 3.86e9 multiply-adds an image (docs/workloads.md); images have no gradient.
    first = 112**2 * 49 * 3 * 64
    each = 3 * 3.858e9 - first
    assert workload["flops_per_step"] == pytest.approx(2 * 1024 * each, rel=1e-3)
    graph = design.workloads[0].graph
    reduced = sum(c.size * n for c, n in zip(graph.collectives, graph.total_counts, strict=True))
    assert reduced == pytest.approx(4 * PARAMETERS["resnet-50"])
    assert optimize_design(design).gap < 1e-6


def test_dlrm_exchanges_what_the_shipped_example_exchanges(tmp_path):
    design = load(
        tmp_path, "dlrm", batch=("{global: 1024, micro: 32}", "{global: 16384, micro: 512}")
    )
    graph = design.workloads[0].graph
    found = {
        c.size: n
        for c, n in zip(graph.collectives, graph.total_counts, strict=True)
        if c.kind is CollectiveKind.ALL_TO_ALL
    }
    assert found == {2 * 512 * 64 * 64: 2}
    assert design.workloads[0].step.parameters == 57_411_584
    assert any("embedding tables are not counted" in warning for warning in design.warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{dp: 32}", "{tp: 2, dp: 16}"), "parallel.tp: resnet-50 is data parallel only, got 2. Use dp."),
        (("{dp: 32}", "{dp: 16}"), "parallel.dp: must be the 32 NPUs of the network, got 16. Correct one."),
        (("micro: 32}", "micro: 24}"), "batch.global: must be a multiple of dp x micro = 32 x 24 = 768, got 1024. Use 768."),
        (("micro: 32}", "micro: 32, sequence: 8}"), "batch.sequence: resnet-50 has no sequences, got 8. Remove it."),
        (("{global: 1024, micro: 32}", "{global: 320000, micro: 10000}"), "batch.micro: does not fit the 80 GB of a100-80gb, got"),
    ],
)  # fmt: skip
def test_refusals(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load(tmp_path, change=change)
    assert message in str(caught.value)


@pytest.mark.parametrize("overlap", ["", "overlap: {dp: false}"])
@pytest.mark.parametrize("model", ["resnet-50", "dlrm"])
def test_gradients_of_micro_batches_are_summed_up(tmp_path, model, overlap):
    """Each micro-batch computes and exchanges; gradients travel once, after the last."""

    def step(count):
        batch = f"{{global: {count * 1024}, micro: 32}}"
        changes = {"batch": ("{global: 1024, micro: 32}", batch)}
        if overlap:
            changes["overlap"] = ("precision: bf16", f"precision: bf16\n    {overlap}")
        design = load(tmp_path, model, **changes)
        return design.workloads[0].step, evaluate_design(design, [100e9, 100e9]).step_time

    (one, once), (two, twice), (four, whole) = (step(n) for n in (1, 2, 4))
    assert whole - once == pytest.approx(3 * (twice - once))
    assert (one.micro_batches, four.micro_batches) == (1, 4)
    assert four.flops == 4 * one.flops
    assert four.activations == one.activations, "of one micro-batch"
    assert two.graph.is_chain == one.graph.is_chain
    for kind, times in ((CollectiveKind.ALL_REDUCE, 1), (CollectiveKind.ALL_TO_ALL, 4)):
        sent = [
            sum(
                c.size * n
                for c, n in zip(s.graph.collectives, s.graph.total_counts, strict=True)
                if c.kind is kind
            )
            for s in (one, four)
        ]
        assert sent[1] == pytest.approx(times * sent[0])
    if model == "resnet-50":
        # A pass of a micro-batch: all of the step's compute but the optimiser.
        labels = zip(one.graph.labels, one.graph.fixed, strict=True)
        assert twice - once == pytest.approx(
            sum(time for label, time in labels if not label.endswith("update"))
        )


def test_transformers_need_a_sequence(tmp_path):
    with pytest.raises(InputError, match=r"batch\.sequence: is missing, got nothing"):
        load(tmp_path, "llama-3-8b")
