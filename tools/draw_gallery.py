"""Draw the pictures of docs/plots.md by running the page's code.

python tools/draw_gallery.py
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from libra.presets import example_folder

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "plots.md"
ASSETS = ROOT / "docs" / "assets" / "plots"


def draw_gallery() -> None:
    """Run the code blocks of the page in a folder of their own and keep the pictures."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        shutil.copytree(example_folder(), "my-design")
        exec(compile("\n".join(blocks), str(PAGE), "exec"), {})  # noqa: S102 (the page is our own)
        ASSETS.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path().glob("*.svg")):
            shutil.copy(file, ASSETS / file.name)
            print(f"{ASSETS / file.name}: {os.path.getsize(file):,} bytes")


if __name__ == "__main__":
    draw_gallery()
