"""Reference pages that mkdocs makes at build time from the program itself.

A hook of mkdocs.yml (``hooks: [tools/docs_reference.py]``). The keys of design and space files come
from their JSON Schema, commands and options from the command line's parser, presets from the
package, messages from the table of bad designs that the tests check. Nothing of it is kept as text,
so that nothing of it can be out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra.json_schema import Schema, SchemaKind, file_schema

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

__all__ = ["PAGES", "on_files"]

ROOT = Path(__file__).resolve().parent.parent
_LONG = 10
"""More words than a table shows."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those that mkdocs builds.

    Parameters
    ----------
    files : Files
        Gets the pages.
    config : MkDocsConfig
        Of the site.
    """
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Markdown table; what would end a cell is escaped."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in row)} |"
                     for row in lines) + "\n"  # fmt: skip


def _escaped(cell: str) -> str:
    """Text of a cell; what is between backticks stays as it is."""
    parts = re.split(r"(`[^`]*`)", " ".join(cell.split()))
    plain = {"|": "\\|", "<": "&lt;", "*": "\\*"}
    return "".join(
        part if k % 2 else "".join(plain.get(c, c) for c in part) for k, part in enumerate(parts)
    )


# --- keys of files -----------------------------------------------------------------------------

_TITLES: Mapping[str, str] = {
    "Workload": "a workload with a trace",
    "ModelWorkload": "a workload with a model",
    "Dimension": "a dimension",
    "Choice": "a choice of bandwidth_choices",
    "CollectiveModel": "collectives",
    "EfficiencyPoint": "a point of an efficiency",
    "PriceList": "prices",
    "PartPrices": "Prices of a tier",
    "PowerList": "power",
    "PartPower": "Power of a tier",
    "Energy": "energy",
    "TrainingLoop": "training_loop with parameters",
    "ScenariosEntry": "scenarios",
    "CaseEntry": "a case",
    "SampleEntry": "samples",
    "Parallel": "parallel of a trace",
    "ModelParallel": "parallel of a model",
    "PipelineEntry": "pipeline",
    "TraceOptions": "chakra",
    "BatchEntry": "batch",
    "PrecisionEntry": "precision by use",
    "Overlap": "overlap",
    "Accelerator": "an accelerator",
    "KindEfficiency": "efficiency of a kind of operator",
    "SystolicArray": "array",
    "Cluster": "a cluster",
    "NetworkSpace": "network",
    "TierSpace": "a tier",
}
"""Headings of the types of a file's mappings, by the name of the type."""


def design_page() -> str:
    """Page of all keys of a design file."""
    return _schema_page(
        SchemaKind.DESIGN,
        "Keys of a design file",
        "Every key that a design file may have, generated from the types that check it. "
        "[Design file](../design-file.md) explains them with examples.",
    )


def space_page() -> str:
    """Page of all keys of a space file."""
    return _schema_page(
        SchemaKind.SPACE,
        "Keys of a space file",
        "Every key that a space file for `libra explore` may have, generated from the types that "
        "check it. [Exploring](../explore.md) explains them with examples.",
    )


def _schema_page(kind: SchemaKind, title: str, words: str) -> str:
    schema = file_schema(kind)
    definitions = schema["definitions"]
    shown: list[str] = []
    _collect_mappings(schema["properties"], definitions, shown)
    text = f"# {title}\n\n{words}\n`libra schema {kind.value}` prints the same as JSON Schema, "
    text += "for [editors](../how-to/editor.md).\n\n"
    text += "Numbers with a unit are text: `100 GB/s`. A key in **bold** must be there.\n\n"
    text += "## The file\n\n"
    text += _keys_table(schema, definitions)
    for name in shown:
        definition = definitions[name]
        title = _title(name)
        text += f"\n## {title[0].upper()}{title[1:]} {{#{_anchor(name)}}}\n\n"
        if definition.get("description"):
            text += f"{definition['description']}\n\n"
        text += _keys_table(definition, definitions)
        others = definition.get("additionalProperties")
        if isinstance(others, dict):
            text += f"\nEvery other key is a name: {_type(others, definitions)}.\n"
    return text


def _title(name: str) -> str:
    return _TITLES.get(name, name)


def _anchor(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def _collect_mappings(schema: Any, definitions: Mapping[str, Schema], found: list[str]) -> None:
    """Names of the mappings that a schema refers to, in order of first mention."""
    if isinstance(schema, list):
        for item in schema:
            _collect_mappings(item, definitions, found)
    elif isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name and name not in found and "properties" in definitions[name]:
            found.append(name)
            _collect_mappings(definitions[name], definitions, found)
        for key, value in schema.items():
            if key not in ("default", "examples", "enum"):
                _collect_mappings(value, definitions, found)


def _keys_table(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    required = schema.get("required", ())
    rows = []
    for key, value in schema["properties"].items():
        default = value.get("default")
        simple = default not in (None, "", []) and not isinstance(default, dict)
        rows.append(
            (
                f"__`{key}`__" if key in required else f"`{key}`",
                _type(value, definitions),
                f"`{_word(default)}`" if simple else "",
                str(value.get("description", "")),
            )
        )
    return table(("key", "value", "default", "meaning"), rows)


def _word(value: Any) -> str:
    """Value as YAML shows it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """What a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        definition = definitions[name]
        if "properties" in definition:
            return f"[{_title(name)}](#{_anchor(name)})"
        return _type(definition, definitions)
    if "enum" in schema:
        words = schema["enum"]
        listed = [f"`{_word(word)}`" for word in words[:_LONG]]
        more = [f"… ({len(words)} names, see `libra presets`)"] if len(words) > _LONG else []
        return ", ".join(listed + more)
    if "anyOf" in schema:
        options = [_type(option, definitions) for option in schema["anyOf"]]
        return "; or ".join(dict.fromkeys(options))
    return _simple_type(schema, definitions)


def _simple_type(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    kind = schema.get("type")
    if schema.get("pattern") == r"\.ya?ml$":
        return "a YAML file"
    if "examples" in schema and "pattern" in schema:
        name = schema.get("title", "A number with its unit").partition(",")[0]
        return f"{name[0].lower()}{name[1:]}, e.g. `{schema['examples'][0]}`"
    if kind == ["integer", "string"]:
        return "a whole number; or `auto`"
    if kind == "array":
        items = schema.get("items")
        if isinstance(items, dict) and items:
            return f"a list, each {_type(items, definitions)}"
        return "a list"
    if kind == "object" and "properties" in schema:
        return "a mapping of " + ", ".join(f"`{key}`" for key in schema["properties"])
    if kind == "object":
        others = schema.get("additionalProperties")
        names = schema.get("propertyNames")
        by = f" of {_type(names, definitions)}" if names else " of names"
        to = f" to {_type(others, definitions)}" if isinstance(others, dict) and others else ""
        return f"a mapping{by}{to}"
    words = {
        "string": "text",
        "number": "a number",
        "integer": "a whole number",
        "boolean": "`true`, `false`",
    }
    return words.get(str(kind), "any value")


# --- commands ----------------------------------------------------------------------------------


def command_page() -> str:
    """Page of all commands with their arguments and options."""
    from typer.main import get_command

    from libra.cli import app

    group: Any = get_command(app)
    text = "# Command line\n\nEvery command with its options, generated from the program. Results "
    text += "go to standard output, messages and progress to standard error. The exit status is\n"
    text += "described in [Errors](errors.md).\n"
    for name, command in group.commands.items():
        text += f"\n## libra {name}\n\n{command.help}\n\n"
        text += f"```text\n{_usage(name, command.params)}\n```\n\n"
        rows = [_option_row(parameter) for parameter in command.params]
        text += table(("argument or option", "default", "meaning"), rows)
    return text


def _usage(name: str, parameters: Iterable[Any]) -> str:
    words = [f"libra {name}"]
    parameters = list(parameters)
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
            words.append(shown if parameter.required or "[" in shown else f"[{shown}]")
        elif parameter.required:
            words.append(f"{parameter.opts[-1]} {_placeholder(parameter)}")
    return " ".join([*words, "[OPTIONS]"])


def _placeholder(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    return str(parameter.metavar or parameter.name.upper())


def _option_row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        label = str(parameter.metavar or parameter.name.upper())
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        label = f"{names} {_placeholder(parameter)}".strip()
    default = parameter.default
    shown = "" if default in (None, False, "") or parameter.required else f"`{default}`"
    if parameter.secondary_opts:
        shown = f"`{(parameter.opts if default else parameter.secondary_opts)[0]}`"
    help_text = parameter.help or ""
    required = " Required." if parameter.required and parameter.param_type_name == "option" else ""
    return f"`{label}`", shown, help_text + required


# --- presets and messages ----------------------------------------------------------------------


def presets_page() -> str:
    """Page of everything that ships, each number with its source."""
    from libra.models import list_models
    from libra.presets import list_presets

    words: Mapping[str, str] = {
        "networks": "For `network:` of a design; those with bandwidths also for `cluster:` of an "
        "accelerator.",
        "accelerators": "For `accelerator:` of a workload. `unconfirmed` marks what no source that "
        "was read confirms, `bound` an efficiency of 1 that nobody measured.",
        "models": "For `model:` of a workload.",
        "prices": "For `prices:` of a design.",
        "power": "For `power:` of a design.",
        "examples": "For `libra new --example NAME`.",
    }
    text = "# Presets\n\nEverything that ships with libra, each number with its source, generated "
    text += "from `src/libra/presets`.\n`libra presets KIND` prints the same.\n"
    for kind, meaning in words.items():
        rows = list_models() if kind == "models" else list_presets(kind)
        text += f"\n## {kind.capitalize()}\n\n{meaning}\n\n"
        cells = ((f"`{r['name']}`", r["value"], r["source"]) for r in rows)
        text += table(("name", "value", "source"), cells)
    return text


def messages_page() -> str:
    """Page of the messages about wrong designs, as the tests check them."""
    text = "# Messages about wrong designs\n\nWhat libra says about wrong design files: the table "
    text += "that the tests check, word for word. `d.yaml` is the design. [Errors](errors.md) says "
    text += "how to read them.\n"
    by_part: dict[str, list[str]] = {}
    for part, messages in _bad_designs():
        by_part.setdefault(part, []).extend(messages)
    for part, messages in by_part.items():
        lines = "\n".join(dict.fromkeys(messages))
        title = {"extra": "Other keys"}.get(part, part)
        text += f"\n## {title}\n\n```text\n{lines}\n```\n"
    return text


def _bad_designs() -> Iterator[tuple[str, list[str]]]:
    """Part of a design, and the messages about it, of each case of the table."""
    file = ROOT / "tests" / "data" / "bad_designs.txt"
    for block in file.read_text("utf-8").split("----\n")[1:]:
        case, *messages = block.removesuffix("\n").split("\n=> ")
        yield case.partition("\n")[0], messages


PAGES: Mapping[str, Callable[[], str]] = {
    "design": design_page,
    "space": space_page,
    "cli": command_page,
    "presets": presets_page,
    "messages": messages_page,
}
"""Pages by their names in docs/reference."""
