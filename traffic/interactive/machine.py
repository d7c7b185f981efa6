"""The state machine of one side of an interactive replay: from arrivals and time to the packets to send.

It uses neither a clock nor a socket. A packet is due its recorded time after the previous packet of its side, and after
the packet that it answers has arrived; a TCP packet is never sent before the bytes that it acknowledges are received.
Unacknowledged packets are sent again; a flow without progress is aborted.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import NamedTuple

from pktswarm.traffic.interactive.script import Flow, Item, Key, Script, packet_key
from pktswarm.traffic.interactive.sequence import Coverage
from pktswarm.traffic.protocol.flow_report import FlowReport, FlowState

RTO_NS = 200_000_000
"""Retransmission timeout in addition to the recorded time to the acknowledgement; it doubles with every retry."""
LONGEST_RTO_NS = 3_200_000_000
MOST_TRIES = 8
SAY_AGAIN_NS = RTO_NS // 2
"""A copy that arrives sooner after its packet is a duplicate by the network, not a retransmission."""
PATIENCE_NS = 20_000_000_000
"""A flow without arrivals for this long beyond the recorded time is aborted."""
LINGER_NS = 2_000_000_000
"""Time for which an end that has finished still answers retransmissions."""


class Sending(NamedTuple):
    item: Item
    again: bool


class Play:
    """One side of one flow."""

    def __init__(self, flow: Flow, forward: bool) -> None:
        self.flow = flow
        self.epoch_ns: int | None = None
        """The time of the trace's time 0; the answering side derives it from the first arrival."""
        self.own = [item for item in flow.items if item.forward == forward]
        self.peer = [item for item in flow.items if item.forward != forward]
        self.came = Coverage(flow.bases.get(not forward, 0))
        self.acked = flow.bases.get(forward, 0)
        self.at = self.acked_at = self.needed_at = 0
        self.last_missing = len(self.peer) - 1
        self.sent_ns: dict[int, int] = {}
        self.resent_ns: dict[int, int] = {}
        self.came_ns: dict[int, int] = {}
        self.state: FlowState = "playing"
        self.tries = self.say_agains = self.resent = self.resent_bytes = self.duplicates = 0
        self.first_ns: int | None = None
        self.progress_ns = self.acked_ns = 0
        self.progress_time_ns = flow.items[0].time_ns
        self.said_again_ns = 0
        self.pure_ack: Item | None = None

    def begin(self, at_ns: int) -> None:
        self.epoch_ns = self.progress_ns = self.acked_ns = at_ns

    # --- events -------------------------------------------------------------------------------------------------

    def arrived(self, item: Item, now_ns: int) -> Sending | None:
        """Handles an arrival from the other side, which can be a retransmission."""
        if item.number in self.came_ns:
            self.duplicates += 1
            return self._said_again(item, now_ns)
        self.came_ns[item.number] = now_ns
        if self.epoch_ns is None:
            self.epoch_ns = now_ns - item.time_ns
        self.came.add(item.start, item.end)
        if item.ack is not None and item.ack > self.acked:
            self.acked, self.acked_ns = item.ack, now_ns
        self._progress(item, now_ns)
        return None

    def _progress(self, item: Item, now_ns: int) -> None:
        self.first_ns = now_ns if self.first_ns is None else self.first_ns
        self.progress_ns, self.progress_time_ns = now_ns, max(self.progress_time_ns, item.time_ns)
        self.tries = self.say_agains = 0

    def _said_again(self, item: Item, now_ns: int) -> Sending | None:
        """Sends the acknowledgement again, as TCP answers a segment that it already has: the first one may be lost."""
        answer = self._acknowledgement(item)
        if answer is None or item.end == item.start or self.say_agains == MOST_TRIES:
            return None
        last_ns = max(self.said_again_ns, self.sent_ns[answer.number], self.came_ns[item.number])
        if now_ns - last_ns < SAY_AGAIN_NS:
            return None
        self.said_again_ns = now_ns
        self.say_agains += 1
        return self._again(answer)

    def _acknowledgement(self, item: Item) -> Item | None:
        """A packet already sent that covers `item`: the last one without content if it does, else the last one."""
        last = self.own[self.at - 1] if self.at else None
        found = [
            one for one in (self.pure_ack, last) if one is not None and one.ack is not None and one.ack >= item.end
        ]
        return found[0] if found else None

    def _again(self, item: Item) -> Sending:
        self.resent += 1
        self.resent_bytes += len(item.frame)
        return Sending(item, True)

    def due(self, now_ns: int) -> list[Sending]:
        """All packets that are due."""
        sendings: list[Sending] = []
        while self.state != "given up" and (at_ns := self.next_send_ns()) is not None and at_ns <= now_ns:
            sendings.append(self._send(now_ns))
        if self.state != "playing":
            return sendings
        resend_ns = self._resend_ns()
        if resend_ns is not None and resend_ns <= now_ns:
            if self.tries == MOST_TRIES:
                self.state = "given up"
                return sendings
            self.tries += 1
            for item in self._group():
                self.resent_ns[item.number] = now_ns
                sendings.append(self._again(item))
        end_ns = self._end_ns()
        if end_ns is not None and end_ns <= now_ns:
            self.state = "complete" if self._through else "given up"
        return sendings

    def _send(self, now_ns: int) -> Sending:
        item = self.own[self.at]
        self.at += 1
        self.sent_ns[item.number] = now_ns
        if item.ack is not None and item.end == item.start:
            self.pure_ack = item
        tries = self.tries
        self._progress(item, now_ns)
        self.tries = tries  # only arrivals show that the other side is alive
        return Sending(item, False)

    # --- timers -------------------------------------------------------------------------------------------------

    def next_ns(self) -> int | None:
        """The next timer; None: none before an arrival."""
        if self.state != "playing":
            return None
        times = [self.next_send_ns(), self._resend_ns(), self._end_ns()]
        return min((time_ns for time_ns in times if time_ns is not None), default=None)

    def next_send_ns(self) -> int | None:
        if self.at == len(self.own):
            return None
        item = self.own[self.at]
        if item.ack is not None and item.ack > self.came.upto:
            return None
        if not self.flow.is_tcp or (item.answers is None and not self.at):
            return None if self.epoch_ns is None else self.epoch_ns + item.time_ns
        times = []
        if item.answers is not None:
            # The bytes can have arrived in another packet of the recording.
            came_ns = self.came_ns.get(item.answers.number, self.progress_ns)
            times.append(came_ns + max(0, item.time_ns - item.answers.time_ns))
        if self.at:
            before = self.own[self.at - 1]
            times.append(self.sent_ns[before.number] + max(0, item.time_ns - before.time_ns))
        return max(times)

    def _unacknowledged(self) -> Item | None:
        """The first unacknowledged packet."""
        while self.acked_at < self.at:
            item = self.own[self.acked_at]
            if item.end > max(item.start, self.acked) and item.covered_by is not None:
                return item
            self.acked_at += 1
        return None

    def _group(self) -> list[Item]:
        """The first unacknowledged packet, and those acknowledged by the same packet of the other side: it cannot
        arrive before it has them all, and the lost ones among them are unknown."""
        head = self._unacknowledged()
        if head is None:
            return []
        rest = self.own[self.acked_at : self.at]
        return [item for item in rest if item.covered_by is head.covered_by and item.end > max(item.start, self.acked)]

    def _resend_ns(self) -> int | None:
        head = self._unacknowledged()
        if head is None:
            return None
        rto_ns = min(RTO_NS << self.tries, LONGEST_RTO_NS)
        sent_ns = self.resent_ns.get(head.number, self.sent_ns[head.number])
        return max(sent_ns, self.acked_ns) + head.covered_after_ns + rto_ns

    @property
    def _through(self) -> bool:
        """Whether everything is sent, and acknowledged as far as in the recording."""
        return self.at == len(self.own) and self._unacknowledged() is None

    def _end_ns(self) -> int | None:
        """The end of the flow independent of arrivals: it is complete, or the timeout is over."""
        if self.epoch_ns is None or self.next_send_ns() is not None or self._unacknowledged() is not None:
            return None
        through = self._through
        awaited = self._last_missing() if through else self._needed()
        if through and awaited is None:
            return self.progress_ns
        expected_ns = 0 if awaited is None else max(0, awaited.time_ns - self.progress_time_ns)
        return self.progress_ns + expected_ns + (LINGER_NS if through else PATIENCE_NS)

    def _last_missing(self) -> Item | None:
        while self.last_missing >= 0 and self.peer[self.last_missing].number in self.came_ns:
            self.last_missing -= 1
        return self.peer[self.last_missing] if self.last_missing >= 0 else None

    def _needed(self) -> Item | None:
        """The first packet with bytes that have not been received."""
        while self.needed_at < len(self.peer) and self.peer[self.needed_at].end <= self.came.upto:
            self.needed_at += 1
        return self.peer[self.needed_at] if self.needed_at < len(self.peer) else None

    def report(self) -> FlowReport:
        came = [item for item in self.peer if item.number in self.came_ns]
        return FlowReport(
            flow=self.flow.number,
            label=self.flow.label,
            state=self._final_state(),
            recorded_ns=self.flow.recorded_ns,
            replayed_ns=None if self.first_ns is None else self.progress_ns - self.first_ns,
            sent=self.at,
            resent=self.resent,
            received=len(came),
            duplicates=self.duplicates,
            sent_bytes=sum(len(item.frame) for item in self.own[: self.at]),
            resent_bytes=self.resent_bytes,
            received_bytes=sum(len(item.frame) for item in came),
        )

    def _final_state(self) -> FlowState:
        if self.state != "playing":
            return self.state
        return "complete" if self._through and self.epoch_ns is not None else "unfinished"


class Machine:
    """One side of a whole script. `forward`: the side that begins the flows."""

    def __init__(self, script: Script, forward: bool) -> None:
        self.plays = [Play(flow, forward) for flow in script.flows]
        self.unmatched = 0
        self.last_ns = 0
        self._expected: dict[Key, list[tuple[Play, Item]]] = defaultdict(list)
        for play in self.plays:
            for item in play.peer:
                self._expected[packet_key(item.frame)].append((play, item))
        self._timers: list[tuple[int, int]] = []
        self._set: dict[int, int | None] = {}

    def start(self, at_ns: int) -> None:
        """Sets the time of the trace's time 0, for the side that begins."""
        self.last_ns = at_ns
        for play in self.plays:
            play.begin(at_ns)
            self._schedule(play)

    def _schedule(self, play: Play) -> None:
        number, next_ns = play.flow.number, play.next_ns()
        if next_ns != self._set.get(number):
            self._set[number] = next_ns
            if next_ns is not None:
                heapq.heappush(self._timers, (next_ns, number))

    def arrived(self, frame: bytes, now_ns: int) -> list[Sending]:
        """Handles a received frame. Returns the packets to send at once."""
        found = self._expected.get(packet_key(frame))
        if not found:
            self.unmatched += 1
            return []
        # Indistinguishable packets of a recording (not TCP) arrive one after another.
        play, item = next((one for one in found if one[1].number not in one[0].came_ns), found[-1])
        self.last_ns = now_ns
        asked = play.arrived(item, now_ns)
        return ([asked] if asked else []) + self._play(play, now_ns)

    def due(self, now_ns: int) -> list[Sending]:
        """The packets that are due."""
        sendings = []
        while self._timers and self._timers[0][0] <= now_ns:
            at_ns, number = heapq.heappop(self._timers)
            if self._set.get(number) == at_ns:
                self._set[number] = None
                sendings += self._play(self.plays[number], now_ns)
        return sendings

    def _play(self, play: Play, now_ns: int) -> list[Sending]:
        sendings = play.due(now_ns)
        self.last_ns = now_ns if sendings else self.last_ns
        self._schedule(play)
        return sendings

    @property
    def next_ns(self) -> int | None:
        """The next time at which `due` has something to do without an arrival."""
        while self._timers and self._set.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def over(self, now_ns: int) -> bool:
        """Whether every flow is complete or aborted, and no retransmission has arrived for a while."""
        return self.next_ns is None and now_ns >= self.last_ns + LINGER_NS

    def reports(self) -> list[FlowReport]:
        return [play.report() for play in self.plays]
