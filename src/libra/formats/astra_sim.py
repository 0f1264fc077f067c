"""ASTRA-sim 1.0 text workloads.

Two header lines (a policy word with parameters; the number of layers), or none, then per layer::

    name -1 fwd_ns fwd_comm fwd_bytes ig_ns ig_comm ig_bytes wg_ns wg_comm wg_bytes update_ns

and a 13th column with a policy for the layer under ``HYBRID_CUSTOMIZED``. ig: input gradient, wg:
weight gradient. Times are in ns. Sizes in bytes: of an all-reduce, reduce-scatter or all-to-all the
full buffer; of an **all-gather the shard before gathering** (libra counts the gathered buffer).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra.collectives import CollectiveKind
from libra.errors import ProblemList, nearest, shown

__all__ = ["POLICIES", "TextLayer", "TextPhase", "TextWorkload", "parse_text_workload"]

MAX_BYTES = 10_000_000
MOST_PROBLEMS = 100
"""Lines after so many problems are not read."""

KINDS: Mapping[str, CollectiveKind | None] = {
    "NONE": None,
    "ALLREDUCE": CollectiveKind.ALL_REDUCE,
    "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
    "ALLGATHER": CollectiveKind.ALL_GATHER,
    "ALLTOALL": CollectiveKind.ALL_TO_ALL,
}

_TRANSFORMER = ("tp", "tp", "dp")
POLICIES: Mapping[str, tuple[str, str, str]] = {
    "DATA": ("none", "none", "all"),
    "MICRO": ("none", "none", "all"),
    "MODEL": ("all", "all", "none"),
    "DISTRIBUTED_INFERENCE": ("all", "all", "none"),
    "HYBRID_DATA_MODEL": ("first", "first", "others"),
    "HYBRID_MODEL_DATA": ("others", "others", "first"),
    "HYBRID_TRANSFORMER": _TRANSFORMER,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _TRANSFORMER,
    "HYBRID_DLRM": ("none", "none", "all"),
    "HYBRID_DLRM_ENHANCED": ("none", "none", "all"),
}
"""Scope of the forward, input-gradient and weight-gradient collectives of each policy.

``all`` dimensions, the ``first`` or the ``others``, the ``tp`` or ``dp`` group, or ``none``. Layer
0 of a DLRM policy, the embedding, is the exception: see `libra.formats.astra_sim_policy`.
"""
CUSTOMIZED = "HYBRID_CUSTOMIZED"
_RECOMPUTING = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "HYBRID_TRANSFORMER": ("model_parallel_NPU_group",),
    _RECOMPUTING: ("model_parallel_NPU_group", "checkpoints", "checkpoint_initiates"),
    "HYBRID_DLRM": ("DLRM_LAST_BOTTOM_LAYER",),
    "HYBRID_DLRM_ENHANCED": ("DLRM_LAST_BOTTOM_LAYER",),
}
Row = tuple[int, list[str]]
"""Line number, from 1, and words of a line."""
PHASES = ("forward", "input gradient", "weight gradient")


@dataclass(frozen=True)
class TextPhase:
    """Compute [s], collective (None: none) and size [bytes] as the file gives them."""

    compute: float
    kind: CollectiveKind | None
    size: float


@dataclass(frozen=True)
class TextLayer:
    """One layer line; `policy` is its 13th column or empty."""

    name: str
    phases: tuple[TextPhase, TextPhase, TextPhase]
    update: float
    policy: str = ""


@dataclass(frozen=True)
class TextWorkload:
    """A text workload as read, not yet placed on a network.

    Attributes
    ----------
    layers : tuple of TextLayer
        In forward order.
    policy : str
        The policy word, empty if the file has no header.
    tensor_parallel : int or None
        ``model_parallel_NPU_group``.
    recomputed : frozenset of int
        Layers whose forward pass runs again in the backward pass.
    last_bottom : int
        ``DLRM_LAST_BOTTOM_LAYER``; -1: none.
    file : str
        Where it was read from.
    """

    layers: tuple[TextLayer, ...]
    policy: str = ""
    tensor_parallel: int | None = None
    recomputed: frozenset[int] = frozenset()
    last_bottom: int = -1
    file: str = ""


def parse_text_workload(text: str, file: str = "") -> TextWorkload:
    """Read an ASTRA-sim 1.0 text workload.

    Parameters
    ----------
    text : str
        What the file holds.
    file : str
        What messages call it.

    Raises
    ------
    InputError
        With every line that is wrong.
    """
    problems = ProblemList(file)
    rows = [(k, line.split()) for k, line in enumerate(text.split("\n"), 1) if line.strip()]
    workload = _read_rows(rows, problems)
    problems.raise_if_any()
    return workload


def _read_rows(rows: list[Row], problems: ProblemList) -> TextWorkload:
    workload = TextWorkload((), file=problems.file)
    if rows and not _is_layer(rows[0][1]):
        workload, rows = _read_header(rows, problems)
    layers = []
    for line, words in rows:
        if len(problems.problems) >= MOST_PROBLEMS:
            problems.add(
                f"too many problems, got {MOST_PROBLEMS}. Correct these; the rest was not read.",
                line=line,
            )
            break
        layer = _read_layer(words, line, problems)
        if layer is not None:
            _check_policy(workload.policy, layer.policy, line, problems)
            layers.append(layer)
    if not rows and not problems.problems:
        problems.add("the workload is empty, got no layer. Add a line for each layer.")
    policies = {bool(layer.policy) for layer in layers}
    if not workload.policy and len(policies) > 1:
        problems.add(
            "some layers have a policy in a 13th column and others none, got both. "
            "Give every layer one, or none.",
            "policy",
            rows[0][0],
        )
    return replace(workload, layers=tuple(layers))


def _is_layer(words: list[str]) -> bool:
    """Whether a first line is a layer and not a policy with its parameters."""
    known = words[0] in POLICIES or words[0] == CUSTOMIZED
    return not known and len(words) > 3 and not any(":" in word for word in words[1:])


def _read_header(rows: list[Row], problems: ProblemList) -> tuple[TextWorkload, list[Row]]:
    """Workload with what the header says, and the rows that follow it."""
    line, words = rows[0]
    policy = words[0]
    if policy not in POLICIES and policy != CUSTOMIZED:
        problems.add(
            f"unknown policy, got {shown(policy)}. {nearest(policy, [*POLICIES, CUSTOMIZED])}",
            "policy",
            line,
        )
    count, layers = _read_count(rows, problems)
    workload = TextWorkload((), policy, file=problems.file)
    values = _read_parameters(words[1:], policy, line, problems)
    if values is not None and "model_parallel_NPU_group" in _PARAMETERS.get(policy, ()):
        workload = _read_transformer(workload, values, count, line, problems)
    if values is not None and "DLRM_LAST_BOTTOM_LAYER" in values:
        workload = _read_dlrm(workload, values, count, line, problems)
    return workload, layers


def _read_count(rows: list[Row], problems: ProblemList) -> tuple[int, list[Row]]:
    """Number of layers by the header's second line, and the rows of the layers."""
    line, words = rows[1] if len(rows) > 1 else rows[0]
    given = " ".join(words[:12]) if len(rows) > 1 else None
    if given is None or not re.fullmatch("[0-9]{1,9}", given):
        problems.add(
            f"the second line is the number of layers, got {shown(given)}. Write it there.",
            "layers",
            line,
        )
        layers = rows[1:] if len(words) > 3 else rows[2:]
        return len(layers), layers if len(rows) > 1 else []
    count, layers = int(given), rows[2:]
    if count != len(layers):
        problems.add(
            f"the header says {count} layers but {len(layers)} follow, got {count}. Correct it.",
            "layers",
            line,
        )
    return count, layers


def _read_parameters(
    words: list[str], policy: str, line: int, problems: ProblemList
) -> dict[str, list[int]] | None:
    """``name: number …`` pairs of the first header line; None after noting what is wrong."""
    values: dict[str, list[int]] = {}
    name = ""
    known = _PARAMETERS.get(policy, ())
    for word in " ".join(words).replace(":", ": ").split():
        if name and re.fullmatch("[0-9]{1,9}", word):
            values[name].append(int(word))
            continue
        name = word.rstrip(":")
        if name in known and name not in values:
            values[name] = []
            continue
        if policy in POLICIES or policy == CUSTOMIZED:
            what = "the parameter stands twice" if name in values else "unknown parameter"
            advice = nearest(name, known) if known else f"{policy} takes none."
            advice = "Remove one." if name in values else advice
            problems.add(f"{what}, got {shown(word)}. {advice}", policy, line)
        return None
    return values


def _read_transformer(
    workload: TextWorkload,
    values: dict[str, list[int]],
    count: int,
    line: int,
    problems: ProblemList,
) -> TextWorkload:
    group = values.get("model_parallel_NPU_group", [])
    if len(group) != 1 or group[0] < 1:
        problems.add(
            f"needs one group size of at least 1, got {shown(group)}. "
            "Write e.g. 'model_parallel_NPU_group: 16'.",
            "model_parallel_NPU_group",
            line,
        )
        return workload
    recomputed: frozenset[int] = frozenset()
    if workload.policy == _RECOMPUTING:
        recomputed = _read_checkpoints(values, count, line, problems)
    return replace(workload, tensor_parallel=group[0], recomputed=recomputed)


def _read_dlrm(
    workload: TextWorkload,
    values: dict[str, list[int]],
    count: int,
    line: int,
    problems: ProblemList,
) -> TextWorkload:
    last = values["DLRM_LAST_BOTTOM_LAYER"]
    if len(last) != 1 or last[0] >= count:
        problems.add(
            f"needs one layer index below {count}, got {shown(last)}. "
            "Write e.g. 'DLRM_LAST_BOTTOM_LAYER: 7'.",
            "DLRM_LAST_BOTTOM_LAYER",
            line,
        )
        return workload
    return replace(workload, last_bottom=last[0])


def _read_checkpoints(
    values: dict[str, list[int]], count: int, line: int, problems: ProblemList
) -> frozenset[int]:
    """Layers to recompute: from the last checkpoint at or before each initiating layer to it."""
    lists = []
    for name in ("checkpoints", "checkpoint_initiates"):
        given = values.get(name, [])
        if not given or len(given) != given[0] + 1 or any(v >= count for v in given[1:]):
            problems.add(
                f"needs a count and as many layer indices below {count}, got {shown(given)}. "
                f"Write e.g. '{name}: 2 0 9'.",
                name,
                line,
            )
            return frozenset()
        lists.append(given[1:])
    checkpoints, initiates = lists
    layers: set[int] = set()
    for end in initiates:
        starts = [c for c in checkpoints if c <= end]
        if not starts:
            problems.add(
                f"no checkpoint lies at or before layer {end}, got {shown(checkpoints)}. Add one.",
                "checkpoint_initiates",
                line,
            )
            return frozenset()
        layers.update(range(max(starts), end + 1))
    return frozenset(layers)


def _read_layer(words: list[str], line: int, problems: ProblemList) -> TextLayer | None:
    name = words[0][:40]
    if len(words) not in (12, 13):
        problems.add(
            f"a layer has 12 columns, or 13 with a policy, got {len(words)}. "
            "Write: name -1 then (ns, collective, bytes) of forward, input gradient and weight "
            "gradient, then the update's ns.",
            name,
            line,
        )
        return None
    before = len(problems.problems)
    if not _WHOLE.fullmatch(words[1]):
        problems.add(
            f"column 2 is a whole number (-1), got {shown(words[1])}. Write -1.", name, line
        )
    phases = []
    for k, label in enumerate(PHASES):
        time, word, size = words[2 + 3 * k : 5 + 3 * k]
        path = f"{name}.{label}"
        compute = _physical(time, "time", f"{path}.time", line, problems) * 1e-9
        nbytes = _physical(size, "size", f"{path}.size", line, problems)
        if word not in KINDS:
            problems.add(
                f"unknown collective, got {shown(word)}. {nearest(word, KINDS)}", path, line
            )
        elif KINDS[word] is None and nbytes > 0:
            problems.add(
                f"NONE sends nothing, yet has a size, got {size}. Name the collective or write 0.",
                path,
                line,
            )
        phases.append(TextPhase(compute, KINDS.get(word), nbytes))
    update = _physical(words[11], "time", f"{name}.update.time", line, problems) * 1e-9
    if len(problems.problems) > before:
        return None
    return TextLayer(
        name, (phases[0], phases[1], phases[2]), update, words[12] if len(words) == 13 else ""
    )


_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_UNITS = {"time": "ns", "size": "bytes"}
_LEAST, _MOST = 1e-3, 1e18


def _physical(word: str, what: str, path: str, line: int, problems: ProblemList) -> float:
    value = float(word) if _NUMBER.fullmatch(word) else -1.0
    if value == 0 or _LEAST <= value <= _MOST:
        return value
    problems.add(
        f"a {what} in {_UNITS[what]} is 0 or a number from {_LEAST:g} to {_MOST:g}, got "
        f"{shown(word)}. Correct it.",
        path,
        line,
    )
    return 0.0


def _check_policy(header: str, layer: str, line: int, problems: ProblemList) -> None:
    valid = [p for p in POLICIES if not p.startswith(("HYBRID_TRANSFORMER", "HYBRID_DLRM"))]
    if header == CUSTOMIZED or (layer and not header):
        if layer not in valid:
            problems.add(
                f"the 13th column is the layer's policy, got {shown(layer or None)}. "
                f"{nearest(layer, valid)}",
                "policy",
                line,
            )
    elif layer and layer != header:
        problems.add(
            f"the layer's policy and the header's {header} disagree, got {shown(layer)}. "
            f"Remove the column, or write {CUSTOMIZED} in the header.",
            "policy",
            line,
        )
