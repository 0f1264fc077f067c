"""What the tasks of a model's step are called."""

import re
from collections import Counter

import pytest

from libra.evaluate import evaluate_design
from libra.load import load_design
from libra.timeline import result_timeline
from libra.workload.slot_labels import name_layers
from libra.yaml_source import Override

DESIGN = """\
network:
  - {topology: switch, size: 2, tier: node}
  - {topology: switch, size: 8, tier: pod}
workloads:
  - model: gpt-2
    accelerator: a100-80gb
    parallel: {tp: 1, pp: 2, dp: 8, PARALLEL}
    batch: {global: 32, micro: 1, sequence: 1024}
    precision: bf16
constraints: [total <= 1000 GB/s]
"""
LABEL = re.compile(
    r"mb(\d+) (input|head|(?:input, |head, )?layers? (\d+)(?:-(\d+))?(?:, head|, input)?) (forward|backward)( \w+)?"
)
LAYERS, MICRO_BATCHES = 12, 4


@pytest.fixture(params=["zero: 0", "zero: 1", "zero: 3", "virtual_stages: 2"])
def design(request, tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(DESIGN.replace("PARALLEL", request.param))
    return load_design(path)


def test_every_micro_batch_passes_every_layer_once_each_way_on_its_stage(design):
    (workload,) = design.workloads
    graph = workload.graph
    assert len(set(graph.labels)) == graph.tasks  # Each names one task.
    passes, stage_of = Counter(), {}
    for label, place in zip(graph.labels, graph.places, strict=True):
        found = LABEL.fullmatch(label)
        if found is None:
            assert re.fullmatch(rf"stage {place} (gradients|update|weights|tied embeddings)", label)
            continue
        micro_batch, _, low, high, way, what = found.groups()
        if low is None:
            continue
        layers = range(int(low), int(high or low) + 1)
        assert {stage_of.setdefault(k, place) for k in layers} == {place}
        if what is None:
            passes.update((micro_batch, k, way) for k in layers)
    assert set(passes.values()) == {1}
    assert len(passes) == LAYERS * MICRO_BATCHES * 2


def test_labels_are_a_sequence_and_reach_the_timeline(design):
    (workload,) = design.workloads
    labels = workload.graph.labels
    assert labels[-1] == labels[len(labels) - 1]
    assert labels[2:5] == tuple(labels[k] for k in (2, 3, 4))
    with pytest.raises(IndexError):
        labels[len(labels)]
    frame = result_timeline(evaluate_design(design, [100e9, 50e9]))
    assert frame["label"].to_list() == list(labels)


def test_names_of_layers():
    assert name_layers(["input", 0, 1, 2, "head"]) == "input, layers 0-2, head"
    assert name_layers([7, 6, 5, "input"]) == "layers 5-7, input"
    assert name_layers(["head"]) == "head"


def test_the_timeline_of_a_design_with_scenarios_is_that_without(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(DESIGN.replace("PARALLEL", "zero: 0"))
    cases = Override("scenarios", "[{name: a}, {name: b, set: {network.pod.efficiency: 0.5}}]")
    plain, robust = (
        result_timeline(evaluate_design(load_design(path, settings), [100e9, 50e9]))
        for settings in ([], [cases])
    )
    assert robust.equals(plain)
