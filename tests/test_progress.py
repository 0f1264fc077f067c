"""Progress: one line of a terminal that is gone in the end, nothing elsewhere."""

import io
import sys
import time

from libra import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_where_it_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert progress.waited("waiting", lambda a, b: a + b, 1, b=2) == 3
    assert list(progress.counted("done", range(3), 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_a_line_that_is_gone_in_the_end(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 0.001)
    for _ in progress.counted("solved", range(2), 2):
        deadline = time.monotonic() + 10
        while "solved" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.001)
    text = stream.getvalue()
    assert "\rsolved 1 of 2, 0 s" in text
    last = text.rsplit("\r", 2)
    assert last[-1] == ""
    assert last[-2].strip() == ""


def test_quick_work_says_nothing(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    assert progress.waited("waiting", lambda: 1) == 1
    assert stream.getvalue() == ""
