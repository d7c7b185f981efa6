"""A UPF's N4 side for tests, in a process of its own: everything is decoded and encoded by scapy, nothing is shared
with what is tested. Faults as asked for. At SIGTERM it prints what it saw, as JSON.

    python tests/upf_peer.py ADDRESS '{"refuse": {"50": 75}}'
"""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
import time
from typing import Any

from scapy.contrib import pfcp
from scapy.packet import Packet

PORT = 8805
FEATURES_OF_ALL = bytes([0x10, 0x00, 0x04, 0x00])
"""FTUP and UEIP."""


def find(parent: Packet, kind: type[Packet]) -> list[Packet]:
    return [one for one in parent.IE_list if isinstance(one, kind)]


class Peer:
    """faults:
    drop        {type: n}: the first n requests of a type get no answer
    refuse      {type: cause}, with offending: {type: IE}
    refuse_once {type: cause}: the first request of a type only
    stamp       its recovery time stamp
    octets      of Apply Action: a request with another length is dropped
    restores    another recovery time stamp in a heartbeat of the SMF deletes all sessions; not so in an association
    never_chooses   sessions are accepted, but nothing is chosen
    beat_after_s   a heartbeat request so long after each association
    delay_s     {type: seconds} before each answer
    garble      [type]: the answer ends in the middle of its cause
    repeat      [type]: answers are sent twice
    silent_after, restart_after   n: after so many establishments nothing is answered, or all is forgotten and the
                recovery time stamp is another
    features    hex
    port        where it listens
    ask         [heartbeat, usage, data]: requests of its own, from another port, after each establishment
    """

    def __init__(self, address: str, faults: dict[str, Any]) -> None:
        self.faults, self.address = faults, address
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, faults.get("port", PORT)))
        self.asking = socket.socket(self.socket.family, socket.SOCK_DGRAM)
        self.asking.bind((address, 0))
        self.stamp = faults.get("stamp", 3_900_000_000)
        self.smf_stamp = 0
        self.sessions: dict[int, dict[str, Any]] = {}
        self.seen: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.log: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.established = 0
        self.kept: dict[Any, Packet | None] = {}

    def serve(self, end: socket.socket) -> None:  # noqa: C901 - one condition for each fault
        """Answers until `end` can be read."""
        while end not in select.select([self.socket, end], [], [])[0]:
            data, sender = self.socket.recvfrom(65535)
            message = pfcp.PFCP(data)
            kind = str(message.message_type)
            self.seen[kind] = self.seen.get(kind, 0) + 1
            if self.dropped.get(kind, 0) < self.faults.get("drop", {}).get(kind, 0):
                self.dropped[kind] = self.dropped.get(kind, 0) + 1
                continue
            if self.has_other_octets(data):
                continue
            silent_after = self.faults.get("silent_after")
            if kind in self.faults.get("garble", []):
                self.socket.sendto(
                    bytes([0x21, int(kind) + 1, 0, 16, *bytes(8), *message.seq.to_bytes(3, "big"), 0, 0, 19, 0, 9]),
                    sender,
                )
                continue
            if silent_after is not None and self.established >= silent_after:
                continue
            time.sleep(self.faults.get("delay_s", {}).get(kind, 0))
            # One that comes again gets the same answer (TS 29.244, 6.4), whoever sends it from there.
            key = (sender, message.seq, kind)
            if key not in self.kept:
                self.kept[key] = self.answer(message)
            answer = self.kept[key]
            if answer is not None:
                for _ in range(2 if message.message_type in self.faults.get("repeat", []) else 1):
                    self.socket.sendto(bytes(answer), sender)
            if message.message_type == 50:
                self.ask(message, sender)
            if message.message_type == 5 and "beat_after_s" in self.faults:
                time.sleep(self.faults["beat_after_s"])
                self.beat(sender)

    def has_other_octets(self, data: bytes) -> bool:
        octets = self.faults.get("octets")
        return octets is not None and data[1] == 50 and bytes([0, 44, 0, octets, 2]) not in data

    def answer(self, message: Packet) -> Packet | None:  # noqa: C901 - one case for each kind of message
        kind, body = message.message_type, message.payload
        cause = self.faults.get("refuse_once", {}).pop(str(kind), self.faults.get("refuse", {}).get(str(kind), 1))
        causes: list[Packet] = [pfcp.IE_Cause(cause=cause)]
        if str(kind) in self.faults.get("offending", {}):
            causes.append(pfcp.IE_OffendingIE(type=self.faults["offending"][str(kind)]))
        node_id = pfcp.IE_NodeId(id_type=2, id="upf.example.org")
        stamp = pfcp.IE_RecoveryTimeStamp(timestamp=self.stamp)
        if kind == 1:
            self.restore(body)
            return self.reply(message, pfcp.PFCPHeartbeatResponse(IE_list=[stamp]))
        if kind == 5:
            features = bytes.fromhex(self.faults["features"]) if "features" in self.faults else FEATURES_OF_ALL
            told = pfcp.IE_NotImplemented(ietype=43, data=features)
            return self.reply(message, pfcp.PFCPAssociationSetupResponse(IE_list=[node_id, *causes, stamp, told]))
        if kind == 9:
            return self.reply(message, pfcp.PFCPAssociationReleaseResponse(IE_list=[node_id, *causes]))
        if kind == 50:
            return self.establish(message, body, cause, [node_id, *causes])
        session = self.sessions.get(message.seid)
        if kind == 52:
            if session is None:
                causes = [pfcp.IE_Cause(cause=65)]
            elif find(body, pfcp.IE_QueryURR):
                causes.append(usage_report(pfcp.IE_UsageReport_SMR))
            else:
                session["modified"] += 1
                self.log.append({"modify": message.seid, "far": describe(find(body, pfcp.IE_UpdateFAR))})
            answer = pfcp.PFCPSessionModificationResponse(IE_list=causes)
            return self.reply(message, answer, session["cp_seid"] if session else 0)
        if kind == 54:
            session = self.sessions.pop(message.seid, None) if cause == 1 else session
            elements = causes if session else [pfcp.IE_Cause(cause=65)]
            if session and cause == 1:
                elements = [*causes, usage_report(pfcp.IE_UsageReport_SDR)]
            answer = pfcp.PFCPSessionDeletionResponse(IE_list=elements)
            return self.reply(message, answer, session["cp_seid"] if session else 0)
        if kind in (2, 57):
            found = find(body, pfcp.IE_Cause)
            self.answers.append({"type": kind, "sequence": message.seq, "cause": found[0].cause if found else None})
        return None

    def restore(self, body: Packet) -> None:
        stamp = find(body, pfcp.IE_RecoveryTimeStamp)[0].timestamp
        if self.faults.get("restores") and stamp != self.smf_stamp:
            self.sessions.clear()
        self.smf_stamp = stamp

    def establish(self, message: Packet, body: Packet, cause: int, elements: list[Packet]) -> Packet:
        cp_seid = find(body, pfcp.IE_FSEID)[0].seid
        if cause != 1:
            return self.reply(message, pfcp.PFCPSessionEstablishmentResponse(IE_list=elements), cp_seid)
        self.established += 1
        if self.established == self.faults.get("restart_after"):
            self.stamp += 60
            self.sessions.clear()
        number = 0x7000_0000_0000_0000 + self.established
        uplink, downlink = find(body, pfcp.IE_CreatePDR)
        f_teid = find(find(uplink, pfcp.IE_PDI)[0], pfcp.IE_FTEID)[0]
        ue = find(find(downlink, pfcp.IE_PDI)[0], pfcp.IE_UE_IP_Address)[0]
        fars = find(body, pfcp.IE_CreateFAR)
        creation = find(find(fars[1], pfcp.IE_ForwardingParameters)[0], pfcp.IE_OuterHeaderCreation)[0]
        self.sessions[number] = {
            "cp_seid": cp_seid,
            "choose": bool(f_teid.CH),
            "teid": None if f_teid.CH else f_teid.TEID,
            "ue_v4": ue.ipv4 if ue.V4 else None,
            "ue_v6": ue.ipv6 if ue.V6 else None,
            "downlink_teid": creation.TEID,
            "gnb": creation.ipv4 if creation.GTPUUDPIPV4 else creation.ipv6,
            "modified": 0,
        }
        chosen: list[Packet] = []
        if self.faults.get("never_chooses"):
            ue.spare = f_teid.CH = 0
        if f_teid.CH:
            chosen.append(pfcp.IE_FTEID(V4=1, TEID=0xABC00000 + self.established, ipv4="198.18.3.1"))
        if ue.spare & 0b010:
            chosen.append(pfcp.IE_UE_IP_Address(V4=1, ipv4=f"10.60.0.{self.established}"))
        created = [pfcp.IE_CreatedPDR(IE_list=[pfcp.IE_PDR_Id(id=1), *chosen])] if chosen else []
        own = pfcp.IE_FSEID(v4=1, seid=number, ipv4="198.18.4.1")
        answer = pfcp.PFCPSessionEstablishmentResponse(IE_list=[*elements, own, *created])
        return self.reply(message, answer, cp_seid)

    def reply(self, message: Packet, body: Packet, seid: int | None = None) -> Packet:
        header = {"seq": message.seq, "S": int(seid is not None)}
        return pfcp.PFCP(**header, **({"seid": seid} if seid is not None else {})) / body

    def ask(self, message: Packet, sender: tuple[Any, ...]) -> None:
        seid = find(message.payload, pfcp.IE_FSEID)[0].seid
        for number, what in enumerate(self.faults.get("ask", [])):
            sequence = 1000 * self.established + number
            if what == "heartbeat":
                stamp = pfcp.IE_RecoveryTimeStamp(timestamp=self.stamp)
                request = pfcp.PFCP(seq=sequence, S=0) / pfcp.PFCPHeartbeatRequest(IE_list=[stamp])
            elif what == "usage":
                elements = [pfcp.IE_ReportType(USAR=1), usage_report(pfcp.IE_UsageReport_SRR)]
                request = pfcp.PFCP(seq=sequence, seid=seid) / pfcp.PFCPSessionReportRequest(IE_list=elements)
            else:
                data = pfcp.IE_DownlinkDataReport(IE_list=[pfcp.IE_PDR_Id(id=2)])
                elements = [pfcp.IE_ReportType(DLDR=1), data]
                request = pfcp.PFCP(seq=sequence, seid=seid) / pfcp.PFCPSessionReportRequest(IE_list=elements)
            for _ in range(2):
                self.asking.sendto(bytes(request), sender)
            self.asking.settimeout(2)
            for _ in range(2):
                self.answer(pfcp.PFCP(self.asking.recv(65535)))

    def beat(self, sender: tuple[Any, ...]) -> None:
        stamp = pfcp.IE_RecoveryTimeStamp(timestamp=self.stamp)
        self.asking.sendto(bytes(pfcp.PFCP(seq=1, S=0) / pfcp.PFCPHeartbeatRequest(IE_list=[stamp])), sender)
        self.asking.settimeout(2)
        self.answer(pfcp.PFCP(self.asking.recv(65535)))

    def report(self) -> dict[str, Any]:
        names = ("seen", "sessions", "log", "answers", "established", "dropped")
        return {name: getattr(self, name) for name in names}


def usage_report(kind: type[Packet]) -> Packet:
    volume = pfcp.IE_VolumeMeasurement(TOVOL=1, ULVOL=1, DLVOL=1, total=1500, uplink=500, downlink=1000)
    trigger = pfcp.IE_UsageReportTrigger(TERMR=1)
    return kind(IE_list=[pfcp.IE_URR_Id(id=1), pfcp.IE_UR_SEQN(number=0), trigger, volume])


def describe(fars: list[Packet]) -> dict[str, Any]:
    """Of one Update FAR: what a test wants to know."""
    action = find(fars[0], pfcp.IE_ApplyAction)[0]
    told: dict[str, Any] = {"forward": action.FORW, "buffer": action.BUFF, "notify": action.NOCP}
    for parameters in find(fars[0], pfcp.IE_UpdateForwardingParameters):
        creation = find(parameters, pfcp.IE_OuterHeaderCreation)[0]
        told |= {"teid": creation.TEID, "gnb": creation.ipv4}
        told["end_marker"] = any(flags.SNDEM for flags in find(parameters, pfcp.IE_PFCPSMReqFlags))
    return told


if __name__ == "__main__":
    peer = Peer(sys.argv[1], json.loads(sys.argv[2]))

    # A handler that ends the process is not called where the signal comes right before the socket waits, nor where
    # scapy catches every exception.
    end, signalled = socket.socketpair()
    signalled.setblocking(False)
    signal.set_wakeup_fd(signalled.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    print("ready", flush=True)
    peer.serve(end)
    print(json.dumps(peer.report()), flush=True)
