"""Pages of the case studies: templates whose every number is computed when the page is written.

A study is a folder ``studies/NAME`` with

- ``study.py``: ``figures() -> dict`` computes what the page says and ``chart(figures)`` draws it;
- ``page.md``: Markdown with placeholders as of `str.format`, such as ``{speedup:.2f}``; ``{{`` is a
  brace. Its first line is ``# Title`` and its first paragraph the question;
- design files (``*.yaml``), each number with its source.

``docs/studies/NAME.md`` and ``NAME.svg`` are written from these by ``python studies/run.py NAME``.
"""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from libra.errors import FieldError, InputError

__all__ = [
    "DOCS",
    "ROOT",
    "STUDIES",
    "Markdown",
    "Table",
    "differences",
    "escape",
    "file_block",
    "index_page",
    "load_study",
    "render_page",
    "study_names",
    "svg_text",
]

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "studies"
DOCS = ROOT / "docs" / "studies"

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.,]*[A-Z])")
_SPECIAL = re.compile(r"([\\`*_\[\]|#~$])")


class Markdown(str):
    """Text that goes into a page as it is; any other text is escaped."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Rows of a page's table; a chart may draw them, too.

    Attributes
    ----------
    columns : mapping of str to str or function
        Heading of each column, and the format of its cells: ``.1f``, a function such as
        `libra.units.format_time`, or empty for text.
    rows : sequence of sequences
        Cells; None is shown as a dash.
    """

    columns: Mapping[str, str | Callable[[float], str]]
    rows: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        for k, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise FieldError(
                    f"rows.{k}",
                    f"needs one cell for each of the {len(self.columns)} columns, got {len(row)}. "
                    "Give None for an empty one.",
                )

    def __format__(self, spec: str) -> str:
        """Markdown of the table; numbers stand to the right."""
        formats = list(self.columns.values())
        head = " | ".join(escape(name) for name in self.columns)
        rule = "|".join("--:" if form else "---" for form in formats)
        body = [
            " | ".join(_cell(cell, form) for cell, form in zip(row, formats, strict=True))
            for row in self.rows
        ]
        return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {line} |" for line in body)])


def _cell(cell: Any, form: str | Callable[[float], str]) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return _safe(cell)
    return form(_finite(cell)) if callable(form) else format(_finite(cell), form)


def escape(text: str) -> str:
    """Text such that Markdown shows each of its characters."""
    return html.escape(_SPECIAL.sub(r"\\\1", text), quote=False)


def file_block(path: Path) -> Markdown:
    """A file, shown in full as a block of code below its name."""
    name = path.relative_to(ROOT).as_posix()
    kind = path.suffix.lstrip(".")
    return Markdown(f'```{kind} title="{name}"\n{path.read_text("utf-8").rstrip()}\n```')


def study_names() -> list[str]:
    """Names of all studies."""
    return sorted(path.parent.name for path in STUDIES.glob("*/study.py"))


def load_study(name: str) -> ModuleType:
    """Module of a study.

    Raises
    ------
    InputError
        If there is no such study.
    """
    path = STUDIES / name / "study.py"
    spec = importlib.util.spec_from_file_location(f"study_{name.replace('-', '_')}", path)
    if name not in study_names() or spec is None or spec.loader is None:
        known = ", ".join(study_names())
        raise InputError(f"there is no such study, got {name!r}. Name one of {known}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def render_page(name: str, figures: Mapping[str, Any]) -> str:
    """Page of a study: its template with the figures in it.

    Raises
    ------
    InputError
        If the template asks for a figure that there is not, or a number is not finite.
    """
    template = (STUDIES / name / "page.md").read_text("utf-8")
    try:
        text = template.format_map({key: _shown(value) for key, value in figures.items()})
    except (KeyError, ValueError) as error:
        raise InputError(
            f"studies/{name}/page.md: a placeholder has no figure or a wrong format, got {error}. "
            "Compute it in study.py, and write {{ for a brace."
        ) from None
    note = f"<!-- Written by `python studies/run.py {name}` from studies/{name}: edit it there. -->"
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{note}\n{rest.rstrip()}\n"


def _shown(value: Any) -> Any:
    """Value as a template may hold it."""
    if isinstance(value, str):
        return _safe(value)
    return _finite(value) if isinstance(value, float) else value


def _safe(text: str) -> str:
    return str(text) if isinstance(text, Markdown) else escape(text)


def _finite(number: Any) -> Any:
    if not abs(number) < float("inf"):
        raise ValueError(f"the number {number!r}, which is not finite")
    return number


def index_page() -> str:
    """Page that lists the studies by their titles and questions, in the order of the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    names = re.findall(r": studies/([\w-]+)\.md", navigation)
    lines = [
        "# Case studies",
        "",
        "<!-- Written by `python studies/run.py`. -->",
        "",
        "Questions that a design tool is asked, answered with this one. Each page names its design",
        "files and the command that computes every number on it again;",
        "`python studies/run.py` without a name runs all of them.",
        "",
        "What of it can be set against published figures stands on each page. Of the LIBRA paper",
        "([arXiv 2109.11762](https://arxiv.org/abs/2109.11762)) these are the inputs of its",
        "published implementation, with the optima that a commercial solver finds for them, and 13",
        "splits of its precursor; all are",
        "[reproduced](bandwidth-budgets.md#against-what-was-published). The gains that the paper",
        "prints are not among these files, nor are the inputs behind them: they are not compared.",
        "",
    ]
    for name in names:
        if name == "index" or not (DOCS / f"{name}.md").exists():
            continue
        title, _, rest = (DOCS / f"{name}.md").read_text("utf-8").partition("\n")
        paragraphs = [
            p for p in rest.split("\n\n") if p.strip() and not p.strip().startswith("<!--")
        ]
        question = " ".join(paragraphs[0].split())
        lines += [f"- **[{title.lstrip('# ')}]({name}.md)** {question}"]
    return "\n".join(lines) + "\n"


def svg_text(svg: str) -> str:
    """What a drawing says: its texts, and the values of its marks as screen readers read them."""
    parts = re.findall(r'aria-label="([^"]*)"|<text\b[^>]*>([^<]*)</text>', svg)
    return "\n".join(html.unescape(label or text) for label, text in parts)


def differences(old: str, new: str, tolerance: float = 0.0) -> list[str]:
    """Lines in which two texts differ by more than rounding.

    Parameters
    ----------
    old, new : str
    tolerance : float
        Numbers may differ by this part of them, and always by one unit in the last digit if they
        have as many decimals.
    """
    olds, news = old.splitlines(), new.splitlines()
    if len(olds) != len(news):
        return [f"{len(olds)} lines became {len(news)}"]
    pairs = zip(olds, news, strict=True)
    return [f"{a!r} became {b!r}" for a, b in pairs if not _alike(a, b, tolerance)]


def _alike(old: str, new: str, tolerance: float) -> bool:
    if _NUMBER.split(old) != _NUMBER.split(new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(_near(a, b, tolerance) for a, b in pairs)


def _near(old: str, new: str, tolerance: float) -> bool:
    a, b = (text.replace(",", "").partition("e") for text in (old, new))
    one, other = (float("".join(parts)) for parts in (a, b))
    if abs(one - other) <= tolerance * max(abs(one), abs(other)):
        return True
    decimals = len(a[0].partition(".")[2])
    if decimals != len(b[0].partition(".")[2]) or a[2] != b[2]:
        return False
    return abs(float(a[0]) - float(b[0])) <= 1.001 * 10.0**-decimals
