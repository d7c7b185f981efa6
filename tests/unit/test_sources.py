"""Application sources: their laws, rates and packets, held against theory with fixed seeds."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.parse import (
    KINDS,
    MODIFIERS,
    Constant,
    Exponential,
    Gamma,
    Pareto,
    Shaped,
    generator,
    times,
)
from pktswarm.traffic.random.rates import PROFILES, UNITS, parse_rates
from pktswarm.traffic.sources import SOURCES, Packets, Source, merged, parse_profile, parse_source, settle
from pktswarm.traffic.sources.adaptive_video import AdaptiveVideo
from pktswarm.traffic.sources.base import BLOCK_USERS, queued
from pktswarm.traffic.sources.ftp import Ftp
from pktswarm.traffic.sources.iot import Iot
from pktswarm.traffic.sources.mpeg import Mpeg
from pktswarm.traffic.sources.processes import (
    Spells,
    Steering,
    alternating,
    arrivals,
    ragged,
    renewals,
    running_sums,
    ticks,
)
from pktswarm.traffic.sources.telnet import Telnet
from pktswarm.traffic.sources.videoconference import Videoconference
from pktswarm.traffic.sources.voip import Voip
from pktswarm.traffic.sources.web_quic import WebQuic
from pktswarm.traffic.sources.www import Www

EVEN = Steering()
OVERHEAD = 20
VARIANTS: dict[str, tuple[Source, int, float]] = {
    "ftp": (Ftp(), 400, 120),
    "www": (Www(), 400, 300),
    "mpeg": (Mpeg(), 100, 30),
    "mpeg in sessions": (Mpeg(session_gap_s=Exponential(30), session_s=Exponential(12)), 400, 30),
    "videoconference": (Videoconference(), 400, 30),
    "telnet": (Telnet(), 600, 120),
    "web_quic": (WebQuic(), 200, 60),
    "web_quic on a slow link": (WebQuic(link_bps=3e6), 200, 60),
    "adaptive_video": (AdaptiveVideo(), 200, 30),
    "adaptive_video in sessions": (
        AdaptiveVideo(session_gap_s=Exponential(60), session_s=Shaped(Exponential(40), at_most=90)),
        300,
        40,
    ),
    "voip": (Voip(), 400, 60),
    "voip in calls": (Voip(codec="g729", session_gap_s=Exponential(100), session_s=Exponential(60)), 600, 60),
    "iot": (Iot(), 20_000, 3600),
}


def user_totals(packets: Packets, users: int) -> Any:
    return np.bincount(packets.user, weights=packets.size_bytes.astype(float), minlength=users)


def small(name: str) -> tuple[Source, int, float]:
    source = VARIANTS[name][0]
    return (source, 3000, 600.0) if isinstance(source, Iot) else (source, BLOCK_USERS + 6, 20.0)


# --- what every source keeps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_mean_rates_are_those_of_theory(name: str) -> None:
    """Users are independent, so the error of their mean is known from how they differ."""
    source, users, duration_s = VARIANTS[name]
    packets = source.generate(users, duration_s, 11)
    for per_user, theory in (
        (user_totals(packets, users) * 8 / duration_s, source.mean_bps),
        (np.bincount(packets.user, minlength=users) / duration_s, source.mean_pps),
    ):
        error = per_user.std() / math.sqrt(users)
        assert abs(per_user.mean() - theory) < 4 * error, (per_user.mean(), theory)
        assert error < 0.1 * theory


@pytest.mark.parametrize("name", VARIANTS)
def test_packets_are_whole(name: str) -> None:
    source, users, duration_s = small(name)
    packets = source.generate(users, duration_s, 12)
    assert len(packets) and np.all(np.diff(packets.time_ns) >= 0)
    assert packets.time_ns[0] >= 0 and packets.time_ns[-1] < duration_s * 1e9
    assert packets.size_bytes.min() >= 64 and packets.size_bytes.max() <= source.mtu_bytes + 18
    assert packets.user.min() >= 0 and packets.user.max() < users
    assert np.array_equal(np.unique(packets.flow), np.arange(packets.flow.max() + 1))
    owner = np.zeros(packets.flow.max() + 1, int)
    owner[packets.flow] = packets.user
    assert np.array_equal(owner[packets.flow], packets.user), "a flow belongs to one user"
    assert [c.dtype for c in (packets.time_ns, packets.size_bytes, packets.user, packets.flow)] == [
        np.int64,
        np.int32,
        np.int32,
        np.int32,
    ]


@pytest.mark.parametrize("name", VARIANTS)
def test_no_user_sends_faster_than_the_link(name: str) -> None:
    source, users, duration_s = small(name)
    packets = source.generate(users, duration_s, 13)
    order = np.lexsort((np.arange(len(packets)), packets.user))
    same = np.diff(packets.user[order]) == 0
    gap_ns = np.diff(packets.time_ns[order])[same]
    takes_ns = ((packets.size_bytes[order] + OVERHEAD) * 8e9 / source.link_bps)[:-1][same]
    assert np.all(gap_ns >= takes_ns - 3)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_seed_gives_the_same_packets(name: str) -> None:
    source, _, _ = VARIANTS[name]
    duration_s = 5000 if isinstance(source, Iot) else 8
    users = 300 if isinstance(source, Iot) else 2 * BLOCK_USERS + 3
    first, again = (source.generate(users, duration_s, 14, stream=(2,)) for _ in range(2))
    for column in ("time_ns", "size_bytes", "user", "flow"):
        assert np.array_equal(getattr(first, column), getattr(again, column))
    for other in (source.generate(users, duration_s, 15, stream=(2,)), source.generate(users, duration_s, 14)):
        assert not np.array_equal(first.time_ns[:50], other.time_ns[:50])


def test_blocks_of_users_can_be_made_apart() -> None:
    whole = Www().generate(3 * BLOCK_USERS, 60, 16)
    shares = [Www().generate(n * BLOCK_USERS, 60, 16, first_user=f * BLOCK_USERS) for f, n in ((0, 1), (1, 2))]
    joined = merged(shares)
    for column in ("time_ns", "size_bytes", "user"):
        assert np.array_equal(getattr(whole, column), getattr(joined, column))


def test_users_are_independent() -> None:
    packets = Www(request_gap_s=Exponential(0.1), item_bytes=Constant(100)).generate(2 * BLOCK_USERS, 200, 17)
    counts = np.histogram2d(packets.user, packets.time_ns, bins=(2 * BLOCK_USERS, 100))[0]
    related = np.corrcoef(counts) - np.eye(2 * BLOCK_USERS)
    assert np.abs(related).max() < 0.55 and abs(related.mean()) < 0.01


@pytest.mark.parametrize("kind", SOURCES.values(), ids=str)
def test_small_runs(kind: type[Source]) -> None:
    assert len(kind().generate(1, 0.001, 1)) <= 10


def test_all_of_an_item_is_sent() -> None:
    source = Www(item_bytes=Exponential(9000))
    items = source.items(generator(18, 0), 1, 300, EVEN)
    packets = source.generate(1, 300, 18)
    inside = items.start_s > 0
    sent = np.bincount(packets.flow, weights=np.maximum(packets.size_bytes - 58, 0))
    wanted = np.ceil(items.size_bytes[inside][np.argsort(items.start_s[inside])])
    assert np.allclose(sent[-wanted.size :][:-1], wanted[:-1], atol=5)  # the least frame has room for 6 bytes
    full = packets.size_bytes == 1518
    counts = np.bincount(packets.flow)[-wanted.size :][:-1]
    assert np.array_equal(counts, np.ceil(wanted / 1460)[:-1]) and full.any()


def test_an_endless_item_takes_no_more_than_the_run() -> None:
    source = Www(request_gap_s=Exponential(1), item_bytes=Constant(1e15), link_bps=1e6)
    packets = source.generate(2, 10, 19)
    assert 1 < len(packets) <= 2 * (1 + 10 * 1e6 / (1538 * 8))


def test_the_page_names_every_source_and_parameter() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    sections = {part.split("\n")[0].strip(): part for part in text.split("\n### ")}
    shared = {one.name for one in dataclasses.fields(Www)} & {one.name for one in dataclasses.fields(Iot)}
    for name, kind in SOURCES.items():
        for one in {one.name for one in dataclasses.fields(kind)} - shared:
            assert f"`{one}`" in sections[name], (name, one)
    assert all(f"`{name}`" in text for name in (*shared, *KINDS, *MODIFIERS, *PROFILES, *UNITS))
    told = dict(re.findall(r"^\| \[`(\w+)`\].*?\| ([0-9.]+ [kM]?bit/s)", text, re.M))
    for name, kind in SOURCES.items():
        value, unit = told[name].split()
        scale = {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6}[unit]
        assert kind().mean_bps / scale == pytest.approx(float(value), rel=0.02, abs=0.05)


# --- each source's laws --------------------------------------------------------------------------------------------


def follows(sample: Any, law: Any) -> bool:
    return bool(stats.kstest(sample, law.cdf).pvalue > 0.01)


def test_www_laws() -> None:
    source = Www()
    items = source.items(generator(21), 20, 20_000, EVEN)
    order = np.lexsort((items.start_s, items.user))
    gaps = np.diff(items.start_s[order])[np.diff(items.user[order]) == 0]
    assert follows(gaps, source.request_gap_s) and follows(items.size_bytes, source.item_bytes)


def test_ftp_laws() -> None:
    source = Ftp()
    items = source.items(generator(22), 64, 200_000, EVEN)
    counts = np.bincount(items.flow)
    assert follows(items.size_bytes, source.item_bytes)
    seen = np.bincount(counts, minlength=12)[1:12]
    wanted = counts.size * (1 / 3) * (2 / 3) ** np.arange(11)
    assert (
        stats.chisquare(np.append(seen, counts.size - seen.sum()), np.append(wanted, counts.size - wanted.sum())).pvalue
        > 0.01
    )
    begin = np.full(counts.size, np.inf)
    np.minimum.at(begin, items.flow, items.start_s)
    user = np.zeros(counts.size, int)
    user[items.flow] = items.user
    order = np.lexsort((begin, user))
    assert follows(np.diff(begin[order])[np.diff(user[order]) == 0], source.session_gap_s)
    inner = np.lexsort((items.start_s, items.flow))
    gaps = np.diff(items.start_s[inner])[np.diff(items.flow[inner]) == 0]
    assert follows(gaps, source.item_gap_s)


def test_telnet_laws() -> None:
    source = Telnet(session_gap_s=Constant(2e5), session_s=Constant(2e5))
    items = source.items(generator(23), 2, 1e5, EVEN)
    order = np.lexsort((items.start_s, items.flow))
    gaps = np.diff(items.start_s[order])[np.diff(items.flow[order]) == 0]
    assert follows(gaps[::7], source.packet_gap_s) and gaps.size > 90_000
    assert np.mean(items.size_bytes == 1) == pytest.approx(1 / 1.6, abs=0.01)
    assert float(source.packet_gap_s.moment(1)) == pytest.approx(1.1, abs=0.01), "Paxson and Floyd's mean"
    assert float(Telnet().session_s.inverse(0.5)) == pytest.approx(110, rel=0.01)


def test_mpeg_laws() -> None:
    source = Mpeg()
    items = source.items(generator(24), 8, 300, EVEN)
    assert np.bincount(items.user).min() >= 300 * 30
    for user in range(8):
        mine = items.user == user
        order = np.argsort(items.start_s[mine])
        assert np.allclose(np.diff(items.start_s[mine][order]), 1 / 30)
        sizes = items.size_bytes[mine][order]
        first = int(np.argmax([sizes[place::15].mean() for place in range(15)]))
        for place, kind in enumerate("IBBPBBPBBPBBPBB"):
            law = {"I": source.i_bytes, "P": source.p_bytes, "B": source.b_bytes}[kind]
            assert stats.kstest(sizes[(first + place) % 15 :: 15], law.cdf).pvalue > 1e-4
    all_sizes = np.sort(items.size_bytes)
    mixed = (
        sum(n * law.cdf(all_sizes) for n, law in ((1, source.i_bytes), (4, source.p_bytes), (10, source.b_bytes))) / 15
    )
    assert np.abs(mixed - (np.arange(all_sizes.size) + 0.5) / all_sizes.size).max() < 1.63 / math.sqrt(all_sizes.size)


def test_videoconference_laws() -> None:
    source = Videoconference()
    items = source.items(generator(25), 40, 1000, EVEN)
    order = np.lexsort((items.start_s, items.user))
    sizes, same = items.size_bytes[order], np.diff(items.user[order]) == 0
    changed = np.flatnonzero((np.diff(sizes) != 0) | ~same) + 1
    assert follows(sizes[changed], source.picture_bytes)
    kept = np.mean(np.diff(sizes)[same] == 0)
    assert kept == pytest.approx(0.984, abs=0.001)
    one = sizes[: 40 * 25_000 // 40]
    assert np.corrcoef(one[:-1], one[1:])[0, 1] == pytest.approx(0.984, abs=0.006)


def test_voip_laws() -> None:
    source = Voip()
    whole = Spells(np.arange(50), np.zeros(50), np.full(50, 2000.0))
    row, spurts = alternating(generator(26), source.talk_s, source.silence_s, whole)
    order = np.lexsort((spurts.begin_s, row))
    row, begin, end = row[order], spurts.begin_s[order], spurts.end_s[order]
    same = np.diff(row) == 0
    inner = np.flatnonzero(same[:-1] & same[1:]) + 1
    assert follows((end - begin)[inner], source.talk_s)
    assert follows((begin[1:] - end[:-1])[same], source.silence_s)
    packets = source.generate(30, 300, 26)
    assert set(packets.size_bytes) == {14 + 20 + 8 + 12 + 160 + 4}
    for user in range(30):
        gaps = np.diff(packets.time_ns[packets.user == user])
        assert gaps.min() >= 19_999_990 or np.mean(gaps < 19_999_990) < 0.02
        assert np.mean(np.abs(gaps - 20_000_000) < 10) > 0.95


def test_alternating_is_stationary() -> None:
    on, off = Gamma(3, 1), Constant(2.0)
    rows = 20_000
    whole = Spells(np.arange(rows), np.zeros(rows), np.full(rows, 9.0))
    row, spells = alternating(generator(27), on, off, whole)
    for instant in (0.0, 0.7, 4.0, 8.9):
        talking = np.sum((spells.begin_s <= instant) & (spells.end_s > instant))
        assert talking / rows == pytest.approx(0.6, abs=0.012)
    assert spells.end_s.max() <= 9 and np.array_equal(spells.user, row)


def test_adaptive_video_laws() -> None:
    source = AdaptiveVideo(variation=Constant(1.0))
    items = source.items(generator(28), 64, 6000, EVEN)
    order = np.lexsort((items.start_s, items.user))
    sizes, same = items.size_bytes[order], np.diff(items.user[order]) == 0
    assert np.allclose(np.diff(items.start_s[order])[same], 6)
    rungs = np.rint(sizes * 8 / 6).astype(int)
    place = np.searchsorted(np.array(source.ladder_bps).astype(int), rungs)
    assert np.allclose(np.array(source.ladder_bps)[place], sizes * 8 / 6)
    shares = np.bincount(place, minlength=9) / place.size
    assert np.allclose(shares, 1 / 9, atol=0.02)
    moves = np.diff(place)[same]
    assert set(moves) == {-1, 0, 1}
    inner = (place[:-1][same] > 0) & (place[:-1][same] < 8)
    assert np.mean(moves[inner] == 1) == pytest.approx(0.1, abs=0.01)
    assert np.mean(moves[inner] == -1) == pytest.approx(0.1, abs=0.01)


def test_adaptive_video_begins_with_some_segments_at_once() -> None:
    source = AdaptiveVideo(session_gap_s=Constant(100.0), session_s=Constant(29.0))
    items = source.items(generator(29), 10, 200, EVEN)
    for flow in np.unique(items.flow):
        begins = np.sort(items.start_s[items.flow == flow])
        if begins[0] > 0 and begins[0] < 160:
            assert np.allclose(begins - begins[0], [0, 0, 0, 6, 12, 18, 24])


def test_web_quic_laws() -> None:
    source = WebQuic()
    items = source.items(generator(30), 64, 2000, EVEN)
    pages = int(items.flow.max()) + 1
    assert np.all(items.size_bytes[:pages] == 3600)
    assert follows(items.size_bytes[pages : 2 * pages], source.main_bytes)
    objects = items.size_bytes[2 * pages :]
    assert follows(objects[:: max(1, objects.size // 20_000)], source.object_bytes)
    counts = np.bincount(items.flow)[:pages] - 2
    assert np.abs(
        [np.mean(counts <= n) - float(source.objects.cdf(n)) for n in range(1, 500)]
    ).max() < 1.63 / math.sqrt(pages)
    wait = items.start_s[2 * pages :] - items.start_s[pages : 2 * pages][items.flow[2 * pages :]]
    assert follows(np.unique(wait.round(9)), source.parse_s)


def test_iot_laws() -> None:
    source = Iot()
    items = source.items(generator(31), 4000, 86_400 * 2, EVEN)
    assert follows(items.size_bytes[::20], source.report_bytes)
    order = np.lexsort((items.start_s, items.user))
    gaps = np.diff(items.start_s[order])[np.diff(items.user[order]) == 0].round(6)
    assert set(gaps) == {86_400, 7_200, 3_600, 1_800}
    interval = np.zeros(4000)
    interval[items.user[order][1:][np.diff(items.user[order]) == 0]] = gaps
    shares = [np.mean(interval == seconds) for seconds in (86_400, 7_200, 3_600, 1_800)]
    assert np.allclose(shares, [0.4, 0.4, 0.15, 0.05], atol=0.03)


# --- how often -----------------------------------------------------------------------------------------------------


def test_a_profile_steers_arrivals_and_keeps_their_mean() -> None:
    source = Www(request_gap_s=Exponential(1.0), item_bytes=Constant(100.0))
    day = parse_rates("s.yaml", "profile", {"sine": {"mean": 7, "amplitude": 7, "day_s": 100}}, 100)
    packets = source.generate(300, 100, 41, profile=day)
    assert len(packets) == pytest.approx(300 * 100, rel=0.03)
    exact = lambda t: t / 100e9 - np.sin(2 * np.pi * t / 100e9) / (2 * np.pi)  # noqa: E731
    assert stats.kstest(packets.time_ns, exact).pvalue > 0.01


@pytest.mark.parametrize(
    "source",
    [Ftp(session_gap_s=Exponential(2), item_bytes=Constant(500.0)), Iot(interval_s=Constant(2.0))],
    ids=str,
)
def test_where_the_profile_is_0_nothing_begins(source: Source) -> None:
    half = parse_rates("s.yaml", "profile", {"square": {"rates": [0, 5], "every_s": 50}}, 100)
    items = source.items(generator(42), 200, 100, Steering(half))
    begins = np.full(int(items.flow.max()) + 1, np.inf)
    np.minimum.at(begins, items.flow, items.start_s)
    assert begins.min() >= 50
    assert np.unique(items.flow).size if isinstance(source, Iot) else begins.size == pytest.approx(200 * 50, rel=0.05)


def test_only_what_arrives_can_be_steered() -> None:
    with pytest.raises(BadInput, match="has no arrivals") as caught:
        parse_profile("s.yaml", "arrivals", 1, Mpeg(), 10)
    assert caught.value.key == "arrivals"
    in_sessions = Mpeg(session_gap_s=Exponential(30), session_s=Exponential(12))
    assert parse_profile("s.yaml", "arrivals", 1, in_sessions, 10).mean == 1
    with pytest.raises(ValueError, match="no arrivals"):
        Mpeg().generate(1, 1, 1, profile=parse_rates("s.yaml", "p", 1, 1))


@pytest.mark.parametrize(
    ("name", "mean_bps"),
    [("www", 10e6), ("ftp", 5e6), ("mpeg", 5e6), ("videoconference", 5e6), ("www", 30e6), ("web_quic", 1e5)],
)
def test_a_share_by_mean_rate(name: str, mean_bps: float) -> None:
    """NetSpec's background of 25 and 60 Mbit/s is made of such shares."""
    source, users = settle("s.yaml", "s", parse_source("s.yaml", "s", name), mean_bps=mean_bps)
    assert users * source.mean_bps == pytest.approx(mean_bps, rel=1e-5)
    nearest = max(1, round(mean_bps / SOURCES[name]().mean_bps))
    assert users == nearest


def test_a_mean_rate_of_so_many_users() -> None:
    for kind in (Www, Mpeg, AdaptiveVideo, Telnet, Iot):
        source, users = settle("s.yaml", "s", kind(), users=40, mean_bps=3e6)
        assert users == 40 and users * source.mean_bps == pytest.approx(3e6, rel=1e-5)
    source, users = settle("s.yaml", "s", Voip(), mean_bps=1e6)
    assert source == Voip() and users == round(1e6 / Voip().mean_bps)
    assert settle("s.yaml", "s", Www(), users=500) == (Www(), 500) and settle("s.yaml", "s", Www()) == (Www(), 1)


def test_what_is_generated_has_the_share() -> None:
    source, users = settle("s.yaml", "s", Www(), mean_bps=10e6)
    packets = source.generate(users, 30, 43)
    totals = user_totals(packets, users) * 8 / 30
    assert abs(totals.sum() - 10e6) < 4 * totals.std() * math.sqrt(users)


# --- processes -----------------------------------------------------------------------------------------------------


def test_an_item_waits_for_the_earlier_ones() -> None:
    user = np.array([0, 0, 0, 3, 3])
    begins = queued(user, np.array([0.0, 1, 10, -5, -4.5]), np.array([4.0, 2, 1, 1, 1]))
    assert np.allclose(begins, [0, 4, 10, -5, -4])


def test_queues_against_one_item_after_the_other() -> None:
    draws = np.random.default_rng(51)
    user = np.sort(draws.integers(0, 40, 3000))
    start = draws.random(3000) * 50 - 5
    start = start[np.lexsort((start, user))]
    takes = draws.exponential(0.6, 3000)
    free: dict[int, float] = {}
    wanted = []
    for one, at, lasts in zip(user.tolist(), start.tolist(), takes.tolist(), strict=True):
        wanted.append(max(at, free.get(one, -math.inf)))
        free[one] = wanted[-1] + lasts
    assert np.allclose(queued(user, start, takes), wanted, atol=1e-9)


def test_renewals_keep_each_rows_bounds() -> None:
    first, until = np.array([0.0, 5, 3, 8]), np.array([1000.0, 5, 4, 3000])
    law = Shaped(Pareto(1.1, 0.1), at_most=50)
    row, time_s = renewals(generator(52), law, first, until)
    assert set(row) == {0, 2, 3} and np.all(time_s >= first[row]) and np.all(time_s < until[row])
    for one in (0, 3):
        mine = np.sort(time_s[row == one])
        assert mine[0] == first[one] and follows(np.diff(mine), law)


@pytest.mark.parametrize("law", [Constant(10.0), Gamma(0.5, 20.0)], ids=str)
def test_arrivals_are_as_frequent_at_first_as_later(law: Any) -> None:
    _, time_s = arrivals(generator(53), law, 20_000, -5.0, 45.0, EVEN)
    counts = np.histogram(time_s, np.arange(-5, 46, 5))[0]
    assert np.all(np.abs(counts - 10_000) < 700) and time_s.min() >= -5


def test_ticks_and_ragged_sums() -> None:
    spells = Spells(np.arange(3), np.array([-1.0, 2, 9]), np.array([1.0, 2.5, 12]))
    row, number, at = ticks(spells, 0.5, 0, 10)
    assert list(zip(row, number, at, strict=True)) == [(0, 2, 0), (0, 3, 0.5), (1, 0, 2), (2, 0, 9), (2, 1, 9.5)]
    row, place = ragged(np.array([2, 0, 3]))
    assert row.tolist() == [0, 0, 2, 2, 2] and place.tolist() == [0, 1, 0, 1, 2]
    assert running_sums(np.array([1.0, 2, 3, 4, 5]), row, place).tolist() == [1, 3, 3, 7, 12]


def test_scaled_laws_reach_the_wire() -> None:
    plain = Mpeg()
    twice = Mpeg(i_bytes=times(plain.i_bytes, 2), p_bytes=times(plain.p_bytes, 2), b_bytes=times(plain.b_bytes, 2))
    assert twice.mean_bps / plain.mean_bps == pytest.approx(2, rel=0.06)


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        ("gopher", "source", "ftp, www, mpeg"),
        ({"www": {}, "ftp": {}}, "source", "one source"),
        (3, "source", "one source"),
        ({"www": 3}, "source.www", "unknown parameter"),
        ({"www": {"item_size": 3}}, "source.www", "request_gap_s"),
        ({"www": {"item_bytes": {"pareto": {"shape": 1, "least": 9}}}}, "source.www.item_bytes", "no finite mean"),
        ({"www": {"request_gap_s": {"normal": {"mean": 1, "sd": 1}}}}, "source.www.request_gap_s", "below 0"),
        ({"www": {"request_gap_s": 0}}, "source.www.request_gap_s", "must be above 0"),
        ({"www": {"link_bps": 0}}, "source.www.link_bps", "> 0"),
        ({"www": {"link_bps": 3000}}, "source.www.link_bps", "more than link_bps"),
        ({"www": {"mtu_bytes": 100}}, "source.www.mtu_bytes", "576 or more"),
        ({"www": {"ip_header_bytes": 30}}, "source.www.ip_header_bytes", "20 or 40"),
        ({"mpeg": {"gop": "BIP"}}, "source.mpeg.gop", "begin with I"),
        ({"mpeg": {"session_s": 3}}, "source.mpeg", "both, or neither"),
        ({"videoconference": {"correlation": 1}}, "source.videoconference.correlation", "below 1"),
        ({"voip": {"codec": "g7"}}, "source.voip.codec", "g711, g729"),
        ({"adaptive_video": {"ladder_bps": [1, -1]}}, "source.adaptive_video.ladder_bps", "above 0"),
        ({"adaptive_video": {"switch": 0.6}}, "source.adaptive_video.switch", "0 to 0.5"),
        ({"adaptive_video": {"startup_segments": 0}}, "source.adaptive_video.startup_segments", "1 or more"),
        ({"iot": {"interval_s": {"exponential": 60}}}, "source.iot.interval_s", "at_least"),
    ],
    ids=str,
)
def test_bad_sources_are_told(value: Any, key: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        parse_source("s.yaml", "source", value)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("more", "key", "said"),
    [
        ({"users": 0}, "s.users", "1 to"),
        ({"users": 2.5}, "s.users", "1 to"),
        ({"mean_bps": 0}, "s.mean_bps", "> 0"),
        ({"mean_bps": 1e15}, "s.mean_bps", "users"),
        ({"users": 3, "mean_bps": 1e6}, "s.mean_bps", "the codec sets the rate"),
        ({"users": 40, "mean_bps": 3e5, "kind": Mpeg}, "s.mean_bps", "frames of 64 bytes"),
        ({"users": 1, "mean_bps": 2e8, "kind": Www}, "s.link_bps", "more than link_bps"),
    ],
    ids=str,
)
def test_bad_shares_are_told(more: dict[str, Any], key: str, said: str) -> None:
    kind = more.pop("kind", Voip)
    with pytest.raises(BadInput, match=said) as caught:
        settle("s.yaml", "s", kind(), **more)
    assert caught.value.key == key


def test_parameters_of_a_source_have_units() -> None:
    given = {
        "request_gap_s": {"exponential": "500ms"},
        "item_bytes": {"lognormal": {"mu": 7, "sigma": 1}, "at_most": "64KiB"},
        "link_bps": "10Mbit",
        "mtu_bytes": "1.4k",
    }
    plain = {
        "request_gap_s": {"exponential": 0.5},
        "item_bytes": {"lognormal": {"mu": 7, "sigma": 1}, "at_most": 65536},
        "link_bps": 1e7,
        "mtu_bytes": 1400,
    }
    first, second = parse_source("s.yaml", "source", {"www": given}), parse_source("s.yaml", "source", {"www": plain})
    assert first.mean_bps == second.mean_bps and first.mtu_bytes == 1400 and first.link_bps == 1e7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"request_gap_s": {"exponential": "1kpps"}}, r"request_gap_s\.exponential\.mean = '1kpps': wrong unit"),
        ({"item_bytes": {"pareto": {"shape": "2k", "least": 5}}}, r"pareto\.shape = '2k': not a finite number"),
        ({"item_bytes": {"constant": "64K"}}, r"item_bytes\.constant\.value = '64K': ambiguous unit"),
        ({"mtu_bytes": "1.5"}, r"mtu_bytes = 1\.5: invalid value"),
    ],
)
def test_a_wrong_unit_of_a_parameter_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_source("s.yaml", "source", {"www": given})
