"""One leg at one of its two nodes: the connecting side at its source, the listening side at its target."""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from pktswarm.nodes.connections.control import (
    CONTROL,
    GREETING,
    MAGIC,
    Control,
    Failed,
    Message,
    Ready,
    Signal,
    UdpPorts,
    greeting,
)
from pktswarm.nodes.connections.loop import READ, WRITE, Loop
from pktswarm.nodes.connections.sockets import End, TcpEnd, UdpEnd
from pktswarm.traffic.connections.blocks import merge_moments, spread
from pktswarm.traffic.connections.counts import EndCount, ReceivedCount, SentCount, sends
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.leg import Leg

CONNECT_TIMEOUT_S = 5.0
CONNECTS_PER_S = 500
"""Connections that may be set up per second, beyond CONNECT_TIMEOUT_S."""
LISTEN_BACKLOG = 4096


class Side(ABC):
    """`ends`: by the number of the connection."""

    at_source: bool

    def __init__(self, loop: Loop, leg: Leg, interface: str) -> None:
        self.loop, self.leg, self.interface = loop, leg, interface
        self.connection = leg.connection
        self.ends: dict[int, End] = {}
        self.failures: list[str] = []
        self.control: Control | None = None
        self.ready = self.begun = self.other_is_done = self.interrupted = False

    @property
    def udp(self) -> bool:
        return self.connection.protocol == "udp"

    @property
    def source(self) -> str:
        return self.connection.source_ipv4.split("/")[0]

    @property
    def target(self) -> str:
        return self.connection.target_ipv4.split("/")[0]

    @abstractmethod
    def over(self) -> bool:
        """Returns whether this node has nothing more to send or to wait for."""

    def look(self) -> None:
        for end in self.ends.values():
            if isinstance(end, TcpEnd):
                end.step(end.look)

    def begin(self, start_ns: int) -> None:
        self.begun = True
        for end in list(self.ends.values()):
            end.begin(start_ns)

    def interrupt(self) -> None:
        self.interrupted = True
        for end in list(self.ends.values()):
            end.interrupt()

    def sending_over(self) -> bool:
        return self.begun and all(end.sending_over for end in self.ends.values())

    def fail(self, why: str) -> None:
        if why not in self.failures:
            self.failures.append(why)

    def _add(self, sock: socket.socket, number: int) -> None:
        kind: type[End] = UdpEnd if self.udp else TcpEnd
        try:
            self.ends[number] = kind(self.loop, sock, self.leg, number, sends(self.leg, self.at_source))
        except OSError as error:
            self.fail(f"connection {number + 1}: socket setup failed: {error.strerror}")
        except EngineError as error:
            self.fail(error.problem)

    def _socket(self, kind: int, address: str, port: int = 0) -> socket.socket:
        """Returns a socket bound to the address and to the traffic interface, whatever the node's routes are."""
        sock = socket.socket(socket.AF_INET, kind)
        sock.setblocking(False)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.interface.encode() + b"\0")
        sock.bind((address, port))
        return sock

    # --- counts -------------------------------------------------------------------------------------------------

    def count(self) -> EndCount:
        ends = list(self.ends.values())
        total = self.connection.connections
        failures = [f"connection {e.number + 1} of {total}: {e.failure}" for e in ends if e.failure]
        sending, receiving = sends(self.leg, self.at_source), sends(self.leg, not self.at_source)
        return EndCount(
            self._sent(ends) if sending else None,
            _received(ends) if receiving else None,
            [*self.failures, *failures],
            self.interrupted,
            time.time_ns() - time.monotonic_ns(),
        )

    def _sent(self, ends: list[End]) -> SentCount:
        made = SentCount(
            sent_blocks=sum(end.sent_blocks for end in ends),
            sent_bytes=sum(end.sent_bytes for end in ends),
            first_ns=min((end.first_ns for end in ends if end.first_ns is not None), default=None),
            last_ns=max((end.last_ns for end in ends if end.last_ns is not None), default=None),
        )
        if len(ends) == self.connection.connections:
            blocks, sizes = [end.blocks.count for end in ends], [end.blocks.total_bytes for end in ends]
            made.intended_blocks, made.intended_bytes = _sum(blocks), _sum(sizes)
            if all(end.blocks.paced_by_time for end in ends):
                made.late_blocks = sum(end.late_blocks for end in ends)
        _add_tcp(made, [end for end in ends if isinstance(end, TcpEnd)])
        datagrams = [end.datagrams for end in ends if isinstance(end, UdpEnd)]
        made.datagrams = sum(datagrams) if self.udp else None
        return made


def _sum(values: list[int | None]) -> int | None:
    return None if any(value is None for value in values) else sum(value or 0 for value in values)


def _add_tcp(made: SentCount, ends: list[TcpEnd]) -> None:
    infos = [end.info for end in ends if end.info is not None]
    if not infos or len(infos) < len(ends):
        return
    made.retransmitted_segments = sum(info.retransmitted_segments for info in infos)
    made.data_segments = sum(info.data_segments for info in infos)
    made.rtt_min_ns = min((info.min_rtt_ns for info in infos if info.min_rtt_ns is not None), default=None)
    made.congestion = ends[0].congestion
    if found := spread([rtt for end in ends for rtt in end.rtts_ns]):
        made.rtt_mean_ns, made.rtt_sd_ns = found


def _received(ends: list[End]) -> ReceivedCount:
    arrivals = [end.arrivals for end in ends]
    delay = merge_moments([each.delay for each in arrivals])
    rates = [each.goodput_bps for each in arrivals]
    made = ReceivedCount(
        blocks=sum(each.blocks for each in arrivals),
        bytes=sum(each.bytes for each in arrivals),
        goodput_bps=None if None in rates or not rates else sum(rate or 0.0 for rate in rates),
        delay_blocks=delay.count,
        delay_min_ns=delay.min_ns if delay.count else None,
        delay_mean_ns=delay.mean_ns,
        delay_max_ns=delay.max_ns if delay.count else None,
        jitter_sd_ns=delay.jitter_sd_ns,
        first_ns=min((each.first_ns for each in arrivals if each.first_ns is not None), default=None),
        last_ns=max((each.last_ns for each in arrivals if each.last_ns is not None), default=None),
    )
    readers = [(end.reader, end.dropped) for end in ends if isinstance(end, UdpEnd)]
    if readers:
        made.datagrams = sum(reader.distinct for reader, _ in readers)
        made.duplicated = sum(reader.duplicated for reader, _ in readers)
        made.reordered = sum(reader.reordered for reader, _ in readers)
        made.foreign = sum(reader.foreign for reader, _ in readers)
        made.dropped = sum(dropped for _, dropped in readers)
    return made


class ConnectingSide(Side):
    """Sets up all connections at once. It is over when it has sent everything and received everything."""

    at_source = True

    def __init__(self, loop: Loop, leg: Leg, interface: str) -> None:
        super().__init__(loop, leg, interface)
        self._drained_at_ns: int | None = None
        self._udp_sockets: list[socket.socket] = []
        self._connect(CONTROL, self._greet)
        self._timeout_s = CONNECT_TIMEOUT_S + leg.connection.connections / CONNECTS_PER_S
        loop.at(time.monotonic_ns() + round(self._timeout_s * 1e9), self._too_late)

    def over(self) -> bool:
        if self.failures:
            return True
        if self.udp:
            waits = sends(self.leg, at_source=False) and not self._drained()
            return self.sending_over() and not waits
        return self.begun and all(end.finished for end in self.ends.values())

    def _drained(self) -> bool:
        """Returns whether `drain_s` have passed since the other end sent its last datagram."""
        return self._drained_at_ns is not None and time.monotonic_ns() >= self._drained_at_ns

    def begin(self, start_ns: int) -> None:
        if self.control is not None:
            self.control.send(Signal.GO)
        super().begin(start_ns)

    def interrupt(self) -> None:
        if self.control is not None:
            self.control.send(Signal.STOP)
        super().interrupt()

    def _connect(self, number: int, then: Callable[[socket.socket], None]) -> None:
        try:
            sock = self._socket(socket.SOCK_STREAM, self.source)
            sock.connect((self.target, self.connection.port))
        except BlockingIOError:
            self.loop.watch(sock.fileno(), WRITE, partial(self._connected, sock, number, then))
        except OSError as error:
            self.fail(f"cannot connect to {self.target}, port {self.connection.port}: {error.strerror}")

    def _connected(self, sock: socket.socket, number: int, then: Callable[[socket.socket], None], _: int) -> None:
        self.loop.forget(sock.fileno())
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            sock.close()
            self.fail(f"cannot connect to {self.target}, port {self.connection.port}: {os.strerror(error)}")
            return
        sock.send(greeting(number))
        then(sock)

    def _greet(self, sock: socket.socket) -> None:
        self.control = Control(self.loop, sock, self._take, self._lost)
        if self.udp:
            count = self.connection.connections
            self._udp_sockets = [self._socket(socket.SOCK_DGRAM, self.source) for _ in range(count)]
            self.control.send(UdpPorts([sock.getsockname()[1] for sock in self._udp_sockets]))
            return
        for number in range(self.connection.connections):
            self._connect(number, partial(self._add, number=number))

    def _take(self, message: Message) -> None:
        match message:
            case Ready():
                self._take_ready(message.ports)
            case Signal.DONE:
                self.other_is_done = True
                self._drained_at_ns = time.monotonic_ns() + round(self.connection.drain_s * 1e9)
            case Failed():
                self.fail(f"{self.leg.target}: {message.problem}")
            case _:
                self.fail(f"{self.leg.target}: unexpected control message {message}")

    def _take_ready(self, udp_ports: list[int]) -> None:
        for number, port in enumerate(udp_ports):
            self._udp_sockets[number].connect((self.target, port))
            self._add(self._udp_sockets[number], number)
        total = self.connection.connections
        self.ready = len(self.ends) == total
        if not self.ready:
            self.fail(f"{len(self.ends)} of {total} connections were set up")

    def _lost(self, why: str) -> None:
        if not self.over():
            self.fail(f"{self.target}: connection lost: {why}")
            self.interrupt()

    def _too_late(self) -> None:
        if not self.ready:
            self.fail(f"no response from {self.target}, port {self.connection.port}, in {self._timeout_s:.0f} s")


class ListeningSide(Side):
    at_source = False

    def __init__(self, loop: Loop, leg: Leg, interface: str) -> None:
        super().__init__(loop, leg, interface)
        self._done_sent = False
        self.listener = self._socket(socket.SOCK_STREAM, self.target, self.connection.port)
        self.listener.listen(LISTEN_BACKLOG)
        loop.watch(self.listener.fileno(), READ, self._accept)

    def over(self) -> bool:
        return self.begun and all(end.finished or self.udp for end in self.ends.values())

    def look(self) -> None:
        super().look()
        if self.sending_over() and not self._done_sent and self.control is not None:
            self._done_sent = True
            self.control.send(Signal.DONE)

    def count(self) -> EndCount:
        made = super().count()
        if self.begun and not self.over() and not self.failures:
            left = sum(not end.finished for end in self.ends.values())
            made.failures.append(f"{left} of {len(self.ends)} connections were still open at the end")
        return made

    def _accept(self, events: int) -> None:
        try:
            sock, peer = self.listener.accept()
        except BlockingIOError:
            return
        if peer[0] != self.source:
            sock.close()
            return
        sock.setblocking(False)
        self.loop.watch(sock.fileno(), READ, partial(self._greeted, sock))

    def _greeted(self, sock: socket.socket, events: int) -> None:
        """Assigns a connection by its greeting, once this has arrived."""
        try:
            data = sock.recv(GREETING.size, socket.MSG_PEEK)
            if 0 < len(data) < GREETING.size:
                return
            data = sock.recv(GREETING.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.loop.forget(sock.fileno())
        magic, number = GREETING.unpack(data) if len(data) == GREETING.size else (b"", 0)
        if magic != MAGIC:
            sock.close()
        elif number == CONTROL:
            self.control = Control(self.loop, sock, self._take, self._lost)
        else:
            self._add(sock, number)
        self._report_ready()

    def _report_ready(self) -> None:
        if self.ready or self.control is None or len(self.ends) < self.connection.connections:
            if self.failures and self.control is not None:
                self.control.send(Failed(self.failures[0]))
            return
        self.ready = True
        ports = [end.socket.getsockname()[1] for end in self.ends.values()] if self.udp else []
        self.control.send(Ready(ports))

    def _take(self, message: Message) -> None:
        match message:
            case UdpPorts():
                for number, port in enumerate(message.ports[: self.connection.connections]):
                    sock = self._socket(socket.SOCK_DGRAM, self.target)
                    sock.connect((self.source, port))
                    self._add(sock, number)
                self._report_ready()
            case Signal.GO:
                self.begin(time.monotonic_ns())
            case Signal.STOP:
                self.interrupt()
            case _:
                self.fail(f"{self.leg.source}: unexpected control message {message}")

    def _lost(self, why: str) -> None:
        """Ends the sending: the connecting side is done, or has died."""
        if not self.udp and not self.over():
            self.look()
        for end in list(self.ends.values()):
            end.interrupt()
