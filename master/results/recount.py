"""`pktswarm recount`: counts captured frames offline against the sent ones and compares the result with the run.

Only the assignment of frames to flows is shared with the counting of a run. Frames of a stream are compared byte for
byte with its template, those of a trace with the replayed frames.

`pktswarm verify` (trace_verify) counts differently: against the intended frames, which a stopped run did not all send;
with the order inside each 5-tuple, not of the whole flow; and with times.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table
from typing_extensions import TypedDict

from pktswarm.master.plan import interactive
from pktswarm.master.results.captures import by_row, captured_packets, captures_of
from pktswarm.master.results.document import ReceiveEntry, RunDocument
from pktswarm.master.results.document_rows import Ends, RunRow
from pktswarm.master.results.read_document import RUN, leg_of, read_run, writer
from pktswarm.traffic.capture.files import read_capture
from pktswarm.traffic.counting import expect, routed, tunnel_fields
from pktswarm.traffic.counting.recount import Recount, recount_stream, recount_trace
from pktswarm.traffic.counting.trace_verify import stream_of
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_NOT_AS_EXPECTED, BadInput
from pktswarm.traffic.frames.stamp import LAYOUT_VERSION
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES
from pktswarm.traffic.replay.files import frames_to_send, packets
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.leg_frames import templates_as_received


class LegResult(Ends):
    """A flow in the output of `pktswarm recount --json`."""

    stream: str
    run_received_packets: int | None
    sent_packets: int
    captured_packets: int
    received_packets: int
    lost_packets: int
    duplicated_packets: int
    altered_packets: int
    reordered_packets: int | None
    agrees: bool


class RecountDocument(TypedDict):
    status: int
    summary: str
    legs: list[LegResult]
    strangers_packets: dict[str, int]
    """Host → captured frames that belong to no flow."""


@dataclass
class LegRecount:
    leg: Leg
    counted: int | None
    """Packets that the run counted as received."""
    again: Recount
    every: int = 1
    """One captured frame stands for this number of received frames."""
    apart: int = 0
    """Frames of a stamped trace in `counted` that have no stamp. They are captured at the same ratio, separately."""

    @property
    def agrees(self) -> bool:
        if self.counted is None:
            return False
        return -(-(self.counted - self.apart) // self.every) - (-self.apart // self.every) == self.again.received


@dataclass
class Outcome:
    legs: list[LegRecount]
    unmatched: dict[str, int] = field(default_factory=dict)
    """Host → captured frames that belong to no leg."""

    @property
    def status(self) -> int:
        return EXIT_AS_EXPECTED if all(leg.agrees for leg in self.legs) else EXIT_NOT_AS_EXPECTED

    @property
    def summary(self) -> str:
        wrong = [leg for leg in self.legs if not leg.agrees]
        frames = sum(leg.again.captured for leg in self.legs)
        if not wrong:
            return f"recount and run agree: {frames:,} captured frames in {len(self.legs)} flows, byte for byte as sent"
        first = wrong[0]
        return (
            f"recount and run DISAGREE in {len(wrong)} of {len(self.legs)} flows, first {first.leg.stream} from "
            f"{first.leg.source}: the run counted {first.counted}, the capture has {first.again.received} as sent, "
            f"{first.again.altered} altered, {first.again.duplicated} duplicated"
        )

    @property
    def document(self) -> RecountDocument:
        legs = [_leg_result(leg) for leg in self.legs]
        return {"status": self.status, "summary": self.summary, "legs": legs, "strangers_packets": self.unmatched}


def _leg_result(result: LegRecount) -> LegResult:
    leg, again = result.leg, result.again
    return {
        "stream": leg.stream,
        "from": leg.source,
        "to": leg.target,
        "run_received_packets": result.counted,
        "sent_packets": again.sent,
        "captured_packets": again.captured,
        "received_packets": again.received,
        "lost_packets": again.lost,
        "duplicated_packets": again.duplicated,
        "altered_packets": again.altered,
        "reordered_packets": again.reordered,
        "agrees": result.agrees,
    }


def recount(folder: Path) -> Outcome:
    """Raises BadInput where there is no run, or it kept no captures."""
    document = run_json(folder)
    receive = document["scenario"].get("receive", {})
    _refuse_without_captures(folder / RUN, receive)
    framed = [leg_of(entry) for entry in document["legs"] if entry["kind"] != "connections"]
    legs = [leg for leg in framed if leg.engine != interactive.ENGINE]
    if framed and not legs:
        raise BadInput(folder, "interactive traces are not counted again", key="traces.interactive")
    rows = {row["leg"]: row for row in document["rows"]}
    every = receive.get("capture_every", 1)
    outcome = Outcome([])
    groups = by_row(legs)
    for host in dict.fromkeys(leg.target for leg in legs):
        mine = [leg for leg in legs if leg.target == host and leg.merged_into is None]
        if not (captures := captures_of(folder, host)):
            raise BadInput(folder / "captures", f"there is no capture of {host}")
        captured, outcome.unmatched[host] = captured_packets(captures, mine)
        frames = {number: [packet.data for packet in packets] for number, packets in captured.items()}
        outcome.legs += [_leg_recount(folder, groups[leg.id], rows.get(leg.id), frames[leg.id], every) for leg in mine]
    outcome.legs.sort(key=lambda result: result.leg.id)
    return outcome


def _leg_recount(folder: Path, legs: list[Leg], row: RunRow | None, frames: list[bytes], every: int) -> LegRecount:
    """`legs`: those that the row counts."""
    if row is None:
        return LegRecount(legs[0], None, _again(folder, legs, frames, 0), every)
    again = _again(folder, legs, frames, row["sent_packets"] or 0)
    return LegRecount(legs[0], row["received_packets"], again, every, row.get("unstamped_received_packets") or 0)


def run_json(folder: Path) -> RunDocument:
    """run.json of a run whose captures this version can read. Raises BadInput."""
    document = read_run(folder)
    layout = document.get("stamp_layout")
    if layout != LAYOUT_VERSION and any(leg.get("stamped_packets") is not None for leg in document["legs"]):
        # Each frame would count as altered.
        wrote = writer(document["ranks"])
        problem = f"its captures have stamps of another layout: use the pktswarm that wrote them{wrote}"
        raise BadInput(folder / RUN, problem, key="stamp_layout", value=layout or "none", allowed=str(LAYOUT_VERSION))
    return document


def _refuse_without_captures(path: Path, receive: ReceiveEntry) -> None:
    if value := receive.get("capture_filter"):
        problem = "a filter selected what was captured: a part of the packets cannot be counted again"
        raise BadInput(path, problem, key="receive.capture_filter", value=value)
    if receive.get("mode") != "capture":
        raise BadInput(path, "the run kept no captures to count again", key="receive.mode", value="count")


def _again(folder: Path, legs: list[Leg], captured: list[bytes], sent: int) -> Recount:
    leg = legs[0]
    if leg.kind == "trace":
        # A run that was stopped early sent only the first frames.
        frames = (routed.as_received(leg.gateway, frame) for frame in itertools.islice(_sent(folder, legs), sent))
        return recount_trace(frames, (routed.as_captured(leg.gateway, frame) for frame in captured), stream_of(legs))
    if leg.sequence_file is not None:
        leg = replace(leg, sizes=[[size, 1] for size in _sizes_sent(folder / "sent", leg)])
    shape = tunnel_fields.shape if leg.arrives else routed.shape if leg.gateway else expect.behind_device
    shapes = [shape(template, leg.expect) for template in templates_as_received(leg).values()]
    return recount_stream(shapes, sent, map(tunnel_fields.without_options, captured) if leg.arrives else captured)


def _sent(folder: Path, legs: list[Leg]) -> Iterator[bytes]:
    """The frames of a trace's legs in the order of sending, pass after pass."""
    read = [packets(*frames_to_send(leg, folder / "sent")) for leg in legs]
    for _ in range(max(leg.repeat for leg in legs)):
        yield from (packet.data for packet in heapq.merge(*read, key=lambda packet: packet.time_ns))


def _sizes_sent(sent: Path, leg: Leg) -> list[int]:
    """All frame sizes, with FCS, that a source sent."""
    if leg.trace_file is not None:
        return sorted({len(packet.data) + FCS_BYTES for packet in read_capture(sent / leg.trace_file)})
    records = sequence.read_sequence(sent / str(leg.sequence_file))
    return sorted({size + FCS_BYTES for size in records["frame_bytes"].tolist()})


def table(outcome: Outcome) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("stream", "from → to"):
        table.add_column(name, no_wrap=True)
    for name in ("run", "recount", "lost", "altered", "duplicated", "reordered", "agrees"):
        table.add_column(name, justify="right", no_wrap=True)
    for leg in outcome.legs:
        again = leg.again
        # Frames that capture_every left out are not lost.
        lost = again.lost if leg.every == 1 else None
        counts = [leg.counted, again.received, lost, again.altered, again.duplicated, again.reordered]
        cells = ["–" if count is None else f"{count:,}" for count in counts]
        path = escape(f"{leg.leg.source} → {leg.leg.target}")
        table.add_row(escape(leg.leg.stream), path, *cells, "yes" if leg.agrees else "[red]no[/]")
    return table
