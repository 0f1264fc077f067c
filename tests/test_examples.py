"""The examples that ship: derived again to the byte, and solved."""

import pytest

import libra
from libra.collectives import CollectiveKind
from libra.presets import example_folder
from libra.yaml_source import Override

EXAMPLES = sorted(example_folder().glob("*.yaml"))


def test_the_tool_writes_the_files_that_ship(tool, tmp_path):
    tool.main([str(tmp_path)])
    shipped = {p.name: p.read_bytes() for p in (example_folder() / "workloads").iterdir()}
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == shipped
    assert tool.DEFAULT_DIRECTORY.resolve() == (example_folder() / "workloads").resolve()


def test_there_are_examples_for_each_workload():
    workloads = {p.stem for p in (example_folder() / "workloads").iterdir()}
    assert {p.stem for p in EXAMPLES} == {f"{w}-{dims}" for w in workloads for dims in ("3d", "4d")}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_have_a_proven_optimum(path):
    design = libra.load_design(path)
    assert design.network.npus == 4096
    assert design.warnings == ()
    result = libra.optimize_design(design)
    assert 0 <= result.gap <= 1e-6
    assert result.speedup > 1.0
    assert all(p.met for p in result.shadow_prices)
    assert result.bandwidth.sum() == pytest.approx(1e12, rel=1e-9)


@pytest.mark.parametrize("objective", ["time", "time-cost"])
@pytest.mark.parametrize("algorithm", ["balanced", "ideal"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_have_one_whatever_the_order_of_chunks(path, algorithm, objective):
    """Forms of several dimensions, in designs where compute is most of the step."""
    overrides = [("collectives.algorithm", algorithm), ("objective", objective)]
    overrides.append(("constraints", '["total == 1000 GB/s"]'))
    result = libra.optimize_design(
        libra.load_design(path, [Override(key, value) for key, value in overrides])
    )
    assert 0 <= result.gap <= (1e-6 if objective == "time" else 1e-5)
    again = libra.evaluate_design(result.design, result.bandwidth)
    assert again.objective_value == pytest.approx(result.objective_value, rel=1e-12)


def sizes(name, role):
    """Bytes of the distinct all-reduces of a role, and how often each runs."""
    graph = libra.load_design(example_folder() / f"{name}.yaml").workloads[0].graph
    return {
        c.size: n
        for c, n in zip(graph.collectives, graph.total_counts, strict=True)
        if c.group.name == role and c.kind is CollectiveKind.ALL_REDUCE
    }


@pytest.mark.parametrize("dims", ["3d", "4d"])
@pytest.mark.parametrize(
    ("name", "activation", "tensor_parallel", "layers", "gradient"),
    [
        # 2 bytes x 16 sequences x 2,048 tokens x 12,288 wide, 96 layers (Brown et al. 2020)
        ("gpt-3", 2 * 16 * 2048 * 12288, 16, 96, 2 * 12 * 12288**2 // 16),
        # 2 bytes x 8 x 2,048 x 24,576, 128 layers
        ("msft-1t", 2 * 8 * 2048 * 24576, 128, 128, 2 * 12 * 24576**2 // 128),
    ],
)
def test_transformers_send_what_their_shapes_say(
    name, activation, tensor_parallel, layers, gradient, dims
):
    assert sizes(f"{name}-{dims}", "tp") == {activation: 4 * layers}
    reduced = sizes(f"{name}-{dims}", "dp")
    assert sum(size * n for size, n in reduced.items()) == layers * gradient
    assert tensor_parallel * sum(s * n for s, n in reduced.items()) > 2 * 1.7e11


@pytest.mark.parametrize(
    ("name", "parameters"),
    # docs/workloads.md: weights of Turing-NLG, ResNet-50 and both of DLRM's perceptrons
    [("turing-nlg", 78 * 12 * 4256**2), ("resnet-50", 25_502_912), ("dlrm", 57_411_584)],
)
def test_data_parallel_workloads_reduce_each_parameter_once(name, parameters):
    reduced = [sizes(f"{name}-4d", role) for role in ("all", "dp")]
    assert sum(size * n for group in reduced for size, n in group.items()) == 2 * parameters


def test_dlrm_exchanges_its_embeddings_twice():
    graph = libra.load_design(example_folder() / "dlrm-4d.yaml").workloads[0].graph
    (found,) = [
        (c.size, n)
        for c, n in zip(graph.collectives, graph.total_counts, strict=True)
        if c.kind is CollectiveKind.ALL_TO_ALL
    ]
    assert found == (2 * 512 * 64 * 64, 2)
