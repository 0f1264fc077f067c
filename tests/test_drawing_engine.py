"""The drawing engine in a process of its own draws what it draws in this one, or this one does."""

import json
import os
import signal
import sys

import pytest

from libra.plots import engine
from libra.plots.engine import draw_svg, engine_ahead, start_drawing

SPEC = {
    "data": {"values": [{"x": 'µ <b> \u2028 "q"', "y": 3}]},
    "mark": "bar",
    "encoding": {"x": {"field": "x"}, "y": {"field": "y", "type": "quantitative"}},
}


@pytest.fixture(scope="module")
def here():
    return draw_svg(SPEC, "6.1")


def refuse(*_, **__):
    raise AssertionError("drawn in this process")


def test_it_draws_the_same_ahead(here, monkeypatch):
    monkeypatch.setattr("vl_convert.vegalite_to_svg", refuse)
    with engine_ahead():
        assert [draw_svg(SPEC, "6.1") for _ in range(3)] == [here] * 3
    with pytest.raises(AssertionError):
        draw_svg(SPEC, "6.1")


def test_this_process_draws_where_the_other_ends(here):
    with engine_ahead():
        process = engine._AHEAD[-1].process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert draw_svg(SPEC, "6.1") == here
    assert process.poll() is not None


def test_many_drawings_are_started_before_the_first_is_fetched(here):
    """More than the pipes between the processes hold, in both directions."""
    points = [{"x": k, "y": f"{k:09d}"} for k in range(3000)]
    axes = {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "x", "type": "quantitative"},
    }
    large = {"data": {"values": points}, "mark": "point", "encoding": axes}
    with engine_ahead():
        drawn = [start_drawing(spec, "6.1") for spec in (large, SPEC, large, SPEC)]
        first, second, third, fourth = (one() for one in reversed(drawn))
    assert first == third == here
    assert second == fourth
    assert min(len(json.dumps(large)), len(second)) > 80_000  # a pipe holds 65,536


def test_what_was_started_is_drawn_here_where_the_other_process_ends(here):
    with engine_ahead():
        drawn = [start_drawing(SPEC, "6.1") for _ in range(3)]
        os.kill(engine._AHEAD[-1].process.pid, signal.SIGKILL)
        assert [one() for one in drawn] == [here] * 3


def test_this_process_draws_where_no_other_starts(here, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with engine_ahead():
        assert draw_svg(SPEC, "6.1") == here


def test_a_specification_that_cannot_be_drawn_is_an_error_of_this_process():
    with engine_ahead(), pytest.raises(ValueError, match="Vega"):
        draw_svg({"mark": "no such mark"}, "6.1")
