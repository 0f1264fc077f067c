"""Draw the pictures of docs/plots.md by running the page's blocks.

python tools/draw_gallery.py
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import docs_blocks  # type: ignore  # noqa: E402

PAGE = ROOT / "docs" / "plots.md"
ASSETS = ROOT / "docs" / "assets" / "plots"


def draw_gallery() -> None:
    """Run the blocks of the page in a folder of their own and keep the pictures."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        docs_blocks.fill_folder(Path(name))
        docs_blocks.PageRun(docs_blocks.read_blocks(PAGE, ROOT)).run()
        ASSETS.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path().glob("*.svg")):
            shutil.copy(file, ASSETS / file.name)
            print(f"{ASSETS / file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    draw_gallery()
