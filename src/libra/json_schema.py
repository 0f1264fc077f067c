"""JSON Schema of design and space files, for editors that complete and check YAML.

It is generated from the types that check the files: pydantic writes the schema of the long forms
(`libra.schema`, `libra.explore.space`), their docstrings become the descriptions, and the short
forms (`libra.long_form`) are put beside them. A schema says which keys there are and of which shape
their values; what values mean together is checked by ``libra check``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from libra.explore.space import ALTERNATIVES, DEGREES, OBJECTIVES, SHARED, NetworkSpace
from libra.model_entry import MODEL_FORMS, REQUIRED
from libra.network import Topology
from libra.presets import load_presets
from libra.schema import ENTRY_FORMS, FORMS
from libra.workload.compute import Accelerator

__all__ = ["SchemaKind", "design_schema", "docstring_attributes", "file_schema", "space_schema"]

Schema = dict[str, Any]
_DIALECT = "http://json-schema.org/draft-07/schema#"
_REFERENCE = "#/definitions/{model}"
_COMMON = ("name", "weight")
"""Keys of an item of ``workloads:`` whether it has a trace or a model."""

_WORDS: Mapping[str, str] = {
    "network": "A preset's name, a shape with its tiers, or a list of dimensions; innermost first.",
    "workloads": "What is trained: items with trace: or model:.",
    "prices": "A price list's name, or prices by tier.",
    "power": "A power list's name, or power by tier; left out: not known.",
    "collectives": "How collectives are run and timed.",
    "training_loop": "What runs beside what in a step with a trace.",
    "constraints": "Comparisons with <=, >= or ==, e.g. total <= 1000 GB/s.",
    "objective": "What is minimised.",
    "baseline": "What the speed-up compares with: equal, or a bandwidth for each dimension.",
    "scenarios": "Ways that things may turn out.",
    "npus": "Number of NPUs, a list of numbers, or a range such as 1024..8192:x2.",
    "trace": "A workload's file: ASTRA-sim 1.0 text, Chakra traces (w.*.et) or a layer table.",
    "name": "What it is called; left out: by its file or model.",
    "weight": "Share in the objective; 1 if left out.",
    "parallel": "Degrees of parallelism, placed innermost first.",
    "groups": "Members of tp, pp and dp along each dimension, in the place of parallel:.",
    "pipeline": "How a step with pp is cut over the stages.",
    "chakra": "How to read a Chakra trace.",
    "compute_speed": "How many times as fast as in the trace the NPU computes; 1 if left out.",
    "model": "A name of `libra presets models`, or the path of a config.json.",
    "accelerator": "A name of `libra presets accelerators`, a YAML file, or a mapping.",
    "batch": "Sequences of a step, of a micro-batch, and their length.",
    "precision": "A number format, or formats by what they are for.",
    "recomputation": "Which activations the backward pass computes again; none if left out.",
    "distribute_saved_activations": "What recomputation keeps is split over tp; false if left out.",
    "fused_attention": "One kernel that keeps no scores; true if left out.",
    "dropout": "Masks are kept and read; false if left out.",
    "capacity": "Tokens an expert computes for each that balanced routing sends; 1 if left out.",
    "bucket": "Gradients are reduced in buckets of about this size; left out: each block.",
    "reserved": "Memory that the runtime takes; none if left out.",
    "overlap": "Which communication runs beside computation.",
}
"""What keys of a file mean that have no dataclass around them."""


class SchemaKind(StrEnum):
    """Files that have a schema."""

    DESIGN = "design"
    SPACE = "space"


def file_schema(kind: SchemaKind) -> Schema:
    """Schema of a kind of file."""
    return {SchemaKind.DESIGN: design_schema, SchemaKind.SPACE: space_schema}[kind]()


def design_schema() -> Schema:
    """JSON Schema (draft 7) of a design file.

    Returns
    -------
    dict
        Plain data. Every mapping refuses keys that it does not know.

    Examples
    --------
    >>> sorted(design_schema()["required"])
    ['network', 'workloads']
    """
    parts, definitions = _parts()
    items = [{"$ref": "#/definitions/Workload"}, {"$ref": "#/definitions/ModelWorkload"}]
    properties = _described({key: parts[key] for key in FORMS})
    properties["workloads"] |= {"type": "array", "items": {"anyOf": items}, "minItems": 1}
    return {
        "$schema": _DIALECT,
        "title": "libra design file",
        **_mapping(properties, ("network", "workloads")),
        "definitions": _used(definitions, properties),
    }


def space_schema() -> Schema:
    """JSON Schema (draft 7) of a space file, which ``libra explore`` reads.

    Returns
    -------
    dict
        Plain data, as `design_schema`.
    """
    parts, definitions = _parts()
    _widen_to_alternatives(definitions)
    properties = _described({key: parts[key] for key in SHARED})
    properties["objective"]["enum"] = list(OBJECTIVES)
    properties["objective"].pop("$ref", None)
    algorithm = definitions["CollectiveModel"]["properties"]["algorithm"]
    definitions["CollectiveModel"]["properties"]["algorithm"] = _or_list(algorithm)
    count = {"type": "integer", "minimum": 2}
    own = _described({"npus": {}, "network": {}, "workloads": {}})
    own["npus"] |= {"anyOf": [*_or_list(count)["anyOf"], {"type": "string", "pattern": r"\.\."}]}
    own["network"] = {"description": "Tiers, innermost first."} | parts["space"]
    own["workloads"] |= {
        "type": "array",
        "items": {"$ref": "#/definitions/ModelWorkload"},
        "minItems": 1,
    }
    return {
        "$schema": _DIALECT,
        "title": "libra space file",
        **_mapping(own | properties, ("npus", "network", "workloads")),
        "definitions": _used(definitions, own | properties),
    }


# --- parts -------------------------------------------------------------------------------------


def _parts() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Schema of each part as it stands in a file, and the definitions that they refer to."""
    forms = {"item": dict(ENTRY_FORMS), "model": dict(MODEL_FORMS)}
    inputs: list[tuple[Any, Any, TypeAdapter[Any]]] = [
        (("top", key), "validation", TypeAdapter(form)) for key, form in FORMS.items()
    ]
    for part, members in forms.items():
        inputs += [((part, k), "validation", TypeAdapter(form)) for k, form in members.items()]
    inputs += [
        (("space", ""), "validation", TypeAdapter(NetworkSpace)),
        (("accelerator", ""), "validation", TypeAdapter(Accelerator)),
    ]
    found, shared = TypeAdapter.json_schemas(
        inputs, ref_template=_REFERENCE, schema_generator=_Generator
    )
    schemas: dict[Any, Schema] = {key: _in_a_file(dict(s)) for (key, _), s in found.items()}
    definitions: dict[str, Schema] = _in_a_file(dict(shared.get("$defs", {})))
    accelerator = schemas[("accelerator", "")]
    top = {key: schemas[("top", key)] for key in FORMS}
    _add_short_forms(top, definitions, accelerator)
    for name, part, required in (
        ("Workload", "item", ("trace",)),
        ("ModelWorkload", "model", ("model", *REQUIRED)),
    ):
        members = {key: schemas[(part, key)] for key in forms[part]}
        members |= {key: schemas[("item", key)] for key in _COMMON}
        definitions[name] = _mapping(_described(members), required)
    trace, model = (definitions[k]["properties"] for k in ("Workload", "ModelWorkload"))
    trace["training_loop"] = _described({"training_loop": top["training_loop"]})["training_loop"]
    model["accelerator"] = model["accelerator"] | definitions.pop("_accelerator")
    model["accelerator"].pop("type", None)
    model["precision"] = {
        "description": _WORDS["precision"],
        "anyOf": [{"$ref": "#/definitions/Precision"}, {"$ref": "#/definitions/PrecisionEntry"}],
    }
    return top | {"space": schemas[("space", "")]}, definitions


def _add_short_forms(
    top: dict[str, Schema], definitions: dict[str, Schema], accelerator: Schema
) -> None:
    """Put the short forms that a file may have beside the long ones."""
    texts = {"type": "array", "items": {"type": "string"}}
    networks = load_presets("networks")
    short: Schema = {"shape": {"type": "string", "examples": ["RI(4)_SW(32)"]}, "tiers": texts}
    definitions["Topology"]["enum"] += [topology.code for topology in Topology]
    top["network"] = {
        "anyOf": [
            {"enum": list(networks)},
            _mapping(short | {"names": texts}, ("shape", "tiers")),
            top["network"],
        ]
    }
    choices = definitions["Dimension"]["properties"]["bandwidth_choices"]
    choices["items"] = {"anyOf": [_quantity(definitions, "Choice", "bandwidth"), choices["items"]]}
    for key, owner, parts in (
        ("prices", "PriceList", "PartPrices"),
        ("power", "PowerList", "PartPower"),
    ):
        tiers = definitions[owner]
        for name in ("tiers", "source", "unconfirmed"):
            tiers["properties"].pop(name, None)
        tiers.pop("required", None)
        tiers["additionalProperties"] = {"$ref": f"#/definitions/{parts}"}
        top[key] = {"anyOf": [{"enum": list(load_presets(key))}, top[key]]}
    chunks = definitions["CollectiveModel"]["properties"]
    chunks["chunks"] = chunks["chunks"] | {"type": ["integer", "string"], "pattern": "^auto$"}
    top["training_loop"] = {
        "anyOf": [{"$ref": "#/definitions/LoopKind"}, {"$ref": "#/definitions/TrainingLoop"}]
    }
    top["constraints"] = texts
    top["workloads"] = {}
    top["baseline"] = {"anyOf": [{"enum": ["equal"]}, top["baseline"]]}
    cases = definitions["ScenariosEntry"]["properties"]["cases"]
    top["scenarios"] = {"anyOf": [{k: cases[k] for k in ("type", "items")}, top["scenarios"]]}
    batch = definitions["BatchEntry"]
    names = {"sequences": "global"}
    batch["properties"] = {names.get(k, k): v for k, v in batch["properties"].items()}
    batch["required"] = [names.get(k, k) for k in batch["required"]]
    cluster = definitions["Accelerator"]["properties"]["cluster"]
    with_bandwidths = [k for k, v in networks.items() if "dimensions" in v]
    definitions["Accelerator"]["properties"]["cluster"] = {
        "description": cluster.get("description", ""),
        "anyOf": [{"enum": with_bandwidths}, {"$ref": "#/definitions/Cluster"}],
    }
    presets = {"enum": list(load_presets("accelerators"))}
    file = {"type": "string", "pattern": r"\.ya?ml$", "examples": ["own.yaml"]}
    definitions["_accelerator"] = {"anyOf": [presets, file, accelerator]}


def _widen_to_alternatives(definitions: dict[str, Schema]) -> None:
    """Let keys of a model's workload be lists where an exploration takes alternatives."""
    parallel = definitions["ModelParallel"]["properties"]
    for key in ALTERNATIVES:
        parallel[key] = _or_list(parallel[key], auto=key in DEGREES)
    parallel["order"] = _or_list(parallel["order"])
    item = definitions["ModelWorkload"]["properties"]
    auto = {"enum": ["auto"]}
    item["parallel"] = {
        "description": _WORDS["parallel"],
        "anyOf": [auto, {"$ref": "#/definitions/ModelParallel"}],
    }
    item["recomputation"] = _or_list(item["recomputation"])
    batch = definitions["BatchEntry"]["properties"]
    batch["micro"] = _or_list(batch["micro"])
    tier, dimension = definitions["TierSpace"]["properties"], definitions["Dimension"]["properties"]
    for key in tier.keys() & dimension.keys():
        tier[key] = dimension[key]
    tier["sizes"] = tier["sizes"] | {
        "anyOf": [auto, {"type": "array", "items": {"type": "integer", "minimum": 1}}]
    }
    network = definitions["NetworkSpace"]["properties"]
    fewest_and_most = {k: v for k, v in network["dimensions"].items() if k != "description"}
    network["dimensions"] = {
        "description": "Fewest and most, or their number; left out: any number.",
        "anyOf": [{"type": "integer", "minimum": 1}, fewest_and_most],
    }


def _or_list(schema: Schema, *, auto: bool = False) -> Schema:
    """Schema of a value, a list of such, or ``auto``."""
    kept = ("description", "title", "default")
    value = {k: v for k, v in schema.items() if k not in kept}
    more = [{"enum": ["auto"]}] if auto else []
    options = [value, {"type": "array", "items": value, "minItems": 1}, *more]
    return {k: v for k, v in schema.items() if k in kept} | {"anyOf": options}


def _quantity(definitions: Mapping[str, Schema], owner: str, key: str) -> Schema:
    """Schema of a quantity, without what it means in its owner."""
    found = definitions[owner]["properties"][key]
    return {k: v for k, v in found.items() if k not in ("description", "default")}


def _mapping(properties: Mapping[str, Schema], required: tuple[str, ...]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _described(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    return {
        key: ({"description": _WORDS[key]} if key in _WORDS else {}) | schema
        for key, schema in properties.items()
    }


def _used(definitions: Mapping[str, Schema], root: Any) -> dict[str, Schema]:
    """Definitions that something refers to, in their order."""
    wanted: set[str] = set()
    new = set(_references(root))
    while new:
        wanted |= new
        new = {r for name in new for r in _references(definitions[name])} - wanted
    return {name: schema for name, schema in definitions.items() if name in wanted}


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


# --- what pydantic writes, as it stands in a file ----------------------------------------------


class _Generator(GenerateJsonSchema):
    """Writes schemas of dataclasses with the descriptions of their docstrings."""

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Schema of a dataclass; its attributes' meanings become those of its keys."""
        found = super().dataclass_schema(schema)
        documentation = inspect.getdoc(schema["cls"]) or ""
        found["description"] = documentation.partition("\n")[0]
        meanings = docstring_attributes(documentation)
        for key, value in found.get("properties", {}).items():
            if key in meanings:
                value["description"] = meanings[key]
        return found


def docstring_attributes(documentation: str) -> dict[str, str]:
    r"""Meaning of each attribute that a numpydoc docstring lists.

    Examples
    --------
    >>> docstring_attributes("A.\n\nAttributes\n----------\nx, y : int\n    Both of\n    it.")
    {'x': 'Both of it.', 'y': 'Both of it.'}
    """
    _, _, text = documentation.partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(":")[0].split(",")]
        elif names and line.strip():
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
        elif not line:
            names = []
    return found


def _in_a_file(schema: Any) -> Any:
    """Schema without what a file cannot hold: nulls, SI numbers as defaults of quantities."""
    if isinstance(schema, list):
        return [_in_a_file(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _in_a_file(value) for key, value in schema.items()}
    options = found.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        found = {k: v for k, v in found.items() if k != "anyOf"}
        found |= options[0] if len(options) == 1 else {"anyOf": options}
    if "default" in found and not isinstance(found["default"], dict):
        if found["default"] is None:
            del found["default"]
        elif isinstance(found["default"], float) and found.get("type") == "string":
            unit = found["examples"][0].partition(" ")[2]
            found["default"] = f"{found['default']:g} {unit}"
    if isinstance(found.get("description"), str):
        found["description"] = _of_a_file(found["description"])
    if "prefixItems" in found:  # not of draft 7; those of libra are all alike
        found["items"] = found.pop("prefixItems")[0]
    return found


def _of_a_file(text: str) -> str:
    """Description in the words of a file: no SI unit of the program, no None, no markup."""
    text = re.sub(r" ?\[(?:(?:bytes|s|USD|W|FLOP|Hz)\b[^]]*|\d+)\]_?", "", text).replace("``", "`")
    text = re.sub(r"(^|\. )None:", r"\1Left out:", text)
    return text.replace("None:", "left out:")
