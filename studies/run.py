"""Run case studies and write their pages and figures again.

python studies/run.py [NAME ...]      all studies without a name
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pages import DOCS, index_page, load_study, render_page, study_names

from libra.errors import LibraError
from libra.files import write_whole
from libra.plots import save_chart


def run_study(name: str) -> None:
    """Compute a study and write ``docs/studies/NAME.md`` and ``NAME.svg``."""
    start = time.process_time()
    study = load_study(name)
    figures = study.figures()
    page = render_page(name, figures)
    DOCS.mkdir(parents=True, exist_ok=True)
    save_chart(study.chart(figures), DOCS / f"{name}.svg")
    write_whole(DOCS / f"{name}.md", page)
    print(f"docs/studies/{name}.md and .svg: {time.process_time() - start:.1f} s")


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description="Run case studies and write their pages again.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a folder of studies/; default all"
    )
    try:
        for name in parser.parse_args().names or study_names():
            run_study(name)
        write_whole(DOCS / "index.md", index_page())
    except LibraError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
