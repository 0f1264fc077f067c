"""Tables on narrow terminals and in pipes: what they show is never cut."""

import io

import pytest
from rich.console import Console

from libra.fitting_table import new_table
from libra.screen import print_to

FIGURES = [f"{1234.5 + k:,.1f}" for k in range(8)]


def table(spare=(), keys=1, note=""):
    columns = [("Key", "right"), *((f"figure {k}", "right") for k in range(8)), ("Note", "left")]
    found = new_table(columns, "A title", spare, keys)
    found.add_row("7", *FIGURES, note)
    found.add_row("8", *FIGURES, note)
    return found


def printed(what, width, *, terminal):
    file = io.StringIO()
    print_to(Console(file=file, width=width, force_terminal=terminal, color_system=None), what)
    return file.getvalue()


@pytest.mark.parametrize("width", [25, 40, 60, 80, 120])
def test_a_terminal_gets_several_tables(width):
    text = printed(table(), width, terminal=True)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("A title") == 1
    words = text.split()
    assert all(words.count(figure) == 2 for figure in FIGURES)
    assert (words.count("Key") == 1) == (width >= 120)


def test_keys_begin_each_table():
    text = printed(table(keys=3), 50, terminal=True)
    heads = [line for line in text.splitlines() if "Key" in line]
    assert len(heads) > 1
    assert all(line.split()[:5] == ["Key", "figure", "0", "figure", "1"] for line in heads)


def test_spare_columns_go_first():
    spare = [f"figure {k}" for k in range(8)]
    text = printed(table(spare), 30, terminal=True)
    assert text.count("Key") == 1
    assert FIGURES[7] in text
    assert FIGURES[0] not in text


def test_a_pipe_gets_long_lines():
    columns = [("Key", "right"), *((f"figure {k}", "right") for k in range(30))]
    wide = new_table(columns, "A title")
    wide.add_row("7", *(f"{k}.5" for k in range(30)))
    text = printed(wide, 80, terminal=False)
    assert "…" not in text
    (row,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["7"])
    assert row == ["7", *(f"{k}.5" for k in range(30))]


def test_text_at_the_left_wraps():
    note = "words that may stand below each other " * 5
    text = printed(table(note=note), 120, terminal=True)
    assert text.count("Key") == 1
    assert text.split().count("words") == 10
