"""ASTRA-sim 1.0 text workloads: what is read, and what is wrong with a file."""

import math

import pytest
from helpers import network
from hypothesis import given
from hypothesis import strategies as st
from test_bad_input import read_cases

from libra.collectives import CollectiveKind, Compatibility
from libra.errors import FieldError, InputError
from libra.formats.astra_sim import KINDS, POLICIES, parse_text_workload
from libra.formats.astra_sim_policy import place_text_workload, text_size
from libra.placement import nest_groups
from libra.workload.schedule import TrainingLoop, build_graph

HEADER = "HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n"
LAYER = "a -1 100 ALLREDUCE 1000 200 NONE 0 300 ALLGATHER 2000 10\n"
NET = network("RI(4)_SW(8)")
CASES = read_cases("bad_traces.txt")


@pytest.mark.parametrize(("text", "messages"), CASES, ids=range(len(CASES)))
def test_one_thing_wrong(text, messages):
    with pytest.raises(InputError) as caught:
        parse_text_workload(text, "t.txt")
    assert str(caught.value).split("\n") == messages


def test_an_empty_file_is_refused():
    with pytest.raises(InputError, match="the workload is empty, got no layer"):
        parse_text_workload("", "t.txt")


def test_a_layer():
    (layer,) = parse_text_workload(HEADER + "1\n" + LAYER).layers
    assert layer.name == "a"
    assert [p.compute for p in layer.phases] == pytest.approx([100e-9, 200e-9, 300e-9], rel=1e-15)
    assert [p.kind for p in layer.phases] == [
        CollectiveKind.ALL_REDUCE,
        None,
        CollectiveKind.ALL_GATHER,
    ]
    assert [p.size for p in layer.phases] == [1000, 0, 2000]
    assert layer.update == pytest.approx(10e-9)
    assert layer.policy == ""


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "1\n" + LAYER,
        (HEADER + "1\n" + LAYER).replace(" ", "\t"),
        (HEADER + "1\n" + LAYER).replace(" ", "  ").replace("\n", " \n\n"),
        HEADER.replace(": ", ":") + "1\n" + LAYER,
        HEADER.replace(": ", " : ").replace(" :", ":") + "1\n" + LAYER.strip(),
        HEADER + "1\n" + LAYER.replace("\n", " HYBRID_TRANSFORMER\n"),
        HEADER + "1\n" + LAYER.replace("1000", "1e3").replace("100 ", "100.0 "),
    ],
)
def test_white_space_and_forms_of_numbers_do_not_matter(text):
    plain = parse_text_workload(HEADER + "1\n" + LAYER)
    found = parse_text_workload(text)
    assert found.tensor_parallel == plain.tensor_parallel == 4
    assert [layer.phases for layer in found.layers] == [layer.phases for layer in plain.layers]


def test_without_a_header():
    workload = parse_text_workload(LAYER + LAYER)
    assert (workload.policy, workload.tensor_parallel, len(workload.layers)) == ("", None, 2)
    with pytest.raises(FieldError, match="has no header"):
        place_text_workload(workload, NET, None)


def groups_of(layers):
    """Group of the forward and weight-gradient collectives of the first layer, None if silent."""
    phases = (layers[0].forward, layers[0].weight_gradient)
    return tuple(p.collective and p.collective.group.extents for p in phases)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("DATA", (None, (4, 8))),
        ("MICRO", (None, (4, 8))),
        ("MODEL", ((4, 8), None)),
        ("DISTRIBUTED_INFERENCE", ((4, 8), None)),
        ("HYBRID_DATA_MODEL", ((4, 1), (1, 8))),
        ("HYBRID_MODEL_DATA", ((1, 8), (4, 1))),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 8", ((4, 2), (1, 4))),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 1", (None, (4, 8))),
        ("HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 0", ((4, 8), (4, 8))),
    ],
)
def test_policies(header, expected):
    workload = parse_text_workload(f"{header}\n1\n{LAYER}")
    layers, notes = place_text_workload(workload, NET, None)
    assert groups_of(layers) == expected
    assert len(notes) == expected.count(None)


def test_every_policy_word_is_read():
    for word in POLICIES:
        parameters = " model_parallel_NPU_group: 4" if "TRANSFORMER" in word else ""
        if word.endswith("BCKWD"):
            parameters += " checkpoints: 1 0 checkpoint_initiates: 1 0"
        assert parse_text_workload(f"{word}{parameters}\n1\n{LAYER}").policy == word


def test_policies_by_layer():
    custom = (
        "HYBRID_CUSTOMIZED\n2\n" + LAYER.replace("\n", " DATA\n") + LAYER.replace("\n", " MODEL\n")
    )
    for text in (custom, custom.split("\n", 2)[2]):
        layers, notes = place_text_workload(parse_text_workload(text), NET, None)
        assert groups_of(layers) == (None, (4, 8))
        assert groups_of(layers[1:]) == ((4, 8), None)
        assert notes == (
            "2 of its collectives send nothing, the first in a forward: "
            "the policy gives the phase no dimension",
        )


@pytest.mark.parametrize(
    ("degree", "message"),
    [(64, "does not divide the network's 32 NPUs, got 64"), (3, "does not divide")],
)
def test_a_header_that_does_not_fit_the_network(degree, message):
    text = f"HYBRID_TRANSFORMER model_parallel_NPU_group: {degree}\n1\n{LAYER}"
    with pytest.raises(InputError, match=message) as caught:
        place_text_workload(parse_text_workload(text, "t.txt"), NET, None)
    assert str(caught.value).startswith("t.txt:1: model_parallel_NPU_group: ")


@pytest.mark.parametrize(
    ("header", "tp", "agree"),
    [
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", 4, True),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 8", 4, False),
        ("DATA", 1, True),
        ("DATA", 4, False),
        ("MODEL", 32, True),
        ("HYBRID_DATA_MODEL", 4, True),
        ("HYBRID_MODEL_DATA", 4, False),
    ],
)
def test_header_and_design_must_agree(header, tp, agree):
    workload = parse_text_workload(f"{header}\n1\n{LAYER}", "t.txt")
    inner = {1: (1, 1), 4: (4, 1), 32: (4, 8)}[tp]
    groups = nest_groups(NET, {"tp": inner, "dp": (4 // inner[0], 8 // inner[1])})
    if agree:
        place_text_workload(workload, NET, groups)
        return
    with pytest.raises(FieldError, match="the design says otherwise, got tp 4") as caught:
        place_text_workload(workload, NET, groups)
    assert caught.value.field_name == "tp"


def test_recomputation_runs_the_forward_pass_again():
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 "
    header += "checkpoints: 2 0 2 checkpoint_initiates: 1 3\n"
    workload = parse_text_workload(header + "4\n" + LAYER * 4)
    assert workload.recomputed == {2, 3}
    layers, _ = place_text_workload(workload, NET, None)
    assert [layer.recomputation is not None for layer in layers] == [False, False, True, True]
    assert layers[2].recomputation == layers[2].forward
    published, _ = place_text_workload(workload, NET, None, Compatibility.LIBRA)
    assert published[2].recomputation.compute == 0.0
    assert published[2].recomputation.collective == layers[2].forward.collective


times = st.floats(1e-3, 1e12, allow_subnormal=False).map(lambda x: float(f"{x:.6g}"))
phases = st.tuples(times, st.sampled_from(sorted(KINDS)), times)


@given(st.lists(st.tuples(phases, phases, phases, times), min_size=1, max_size=8))
def test_sums_of_compute_and_bytes_survive_reading_and_placing(rows):
    lines, compute, sizes = [], 0.0, {}
    for k, (*three, update) in enumerate(rows):
        words = [f"layer{k}", "-1"]
        for time, kind, size in three:
            nbytes = 0 if kind == "NONE" else size
            words += [repr(time), kind, repr(nbytes)]
            compute += time
            if nbytes:
                sizes[KINDS[kind]] = sizes.get(KINDS[kind], 0.0) + nbytes
        lines.append(" ".join([*words, repr(update)]))
        compute += update
    text = f"{HEADER}{len(lines)}\n" + "\n".join(lines)
    layers, notes = place_text_workload(parse_text_workload(text), NET, None)
    graph = build_graph(layers, TrainingLoop(), note=notes)
    assert notes == ()
    assert graph.total_fixed == pytest.approx(compute * 1e-9, rel=1e-12)
    found = {}
    for c, count in zip(graph.collectives, graph.total_counts, strict=True):
        found[c.kind] = found.get(c.kind, 0.0) + text_size(c) * count
    assert found.keys() == sizes.keys()
    assert all(math.isclose(found[kind], sizes[kind], rel_tol=1e-12) for kind in sizes)
