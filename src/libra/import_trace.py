"""Other tools' files → a design file that names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from libra.errors import InputError
from libra.files import read_text, write_whole
from libra.formats.chakra_files import is_chakra, trace_name
from libra.network import Topology, parse_shape
from libra.presets import load_presets

__all__ = ["ImportOptions", "import_trace"]

_MOST_CONFIGURATION = 1_000_000
_ASTRA_SIM = {
    "Ring": Topology.RING,
    "FullyConnected": Topology.FULLY_CONNECTED,
    "Switch": Topology.SWITCH,
}


@dataclass(frozen=True)
class ImportOptions:
    """What a trace does not say.

    Attributes
    ----------
    network : str
        Shape (``RI(4)_SW(8)``), name of a network preset, or an ASTRA-sim ``network.yml``.
    tiers : tuple of str
        Tier of each dimension of a shape or file.
    comm_groups : Path or None
        Members of the process groups.
    durations, peak, memory : str
        As in ``chakra:`` of a design; empty: not said.
    parallel : tuple of (str, int)
        Degrees, for a text workload.
    """

    network: str = ""
    tiers: tuple[str, ...] = ()
    comm_groups: Path | None = None
    durations: str = ""
    peak: str = ""
    memory: str = ""
    parallel: tuple[tuple[str, int], ...] = ()


def import_trace(trace: Path, target: Path, options: ImportOptions) -> None:
    """Write a design for a trace.

    Parameters
    ----------
    trace : Path
        A Chakra trace, ``NAME.*.et`` for one an NPU, or an ASTRA-sim 1.0 text workload.
    target : Path
        The design file.
    options : ImportOptions

    Raises
    ------
    InputError
        If there is no network, or the file exists or cannot be written.
    """
    if target.exists():
        raise InputError(f"{target}: is there already, got a file. Choose another name.")
    folder = target.parent
    entry: dict[str, Any] = {"name": trace_name(str(trace)), "trace": _relative(trace, folder)}
    chakra: dict[str, Any] = {}
    if options.comm_groups is not None:
        chakra["comm_groups"] = _relative(options.comm_groups, folder)
    for key in ("durations", "peak", "memory"):
        if getattr(options, key):
            chakra[key] = getattr(options, key)
    if chakra:
        if not is_chakra(trace):
            raise InputError(
                f"{trace}: --comm-groups, --durations, --peak and --memory are for Chakra traces, "
                "got a text workload. Leave them out."
            )
        entry["chakra"] = chakra
    if options.parallel:
        entry["parallel"] = dict(options.parallel)
    data = {"network": _network(options), "workloads": [entry]}
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=100)
    text += (
        "# Say what limits the bandwidths, for example:\n# constraints:\n#   - total <= 1000 GB/s\n"
    )
    write_whole(target, f"# Imported from {trace.name}.\n{text}", make_folder=True)


def _relative(path: Path, folder: Path) -> str:
    """Path as a design in a folder names it."""
    return Path(os.path.relpath(path, str(folder))).as_posix()


def _network(options: ImportOptions) -> Any:
    given = options.network
    if not given:
        raise InputError(
            "--network: a trace does not say the network it runs on, got nothing. Add e.g. "
            "--network 'RI(4)_SW(8)' --tiers node,pod, a preset, or ASTRA-sim's network.yml."
        )
    if given in load_presets("networks"):
        if options.tiers:
            raise InputError(f"--tiers: the preset {given!r} has tiers, got some. Leave them out.")
        return given
    if given.endswith((".yml", ".yaml")):
        return _astra_sim_network(Path(given), options.tiers)
    try:
        blocks = parse_shape(given)
    except ValueError as error:
        raise InputError(f"--network: {error}") from None
    _require_tiers(options.tiers, len(blocks))
    return {"shape": given, "tiers": list(options.tiers)}


def _require_tiers(tiers: Sequence[str], dimensions: int) -> None:
    if len(tiers) != dimensions:
        raise InputError(
            f"--tiers: needs one for each of the {dimensions} dimensions, got {len(tiers)}. Write "
            "e.g. --tiers node,pod, innermost first."
        )


def _astra_sim_network(path: Path, tiers: Sequence[str]) -> list[dict[str, Any]]:
    """Dimensions of an ASTRA-sim ``network.yml``; its bandwidths are left to be chosen."""
    try:
        data = yaml.safe_load(read_text(path, _MOST_CONFIGURATION))
        words, sizes, latencies = (data[k] for k in ("topology", "npus_count", "latency"))
        rows = list(zip(words, sizes, latencies, strict=True))
        found = [
            {"topology": _ASTRA_SIM[word].value, "size": int(size), "latency": f"{float(ns):g} ns"}
            for word, size, ns in rows
        ]
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise InputError(
            f"{path}: is no ASTRA-sim network with topology, npus_count and latency lists of one "
            f"length, got {type(error).__name__}: {' '.join(str(error).split())[:80]}. Correct it."
        ) from None
    _require_tiers(tiers, len(found))
    return [row | {"tier": tier} for row, tier in zip(found, tiers, strict=True)]
