"""Commands as a shell starts them: a whole process each, from its start to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from registry.cases import Case
from registry.frozen import folder_fingerprint
from registry.inputs import write_design
from registry.prepared import Prepared

__all__ = ["prepare"]


def prepare(case: Case, folder: Path) -> Prepared:
    """Run libra on a case's design."""
    path = write_design(case.input, folder)
    fingerprint = folder_fingerprint(folder)
    word = case.options["libra"]
    command = [sys.executable, "-m", "libra", word, *([] if word == "--help" else [str(path)])]

    def work() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return Prepared(work, fingerprint, children=True)
