"""Units: each spelling, each refusal, one parser."""

import re

import pytest

from pktswarm.traffic import units
from pktswarm.traffic.units import Range, UnitError


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        (1000, units.PACKET_RATE, 1000.0),
        ("1000", units.PACKET_RATE, 1000.0),
        ("1kpps", units.PACKET_RATE, 1e3),
        ("1.5 Mpps", units.PACKET_RATE, 1.5e6),
        ("1G", units.PACKET_RATE, 1e9),
        ("2 kpackets/s", units.PACKET_RATE, 2e3),
        ("10M", units.BIT_RATE, 1e7),
        ("1gbit", units.BIT_RATE, 1e9),
        ("64kbit", units.BIT_RATE, 64e3),
        ("2.5 Gbit/s", units.BIT_RATE, 2.5e9),
        ("100Mbps", units.BIT_RATE, 1e8),
        ("1e3k", units.BIT_RATE, 1e6),
        ("20us", units.SECONDS, 2e-5),
        ("20 µs", units.SECONDS, 2e-5),
        ("1.5 ms", units.SECONDS, 1.5e-3),
        ("100ns", units.SECONDS, 1e-7),
        ("2min", units.SECONDS, 120.0),
        ("1h", units.SECONDS, 3600.0),
        ("7d", units.SECONDS, 604800.0),
        ("2ms", units.MICROSECONDS, 2000.0),
        ("20us", units.MICROSECONDS, 20.0),
        ("90min", units.HOURS, 1.5),
        ("64k", units.BYTES, 64000.0),
        ("9 kB", units.BYTES, 9000.0),
        ("64KiB", units.BYTES, 65536.0),
        ("1Mi", units.BYTES, 1048576.0),
        ("16MiB", units.MEBIBYTES, 16.0),
        ("5 %", units.PERCENT, 5.0),
        ("0.1%", units.PERCENT, 0.1),
        ("1.5M", units.PACKETS, 1.5e6),
        ("10 packets", units.PACKETS, 10.0),
        ("64k", units.COUNT, 64e3),
        ("50/s", units.PER_SECOND, 50.0),
    ],
)
def test_units(text: object, unit: units.Unit, value: float) -> None:
    assert units.parse(text, unit) == value
    assert not isinstance(text, str) or re.search(unit.pattern, text)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("lots", units.BIT_RATE, "not a bit rate (allowed: a number of bit/s, or with bit, kbit"),
        ("20us", units.BIT_RATE, "wrong unit: 'us' is of a time, not of a bit rate (allowed: "),
        ("1gbit", units.SECONDS, "wrong unit: 'gbit' is of a bit rate, not of a time (allowed: "),
        ("10m", units.BIT_RATE, "ambiguous unit 'm': m is mega, milli or minutes"),
        ("10MB/s", units.BIT_RATE, "ambiguous unit 'MB/s': B is bytes, and the value is in bits"),
        ("100mbps", units.BIT_RATE, "ambiguous unit 'mbps': tc(8) reads bytes/s; write Mbps or mbit (allowed: "),
        ("10m", units.SECONDS, "ambiguous unit 'm': m is minutes or milli"),
        ("64K", units.BYTES, "ambiguous unit 'K': K is 1000 or 1024"),
        ("64kbit", units.BYTES, "ambiguous unit 'kbit': b is bits, and the value is in bytes"),
        ("1,000", units.COUNT, "unknown unit ',000'"),
        ("3 furlongs", units.SECONDS, "unknown unit 'furlongs'"),
        ("1e999", units.SECONDS, "not a time"),
        (True, units.SECONDS, "not a time"),
        (float("nan"), units.SECONDS, "not a time"),
        ([1], units.PERCENT, "not a percentage (allowed: a number of %, or with %: 5 %)"),
    ],
)
def test_what_is_no_number_of_its_unit_is_refused(text: object, unit: units.Unit, words: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse(text, unit)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "limits", "words"),
    [
        ("0", Range(above=0, most=3600), "out of range (allowed: more than 0, up to 3600 s)"),
        ("2h", Range(least=0.1, most=3600), "out of range (allowed: 0.1 to 3600 s)"),
        ("1ms", Range(whole=True, least=1), "not a whole number (allowed: a whole number of s, 1 or more s)"),
        ("7", Range(multiple=2, least=0), "out of range (allowed: a multiple of 2, 0 or more s)"),
        ("9", Range(below=9), "out of range (allowed: below 9 s)"),
    ],
)
def test_a_range_is_in_the_plain_unit(text: str, limits: Range, words: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse(text, units.SECONDS, limits)
    assert str(caught.value) == words


def test_a_whole_number_is_exact() -> None:
    value = units.parse("0.003M", units.BYTES, Range(whole=True))
    assert (value, type(value)) == (3000, int)


def test_the_end_of_a_key_gives_its_unit() -> None:
    assert units.unit_of("sessions_per_s") is units.PER_SECOND
    assert units.unit_of("latency_p99_us") is units.MICROSECONDS
    assert units.unit_of("name") is units.PLAIN


@pytest.mark.parametrize(("text", "part"), [("5 %", 0.05), (".5%", 0.005), ("0 %", 0), ("1e2 %", 1), ("33.3%", 0.333)])
def test_a_share(text: str, part: float) -> None:
    assert float(units.share(text)) == part
    assert re.search(units.SHARE_PATTERN, text)


@pytest.mark.parametrize("text", ["5", 5, "-1 %", "5 % %", "5 s", "%", None, True])
def test_a_number_without_its_sign_is_no_share(text: object) -> None:
    with pytest.raises(UnitError):
        units.share(text)
    assert not isinstance(text, str) or not re.search(units.SHARE_PATTERN, text)
