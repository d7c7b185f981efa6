"""Counting again: every way in which a frame can go wrong is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pktswarm.master.results.document import empty_document
from pktswarm.master.results.recount import LegRecount, run_json
from pktswarm.traffic.counting.recount import recount_stream, recount_trace
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

FLOW = {"id": 0, "stream": "s", "source": "tx1", "target": "rx1"}
SENT = [bytes([n]) * 70 for n in range(10)]


def figures(sent: list[bytes], captured: list[bytes]) -> tuple[int, int, int, int, int | None]:
    tally = recount_trace(sent, captured)
    assert tally.sent == len(sent)
    assert tally.captured == len(captured) == tally.received + tally.duplicated + tally.altered
    return tally.received, tally.lost, tally.duplicated, tally.altered, tally.reordered


def test_all_as_sent() -> None:
    assert figures(SENT, SENT) == (10, 0, 0, 0, 0)


def test_lost() -> None:
    assert figures(SENT, SENT[:3] + SENT[5:]) == (8, 2, 0, 0, 0)
    assert figures(SENT, []) == (0, 10, 0, 0, 0)


def test_duplicated_hides_no_loss() -> None:
    assert figures(SENT, [*SENT[:9], SENT[0]]) == (9, 1, 1, 0, None)


def test_one_bit_is_enough_to_be_altered() -> None:
    flipped = bytearray(SENT[4])
    flipped[-1] ^= 1
    assert figures(SENT, [*SENT[:4], bytes(flipped), *SENT[5:]]) == (9, 1, 0, 1, 0)


def test_cut_or_lengthened_is_altered() -> None:
    assert figures(SENT, [SENT[0][:-1], SENT[1] + b"\0", *SENT[2:]]) == (8, 2, 0, 2, 0)


def test_reordered_as_rfc_4737_counts_it() -> None:
    late = [*SENT[:2], *SENT[3:7], SENT[2], *SENT[7:]]
    assert figures(SENT, late) == (10, 0, 0, 0, 1)
    assert figures(SENT, SENT[::-1]) == (10, 0, 0, 0, 9)


def test_equal_frames_are_counted_as_often_as_they_were_sent() -> None:
    twice = SENT + SENT
    assert figures(twice, twice) == (20, 0, 0, 0, None)
    assert figures(twice, twice[:-3]) == (17, 3, 0, 0, None)
    assert figures(twice, [*twice, SENT[0]]) == (20, 0, 1, 0, None)


def test_short_frames_may_be_padded_on_the_wire() -> None:
    short = [bytes([n]) * 42 for n in range(3)]
    padded = [frame + bytes(18) for frame in short]
    assert figures(short, padded) == figures(short, short) == (3, 0, 0, 0, 0)
    assert figures(short, [frame + bytes(17) + b"x" for frame in short]) == (0, 3, 0, 3, 0)


TEMPLATE = bytes(range(64))
MASK = bytes(20) + b"\x0f\xff" + bytes(42)


def stream(sent: int, captured: list[bytes]) -> tuple[int, int, int, int]:
    tally = recount_stream([(TEMPLATE, MASK)], sent, captured)
    assert (tally.sent, tally.captured, tally.reordered) == (sent, len(captured), None)
    return tally.received, tally.lost, tally.duplicated, tally.altered


def varied(at: int, flip: int) -> bytes:
    frame = bytearray(TEMPLATE)
    frame[at] ^= flip
    return bytes(frame)


def test_a_stream_may_differ_only_where_it_varies() -> None:
    assert stream(3, [TEMPLATE, varied(20, 0x0A), varied(21, 0xFF)]) == (3, 0, 0, 0)
    assert stream(3, [TEMPLATE, varied(20, 0x10), varied(22, 0x01)]) == (1, 2, 0, 2)
    assert stream(2, [TEMPLATE[:-1], TEMPLATE + b"\0"]) == (0, 2, 0, 2)


def test_more_frames_of_a_stream_than_were_sent_are_duplicates() -> None:
    assert stream(2, [TEMPLATE] * 3) == (2, 0, 1, 0)


def test_a_short_stream_frame_with_any_padding() -> None:
    tally = recount_stream([(TEMPLATE[:42], bytes(42))], 3, [TEMPLATE[:42], TEMPLATE[:60], TEMPLATE[:50]])
    assert (tally.received, tally.altered) == (2, 1)


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bytes with a mask of 63"):
        recount_stream([(TEMPLATE, MASK[:-1])], 1, [])


@pytest.mark.parametrize(("captured", "agrees"), [(34, True), (33, False), (100, False)])
def test_a_capture_of_one_in_three_agrees_with_a_third(captured: int, agrees: bool) -> None:
    leg = Leg(0, "s", "tx1", "rx1", "trace")
    again = recount_trace([bytes([n]) * 70 for n in range(100)], [bytes([n]) * 70 for n in range(captured)])
    assert LegRecount(leg, 100, again, every=3).agrees is agrees
    assert not LegRecount(leg, None, again, every=3).agrees


@pytest.mark.parametrize("layout", [{}, {"stamp_layout": 1}])
def test_stamps_of_another_layout_are_refused_and_not_taken_for_altered(tmp_path: Path, layout: dict[str, int]) -> None:
    legs = [{**FLOW, "kind": "trace", "stamped_packets": 7}]
    (tmp_path / "run.json").write_text(json.dumps({**empty_document(), "legs": legs, **layout}))
    with pytest.raises(BadInput, match=r"run.json: stamp_layout = .*: its captures have stamps of another layout"):
        run_json(tmp_path)


def test_a_run_without_stamped_traces_is_read_whatever_its_stamps_are(tmp_path: Path) -> None:
    document = {**empty_document(), "legs": [{**FLOW, "kind": "stream", "stamped_packets": None}]}
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert run_json(tmp_path) == document
