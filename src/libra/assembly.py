"""Parts of a design file → `Design`: what depends on several parts, as far as these are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from libra.constraints import LinearConstraint, bound_constraints, parse_constraint
from libra.cost import needed_parts
from libra.design import (
    Design,
    Workload,
    check_algorithm,
    check_baseline,
    check_names,
    check_shrinking,
    fixed_cost,
)
from libra.entry_graph import at_speed, entry_graph, entry_groups, entry_pipeline
from libra.errors import FieldError, InputError, Place, Problem, nearest, shown
from libra.files import read_text
from libra.formats.astra_sim import MAX_BYTES, TextWorkload, parse_text_workload
from libra.formats.astra_sim_policy import place_text_workload
from libra.formats.chakra_files import is_chakra, load_traces, refuse_placement
from libra.formats.chakra_options import TraceOptions
from libra.formats.layer_table import is_layer_table, place_layer_table, read_layer_table
from libra.network import Network
from libra.pricing import Pricing, build_pricing
from libra.schema import DesignFile, file_place
from libra.time_limits import TimeLimit, is_time_limit, parse_time_limit
from libra.workload.graph import StepGraph
from libra.workload.pipeline import pipeline_graph
from libra.workload.schedule import TrainingLoop, build_graph
from libra.workload_entry import WorkloadEntry
from libra.yaml_source import Source

__all__ = ["Assembly"]

T = TypeVar("T")


class Assembly:
    """Builds the parts of a design, collecting what is wrong with each."""

    def __init__(
        self,
        source: Source,
        problems: list[Problem],
        parsed: DesignFile,
        memory: dict[Any, Any] | None = None,
    ) -> None:
        self.source, self.problems, self.parsed = source, problems, parsed
        self.memory: dict[Any, Any] = {} if memory is None else memory

    def note(self, place: Place, message: str) -> None:
        """Note what is wrong at a place of the long form."""
        where = file_place(self.source.data, place)
        self.problems.append(self.source.problem(where, message))

    def attempt(self, place: Place, build: Callable[[], T]) -> T | None:
        """Result of a step, or None after noting what is wrong at a place."""
        try:
            return build()
        except FieldError as error:
            self.note((*place, *error.place), error.message)
        except ValueError as error:
            self.note(place, str(error))
        except InputError as error:
            self.problems.extend(error.problems)
        return None

    def design(self, given: tuple[Workload, ...] | None = None) -> Design | None:
        """Design, or None after noting what is wrong with the file.

        Parameters
        ----------
        given : tuple of Workload or None
            Taken instead of those that the file describes, which are not built.
        """
        file = self.parsed
        network = self.network()
        pricing = self.pricing(network)
        rows = self.constraints(network, pricing)
        limits = self.time_limits()
        self.check_whole(network, pricing, rows, limits)
        workloads = self.workloads(network) if given is None else given
        if self.problems:
            return None
        assert network is not None
        assert rows is not None
        assert file.prices is not None
        assert file.objective is not None
        assert file.collectives is not None
        assert file.training_loop is not None
        build = partial(
            Design,
            network,
            workloads,
            file.prices,
            rows,
            file.objective,
            file.collectives,
            file.training_loop,
            file.baseline or None,
            limits,
            self.source.file,
            self.source.data,
            (*self.unused(), *_warnings(workloads, network, file)),
            file.power,
        )
        return self.attempt((), build)

    def unused(self) -> Iterator[str]:
        """What the file says and no workload takes."""
        traces = [entry.trace for entry in self.parsed.workloads if entry.trace is not None]
        if "training_loop" in self.source.data and all(map(self.is_chakra, traces)):
            yield (
                "training_loop: no workload takes it, since models have a schedule of their own, "
                "of parallel, batch and overlap, and Chakra traces their recorded order."
            )

    def is_chakra(self, trace: str) -> bool:
        """Whether a trace of the file is one of Chakra's."""
        key = ("chakra", trace)
        if key not in self.memory:
            self.memory[key] = is_chakra(Path(self.source.file).parent / trace)
        return bool(self.memory[key])

    def network(self) -> Network | None:
        """Network, or None after noting what is wrong with it."""
        dimensions = self.parsed.network
        if dimensions is None:
            return None
        key = ("network", id(dimensions))
        if key not in self.memory:
            network = self.attempt(("network",), lambda: Network(dimensions))
            if network is None:
                return None
            self.memory[key] = network  # It keeps the dimensions, whose place no others can take.
        found: Network = self.memory[key]
        return found

    def pricing(self, network: Network | None) -> Pricing | None:
        """Cost and power of the network, or None after noting tiers and parts without figures."""
        prices, power = self.parsed.prices, self.parsed.power
        if prices is None or network is None or (power is None and "power" in self.source.data):
            return None
        before = len(self.problems)
        for d, dimension in enumerate(network.dimensions):
            for figures, name in ((prices, "prices"), (power, "power figures")):
                if figures is not None and dimension.tier not in figures.tiers:
                    # Without any tier there is no word to point to.
                    advice = (
                        nearest(dimension.tier, figures.tiers) if figures.tiers else "Add them."
                    )
                    self.note(
                        ("network", d, "tier"),
                        f"no {name} for this tier, got {shown(dimension.tier)}. {advice}",
                    )
        if len(self.problems) > before:
            return None
        return self.attempt((), lambda: build_pricing(network, prices, power))

    def constraints(
        self, network: Network | None, pricing: Pricing | None
    ) -> tuple[LinearConstraint, ...] | None:
        """Rows of all linear constraints, or None after noting what is wrong."""
        if network is None:
            return None
        # What is wrong with the figures is noted already; any will do to check the constraints.
        some = np.ones(len(network.dimensions))
        prices = some if pricing is None else pricing.price
        power = None if self.parsed.power is None else some if pricing is None else pricing.power
        owner = None if pricing is None else pricing.owner
        rows: list[LinearConstraint | None] = []
        for k, text in enumerate(self.parsed.constraints):
            if text is not None and is_time_limit(text):
                continue
            place: Place = ("constraints", k)
            file, line = self.source.locate(place)
            key = (text, file, line, id(network), id(pricing))
            if key not in self.memory:
                read = partial(
                    parse_constraint, text or "", network, prices, file, line,
                    power=power, owner=owner,
                )  # fmt: skip
                row = None if text is None else self.attempt(place, read)
                if row is None:
                    rows.append(None)
                    continue
                # What the key names is kept so that nothing else can take its place.
                self.memory[key] = (row, network, pricing)
            rows.append(self.memory[key][0])
        return tuple(row for row in rows if row is not None) if None not in rows else None

    def time_limits(self) -> tuple[TimeLimit, ...]:
        """Time limits that are right, after noting what is wrong with the others."""
        names = [e.display_name for e in self.parsed.workloads if e.display_name is not None]
        found = []
        for k, text in enumerate(self.parsed.constraints):
            if text is not None and is_time_limit(text):
                file, line = self.source.locate(("constraints", k))
                read = partial(parse_time_limit, text, names, file, line)
                found.append(self.attempt(("constraints", k), read))
        return tuple(limit for limit in found if limit is not None)

    def check_whole(
        self,
        network: Network | None,
        pricing: Pricing | None,
        rows: tuple[LinearConstraint, ...] | None,
        limits: tuple[TimeLimit, ...],
    ) -> None:
        """Check what depends on several parts, as far as these are right."""
        file = self.parsed
        names = [entry.display_name for entry in file.workloads]
        self.attempt((), lambda: check_names(names))
        if network is None:
            return
        self.attempt((), lambda: check_baseline(file.baseline or None, network))
        model = file.collectives
        if model is not None:
            self.attempt((), lambda: check_algorithm(model, network))
        if None in (rows, pricing, file.objective, file.prices):
            return
        assert rows is not None
        assert pricing is not None
        assert file.objective is not None
        assert file.prices is not None
        check = partial(
            check_shrinking,
            file.objective,
            fixed_cost(network, file.prices, file.power),
            rows + bound_constraints(network, pricing.owner),
            limits,
            any(table is not None for table in pricing.tables),
        )
        self.attempt((), check)

    def workloads(self, network: Network | None) -> tuple[Workload, ...]:
        """Workloads that are right, after noting what is wrong with the others."""
        found = [
            self.workload(entry, network, ("workloads", k))
            for k, entry in enumerate(self.parsed.workloads)
        ]
        return tuple(workload for workload in found if workload is not None)

    def workload(
        self, entry: WorkloadEntry, network: Network | None, place: Place
    ) -> Workload | None:
        """Workload of an entry, or None after noting what is wrong with it."""
        if network is None:
            return self._workload(entry, network, place)
        file = self.parsed
        key = (id(entry), network.shape, id(file.collectives), id(file.training_loop), place)
        if key not in self.memory:
            # What the key names is kept so that nothing else can take its place.
            found = self._workload(entry, network, place)
            if found is None:
                return None
            self.memory[key] = (found, entry, file.collectives, file.training_loop)
        workload: Workload | None = self.memory[key][0]
        return workload

    def _workload(
        self, entry: WorkloadEntry, network: Network | None, place: Place
    ) -> Workload | None:
        if entry.model is not None or entry.trace is None:
            return self.model_workload(entry, network, place)
        folder = Path(self.source.file).parent
        if is_layer_table(entry.trace) and entry.chakra is None:
            return self.attempt(place, lambda: self.table_workload(entry, network, folder))
        if self.is_chakra(entry.trace):
            return self.attempt(place, lambda: self.chakra_workload(entry, network, folder))
        if entry.chakra is not None:
            self.note((*place, "chakra"), "is for Chakra traces, got a text workload. Remove it.")
        text = self.trace(entry.trace, (*place, "trace")) if entry.trace is not None else None
        if network is None:
            return None
        groups = self.attempt(place, lambda: entry_groups(entry, network))
        lost = groups is None and (entry.parallel or entry.groups)
        if text is None or lost or not entry.right:
            return None
        file = self.parsed
        compat = file.collectives.compat if file.collectives is not None else None
        loop = entry.training_loop or file.training_loop or TrainingLoop()

        placement = None if groups is None else tuple(groups.items())
        given = (entry.trace, entry.pipeline, entry.compute_speed)
        key = (*given, placement, network.shape, compat, loop)
        if key not in self.memory:
            owner = ("parallel",) if entry.parallel else ("groups",) if entry.groups else ()
            placed = self.attempt(
                (*place, *owner), lambda: place_text_workload(text, network, groups, compat)
            )
            if placed is None:
                return None
            build = partial(entry_graph, entry, text, placed, loop, network, groups or {})
            if entry.training_loop is None and "training_loop" in self.source.data:
                # What is wrong with the loop is wrong where all workloads are given it.
                graph = self.attempt((), lambda: _moved(place, build))
            else:
                graph = self.attempt(place, build)
            if graph is None:
                return None
            self.memory[key] = graph
        weight = 1.0 if entry.weight is None else entry.weight
        name = entry.display_name or ""
        return Workload(name, self.memory[key], weight, groups or {}, entry.trace or "")

    def table_workload(
        self, entry: WorkloadEntry, network: Network | None, folder: Path
    ) -> Workload | None:
        """Workload of a layer table; None where what it needs is wrong already."""
        assert entry.trace is not None
        path = folder / entry.trace
        if path not in self.memory:
            self.memory[path] = read_layer_table(path)
        if network is None or not entry.right:
            return None
        groups = entry_groups(entry, network) or {}
        loop = entry.training_loop or self.parsed.training_loop or TrainingLoop()
        layers, notes = place_layer_table(self.memory[path], network, groups)
        pipeline = entry_pipeline(entry, network, groups, loop)
        if pipeline is None:
            graph = build_graph(layers, loop, note=notes)
        else:
            graph = pipeline_graph(layers, pipeline, notes)
        graph = at_speed(entry, graph)
        weight = 1.0 if entry.weight is None else entry.weight
        return Workload(entry.display_name or "", graph, weight, groups, entry.trace)

    def model_workload(
        self, entry: WorkloadEntry, network: Network | None, place: Place
    ) -> Workload | None:
        """Workload of an entry that names a model, or None after noting what is wrong with it."""
        from libra.model_workload import build_model_workload

        job = entry.model
        if job is None or network is None or not entry.right:
            return None
        folder = Path(self.source.file).parent
        key = (repr(job), network.sizes)
        if key not in self.memory:
            built = self.attempt(place, lambda: build_model_workload(job, network, folder))
            if built is None:
                return None
            self.memory[key] = built
        step, groups = self.memory[key]
        weight = 1.0 if entry.weight is None else entry.weight
        name = entry.display_name or ""
        return Workload(name, step.graph, weight, groups, job.model, step=step)

    def chakra_workload(
        self, entry: WorkloadEntry, network: Network | None, folder: Path
    ) -> Workload | None:
        """Workload of Chakra traces; None where what they need is wrong already."""
        refuse_placement(
            {
                "parallel": entry.parallel,
                "groups": entry.groups,
                "training_loop": entry.training_loop,
                "pipeline": entry.pipeline,
            }
        )
        if network is None or not entry.right:
            return None
        assert entry.trace is not None
        options = entry.chakra or TraceOptions()
        key = ("chakra", entry.trace, options, network.shape, network.names)
        if key not in self.memory:
            self.memory[key] = load_traces(entry.trace, folder, network, options)
        placed = self.memory[key]
        graph: StepGraph = placed.graph
        if entry.compute_speed is not None:
            graph = replace(graph, fixed=graph.fixed / entry.compute_speed)
        weight = 1.0 if entry.weight is None else entry.weight
        name = entry.display_name or ""
        return Workload(name, graph, weight, {}, entry.trace, npu_places=placed.npu_places)

    def trace(self, name: str, place: Place) -> TextWorkload | None:
        """Text workload of a file, or None after noting what is wrong with it."""
        path = Path(self.source.file).parent / name
        if path not in self.memory:
            text = self.attempt(place, lambda: read_text(path, MAX_BYTES))
            self.memory[path] = (
                None
                if text is None
                else self.attempt(place, lambda: parse_text_workload(text, str(path)))
            )
        found: TextWorkload | None = self.memory[path]
        return found


def _moved(place: Place, build: Callable[[], T]) -> T:
    """Result of a step whose errors are at a place, but those of the training loop."""
    try:
        return build()
    except FieldError as error:
        if error.place[:1] == ("training_loop",):
            raise
        raise FieldError((*place, *error.place), error.message) from None


def _warnings(workloads: Sequence[Workload], network: Network, file: DesignFile) -> tuple[str, ...]:
    """What a user should know before trusting a result."""
    found, model = [], file.collectives
    assert model is not None
    if file.power is not None:
        parts = {
            f"{d.tier}.{part}"
            for d in network.dimensions
            for part in needed_parts(d)
            if d.choices is None or d.choices[0].power is None
        }
        found += [
            f"power: the figure of {part} is unconfirmed, see `libra presets power`."
            for part in file.power.unconfirmed
            if part in parts
        ]
    if model.compat is not None and any(d.latency or d.efficiency < 1 for d in network.dimensions):
        found.append(
            f"collectives.compat {model.compat.value}: its formulas have no latency or efficiency, "
            "so those of the network do not count."
        )
    for workload in workloads:
        found += [f"{workload.name}: {note}." for note in workload.graph.note]
        if not workload.graph.collectives:
            found.append(
                f"{workload.name}: communicates nothing, so its time does not depend on any "
                "bandwidth. Check its collectives and groups."
            )
    return tuple(found)
