"""Code blocks of the documentation, and what running a page's blocks does.

A page's blocks run in order, in one folder:

``console``
    Lines that begin with ``$ `` are commands: ``libra …`` runs in this process, ``python FILE`` too;
    ``cat`` and ``ls`` show files; ``echo $?`` must follow a command that fails. What stands below a
    command is what it prints (a line ``…`` stands for any number of lines); if nothing stands there,
    the command only has to succeed.
    Scripts of the repository (``python studies/…``) only have to exist: they have tests of their own.
``python``
    Runs in one namespace for the page. A ``text title="prints"`` below it is what it prints.
``yaml``, ``json``, ``csv``
    With a title, a file of that name: of the repository, or one that another block uses. Without, a complete design is
    solved, a space checked, anything else put into a design.
``text``
    Is not run, and looks it.
"""

import contextlib
import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from chakra_helpers import ALL_REDUCE, collective, compute, stream
from typer.testing import CliRunner

import libra
from libra.accelerators import read_accelerator
from libra.cli import app
from libra.explore.explorer import Explorer
from libra.explore.space import load_space
from libra.json_schema import design_schema, space_schema
from libra.presets import example_folder
from libra.schema import FORMS
from libra.yaml_source import read_yaml

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ("console", "python", "yaml", "json", "csv", "text")
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<info>.*)")
_INFO = re.compile(r'(?P<language>[\w+-]*)(?: +title="(?P<title>[^"]+)")?$')
_OF_PRICES = ("npu", "direct_links", "energy")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, what it is, its text."""

    page: str
    line: int
    language: str
    title: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def read_blocks(path, root):
    """Blocks of a page, in order; an unclosed fence is an error, as is a word that is no language."""
    lines = path.read_text("utf-8").splitlines()
    page, found, k = str(path.relative_to(root)), [], 0
    while k < len(lines):
        opened = _FENCE.fullmatch(lines[k])
        k += 1
        if opened is None:
            continue
        start, indent, text = k, len(opened["indent"]), []
        while k < len(lines) and lines[k].strip() != opened["ticks"]:
            text.append(lines[k][indent:])
            k += 1
        assert k < len(lines), f"{page}:{start}: the block is not closed"
        k += 1
        info = _INFO.fullmatch(opened["info"].strip())
        assert info is not None, f"{page}:{start}: {opened['info']!r} is no language with a title"
        found.append(
            Block(page, start, info["language"], info["title"] or "", "\n".join(text) + "\n")
        )
    return found


def indented_code(path):
    """Lines of a page that Markdown shows as code without a fence."""
    found, inside, before, listed = [], False, "", False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if _FENCE.fullmatch(line):
            inside = not inside
        elif not inside and line.strip():
            if not line.startswith(" "):
                listed = bool(re.match(r"([-*+]|\d+\.|!!!|\?\?\?|===|\[\^|:) ?", line))
            elif line.startswith("    ") and not before.strip() and not listed:
                found.append(number)
        before = line
    return found


def comparable(text):
    """Lines without trailing spaces and rules, what the run took, and gaps."""
    text = re.sub(r" by more than\s+\S+ of it\.", ".", text)
    text = re.sub(r"<= [\d.]+ ms'", "<= … ms'", text)
    text = re.sub(r"Solved in [\d.,]+ m?s", "Solved in …", text)
    text = re.sub(r'"seconds": [\d.e-]+', '"seconds": …', text)
    text = re.sub(r"\b\d(\.\d+)?e-\d\d\b", "…e", text)
    lines = [re.sub(r"[─ ]+$", "", line) for line in text.splitlines()]
    return "\n".join(lines).strip("\n").split("\n") if any(lines) else []


def matches(shown, printed):
    """Whether lines are as shown; a line ``…`` stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "…":
        return any(matches(shown[1:], printed[k:]) for k in range(len(printed) + 1))
    return bool(printed) and alike(shown[0], printed[0]) and matches(shown[1:], printed[1:])


def alike(shown, printed):
    """Whether lines are the same but for the last digits of numbers with many, of a solver."""
    if shown == printed:
        return True
    ours, theirs = (re.split(r"(\d+\.\d{3,})", line) for line in (shown, printed))
    return len(ours) == len(theirs) and all(
        math.isclose(float(a), float(b), rel_tol=2e-5) if k % 2 else a == b
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True))
    )


GROUPS = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}


def trace_of(npu):
    """A forward pass with tensor parallelism, a backward pass, and the gradients' all-reduce."""
    return [
        compute(0, 100),
        collective(1, ALL_REDUCE, 1 << 22, [0], pg_name=str(1 + npu // 4)),
        compute(2, 60, [1]),
        collective(3, ALL_REDUCE, 1 << 20, [2]),
    ]


def fill_folder(folder):
    """Put example designs, their workloads, the case studies and recorded traces into a folder."""
    shutil.copytree(ROOT / "studies", folder / "studies")
    shutil.copytree(example_folder(), folder / "my-design")
    shutil.copytree(example_folder() / "workloads", folder / "workloads")
    traces = folder / "traces"
    traces.mkdir()
    (traces / "groups.json").write_text(json.dumps(GROUPS))
    for npu in range(8):
        (traces / f"w.{npu}.et").write_bytes(stream(trace_of(npu)))


class PageRun:
    """Runs the blocks of a page in the current folder."""

    def __init__(self, blocks):
        self.blocks = blocks
        self.names = {"__name__": "__main__"}
        self.status = 0
        self.mismatch = None
        """Called with block, shown and printed text where they differ, in the place of failing."""

    def run(self):
        """Run all blocks."""
        if any("$ libra new my-design" in block.text for block in self.blocks):
            shutil.rmtree("my-design")
        for k, block in enumerate(self.blocks):
            assert block.language in LANGUAGES, f"{block}: {block.language!r} is no {LANGUAGES}"
            after = self.blocks[k + 1] if k + 1 < len(self.blocks) else None
            if block.title and block.language not in ("text", "console"):
                self.write(block, self.blocks[k + 1 :])
            else:
                getattr(self, f"run_{block.language}")(block, after)

    def write(self, block, later):
        """Write a titled block to its file, which a later block must use, or compare it with it."""
        path = Path(block.title)
        if (ROOT / path).is_file():
            own = (ROOT / path).read_text("utf-8")
            assert own.strip() == block.text.strip(), f"{block}: is not what {path} holds"
            return
        used = [b for b in later if b.language in ("console", "python", "yaml", "csv")]
        assert any(block.title in b.text for b in used), f"{block}: nothing uses {block.title}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")
        if block.language == "json":
            json.loads(block.text)

    def run_text(self, block, after):
        """Do nothing: the language says so."""

    def run_python(self, block, after):
        """Run a block; what it prints is what is shown, if that is shown."""
        code = compile("\n" * block.line + block.text, block.page, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        if after is not None and after.title == "prints":
            self.compare(after, after.text, printed.getvalue())

    def run_console(self, block, after):
        """Run each command and compare what it prints."""
        steps = re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)
        assert not steps[0].strip(), f"{block}: begin with a command, '$ libra …'"
        for k, step in enumerate(steps[1:]):
            command, _, shown = step.partition("\n")
            output, stdout = self.command(command, block)
            if shown.strip():
                # What a reader sees, with or without the messages on stderr.
                alone = matches(comparable(shown), comparable(stdout))
                printed = stdout if alone else output
                self.compare(block, shown, printed)
            checked = k + 2 < len(steps) and steps[k + 2].startswith("echo $?")
            told = f"{block}: {command!r} ends with {self.status}\n{output}"
            assert self.status == 0 or checked, told

    def command(self, command, block):
        """All that a command prints, and its stdout alone; sets the exit status."""
        words = shlex.split(command)
        target = None
        if ">" in words:
            target = words[words.index(">") + 1]
            words = words[: words.index(">")]
        if words[0] == "libra":
            done = CliRunner().invoke(app, words[1:])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            self.status = done.exit_code
            output, stdout = done.output, done.stdout
        elif command == "echo $?":
            output = stdout = f"{self.status}\n"
            self.status = 0
        elif words[0] == "python" and words[1].startswith(("benchmarks/", "studies/", "tools/")):
            assert (ROOT / words[1]).is_file(), f"{block}: {words[1]} is not there"
            self.status, output, stdout = 0, "", ""
        elif words[0] == "python" and len(words) == 2 and words[1].endswith(".py"):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(
                    compile(Path(words[1]).read_text(), words[1], "exec"), {"__name__": "__main__"}
                )
            output = stdout = printed.getvalue()
            self.status = 0
        else:
            assert words[0] in ("cat", "ls", "head"), (
                f"{block}: {command!r} cannot be run; use text"
            )
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            self.status, output, stdout = done.returncode, done.stdout + done.stderr, done.stdout
        if target is not None:
            Path(target).write_text(stdout)
            stdout, output = "", output.replace(stdout, "", 1)
        return output, stdout

    def compare(self, block, shown, printed):
        """Fail unless what is shown is what was printed."""
        if not matches(comparable(shown), comparable(printed)):
            if self.mismatch is not None:
                self.mismatch(block, shown, printed)
                return
            sys.stdout.write(printed)
            assert comparable(printed) == comparable(shown), f"{block}: prints something else"

    def run_json(self, block, after):
        """Read it."""
        json.loads(block.text)

    def run_csv(self, block, after):
        """Refuse: a table without a name cannot be used."""
        raise AssertionError(f"{block}: give it a title, and use it")

    def run_yaml(self, block, after):
        """Solve a design, check a space, load a part of one in a design that has the rest."""
        data = yaml.safe_load(block.text)
        assert isinstance(data, dict), f"{block}: not a mapping; begin with the key it belongs to"
        path = Path("block.yaml")
        path.write_text(block.text, "utf-8")
        network = data.get("network")
        if "npus" in data:
            explorer = Explorer(load_space(path))
            explorer.check()
            assert explorer.count > 1
            validate(space_schema(), path)
        elif isinstance(network, dict) and "shape" not in network:
            raise AssertionError(f"{block}: a part of a space; show the whole space")
        elif {"network", "workloads"} <= data.keys():
            result = libra.optimize_design(libra.load_design(path))
            limit = 1e-5 if data.get("objective") == "time-cost" else 1e-6
            assert result.gap <= limit, block
            validate(design_schema(), path)
        elif "peak" in data:
            read_accelerator(path)
        else:
            assert data.keys() <= FORMS.keys(), f"{block}: not a part of a design"
            path.write_text(yaml.safe_dump(completed(data), sort_keys=False), "utf-8")
            libra.load_design(path)
            validate(design_schema(), path)


def validate(schema, path):
    """Fail unless the file has the schema that editors use."""
    from jsonschema import Draft7Validator

    Draft7Validator(schema).validate(read_yaml(path).data)


def completed(part):
    """Design with the part in it: the rest is made so that the part fits."""
    data = dict(part)
    if "workloads" in data:
        degrees = [
            n
            for key, n in data["workloads"][0].get("parallel", {"dp": 4096}).items()
            if key in ("tp", "pp", "dp", "cp")
        ]
        npus = 1
        for n in degrees:
            npus *= n
        blocks = [("switch", 8, "node"), ("switch", npus // 8, "pod")]
    else:
        data["workloads"] = [{"name": "gpt-3", "trace": "workloads/resnet-50.txt"}]
        blocks = [("ring", 4, "chiplet"), ("fully-connected", 8, "package"), ("ring", 4, "node")]
        blocks.append(("switch", 32, "pod"))
    prices = data.get("prices")
    tiers = [t for t in prices if t not in _OF_PRICES] if isinstance(prices, dict) else []
    if tiers:
        blocks = [block for block in blocks if block[2] in tiers]
    data.setdefault(
        "network", [{"topology": t, "size": size, "tier": tier} for t, size, tier in blocks]
    )
    data.setdefault("constraints", ["total <= 1000 GB/s"])
    return data
