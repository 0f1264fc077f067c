"""Rows of a table of measured training steps → model, plan, accelerator and cluster.

A row says what ran by its columns: sizes of the model, degrees, batch, recomputation, precision,
GPU. What the software of a set of rows did (`SOFTWARE`) is assumed, see docs/validation.md. The
network is the GPU's preset cluster, or that of the system if one is known (`CLUSTERS`); where a
row's notes print another bandwidth between nodes, it is that.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from libra.accelerators import load_accelerator, load_cluster
from libra.cluster import Cluster
from libra.errors import FieldError, InputError, Problem, shown
from libra.files import read_text
from libra.models import load_model
from libra.workload.activations import ActivationPlan, Recomputation
from libra.workload.blocks import Attention, Block, FeedForward
from libra.workload.compute import Accelerator
from libra.workload.memory import (
    DEEPSPEED_BF16,
    DEEPSPEED_FP16,
    FP32,
    MEGATRON_MIXED,
    MemoryPlan,
    StateBytes,
)
from libra.workload.model import LayerKind, Model, OuterLayer, Run
from libra.workload.operators import Precision
from libra.workload.training_plan import Overlap, TokenDispatch, TrainingPlan

__all__ = ["Software", "TrainingRow", "read_training_rows", "row_seconds", "split_rows"]

MOST_BYTES = 100_000_000
NEEDED = ("id", "set", "gpu", "gpus", "layers", "hidden", "heads", "seq", "global_batch")
ACCELERATORS = {
    "A100-SXM-80GB": "a100-80gb",
    "A100-SXM-40GB": "a100-40gb",
    "H100-SXM-80GB": "h100",
    "H200": "h200",
    "B200": "b200",
    "GB200": "gb200",
    "GB300": "gb300",
}
CLUSTERS = {"bloom-jz": "jean-zay-a100"}
"""Preset clusters of sets whose system was measured on its own; of others the GPU's."""
_NONE = Overlap(dp=False, zero=False, pp=False, cp=False)


@dataclass(frozen=True)
class Software:
    """What the training software of a set of rows did.

    Attributes
    ----------
    fused_attention, dropout : bool
        See `libra.workload.activations.ActivationPlan`.
    states : StateBytes
    gradient : float
        Of a gradient on the network [bytes].
    overlap : Overlap
    fused_accumulation : bool
        See `libra.workload.training_plan.TrainingPlan`.
    about : str
        What it was and where that stands.
    """

    fused_attention: bool
    dropout: bool
    states: StateBytes
    gradient: float
    overlap: Overlap
    fused_accumulation: bool
    about: str


_MEGATRON_2021 = Software(
    False, True, DEEPSPEED_FP16, 2.0, _NONE, False,
    "Megatron-LM of 2021: no fused attention, 16-bit gradients summed up by a kernel of their own, "
    "nothing overlaps but the gradients of rows without pipeline (run_table_1.sh: --fp16 without "
    "--accumulate-allreduce-grads-in-fp32, --DDP-impl torch where pp is 1, else local)",
)  # fmt: skip
_MEGATRON_2022 = replace(
    _MEGATRON_2021,
    states=MEGATRON_MIXED,
    gradient=4.0,
    fused_accumulation=True,
    about="Megatron-LM of 2022: no fused attention, 32-bit gradients (18 bytes a parameter, "
    "Korthikanti et al. 2022, figure 1) summed up by the product that gives them. The backward "
    "pass's tensor-parallel collectives overlap by default (github NVIDIA/Megatron-LM @55ba1f7b96: "
    "megatron/arguments.py and mpu/layers.py), but the measured steps show no gain from it: none "
    "is assumed",
)
_DEEPSPEED = replace(
    _MEGATRON_2021,
    about="Megatron-DeepSpeed: no fused attention, 16-bit gradients, nothing overlaps (github "
    "bigscience-workshop/Megatron-DeepSpeed @ae6277f5, microsoft/DeepSpeed @2151c787a: default of "
    "overlap_comm, messages of a pipeline split over tensor parallelism)",
)
_FSDP = Software(
    True, False, FP32, 4.0, Overlap(), False,
    "PyTorch FSDP with FlashAttention, prefetching; 32-bit weights, 16-bit copies (github "
    "mosaicml/llm-foundry @8c8dd48 scripts/train/benchmarking/sweep.py)",
)  # fmt: skip
_MEGATRON_CORE = Software(
    True, False, MEGATRON_MIXED, 4.0, Overlap(), True,
    "Megatron-Core: fused attention, 32-bit gradients, overlapped but for tensor and expert "
    "parallelism (its options tp-comm-overlap and overlap-moe-expert-parallel-comm are off unless "
    "a row's notes say otherwise)",
)  # fmt: skip
SOFTWARE: Mapping[str, Software] = {
    "megatron-2020": _MEGATRON_2021,
    "megatron-sc21-table1": _MEGATRON_2021,
    "mt-nlg": _DEEPSPEED,
    "sc21-table2": replace(
        _DEEPSPEED, overlap=replace(_NONE, zero=True, dp=True),
        about="DeepSpeed ZeRO-3, prefetching (default of overlap_comm there)",
    ),
    "korthikanti-2022-table5": _MEGATRON_2022,
    "vtrain-multi": replace(_DEEPSPEED, about="Megatron-DeepSpeed, not overlapped"),
    "bloom-jz": _DEEPSPEED,
    "nemo-launcher-a100": _MEGATRON_2022,
    "llm-foundry": _FSDP,
    "simumax-b200": replace(
        _MEGATRON_CORE, overlap=_NONE, about="Megatron-Core, overlap turned off"
    ),
    "moe-modelzoo": _MEGATRON_CORE,
}  # fmt: skip


@dataclass(frozen=True)
class TrainingRow:
    """A measured training step and the design that it maps to.

    Attributes
    ----------
    id, set, tier : str
        Of the row.
    seconds : float
        Measured time of a step [s].
    model : Model
    plan : TrainingPlan
    accelerator : Accelerator
    cluster : Cluster
    gpus : int
        NPUs.
    peak_memory : float or None
        Measured peak of an NPU's memory [bytes].
    columns : mapping of str to str
        The row as it is.
    """

    id: str
    set: str
    tier: str
    seconds: float
    model: Model
    plan: TrainingPlan
    accelerator: Accelerator
    cluster: Cluster
    gpus: int
    peak_memory: float | None
    columns: Mapping[str, str]


@dataclass(frozen=True)
class SkippedRow:
    """A row that maps to no design, and why."""

    id: str
    set: str
    tier: str
    reason: str


def read_training_rows(
    path: Path, software: Mapping[str, Software] = SOFTWARE
) -> tuple[list[TrainingRow], list[SkippedRow]]:
    """Rows of a CSV file of measured training steps that map to a design, and the others.

    Parameters
    ----------
    path : Path
    software : mapping of str to Software
        What the software of each set did.

    Raises
    ------
    InputError
        The file cannot be read or lacks a column.
    """
    try:
        text = read_text(Path(path), MOST_BYTES)
    except ValueError as error:
        raise InputError(Problem(str(error), file=str(path))) from None
    reader = csv.DictReader(io.StringIO(text))
    columns = reader.fieldnames or []
    for name in NEEDED:
        if name not in columns:
            raise InputError(
                Problem(
                    f"needs a column {name}, got {shown(', '.join(columns))}. Add it.",
                    file=str(path),
                    line=1,
                )
            )
    rows: list[TrainingRow] = []
    skipped: list[SkippedRow] = []
    for raw in reader:
        values = {k: (v or "").strip() for k, v in raw.items() if k is not None}
        try:
            rows.append(map_row(values, software))
        except (FieldError, ValueError) as error:
            reason = error.message if isinstance(error, FieldError) else str(error)
            where = getattr(error, "field_name", "")
            reason = f"{where}: {reason}" if where else reason
            skipped.append(SkippedRow(values["id"], values["set"], values.get("tier", ""), reason))
    return rows, skipped


def split_rows(
    rows: Sequence[TrainingRow], seed: int = 0
) -> tuple[list[TrainingRow], list[TrainingRow]]:
    """Two halves: of each two rows of a set that follow each other, either gets one.

    Neighbours in a table are alike, so that each half has all models and layouts.
    """
    generator = np.random.default_rng(seed)
    halves: tuple[list[TrainingRow], list[TrainingRow]] = ([], [])
    for name in sorted({row.set for row in rows}):
        mine = [row for row in rows if row.set == name]
        for k in range(0, len(mine), 2):
            first = int(generator.integers(2))
            pair = mine[k : k + 2]
            if len(pair) == 1:
                halves[1 - first].append(pair[0])
            else:
                halves[0].append(pair[first])
                halves[1].append(pair[1 - first])
    return halves


def row_seconds(values: Mapping[str, str]) -> float:
    """Measured time of a step [s], of the column that tells it; 0 if none does."""
    if values.get("seconds_per_iteration"):
        return _positive(values, "seconds_per_iteration")
    if values.get("tokens_per_s_per_gpu"):
        tokens = _whole(values, "global_batch") * _whole(values, "seq")
        return tokens / _positive(values, "tokens_per_s_per_gpu") / _whole(values, "gpus")
    return 0.0


def _positive(values: Mapping[str, str], key: str) -> float:
    """Number of a column."""
    try:
        value = float(values[key])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise FieldError(key, f"must be a number above 0, got {shown(values[key])}. Correct it.")
    return value


def _whole(values: Mapping[str, str], key: str, default: int | None = None, least: int = 1) -> int:
    """Whole number of a column; the default where it is empty."""
    text = values.get(key, "")
    if not text:
        if default is None:
            raise ValueError(f"no {key}")
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value.is_integer() and value >= least):
        raise FieldError(
            key, f"must be a whole number of at least {least}, got {shown(text)}. Correct it."
        )
    return int(value)


def map_row(values: Mapping[str, str], known: Mapping[str, Software] = SOFTWARE) -> TrainingRow:
    """Design of a row.

    Raises
    ------
    FieldError, ValueError
        The reason why there is none.
    """
    seconds = row_seconds(values)
    if values.get("tier") == "C":
        raise ValueError("too little is known of it (tier C)")
    if not seconds:
        raise ValueError("no time: neither seconds_per_iteration nor tokens_per_s_per_gpu")
    accelerator = _accelerator(values)
    software = known.get(values["set"])
    if software is None:
        raise ValueError("not known what the software of this set overlaps and fuses")
    model = row_model(values)
    plan = _plan(values, software, model)
    assert accelerator.cluster is not None
    return TrainingRow(
        values["id"],
        values["set"],
        values.get("tier", ""),
        seconds,
        model,
        plan,
        accelerator,
        _cluster(values, accelerator.cluster),
        _whole(values, "gpus"),
        _positive(values, "peak_mem_gib") * 2**30 if values.get("peak_mem_gib") else None,
        values,
    )


def _accelerator(values: Mapping[str, str]) -> Accelerator:
    word = values["gpu"].split(" (")[0]
    if word.startswith("TPU"):
        raise ValueError("the efficiencies of a TPU's preset are bounds that nobody measured")
    if word not in ACCELERATORS:
        raise ValueError(f"no preset for the GPU, got {word!r}")
    accelerator = load_accelerator(ACCELERATORS[word])
    if values["set"] in CLUSTERS:
        accelerator = replace(accelerator, cluster=load_cluster(CLUSTERS[values["set"]]))
    elif "(DGX-A100)" in values["gpu"]:  # the 40 GB card's preset cluster is a cloud's
        accelerator = replace(accelerator, cluster=load_cluster("dgx-a100"))
    return accelerator


_SPEEDS = (
    (r"(\d+)x [\w-]+ (\d+) Gb/s per node", 1.0),
    (r"\((\d+) Gb/s\) per node", 1.0),
    (r"with (\d+) Gbps node-node", 1.0),
)


def _cluster(values: Mapping[str, str], cluster: Cluster) -> Cluster:
    """Cluster of a preset, with the bandwidth between nodes that a row's notes print."""
    for pattern, _ in _SPEEDS:
        match = re.search(pattern, values.get("notes", ""))
        if match is not None and len(cluster.dimensions) > 1:
            total = 1.0
            for number in match.groups():
                total *= float(number)
            per_gpu = total * 1e9 / 8 / cluster.dimensions[0].size
            return replace(cluster, bandwidth=(*cluster.bandwidth[:-1], per_gpu))
    return cluster


def row_model(values: Mapping[str, str]) -> Model:
    """Model of a row's columns; of a family with parts that no column tells, a preset cut to size.

    Raises
    ------
    ValueError
        The family is not known.
    """
    name = values["model"].lower()
    layers = _whole(values, "layers")
    presets = {
        "deepseekv2": "deepseek-v2",
        "deepseekv3": "deepseek-v3",
        "qwen3-235b": "qwen3-235b-a22b",
        "llama3-70b": "llama-3-70b",
        "llama3-405b": "llama-3.1-405b",
    }
    for word, preset in presets.items():
        if name.startswith(word):
            return shorten_model(load_model(preset), layers)
    hidden, heads = _whole(values, "hidden"), _whole(values, "heads")
    ffn, vocabulary = _whole(values, "ffn", 4 * hidden), _whole(values, "vocab")
    bert = name.startswith("bert")
    if not name.startswith(("gpt", "bloom", "mpt", "mt-nlg", "bert")):
        raise ValueError(f"a family of models that is not known, got {values['model']!r}")
    mpt = name.startswith("mpt")
    attention = Attention(
        heads, heads, hidden // heads, hidden // heads,
        query_bias=not mpt, key_bias=not mpt, value_bias=not mpt, output_bias=not mpt,
        causal=not bert,
    )  # fmt: skip
    block = Block(attention, FeedForward(ffn, gated=False, bias=not mpt))
    table = OuterLayer("position embedding", LayerKind.TABLE, _whole(values, "seq"), hidden)
    alibi = name.startswith("bloom")
    norm = OuterLayer("final norm", LayerKind.VECTOR, 2, hidden)
    return Model(
        values["model"], hidden, vocabulary, (Run(block, layers),), norm_bias=True, tied=True,
        before=() if alibi else (table,), after=(norm,),
    )  # fmt: skip


def shorten_model(model: Model, layers: int) -> Model:
    """Model with fewer blocks; of dense blocks before experts it keeps one."""
    if layers >= model.layers:
        return model
    runs, left = [], layers
    for k, run in enumerate(model.runs):
        count = min(run.count, left)
        if k < len(model.runs) - 1 and k == 0 and run.block.experts is None:
            count = min(count, 1)
        if count:
            runs.append(Run(run.block, count))
        left -= count
    return replace(model, runs=tuple(runs))


def _plan(values: Mapping[str, str], software: Software, model: Model) -> TrainingPlan:
    tp, pp, cp = (_whole(values, key, 1) for key in ("tp", "pp", "cp"))
    micro, batch = _whole(values, "micro_batch"), _whole(values, "global_batch")
    gpus = _whole(values, "gpus")
    dp = gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus:
        raise ValueError(f"{gpus} GPUs are not a multiple of tp {tp} x pp {pp} x cp {cp}")
    if batch % (dp * micro):
        raise ValueError(
            f"a batch of {batch} does not divide into {dp} replicas with micro-batches of {micro}"
        )
    word = values.get("recompute", "").split(" ")[0].split(",")[0]
    try:
        recomputation = Recomputation(word)
    except ValueError:
        raise ValueError(f"recomputation is not known, got {word!r}") from None
    zero, precision = _whole(values, "zero_stage", 0, 0), Precision(values["precision"])
    states, gradient = software.states, software.gradient
    if values["set"] == "bloom-jz" and precision is Precision.BF16:
        states, gradient = DEEPSPEED_BF16, 4.0
    overlap = software.overlap
    if values["set"] == "megatron-sc21-table1" and pp == 1:
        overlap = replace(overlap, dp=True)
    notes = values.get("notes", "")
    if "(PURE)" in notes:
        gradient = 2.0
    if "all-to-all overlap" in notes:
        overlap = replace(overlap, ep=True)
    once = "DeepEP" in notes or "HybridEP" in notes
    run = ActivationPlan(
        micro, _whole(values, "seq"), tp=tp, cp=cp,
        sequence_parallel=values.get("sequence_parallel") == "1" and tp > 1,
        recomputation=recomputation, fused_attention=software.fused_attention,
        dropout=software.dropout,
    )  # fmt: skip
    virtual = _whole(values, "vpp", 1)
    memory = MemoryPlan(
        run, pp=pp, virtual_stages=virtual, dp=dp, ep=_whole(values, "ep", 1),
        micro_batches=batch // (dp * micro), zero=zero, states=states,
        chunks=_chunks(model.layers, pp * virtual),
    )  # fmt: skip
    return TrainingPlan(
        memory,
        precision,
        gradient=gradient,
        overlap=overlap,
        fused_accumulation=software.fused_accumulation,
        bucket=_BUCKET,
        dispatch=TokenDispatch.DEDUPLICATED if once else TokenDispatch.ALL_TO_ALL,
    )


_BUCKET = 100e6
"""About 25 to 50 million parameters, as DDP and FSDP of a block have it [bytes]."""


def _chunks(layers: int, parts: int) -> tuple[int, ...]:
    """Blocks of each part: equal; embedding and head one each; or as many as fit, the last short.

    The second is the partition of Megatron-DeepSpeed by ``type:transformer|embedding``, the third
    its partition without: 78 blocks on 12 stages are 11 times 7 and 1 (github
    bigscience-workshop/bigscience @9e64ede train/tr11-176B-ml/chronicles-prequel.md, Re-do).
    """
    if layers % parts == 0:
        return ()
    if (layers + 2) % parts == 0 and parts > 1:
        each = (layers + 2) // parts
        return (each - 1, *(each,) * (parts - 2), each - 1)
    each = -(-layers // parts)
    return tuple(min(each, max(layers - k * each, 0)) for k in range(parts))
