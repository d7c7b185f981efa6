"""`pktswarm recount`: counts again offline, from the captures against what was sent, and compares with the run.

It shares nothing with the counting of a run but the way to tell legs apart: a stream's frames are compared with its
template byte for byte, a trace's with the very frames that were replayed.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from pktswarm.master.plan import interactive
from pktswarm.traffic.capture.files import Packet, read_capture
from pktswarm.traffic.counting import expect, tunnel_fields
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.recount import Recount, recount_stream, recount_trace
from pktswarm.traffic.counting.trace_verify import stream_of
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_NOT_AS_EXPECTED, BadInput
from pktswarm.traffic.frames.stamp import LAYOUT_VERSION
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import FCS_BYTES, leg_from_json
from pktswarm.traffic.replay.files import frames_to_send, packets
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.leg_frames import templates_as_received

FORMAT_VERSIONS = (1, 2)


@dataclass
class LegRecount:
    leg: Leg
    counted: int | None
    """What the run counted as received."""
    again: Recount
    every: int = 1
    """Captured was the first of so many frames."""
    apart: int = 0
    """Of `counted`, frames of a stamped trace that have no stamp: of these too the first of so many."""

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
            return f"recount and run agree: {frames:,} captured frames in {len(self.legs)} legs, byte for byte as sent"
        first = wrong[0]
        return (
            f"recount and run DISAGREE in {len(wrong)} of {len(self.legs)} legs, first {first.leg.stream} from "
            f"{first.leg.source}: the run counted {first.counted}, the capture has {first.again.received} as sent, "
            f"{first.again.altered} altered, {first.again.duplicated} duplicated"
        )

    @property
    def document(self) -> dict[str, Any]:
        legs = [
            {"stream": x.leg.stream, "from": x.leg.source, "to": x.leg.target, "run_received_packets": x.counted}
            | {f"{key}_packets": value for key, value in asdict(x.again).items()}
            | {"agrees": x.agrees}
            for x in self.legs
        ]
        return {"status": self.status, "summary": self.summary, "legs": legs, "strangers_packets": self.unmatched}


def recount(folder: Path) -> Outcome:
    """Raises BadInput where there is no run, or it kept no captures."""
    document = run_json(folder)
    _refuse_without_captures(folder / "run.json", document)
    framed = [leg_from_json(data) for data in document["legs"] if data["kind"] != "connections"]
    legs = [leg for leg in framed if leg.engine != interactive.ENGINE]
    if framed and not legs:
        raise BadInput(folder, "interactive traces are not counted again", key="traces.interactive")
    counted = {row["leg"]: row["received_packets"] for row in document["rows"]}
    sent = {row["leg"]: row["sent_packets"] for row in document["rows"]}
    apart = {row["leg"]: row.get("unstamped_received_packets") for row in document["rows"]}
    every = int(document["scenario"]["receive"].get("capture_every", 1))
    outcome = Outcome([])
    groups = together(legs)
    for host in dict.fromkeys(leg.target for leg in legs):
        mine = [leg for leg in legs if leg.target == host and leg.merged_into is None]
        if not (captures := captures_of(folder, host)):
            raise BadInput(folder / "captures", f"there is no capture of {host}")
        captured, outcome.unmatched[host] = captured_packets(captures, mine)
        frames = {number: [packet.data for packet in of_leg] for number, of_leg in captured.items()}
        outcome.legs += [
            LegRecount(
                leg,
                counted.get(leg.id),
                _again(folder, groups[leg.id], frames[leg.id], sent.get(leg.id) or 0),
                every,
                apart.get(leg.id) or 0,
            )
            for leg in mine
        ]
    outcome.legs.sort(key=lambda result: result.leg.id)
    return outcome


def run_json(folder: Path) -> dict[str, Any]:
    """Raises BadInput where there is no run, or one that this version cannot read."""
    path = folder / "run.json"
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(folder, "no results of a run here", allowed="a folder with run.json") from None
    except ValueError as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    check_format(path, document)
    _check_stamps(path, document)
    return dict(document)


def _check_stamps(path: Path, document: dict[str, Any]) -> None:
    """Raises BadInput where frames of a trace carry stamps of another layout: each would count as altered."""
    layout = document.get("stamp_layout")
    if layout != LAYOUT_VERSION and any(leg.get("stamped_packets") is not None for leg in document["legs"]):
        problem = f"its captures have stamps of another layout: use the pktswarm that wrote them{_writer(document)}"
        raise BadInput(path, problem, key="stamp_layout", value=layout or "none", allowed=str(LAYOUT_VERSION))


def check_format(path: Path, document: Any) -> None:
    """Raises BadInput where it is no run.json that this version can read. Columns and keys that were added since a run
    was kept are read as not measured; what has another number has to be read by what wrote it."""
    version = document.get("format_version") if isinstance(document, dict) else None
    if version in FORMAT_VERSIONS:
        return
    problem = "no results of a run that this version can read"
    if isinstance(version, int):
        age = "a newer" if version > max(FORMAT_VERSIONS) else "an older"
        problem = (
            f"of {age} format: read it with the pktswarm that wrote it{_writer(document)}, or run its scenario again"
        )
    raise BadInput(path, problem, key="format_version", value=version, allowed=", ".join(map(str, FORMAT_VERSIONS)))


def _writer(document: dict[str, Any]) -> str:
    """Its version, as far as the document tells it."""
    ranks = document.get("ranks")
    told = [rank.get("pktswarm") for rank in ranks.values()] if isinstance(ranks, dict) else []
    return f" ({told[0]})" if told and told[0] else ""


def _refuse_without_captures(path: Path, document: dict[str, Any]) -> None:
    if document["scenario"]["receive"].get("capture_filter"):
        key, value = "receive.capture_filter", document["scenario"]["receive"]["capture_filter"]
        raise BadInput(path, "the run captured a part, of which nothing can be counted again", key=key, value=value)
    if document["scenario"]["receive"]["mode"] != "capture":
        raise BadInput(path, "the run kept no captures to count again", key="receive.mode", value="count")


def captures_of(folder: Path, host: str) -> list[Path]:
    """What a receiver captured. Those of interactive traces are none of these: they show what was sent as well."""
    return sorted((folder / "captures").glob(f"{host}-capture-*"))


def captured_packets(
    captures: list[Path], legs: list[Leg], kept: set[int] | None = None
) -> tuple[dict[int, list[Packet]], int]:
    """Leg id → its captured packets in order, and how many frames belong to no leg. `kept`: the legs whose packets are
    wanted; None: all."""
    matches = [(leg.id, Match.from_data(leg.match)) for leg in legs]
    of_leg: dict[int, list[Packet]] = {leg.id: [] for leg in legs if kept is None or leg.id in kept}
    unmatched = 0
    for packet in (packet for path in captures for packet in read_capture(path)):
        owner = next((number for number, match in matches if match.matches(packet.data)), None)
        if owner is None:
            unmatched += 1
        elif owner in of_leg:
            of_leg[owner].append(Packet(packet.time_ns, packet.data))
    return of_leg, unmatched


def together(legs: list[Leg]) -> dict[int, list[Leg]]:
    """Leg id → the legs that are counted in its row, itself first."""
    groups: dict[int, list[Leg]] = {}
    for leg in legs:
        groups.setdefault(leg.id if leg.merged_into is None else leg.merged_into, []).append(leg)
    return groups


def _again(folder: Path, legs: list[Leg], captured: list[bytes], sent: int) -> Recount:
    leg = legs[0]
    if leg.kind == "trace":
        # A run that was stopped early sent the first of them.
        return recount_trace(itertools.islice(_sent(folder, legs), sent), captured, stream_of(legs))
    if leg.sequence_file is not None:
        leg = replace(leg, sizes=[[size, 1] for size in _sizes_sent(folder / "sent", leg)])
    shape = tunnel_fields.shape if leg.arrives else expect.behind_device
    shapes = [shape(template, leg.expect) for template in templates_as_received(leg).values()]
    return recount_stream(shapes, sent, map(tunnel_fields.without_options, captured) if leg.arrives else captured)


def _sent(folder: Path, legs: list[Leg]) -> Iterator[bytes]:
    """What a trace's legs were to send, in the order of sending, pass after pass."""
    read = [packets(*frames_to_send(leg, folder / "sent")) for leg in legs]
    for _ in range(max(leg.repeat for leg in legs)):
        yield from (packet.data for packet in heapq.merge(*read, key=lambda packet: packet.time_ns))


def _sizes_sent(sent: Path, leg: Leg) -> list[int]:
    """Every size, FCS included, of what a source sent."""
    if leg.trace_file is not None:
        return sorted({len(packet.data) + FCS_BYTES for packet in read_capture(sent / leg.trace_file)})
    records = sequence.read_sequence(sent / str(leg.sequence_file))
    return sorted({size + FCS_BYTES for size in records["frame_bytes"].tolist()})


def table(outcome: Outcome) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in ("stream", "from → to"):
        table.add_column(name, no_wrap=True)
    for name in ("run", "again", "lost", "altered", "twice", "reord.", "agrees"):
        table.add_column(name, justify="right", no_wrap=True)
    for leg in outcome.legs:
        again = leg.again
        # What was not captured is not lost.
        lost = again.lost if leg.every == 1 else None
        counts = [leg.counted, again.received, lost, again.altered, again.duplicated, again.reordered]
        cells = ["–" if count is None else f"{count:,}" for count in counts]
        path = escape(f"{leg.leg.source} → {leg.leg.target}")
        table.add_row(escape(leg.leg.stream), path, *cells, "yes" if leg.agrees else "[red]no[/]")
    return table
