"""netsniff-ng as a receiver: captures to a file and counts from it, or only counts with one filter a leg.

The kernel takes the outermost VLAN tag out of a frame before a packet socket sees it, and netsniff-ng 0.6.8 does not
write it back. So a capture of tagged legs is one file for each tag, filtered by what the kernel keeps beside the frame,
into which stop() puts that tag back; the main file holds untagged frames only.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pktswarm.nodes import changes
from pktswarm.nodes.engine import Receiver
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.offloads import OffloadsOff
from pktswarm.nodes.process import EngineProcess
from pktswarm.nodes.receivers.filters import compile_filter
from pktswarm.traffic.capture import cbpf
from pktswarm.traffic.capture.netsniff import CaptureFile
from pktswarm.traffic.counting.match import Match, tagged, uncountable
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.protocol.task import ReceiveCount, ReceiveTask

BLOCK_RETIRE_S = 0.15
"""The kernel hands a part-filled block of the ring over after 100 ms; before that its frames are not yet readable."""
COUNT_SNAP_BYTES = 64
LEAST_RING_MIB = 4
RING_OVERHEAD_BYTES = 200
"""Ethernet header, tags, and what the kernel keeps in its ring beside each frame."""
JIT_SETTING = Path("/proc/sys/net/core/bpf_jit_enable")
"""netsniff-ng switches this on and leaves it so."""

KEEPS_LINK = "veth"
"""The driver of a lab's interfaces, whose link no XDP program restarts."""

NAMES = [Path("/etc/netsniff-ng") / f"{name}.conf" for name in ("oui", "tcp", "udp", "ether")]
"""Names of vendors, ports and EtherTypes, for packets that it shows. Reading them is more than half of its start, and
takes 55 ms of processor time on a PC."""

Tag = tuple[int, int | None] | None


@dataclass(frozen=True)
class Closing:
    """netsniff-ng's closing figures: incoming + unread = passed + failed.

    `incoming` is what it read from the ring, and so what the file holds; `unread` counts what failed as well.
    """

    incoming: int
    unread: int
    passed: int
    failed: int


_CLOSING = re.compile(
    r"(\d+)\s+packets incoming \((\d+) unread on exit\)\s+(\d+)\s+packets passed filter\s+"
    r"(\d+)\s+packets failed filter \(out of space\)"
)


def parse(text: str) -> Closing:
    """Raises EngineError when the closing figures are not there."""
    found = _CLOSING.search(text.replace("\r", "\n"))
    if not found:
        raise EngineError(NetsniffReceiver.name, "it ended without its closing figures", text[-4000:])
    return Closing(*(int(figure) for figure in found.groups()))


def fits_ring(task: ReceiveTask, ring_mib: int) -> bool:
    """Whether the ring could hold all frames of the task twice, so that the speed of the writing does not matter. The
    number of a stream that a program steers is not known.

    netsniff-ng then writes frame by frame: to write many at once it makes and locks buffers of 64 MB when it starts, 40
    ms of processor time on a PC, and a sixteenth of a board's memory.
    """
    known = [leg.intended_packets for leg in task.legs if leg.intended_packets is not None and not leg.steered]
    if not known or len(known) < len(task.legs):
        return False
    return 2 * sum(known) * (Interface(task.interface).mtu + RING_OVERHEAD_BYTES) <= ring_mib << 20


class _Run:
    """One netsniff-ng: one filter, and one capture file or none."""

    def __init__(self, label: str, program: cbpf.Program, task: ReceiveTask, spool: Path, ring_mib: int) -> None:
        if len(program) > cbpf.MOST_INSTRUCTIONS:
            raise BadInput(
                task.interface, f"the filter of {label} is too long", allowed="fewer streams or mode capture"
            )
        filter_file = spool / f"{label}.bpf"
        filter_file.write_text(cbpf.to_text(program))
        self.file = CaptureFile(spool / f"{label}.pcap") if task.mode == "capture" else None
        command = ["netsniff-ng", "--in", task.interface, "--filter", str(filter_file), "--silent", "--no-promisc"]
        # Without these it changes net.core.*mem* and interrupt affinity of the whole machine; and its own choice of
        # a ring can be gigabytes.
        command += ["--no-sock-mem", "--notouch-irq", "--ring-size", f"{ring_mib}MiB"]
        if self.file:
            command += ["--out", str(self.file.path), "--magic", "0xa1b23c4d"]
            command += ["--clrw"] if fits_ring(task, ring_mib) else []
        self.process = EngineProcess(NetsniffReceiver.name, command, spool / f"{label}.out", task.limit_s, NAMES)

    def closing(self) -> Closing:
        return parse(self.process.check())


class NetsniffReceiver(Receiver):
    name: ClassVar[str] = "netsniff-ng"

    def __init__(self, task: ReceiveTask, spool: Path) -> None:
        super().__init__(task, spool)
        self._interface = Interface(task.interface)
        self._runs: dict[Tag | int, _Run] = {}
        """Capture: by outermost tag. Count: by leg id."""
        self._offloads = OffloadsOff(self._interface, spool)
        self._jit_before = ""
        self._tags_are_back = False

    def prepare(self) -> None:
        if not self._interface.exists():
            raise BadInput(self.task.interface, "there is no such interface")
        matches = {leg.id: Match.from_data(leg.match) for leg in self.task.legs}
        for leg in self.task.legs:
            if why := uncountable(matches[leg.id], self.task.mode):
                raise BadInput(self.task.interface, f"cannot be counted: {why}", key=leg.stream)
        found = self._filters(matches)
        ring_mib = max(LEAST_RING_MIB, self.task.ring_mib // max(1, len(found)))
        for key, program in found.items():
            self._runs[key] = _Run(self._label(key), program, self.task, self.spool, ring_mib)
        self._change_node()

    def _filters(self, matches: dict[int, Match]) -> dict[Tag | int, cbpf.Program]:
        filters = capture_filters if self.task.mode == "capture" else count_filters
        user = compile_filter(self.task.filter, self.task.interface) if self.task.filter else cbpf.ACCEPT
        return filters(matches, self.task.mac, user)

    def _label(self, key: Tag | int) -> str:
        if isinstance(key, int):
            return f"count-{self.task.interface}-{key}"
        return f"capture-{self.task.interface}" + (f"-{key[0]:04x}-{key[1]:04x}" if key else "")

    def _change_node(self) -> None:
        if JIT_SETTING.exists():
            self._jit_before = JIT_SETTING.read_text()
            changes.write_down(self.spool, changes.of_file(JIT_SETTING, self._jit_before))
        self._offloads.switch_merging_off()

    def start_early(self) -> None:
        """The driver of a card may take the link down for an XDP program, and netsniff-ng ends with it."""
        if self._interface.driver == KEEPS_LINK:
            self.start(0)

    def start(self, at_ns: int) -> None:
        for run in self._runs.values():
            if not run.process.started:
                run.process.start()

    def ready(self) -> bool:
        return all("Running!" in run.process.output() for run in self._runs.values())

    def done(self) -> bool:
        return any(run.process.started and not run.process.running() for run in self._runs.values())

    def stop(self) -> None:
        running = [run for run in self._runs.values() if run.process.running()]
        if running:
            time.sleep(self._until_readable_s())
        for run in running:
            run.process.stop()
        self._put_tags_back()

    def _until_readable_s(self) -> float:
        """Seconds until the last frame can be read from the ring: none behind a drain in which nothing arrived."""
        if self.last_arrival_ns is None:
            return BLOCK_RETIRE_S
        since_s = (time.monotonic_ns() - self.last_arrival_ns) / 1e9
        return min(BLOCK_RETIRE_S, max(0.0, BLOCK_RETIRE_S - since_s))

    def _put_tags_back(self) -> None:
        if self._tags_are_back:
            return
        self._tags_are_back = True
        for key, run in self._runs.items():
            if isinstance(key, tuple) and key[1] is not None and run.file and run.file.path.exists():
                run.file.put_tag_back(key[0], key[1])

    def restore(self) -> None:
        self._offloads.restore()
        if self._jit_before and JIT_SETTING.read_text() != self._jit_before:
            JIT_SETTING.write_text(self._jit_before)

    def captures(self) -> list[Path]:
        return [run.file.path for run in self._runs.values() if run.file and run.file.path.exists()]

    def counts(self) -> list[ReceiveCount]:
        return self._counts_from_files() if self.task.mode == "capture" else self._counts_from_closings()

    def _counts_from_closings(self) -> list[ReceiveCount]:
        counts = []
        for leg in self.task.legs:
            closing = self._runs[leg.id].closing()
            length = Match.from_data(leg.match).length
            counts.append(
                ReceiveCount(
                    leg.id,
                    self.name,
                    closing.passed,
                    None if length is None else closing.passed * length,
                    dropped_packets=closing.failed,
                    output=self._runs[leg.id].process.output(),
                )
            )
        return counts

    def _counts_from_files(self) -> list[ReceiveCount]:
        counts = {leg.id: ReceiveCount(leg.id, self.name, 0, 0) for leg in self.task.legs}
        matches = [(counts[leg.id], Match.from_data(leg.match)) for leg in self.task.legs]
        for tag, run in self._runs.items():
            closing = run.closing()
            mine = [(count, match) for count, match in matches if tag in match.captured_tags]
            assert run.file is not None
            written = count_file(run.file, mine)
            if written != closing.incoming:
                said = f"it says {closing.incoming}"
                raise EngineError(
                    self.name, f"{run.file.path.name} holds {written} frames: {said}", run.process.output()
                )
            for count, _ in mine:
                count.dropped_packets += closing.unread
                count.output += run.process.output()
        return list(counts.values())


class BothWays(NetsniffReceiver):
    """A capture of all that goes between this node and some others, in the order in which it goes: it counts nothing.

    A VLAN tag is missing in frames that came in, as the kernel takes it out.
    """

    def __init__(self, task: ReceiveTask, spool: Path, label: str, peers: list[str]) -> None:
        super().__init__(replace(task, legs=[], mode="capture"), spool)
        self._name, self._peers = label, [bytes.fromhex(mac.replace(":", "")) for mac in peers]

    def _filters(self, matches: dict[int, Match]) -> dict[Tag | int, cbpf.Program]:
        between = [_mac_at(at, mac) for mac in self._peers for at in (0, 6)]
        return {None: cbpf.all_of(cbpf.any_of(*between), cbpf.ACCEPT)}

    def _label(self, key: Tag | int) -> str:
        return self._name

    def missed(self) -> int:
        """After stop(): frames that are not in the file because its ring was full. Others may come while it stops."""
        return sum(run.closing().failed for run in self._runs.values())


def count_file(file: CaptureFile, matches: list[tuple[ReceiveCount, Match]]) -> int:
    """Adds each frame to the count whose match it fits; returns how many frames the file holds."""
    total = 0
    for time_ns, wire_bytes, frame in file.frames():
        total += 1
        for count, match in matches:
            if match.matches(frame):
                count.received_packets += 1
                count.received_bytes = (count.received_bytes or 0) + wire_bytes
                count.first_ns = time_ns if count.first_ns is None else min(count.first_ns, time_ns)
                count.last_ns = time_ns if count.last_ns is None else max(count.last_ns, time_ns)
                break
    if file.cut:
        raise EngineError(NetsniffReceiver.name, f"{file.path.name}: the last record is cut off")
    return total


def capture_filters(matches: dict[int, Match], mac: str, user: cbpf.Program) -> dict[Tag | int, cbpf.Program]:
    """One filter for untagged frames, and one for each outermost tag that a leg has."""
    targets = {bytes.fromhex(mac.replace(":", "")), *(one.target_mac for one in matches.values() if one.target_mac)}
    mine = cbpf.any_of(*(_mac_at(0, target) for target in sorted(targets)))
    tags: set[Tag] = {None, *(tag for match in matches.values() for tag in match.captured_tags)}
    return {tag: cbpf.all_of(_not_own(), mine, _has_tag(tag), user, cbpf.ACCEPT) for tag in tags}


def count_filters(matches: dict[int, Match], mac: str, user: cbpf.Program) -> dict[Tag | int, cbpf.Program]:
    """One filter for each leg; only as many bytes as a count needs go into the ring."""
    keep = cbpf.snapped(cbpf.ACCEPT, COUNT_SNAP_BYTES)
    return {leg: cbpf.all_of(_not_own(), match.program(), user, keep) for leg, match in matches.items()}


def _not_own() -> cbpf.Program:
    return cbpf.negate(cbpf.test(cbpf.LOAD_HALF, cbpf.PACKET_TYPE, cbpf.JUMP_EQUAL, cbpf.OUTGOING))


def _mac_at(at: int, mac: bytes) -> cbpf.Program:
    high, low = int.from_bytes(mac[:4], "big"), int.from_bytes(mac[4:], "big")
    return cbpf.all_of(
        cbpf.test(cbpf.LOAD_WORD, at, cbpf.JUMP_EQUAL, high), cbpf.test(cbpf.LOAD_HALF, at + 4, cbpf.JUMP_EQUAL, low)
    )


def _has_tag(tag: Tag) -> cbpf.Program:
    if tag is None or tag[1] is None:
        return cbpf.test(cbpf.LOAD_BYTE, cbpf.VLAN_PRESENT, cbpf.JUMP_EQUAL, 0)
    return tagged(tag[0], tag[1])
