"""What bench/engines makes of its peers' output and of times; its frames and traces."""

from __future__ import annotations

import itertools
import random
import statistics
from pathlib import Path

import dpkt
import pytest

from bench.engines import __main__ as command
from bench.engines import ours, rows, timing, traces
from bench.engines.peers import testpmd_sent as sent_by_testpmd
from bench.engines.peers import trafgen_stream
from pktswarm.nodes.senders import trafgen
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.frames.build import build_frame

SAMPLES = Path(__file__).parent / "samples"


def test_testpmds_closing_words() -> None:
    assert sent_by_testpmd((SAMPLES / "testpmd-normal.txt").read_text()) == 391296


def test_a_testpmd_that_did_not_start_has_sent_nothing_that_counts() -> None:
    with pytest.raises(EngineError, match="without saying how much"):
        sent_by_testpmd((SAMPLES / "testpmd-no-interface.txt").read_text())


def test_a_constant_delay_and_an_odd_first_frame_are_no_error() -> None:
    recorded = [1000 * n for n in range(101)]
    arrived = [5_000_000 + time for time in recorded]
    arrived[0] += 700
    errors = timing.errors_ns(arrived, recorded)
    assert (errors[0], max(errors[1:])) == (700, 0)


def test_a_drift_is_an_error_on_both_sides_of_the_middle() -> None:
    recorded = [1000 * n for n in range(101)]
    errors = timing.errors_ns([time + 10 * n for n, time in enumerate(recorded)], recorded)
    assert (errors[0], errors[50], errors[100]) == (500, 0, 500)


def test_every_frame_must_have_arrived() -> None:
    with pytest.raises(ValueError):
        timing.errors_ns([1, 2], [1, 2, 3])


@pytest.mark.parametrize(("share", "value"), [(0.99, 99), (0.5, 50), (1.0, 100), (0.001, 1)])
def test_percentiles_are_the_nearest_rank(share: float, value: int) -> None:
    assert timing.percentile(random.Random(1).sample(range(1, 101), 100), share) == value


def test_the_ratio_is_that_of_the_medians_and_the_spread_that_of_the_rounds() -> None:
    row = rows.against("work", [10.0, 12.0, 11.0], [2.0, 2.0, 1.0], "peer", 5)
    assert (row.ours, row.peer, row.ratio, row.spread, row.holds) == (11, 2, 5.5, (11 - 5) / 6, True)
    assert not rows.against("work", [9.0], [2.0], "peer", 5).holds
    assert rows.against("work", [9.0], [2.0], "peer", 5).spread is None


def test_the_made_trace_is_the_same_every_time_and_mostly_full_frames() -> None:
    packets = traces.made()
    sizes = [len(packet.data) for packet in packets]
    assert (len(packets), min(sizes), max(sizes)) == (60_000, 60, 1514)
    assert 0.67 < sizes.count(1514) / len(sizes) < 0.69
    gaps = [after.time_ns - before.time_ns for before, after in itertools.pairwise(packets)]
    assert min(gaps) >= 0
    # Of an exponential distribution mean and standard deviation are the same.
    assert statistics.mean(gaps) == pytest.approx(33_333, rel=0.02)
    assert statistics.pstdev(gaps) == pytest.approx(33_333, rel=0.02)
    assert packets[12_345] == traces.made()[12_345]


def test_every_user_has_a_teid_and_an_address_and_right_checksums() -> None:
    leg = ours.tunnel()
    template = build_frame(leg.frame, leg.size_bytes)
    draw, seen = random.Random(1), set()
    for index in range(ours.USERS):
        frame = template.frame(index, draw)
        teid, address = int.from_bytes(frame[46:50], "big"), frame[62:66]
        seen.add((teid, address))
        inner_ip, inner_udp = frame[50:70], frame[70:]
        pseudo = frame[62:70] + bytes([0, 17]) + len(inner_udp).to_bytes(2, "big")
        assert teid == index + 1 and address == (0x0A2D0001 + index).to_bytes(4, "big")
        assert dpkt.in_cksum(frame[14:34]) == dpkt.in_cksum(inner_ip) == 0
        assert dpkt.in_cksum(pseudo + inner_udp) == 0
    assert len(seen) == ours.USERS
    assert template.frame(ours.USERS, draw) == template.frame(0, draw)


def test_the_smallest_frame_holds_a_stamp() -> None:
    leg = ours.udp()
    assert leg.size_bytes == 64 and build_frame(leg.frame, leg.size_bytes).constant


def test_figures_need_five_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["--rounds", "4"])
    assert "5 or more, not 4" in capsys.readouterr().err
    assert command.parse(["--rounds", "5"]).rounds == 5


def test_each_trafgen_has_frames_of_its_own(tmp_path: Path) -> None:
    """Both are made before the first is started."""
    templates = [build_frame(leg.frame, leg.size_bytes) for leg in (ours.udp(), ours.tunnel())]
    commands = [trafgen_stream(template, tmp_path).command for template in templates]
    sent = [Path(command[command.index("--in") + 1]).read_text() for command in commands]
    assert sent == [trafgen.frame_list(template, 0) for template in templates]
    assert sent[0] != sent[1]
