"""The process of the UPF, one thread: the socket of N4, the data path, buffered packets, and the socket for orders."""

from __future__ import annotations

import heapq
import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from pktswarm.lab.upf import faults, ie
from pktswarm.lab.upf.answers import Answer, FaultsSet, PdrCounts, Restarted, SessionCounts, Sessions, Status
from pktswarm.lab.upf.datapath import EVENT_BUFFERED, EVENT_NO_NEIGHBOUR, DataPath, Event, Settings
from pktswarm.lab.upf.n4 import N4, Peer
from pktswarm.lab.upf.outer import in_ipv4, in_ipv6
from pktswarm.lab.upf.rules import ACCESS, BUFFER, FORWARD, NOTIFY, OUTER_IPV4, OUTER_IPV6
from pktswarm.lab.upf.session import Moved, Session
from pktswarm.lab.upf.waiting import GTPU_PORT, PORTS, FaultyFrames, UserPackets
from pktswarm.nodes.interface import Interface
from pktswarm.traffic.errors import BadInput

HEARTBEAT_S, MOST_MISSED = 5.0, 3
"""Interval of heartbeats to the SMF; unanswered ones after which its association ends, as eUPF does after 15 s."""
AT_ONCE = 256
"""Messages of N4 that are answered before the other sockets are served."""
BUFFER_BYTES = 1 << 24
ORDER_TIMEOUT_S = 1.0
"""Longest wait for an order's client, during which N4 is not served."""
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_NTF_USE, _NUD_NONE = 1, 0
RESOLVE_AGAIN_S = 1.0
MOST_LISTED_SESSIONS = 1000
"""Sessions in one answer."""
MOST_WHOLE_BYTES = 3300
"""Largest GTP-U message in fragments: a live frame is a page, part of which the kernel uses."""


def settings_of(n3: str, n6: str) -> Settings:
    one, two = Interface(n3), Interface(n6)
    return Settings(
        one.index,
        two.index,
        socket.inet_aton(one.ipv4),
        socket.inet_aton(two.ipv4),
        min(one.mtu, two.mtu),
        bytes.fromhex(one.mac.replace(":", "")),
        bytes.fromhex(two.mac.replace(":", "")),
        _global_ipv6(n3),
    )


def _global_ipv6(interface: str) -> bytes:
    """Returns the first global address; empty if there is none."""
    shown = Path("/proc/net/if_inet6")
    for line in shown.read_text().splitlines() if shown.exists() else ():
        address, _, _, scope, _, name = line.split()
        if name == interface and scope == "00":
            return bytes.fromhex(address)
    return b""


class Upf:
    """Is ready once constructed; run() serves until the process ends."""

    def __init__(self, n4: Sequence[str], orders: Path) -> None:
        """`n4`: its IPv4 and its IPv6 address on N4."""
        self.settings = settings_of(*PORTS)
        self.path = DataPath(self.settings)
        n3 = {OUTER_IPV4: self.settings.n3_ipv4, OUTER_IPV6: self.settings.n3_ipv6}
        self._gtpu = {len(address): _gtpu_socket(address) for address in n3.values() if address}
        self.users = UserPackets(self._gtpu, self.path)
        self.frames = FaultyFrames((_frame_socket(PORTS[0]), _frame_socket(PORTS[1])))
        own = socket.inet_pton(socket.AF_INET, n4[0]), socket.inet_pton(socket.AF_INET6, n4[1])
        self.n4 = N4(n3, own, self.path, self.users)
        self.faults = faults.N4Faults()
        self.session_requests = 0
        self.too_long = 0
        self._silent_until = 0.0
        self._late: list[tuple[float, int, bytes, Peer]] = []
        self._next_heartbeat = time.monotonic() + HEARTBEAT_S
        self._asked: dict[bytes, float] = {}
        self._n4 = {family_of(address): _n4_socket(address) for address in n4}
        self._orders = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._orders.bind(str(orders))
        self._orders.listen()
        self.path.attach()

    def run(self) -> None:
        sources = [self._orders.fileno(), self.path.event_fd]
        n4 = {channel.fileno(): channel for channel in self._n4.values()}
        gtpu = {channel.fileno(): channel for channel in self._gtpu.values()}
        while True:
            ready, _, _ = select.select([*sources, *n4, *gtpu], [], [], self._patience_s())
            if sources[1] in ready:
                for event in self.path.events():
                    self._take_event(event)
            for file in gtpu.keys() & ready:
                self._take_whole(gtpu[file])
            for file in n4.keys() & ready:
                self._serve_n4(n4[file])
            if sources[0] in ready:
                self._serve_order()
            self._do_due()

    def _patience_s(self) -> float:
        now = time.monotonic()
        due = [self._next_heartbeat]
        if self._late:
            due.append(self._late[0][0])
        frame_ns = self.frames.next_ns()
        if frame_ns is not None:
            due.append(frame_ns / 1e9)
        return max(0.0, min(due) - now)

    def _do_due(self) -> None:
        self.frames.send_due(time.monotonic_ns())
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, data, peer = heapq.heappop(self._late)
            self._send(data, peer)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            if now >= self._silent_until:
                for data, peer in self.n4.heartbeats(MOST_MISSED):
                    self._send(data, peer)

    # ---- N4

    def _serve_n4(self, channel: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                data, (address, port, *_) = channel.recvfrom(65535)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error of something sent before
            if time.monotonic() >= self._silent_until:
                self._serve_message(data, (address, port))

    def _serve_message(self, data: bytes, peer: Peer) -> None:
        wrong = self.faults
        of_session = len(data) > 1 and data[1] in (50, 52, 54)
        self.session_requests += of_session
        if of_session and _is_nth(self.session_requests, wrong.lose_request_every):
            return
        answer = self.n4.handle(data, peer)
        if answer is None or (of_session and _is_nth(self.session_requests, wrong.lose_answer_every)):
            return
        if wrong.delay_ms:
            due = time.monotonic() + wrong.delay_ms / 1e3
            heapq.heappush(self._late, (due, len(self._late), answer, peer))
        else:
            self._send(answer, peer)

    def _send(self, data: bytes, peer: Peer) -> None:
        with suppress(OSError):  # no peer: the heartbeats detect it
            self._n4[family_of(peer[0])].sendto(data, peer)

    # ---- the data path

    def _take_event(self, event: Event) -> None:
        if event.kind == EVENT_BUFFERED:
            self._user_packet(event)
        elif event.kind == EVENT_NO_NEIGHBOUR:
            self._resolve(event)
        else:
            self.frames.take(event)

    def _user_packet(self, event: Event) -> None:
        session, which = self.n4.by_counts.get(event.counts, (None, 0))
        if session is None:
            return
        pdr = session.content.pdrs[which]
        far = session.content.fars[pdr.far]
        if far.action & FORWARD and pdr.interface != ACCESS:
            # The data path buffered it just before the session changed.
            self.users.send(Moved(pdr, far, far, session.content.qfi(pdr), False), event.frame)
            return
        if far.action & BUFFER:
            self.users.keep(event.counts, event.frame)
        if far.action & NOTIFY:
            report = self.n4.downlink_data(event.counts)
            if report:
                self._send(*report)

    def _take_whole(self, gtpu: socket.socket) -> None:
        """Returns a packet in outer fragments, reassembled by the kernel, to the data path as one frame."""
        data, (peer, *_) = gtpu.recvfrom(65535)
        if len(data) > MOST_WHOLE_BYTES:
            self.too_long += 1
            return
        source = socket.inet_pton(gtpu.family, peer)
        if len(source) == len(self.settings.n3_ipv4):
            outer = in_ipv4(source, self.settings.n3_ipv4, data)
        else:
            outer = in_ipv6(source, self.settings.n3_ipv6, data)
        self.path.run_uplink(self.settings.n3_mac + bytes(6) + outer)

    def _resolve(self, event: Event) -> None:
        """Makes the kernel resolve the next hop's MAC address."""
        address = self._gnb(event.counts) if event.port == 0 else _destination(event.frame)
        if not address:
            return
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        now = time.monotonic()
        if self._asked.get(address, 0.0) + RESOLVE_AGAIN_S > now:
            return
        self._asked = {each: at for each, at in self._asked.items() if at + RESOLVE_AGAIN_S > now}
        self._asked[address] = now
        with suppress(NetlinkError), IPRoute() as netlink:
            (route,) = netlink.route("get", dst=socket.inet_ntop(family, address), family=family)
            hop = route.get_attr("RTA_GATEWAY") or route.get_attr("RTA_DST")
            index = route.get_attr("RTA_OIF")
            netlink.neigh("set", dst=hop, ifindex=index, family=family, state=_NUD_NONE, flags=_NTF_USE)

    def _gnb(self, counts: int) -> bytes:
        """Returns the gNB of a PDR; empty if the session has ended."""
        session, which = self.n4.by_counts.get(counts, (None, 0))
        return b"" if session is None else session.content.fars[session.content.pdrs[which].far].gnb

    # ---- orders

    def _serve_order(self) -> None:
        channel, _ = self._orders.accept()
        with channel, suppress(OSError):
            channel.settimeout(ORDER_TIMEOUT_S)
            data = b""
            while not data.endswith(b"\n") and (more := channel.recv(1 << 16)):
                data += more
            channel.sendall(json.dumps(self._obey(data)).encode() + b"\n")

    def _obey(self, data: bytes) -> Answer:
        try:
            order = json.loads(data)
            if not isinstance(order, dict) or len(order) != 1:
                raise BadInput(faults.WHERE, "not an order", key="order", value=order, allowed=", ".join(_ORDERS))
            ((name, value),) = order.items()
            if name not in _ORDERS:
                raise BadInput(faults.WHERE, "unknown order", key="order", value=name, allowed=", ".join(_ORDERS))
            return _ORDERS[name](self, value)
        except (BadInput, ValueError) as error:
            return {"error": str(error)}

    def _status(self, _: object) -> Status:
        up, down = self.path.fault_numbers()
        return {
            "associations": len(self.n4.associations),
            "sessions": len(self.n4.sessions),
            "totals": self.path.totals(),
            "waiting": {"users": len(self.users), "overflowed": self.users.overflowed, "faults": len(self.frames)},
            "could_not_be_sent": self.users.failed + self.frames.failed + self.too_long,
            "end_markers_sent": self.users.end_markers,
            "since_faults": {"uplink": up, "downlink": down, "session_requests": self.session_requests},
            "interfaces": {name: asdict(Interface(name).counters()) for name in PORTS},
        }

    def _sessions(self, order: object) -> Sessions:
        """Returns sessions in the order of their SEIDs, a limited number beyond `after`: N4 is not served meanwhile."""
        after = order.get("after", 0) if isinstance(order, dict) else None
        if not isinstance(after, int):
            raise BadInput(faults.WHERE, "not a SEID", key="sessions.after", value=after, allowed="a number")
        listed = (session for seid, session in self.n4.sessions.items() if seid > after)
        return {"sessions": [self._session_counts(session) for session in islice(listed, MOST_LISTED_SESSIONS)]}

    def _session_counts(self, session: Session) -> SessionCounts:
        pdrs: list[PdrCounts] = []
        for pdr in session.content.pdrs.values():
            counts = self.path.read_counts(pdr.counts)
            pdrs.append(
                {
                    "pdr": pdr.id,
                    "direction": "uplink" if pdr.interface == ACCESS else "downlink",
                    "teid": int.from_bytes(pdr.teid, "big") if pdr.teid else None,
                    "ue_ipv4": socket.inet_ntoa(pdr.ue4) if pdr.ue4 else None,
                    "ue_ipv6": socket.inet_ntop(socket.AF_INET6, pdr.ue6.ljust(16, b"\0")) if pdr.ue6 else None,
                    "packets": counts.packets,
                    "bytes": counts.bytes,
                    "dropped": counts.dropped,
                }
            )
        return {"seid": session.seid, "smf_seid": session.peer_seid, "pdrs": pdrs}

    def _faults(self, order: object) -> FaultsSet:
        wanted = faults.read(order)
        self.frames.send_all()
        self.path.list_faults(wanted.listed)
        self.faults = wanted.n4
        self.session_requests = self.n4.establishments = 0
        self.n4.refuse_every, self.n4.refuse_cause = wanted.n4.refuse_every, wanted.n4.cause
        self.n4.ignore_mbr_every = wanted.n4.ignore_mbr_every
        self.users.no_end_marker_every, self.users.end_markers_asked = wanted.n4.no_end_marker_every, 0
        return {"faults": len(wanted.listed), "n4": asdict(wanted.n4)}

    def _restart(self, order: object) -> Restarted:
        silent_s = order.get("silent_s", 0) if isinstance(order, dict) else None
        if not isinstance(silent_s, int | float) or not 0 <= silent_s <= 3600:
            raise BadInput(faults.WHERE, "out of range", key="restart.silent_s", value=silent_s, allowed="0 to 3600")
        self.n4.restart()
        self._late.clear()
        self._silent_until = time.monotonic() + silent_s
        return {"restarted": True}


_ORDERS: dict[str, Callable[[Upf, object], Answer]] = {
    "status": Upf._status,
    "sessions": Upf._sessions,
    "faults": Upf._faults,
    "restart": Upf._restart,
}


def _is_nth(count: int, every: int) -> bool:
    return bool(every) and count % every == 0


def family_of(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _n4_socket(address: str) -> socket.socket:
    channel = _udp_socket(address, ie.PORT)
    channel.setblocking(False)
    return channel


def _gtpu_socket(n3: bytes) -> socket.socket:
    """Sends buffered packets and end markers; receives packets that came in outer fragments."""
    return _udp_socket(socket.inet_ntop(socket.AF_INET if len(n3) == 4 else socket.AF_INET6, n3), GTPU_PORT)


def _udp_socket(address: str, port: int) -> socket.socket:
    """Opens a socket with large buffers, because what a socket drops is not counted."""
    channel = socket.socket(family_of(address), socket.SOCK_DGRAM)
    for option in (_SO_RCVBUFFORCE, _SO_SNDBUFFORCE):
        channel.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    channel.bind((address, port))
    return channel


def _destination(packet: bytes) -> bytes:
    return packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]


def _frame_socket(interface: str) -> socket.socket:
    channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    channel.bind((interface, 0))
    return channel
