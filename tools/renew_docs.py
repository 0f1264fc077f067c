"""Write again what the commands on pages print, where it has changed.

python tools/renew_docs.py [PAGE…]

Runs the blocks of README.md and docs/ as tests/test_docs.py does. What a page shows keeps its
shape: each passage between two lines ``…`` is replaced by the passage of the new output that is
most like it. Sentences around the blocks may quote numbers, too: read what changed. The tables of
docs/validation.md are written by tools/validation_page.py, where the measurements are at hand.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import docs_blocks  # type: ignore  # noqa: E402
import validation_page  # noqa: E402


def renewed(shown: str, printed: str) -> str:
    """What a page shows, from what is printed now.

    Parameters
    ----------
    shown : str
        Lines on the page; ``…`` stands for lines left out.
    printed : str
        All lines.
    """
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    out: list[str] = []
    start = 0
    for passage in _passages(shown.rstrip("\n").split("\n")):
        if passage == ["…"]:
            out.append("…")
            continue
        if "…" not in shown:
            return "\n".join(lines).strip("\n") + "\n"
        count = len(passage)
        places = range(start, max(len(lines) - count, start) + 1)
        best = max(places, key=lambda k: _likeness(passage, lines[k : k + count]))
        out += lines[best : best + count]
        start = best + count
    return "\n".join(out) + "\n"


def _passages(lines: Sequence[str]) -> list[list[str]]:
    """Runs of lines, each ``…`` on its own."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == "…":
            found += [["…"], []]
        else:
            found[-1].append(line)
    return [passage for passage in found if passage]


def _likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """How alike lines are, whatever their numbers."""

    def words(line: str) -> str:
        return re.sub(r"[\d.,e+\-█·─ ]+", " ", line)

    pairs = zip(one, other, strict=False)
    return sum(difflib.SequenceMatcher(None, words(a), words(b)).ratio() for a, b in pairs)


def renew_page(page: Path) -> bool:
    """Renew a page; whether it changed."""
    text = page.read_text("utf-8")
    changes: list[tuple[str, str, str]] = []

    def note(block: docs_blocks.Block, shown: str, printed: str) -> None:
        if re.fullmatch(r"\d+", shown.strip()):
            print(f"{block}: ends with {printed.strip()}, shows {shown.strip()}: mend the page")
        else:
            changes.append((block.text, shown, renewed(shown, printed)))

    run = docs_blocks.PageRun(docs_blocks.read_blocks(page, ROOT))
    run.mismatch = note
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        docs_blocks.fill_folder(Path(name))
        run.run()
    for block_text, shown, new in changes:
        at = text.index(block_text.partition("\n")[0])
        text = text[:at] + text[at:].replace(f"\n{shown.rstrip()}\n", f"\n{new.rstrip()}\n", 1)
    page.write_text(text, "utf-8")
    return bool(changes)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    for page in pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        changed = renew_page(page)
        if page == validation_page.PAGE:
            changed = validation_page.renew_page() or changed
        if changed:
            print(f"renewed {page.relative_to(ROOT)}")
