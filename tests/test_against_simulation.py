"""What the documentation says about the model beside the simulation is what the script prints."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import against_simulation  # noqa: E402

PAGE = (ROOT / "docs" / "accuracy.md").read_text("utf-8")


def test_the_page_quotes_the_random_all_reduces():
    assert "\n".join(against_simulation.exactness_table()) in PAGE


@pytest.mark.long
@pytest.mark.parametrize("name", ["steps", "climbs"])
def test_the_page_quotes_the_other_tables(name):
    assert "\n".join(against_simulation.TABLES[name]()) in PAGE


def test_a_few_steps_of_each_loop_are_within_what_the_page_says():
    for kind, policy in against_simulation.LOOPS:
        errors = against_simulation.step_errors(kind, policy, 10)
        assert -0.16 <= min(errors) <= max(errors) <= 0.38
    assert max(map(abs, against_simulation.pipeline_errors(1, 10))) < 1e-9


def test_an_unknown_table_is_refused(capsys):
    assert against_simulation.main(["none"]) == 2
    assert "got none. Name steps or exactness or climbs." in capsys.readouterr().err
