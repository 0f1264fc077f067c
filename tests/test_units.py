"""Quantities: closed forms, what is refused, round trips."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra.units import (
    BANDWIDTH,
    ENERGY_PRICE,
    FLOPS,
    FREQUENCY,
    MONEY,
    POWER,
    POWER_RATE,
    PRICE_RATE,
    TIME,
    format_bytes,
    format_money,
    format_time,
    parse_number,
    parse_quantity,
    parse_unit,
)

CLOSED_FORMS = [
    ("1 GB/s", BANDWIDTH, 1e9),
    ("1 GiB/s", BANDWIDTH, 2.0**30),
    ("1 Gbit/s", BANDWIDTH, 1.25e8),
    ("1 Gibit/s", BANDWIDTH, 2.0**27),
    ("1 TB/s", BANDWIDTH, 1e12),
    ("1 TiB/s", BANDWIDTH, 2.0**40),
    ("3 MB/s", BANDWIDTH, 3e6),
    ("3 kB/s", BANDWIDTH, 3e3),
    ("3 KB/s", BANDWIDTH, 3e3),
    ("8 bit/s", BANDWIDTH, 1.0),
    ("1_000 GB/s", BANDWIDTH, 1e12),
    ("1.5e2GB/s", BANDWIDTH, 1.5e11),
    (".5 GB / s", BANDWIDTH, 5e8),
    ("0 GB/s", BANDWIDTH, 0.0),
    ("1 B/ns", BANDWIDTH, 1e9),
    ("20 ns", TIME, 2e-8),
    ("3 us", TIME, 3e-6),
    ("3 µs", TIME, 3e-6),
    ("4 ms", TIME, 4e-3),
    ("2 s", TIME, 2.0),
    ("25000 USD", MONEY, 25000.0),
    ("15 MUSD", MONEY, 15e6),
    ("4 USD/(GB/s)", PRICE_RATE, 4e-9),
    ("4 USD/GB*s", PRICE_RATE, 4e-9),
    ("1 kUSD/(Tbit/s)", PRICE_RATE, 8e-9),
    ("700 W", POWER, 700.0),
    ("1.5 kW", POWER, 1500.0),
    ("5 J/s", POWER, 5.0),
    ("2 W/(GB/s)", POWER_RATE, 2e-9),
    ("0.36 USD/kWh", ENERGY_PRICE, 1e-7),
    ("0.1 USD/(kW*s)", ENERGY_PRICE, 1e-4),
    ("989 TFLOP/s", FLOPS, 9.89e14),
    ("1 PFLOP/s", FLOPS, 1e15),
    ("940 MHz", FREQUENCY, 9.4e8),
]


@pytest.mark.parametrize(("text", "kind", "value"), CLOSED_FORMS)
def test_closed_forms(text, kind, value):
    assert parse_quantity(text, kind) == pytest.approx(value, rel=1e-15)


def test_the_three_giga_differ():
    sizes = [parse_quantity(f"1 {unit}/s", BANDWIDTH) for unit in ("GiB", "GB", "Gibit", "Gbit")]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


@pytest.mark.parametrize(
    ("value", "kind", "fragment"),
    [
        ("100 Gb/s", BANDWIDTH, "Write Gbit or GB."),
        ("100 GBps", BANDWIDTH, "Write GB/s."),
        ("100 Gbps", BANDWIDTH, "Write Gbit/s."),
        ("100 gb/s", BANDWIDTH, "Write GB or Gbit."),
        ("100 $", MONEY, "Write USD."),
        ("100 parsec", TIME, "Known units"),
        ("100 GB/", BANDWIDTH, "Known units"),
        ("100 (GB/s", BANDWIDTH, "Known units"),
        ("100 GB/s)", BANDWIDTH, "Known units"),
        ("100 GB s s", BANDWIDTH, "Known units"),
        ("100 %", BANDWIDTH, "unknown unit"),
        ("100 " + "(" * 5000 + "GB", BANDWIDTH, "unknown unit"),
        ("100", BANDWIDTH, "needs a unit"),
        (100, BANDWIDTH, "needs a unit"),
        (100.0, TIME, "needs a unit"),
        (True, MONEY, "needs a unit"),
        (None, MONEY, "with its unit"),
        ("GB/s", BANDWIDTH, "not a number with a unit"),
        ("", BANDWIDTH, "not a number with a unit"),
        ("nan GB/s", BANDWIDTH, "not a number with a unit"),
        ("inf GB/s", BANDWIDTH, "not a number with a unit"),
        ("1e999 GB/s", BANDWIDTH, "finite and not negative"),
        ("1e305 TB/s", BANDWIDTH, "finite and not negative"),
        ("-1 GB/s", BANDWIDTH, "finite and not negative"),
        ("100 GB", BANDWIDTH, "not that of a bandwidth but of a size"),
        ("100 ns", BANDWIDTH, "not that of a bandwidth but of a time"),
        ("100 GB/s", TIME, "not that of a time but of a bandwidth"),
        ("4 USD", PRICE_RATE, "not that of a price per bandwidth but of a"),
        ("989 TFLOPS", FLOPS, "Write TFLOP/s."),
        ("989 TFLOP", FLOPS, "not that of a rate of operations but of another kind"),
        ("700 J", POWER, "not that of a power but of another kind"),
        ("1 GHz", TIME, "not that of a time but of a frequency"),
        ("4 USD/GB/s", PRICE_RATE, "not that of a price per bandwidth but of another kind"),
    ],
)
def test_refuses(value, kind, fragment):
    with pytest.raises(ValueError, match=re.escape(fragment)):
        parse_quantity(value, kind)


numbers = st.floats(min_value=0, max_value=1e200, allow_subnormal=False)
units = st.sampled_from(["GB/s", "GiB/s", "Gbit/s", "MB/s", "B/s", "TB/s", "Tibit/s"])


@given(numbers, units)
def test_round_trip(number, unit):
    scale, _ = parse_unit(unit)
    assert parse_quantity(f"{number!r} {unit}", BANDWIDTH) == number * scale


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_all_their_digits(number):
    assert parse_number(f"{number!r} x") == (number, "x")


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        value = parse_quantity(text, BANDWIDTH)
    except ValueError:
        return
    assert math.isfinite(value)
    assert value >= 0


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (format_time(0.70343), "703.4 ms"),
        (format_time(2.0), "2.000 s"),
        (format_time(1e-6), "1.000 us"),
        (format_time(4.2e-9), "4.200 ns"),
        (format_time(0.0), "0 ns"),
        (format_time(float("inf")), "inf s"),
        (format_bytes(805306368), "805.3 MB"),
        (format_bytes(12), "12.00 B"),
        (format_money(19049899.15), "19.05 M USD"),
        (format_money(12), "12.00 USD"),
    ],
)
def test_formats(formatted, expected):
    assert formatted == expected


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_formatted_times_keep_four_digits(seconds):
    number, unit = format_time(seconds).split()
    assert float(number.replace(",", "")) * parse_unit(unit)[0] == pytest.approx(seconds, rel=6e-4)
