"""A lab with its own UPF, and this process at its three ends: an SMF on N4, a gNB on N3, a server on N6.

PFCP messages are scapy's, which knows nothing of lab/upf.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import socket
import struct
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from scapy.contrib import pfcp
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from pktswarm import lab
from pktswarm.lab.namespaces import network_of
from pktswarm.lab.upf_host import LOG

UE4, UE6, SERVER4, SERVER6 = "10.45.0.2", "2001:db8:45:7::", "10.60.0.1", "2001:db8:60::1"
TEID_UP, TEID_DOWN = 0x1001, 0x2001
SMF_SEID = 0x77
RECOVERY = 3_900_000_000
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
QUIET_S = 0.3
"""Nothing more comes once so long nothing came."""


class Ends:
    """`with Ends(...)`: the lab is up, and gone behind it."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.name, self.folder = f"up{os.getpid()}-{next(_COUNT)}", folder
        self.more = more
        self.answers_heartbeats = True

    def __enter__(self) -> Ends:
        self.state = lab.up(self.name, 1, 1, self.folder, dut="upf", **self.more)
        assert self.state.plan.upf is not None
        self.upf = self.state.plan.upf
        _, self.gnb, self.server = self.state.plan.nodes
        pids = self.state.keeper.pids
        with network_of(pids["m0"]):
            self.n4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.n4.bind((self.upf.smf_ipv4, 8805))
        self.n3, self.n6 = (_packet_socket(pids[node.name]) for node in (self.gnb, self.server))
        self.sequences = itertools.count(1)
        self.messages: queue.Queue[bytes] = queue.Queue()
        self._stop, stop = socket.socketpair()
        self._listener = threading.Thread(target=self._listen, args=(stop,))
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._listener.join()
        for each in (self.n4, self.n3, self.n6):
            each.close()
        lab.down(self.name, self.folder)

    def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        return lab.order_upf(self.name, order, self.folder)

    def totals(self) -> dict[str, int]:
        return dict(self.tell({"status": {}})["totals"])

    def counts(self, direction: str, seid: int | None = None) -> dict[str, Any]:
        """Of the only PDR in that direction (of the session, if there are several)."""
        sessions = self.tell({"sessions": {"after": (seid or 1) - 1}})["sessions"]
        of = sessions if seid is None else sessions[:1]
        (found,) = [pdr for one in of for pdr in one["pdrs"] if pdr["direction"] == direction]
        return dict(found)

    # ---- N4

    def send(self, body: Packet, seid: int | None = None, sequence: int | None = None) -> int:
        sequence = next(self.sequences) if sequence is None else sequence
        head = pfcp.PFCP(version=1, S=int(seid is not None), seid=seid or 0, seq=sequence)
        self.n4.sendto(bytes(head / body), (self.upf.n4_ipv4, 8805))
        return sequence

    def _listen(self, stop: socket.socket) -> None:
        """Heartbeats are answered here, as long as `answers_heartbeats`; the rest is for next_message."""
        with stop:
            while stop not in select.select([self.n4, stop], [], [])[0]:
                data, peer = self.n4.recvfrom(65535)
                if data[1] != 1:
                    self.messages.put(data)
                elif self.answers_heartbeats:
                    recovery = pfcp.IE_RecoveryTimeStamp(timestamp=RECOVERY)
                    answer = pfcp.PFCPHeartbeatResponse(IE_list=[recovery])
                    self.n4.sendto(bytes(pfcp.PFCP(version=1, S=0, seq=pfcp.PFCP(data).seq) / answer), peer)

    def next_message(self, timeout_s: float = 5.0) -> tuple[Packet, bytes]:
        """The next message that is no heartbeat of the UPF's."""
        try:
            data = self.messages.get(timeout=timeout_s)
        except queue.Empty:
            log = Path(f"/proc/{self.state.keeper.pids['dut']}/root{LOG}").read_text()
            raise AssertionError(f"the UPF says nothing {log}") from None
        return pfcp.PFCP(data), data

    def ask(self, body: Packet, seid: int | None = None) -> Packet:
        sequence = self.send(body, seid)
        answer, _ = self.next_message()
        assert answer.seq == sequence
        return answer

    def associate(self) -> Packet:
        recovery = pfcp.IE_RecoveryTimeStamp(timestamp=RECOVERY)
        return self.ask(pfcp.PFCPAssociationSetupRequest(IE_list=[self.node_id(), recovery]))

    def node_id(self) -> Packet:
        return pfcp.IE_NodeId(id_type=0, ipv4=self.upf.smf_ipv4)

    def f_seid(self, seid: int = SMF_SEID) -> Packet:
        return pfcp.IE_FSEID(v4=1, seid=seid, ipv4=self.upf.smf_ipv4)

    def establish(self, *rules: Packet, seid: int = SMF_SEID) -> Packet:
        body = [self.node_id(), self.f_seid(seid), *(rules or self.session())]
        return self.ask(pfcp.PFCPSessionEstablishmentRequest(IE_list=body), 0)

    def modify(self, seid: int, *rules: Packet) -> Packet:
        return self.ask(pfcp.PFCPSessionModificationRequest(IE_list=list(rules)), seid)

    def delete(self, seid: int) -> Packet:
        return self.ask(pfcp.PFCPSessionDeletionRequest(IE_list=[]), seid)

    def session(self, **how: Any) -> list[Packet]:
        """Two PDRs with a FAR each. `qers`, `urrs`: theirs, numbered 1, 2, …; `gnb`: its address, where that is not the
        node's IPv4; the rest as in up_pdr, down_far."""
        qers, urrs = how.get("qers", []), how.get("urrs", [])
        of = [pfcp.IE_QER_Id(id=n + 1) for n in range(len(qers))] + [pfcp.IE_URR_Id(id=n + 1) for n in range(len(urrs))]
        return [
            self.up_pdr(of, how.get("teid"), how.get("flow"), how.get("removal", 0)),
            self.down_pdr(of, how.get("ue"), how.get("flow")),
            up_far(),
            down_far(how.get("gnb", self.gnb.ipv4), how.get("action"), how.get("down_teid", TEID_DOWN)),
            *qers,
            *urrs,
        ]

    def up_pdr(
        self, of: list[Packet], teid: Packet | None = None, flow: Packet | None = None, removal: int = 0
    ) -> Packet:
        teid = teid or pfcp.IE_FTEID(V4=1, TEID=TEID_UP, ipv4=self.upf.n3_ipv4)
        pdi = [pfcp.IE_SourceInterface(interface="Access"), teid, *([flow] if flow else [])]
        head = [pfcp.IE_PDR_Id(id=1), pfcp.IE_Precedence(precedence=100), pfcp.IE_PDI(IE_list=pdi)]
        head += [pfcp.IE_OuterHeaderRemoval(header=removal), pfcp.IE_FAR_Id(id=1)]
        return pfcp.IE_CreatePDR(IE_list=[*head, *of])

    def down_pdr(self, of: list[Packet], ue: Packet | None = None, flow: Packet | None = None) -> Packet:
        ue = ue or pfcp.IE_UE_IP_Address(V4=1, V6=1, SD=1, ipv4=UE4, ipv6=UE6)
        pdi = [pfcp.IE_SourceInterface(interface="Core"), ue, *([flow] if flow else [])]
        head = [pfcp.IE_PDR_Id(id=2), pfcp.IE_Precedence(precedence=100), pfcp.IE_PDI(IE_list=pdi)]
        return pfcp.IE_CreatePDR(IE_list=[*head, pfcp.IE_FAR_Id(id=2), *of])

    # ---- the users' packets

    def up(self, packet: bytes, teid: int = TEID_UP, **more: Any) -> None:
        """From the gNB. `more`: fields of scapy's GTP-U header; `container`: the QFI of one."""
        self.n3.send(self.n3_frame(packet, teid, **more))

    def n3_frame(self, packet: bytes, teid: int = TEID_UP, **more: Any) -> bytes:
        gtp = g_pdu(packet, teid, **more)
        outer = IP(src=self.gnb.ipv4, dst=self.upf.n3_ipv4) / UDP(sport=2152, dport=2152) / Raw(gtp)
        return ethernet(self.upf.n3_mac, self.gnb.mac, 0x0800) + bytes(outer)

    def n3_frame6(self, packet: bytes, teid: int = TEID_UP, **more: Any) -> bytes:
        outer = IPv6(src=self.gnb.ipv6, dst=self.upf.n3_ipv6) / UDP(sport=2152, dport=2152)
        whole = bytes(outer / Raw(g_pdu(packet, teid, **more)))
        return ethernet(self.upf.n3_mac, self.gnb.mac, 0x86DD) + whole

    def down(self, packet: bytes) -> None:
        """From the server."""
        self.n6.send(self.n6_frame(packet))

    def n6_frame(self, packet: bytes) -> bytes:
        kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
        return (ethernet(self.upf.n6_mac, self.server.mac, kind) + packet).ljust(60, b"\0")

    def drain(self) -> None:
        """Until nothing is on the way any more, to either end."""
        while ready := select.select([self.n3, self.n6], [], [], QUIET_S)[0]:
            for channel in ready:
                channel.recv(65535)

    def at_server(self, count: int | None = None) -> list[bytes]:
        """Packets as they came out of N6; all that come when no count is told."""
        frames = _receive(self.n6, count)
        for frame in frames:
            assert frame[:12] == mac(self.server.mac) + mac(self.upf.n6_mac)
        return [frame[14:] for frame in frames]

    def at_gnb(self, count: int | None = None) -> list[Packet]:
        """From the outer IP header on."""
        frames = _receive(self.n3, count)
        for frame in frames:
            assert frame[:12] == mac(self.gnb.mac) + mac(self.upf.n3_mac)
        return [(IP if frame[14] >> 4 == 4 else IPv6)(frame[14:]) for frame in frames]


_COUNT = itertools.count()


def up_far(action: int = 2) -> Packet:
    to = pfcp.IE_ForwardingParameters(IE_list=[pfcp.IE_DestinationInterface(interface="Core")])
    return pfcp.IE_CreateFAR(IE_list=[pfcp.IE_FAR_Id(id=1), apply_action(action), to])


def down_far(gnb: str, action: int | None = None, teid: int = TEID_DOWN) -> Packet:
    to = [pfcp.IE_DestinationInterface(interface="Access"), outer_header(gnb, teid)]
    action = 2 if action is None else action
    head = [pfcp.IE_FAR_Id(id=2), apply_action(action)]
    return pfcp.IE_CreateFAR(IE_list=[*head, pfcp.IE_ForwardingParameters(IE_list=to)])


def update_far(action: int, gnb: str = "", teid: int = TEID_DOWN, end_marker: bool = False) -> Packet:
    to = [pfcp.IE_DestinationInterface(interface="Access"), outer_header(gnb, teid)] if gnb else []
    flags = [pfcp.IE_PFCPSMReqFlags(SNDEM=1)] if end_marker else []
    more = [pfcp.IE_UpdateForwardingParameters(IE_list=to + flags)] if to else []
    return pfcp.IE_UpdateFAR(IE_list=[pfcp.IE_FAR_Id(id=2), apply_action(action), *more])


def outer_header(gnb: str, teid: int) -> Packet:
    if ":" in gnb:
        return pfcp.IE_OuterHeaderCreation(GTPUUDPIPV6=1, TEID=teid, ipv6=gnb)
    return pfcp.IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=teid, ipv4=gnb)


def apply_action(bits: int) -> Packet:
    names = ("DROP", "FORW", "BUFF", "NOCP")
    return pfcp.IE_ApplyAction(**{name: bits >> place & 1 for place, name in enumerate(names)})


def qer(
    number: int = 1, mbr_kbps: tuple[int, int] | None = None, qfi: int = 0, gates: tuple[int, int] = (0, 0)
) -> Packet:
    """Rates and gates: up, down; a gate of 1 is closed."""
    found = [pfcp.IE_QER_Id(id=number), pfcp.IE_GateStatus(ul=gates[0], dl=gates[1])]
    if mbr_kbps:
        found.append(pfcp.IE_MBR(ul=mbr_kbps[0], dl=mbr_kbps[1]))
    if qfi:
        found.append(pfcp.IE_QFI(QFI=qfi))
    return pfcp.IE_CreateQER(IE_list=found)


def urr(number: int = 1, packets: bool = False) -> Packet:
    more = [pfcp.IE_MeasurementInformation(MNOP=1)] if packets else []
    method = pfcp.IE_MeasurementMethod(VOLUM=1, DURAT=1)
    return pfcp.IE_CreateURR(IE_list=[pfcp.IE_URR_Id(id=number), method, pfcp.IE_ReportingTriggers(), *more])


def cause(answer: Packet) -> int:
    return int(answer[pfcp.IE_Cause].cause)


def g_pdu(packet: bytes, teid: int, container: int | None = None, **more: Any) -> bytes:
    header = GTP_U_Header(teid=teid, gtp_type=255, **more)
    if container is not None:
        header = GTP_U_Header(teid=teid, gtp_type=255, E=1, next_ex=0x85, **more)
        header = header / GTPPDUSessionContainer(type=1, QFI=container)
    return bytes(header / Raw(packet))


def user4(size_bytes: int = 100, number: int = 0, down: bool = False, port: int = 5000) -> bytes:
    """An IPv4 packet between the user and the server; `number` stands in its payload."""
    ends = (SERVER4, UE4) if down else (UE4, SERVER4)
    ports = {"sport": port, "dport": 4000} if down else {"sport": 4000, "dport": port}
    payload = struct.pack(">I", number).ljust(size_bytes - 28, b"\xa5")
    return bytes(IP(src=ends[0], dst=ends[1], ttl=61) / UDP(**ports) / Raw(payload))


def user6(size_bytes: int = 100, number: int = 0, down: bool = False) -> bytes:
    ue = str(ip_address(UE6) + 5)
    ends = (SERVER6, ue) if down else (ue, SERVER6)
    payload = struct.pack(">I", number).ljust(size_bytes - 48, b"\xa5")
    return bytes(IPv6(src=ends[0], dst=ends[1], hlim=61) / UDP(sport=4000, dport=5000) / Raw(payload))


def number_of(packet: bytes) -> int:
    at = 28 if packet[0] >> 4 == 4 else 48
    return int(struct.unpack_from(">I", packet, at)[0])


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ethernet(to: str, source: str, kind: int) -> bytes:
    return mac(to) + mac(source) + kind.to_bytes(2, "big")


def _packet_socket(pid: int) -> socket.socket:
    with network_of(pid):
        channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        channel.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        channel.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
        channel.bind(("eth1", 3))
    return channel


def _receive(channel: socket.socket, count: int | None) -> list[bytes]:
    """IPv4 and UDP or IPv6 and UDP alone: the UPF's kernel may say something of its own."""
    found: list[bytes] = []
    while count is None or len(found) < count:
        if not select.select([channel], [], [], QUIET_S if count is None else 5)[0]:
            break
        frame = channel.recv(65535)
        if _is_udp(frame):
            found.append(frame)
    assert count is None or len(found) == count, f"{len(found)} of {count} came"
    return found


def _is_udp(frame: bytes) -> bool:
    if frame[12:14] == b"\x08\x00":
        return frame[23] == 17
    return frame[12:14] == b"\x86\xdd" and frame[20] == 17


@contextlib.contextmanager
def faulty(ends: Ends, **order: Any) -> Iterator[None]:
    """With these faults, and none behind it."""
    ends.tell({"faults": order})
    try:
        yield
    finally:
        ends.tell({"faults": {}})
