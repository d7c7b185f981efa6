"""Encodes PFCP messages of an SMF (3GPP TS 29.244, section 7) with scapy. Each function returns one message.

Information elements have the order of the specification's tables. Rules have the same numbers in every session: their
scope is the session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from scapy.contrib import pfcp
from scapy.packet import Packet

from pktswarm.master.scenario.upf import Group, Upf
from pktswarm.master.scenario.upf_rules import Qos
from pktswarm.master.upf.template import Values

PDR_UP, PDR_DOWN = 1, 2
FAR_UP, FAR_DOWN = 1, 2
QER, URR, BAR = 1, 1, 1
ACCESS, CORE = 0, 1
N3_INTERFACE, N6_INTERFACE = 11, 17
"""3GPP Interface Type (8.2.118)."""
CHOOSE_V4, CHOOSE_V6 = 0b010, 0b100
"""Flags CHV4 and CHV6 of UE IP Address (8.2.62); scapy has them in `spare`."""
OPEN = {"open": 0, "closed": 1}
PDN_TYPES = {(True, False): 1, (False, True): 2, (True, True): 3}
REMOVE = {"4": 0, "6": 1}
WIDER_FLAGS_RELEASE = 16
"""From this release on Apply Action (8.2.26) and Outer Header Removal (8.2.64; since 15.4.0) have two octets, not
one, Reporting Triggers (8.2.19) three, not two. Some UPFs decode exactly that length."""
Action = str
"""Action of a downlink FAR: forward, buffer, or notify (buffer, and notify the CP of the first packet)."""


@dataclass(frozen=True)
class Own:
    """The SMF's identity in its messages."""

    address: str
    node_id: str
    recovery_stamp: int
    """Seconds since 1900; constant for the lifetime of an SMF (8.2.65)."""


def encode_message(
    kind: str, number: int, values: Values | int, elements: list[Packet], session: bool = False
) -> bytes:
    sequence = values if isinstance(values, int) else int.from_bytes(values["sequence"], "big")
    header = {"message_type": number, "seq": sequence, "S": int(session)}
    if session:
        assert not isinstance(values, int)
        header["seid"] = int.from_bytes(values["seid"], "big")
    return bytes(pfcp.PFCP(**header) / getattr(pfcp, kind)(IE_list=elements))


def heartbeat_request(own: Own, sequence: int) -> bytes:
    return encode_message("PFCPHeartbeatRequest", 1, sequence, [_recovery(own)])


def heartbeat_response(own: Own, sequence: int) -> bytes:
    return encode_message("PFCPHeartbeatResponse", 2, sequence, [_recovery(own)])


def association_setup_request(own: Own, sequence: int) -> bytes:
    return encode_message("PFCPAssociationSetupRequest", 5, sequence, [_node_id(own), _recovery(own)])


def association_setup_response(own: Own, sequence: int, cause: int) -> bytes:
    elements = [_node_id(own), pfcp.IE_Cause(cause=cause), _recovery(own)]
    return encode_message("PFCPAssociationSetupResponse", 6, sequence, elements)


def association_update_request(own: Own, sequence: int) -> bytes:
    return encode_message("PFCPAssociationUpdateRequest", 7, sequence, [_node_id(own)])


def association_update_response(own: Own, sequence: int, cause: int) -> bytes:
    return encode_message("PFCPAssociationUpdateResponse", 8, sequence, [_node_id(own), pfcp.IE_Cause(cause=cause)])


def association_release_request(own: Own, sequence: int) -> bytes:
    return encode_message("PFCPAssociationReleaseRequest", 9, sequence, [_node_id(own)])


def node_report_response(own: Own, sequence: int, cause: int) -> bytes:
    return encode_message("PFCPNodeReportResponse", 13, sequence, [_node_id(own), pfcp.IE_Cause(cause=cause)])


def session_report_response(sequence: int, seid: int, cause: int) -> bytes:
    values = {"sequence": sequence.to_bytes(3, "big"), "seid": seid.to_bytes(8, "big")}
    return encode_message("PFCPSessionReportResponse", 57, values, [pfcp.IE_Cause(cause=cause)], session=True)


def session_deletion_request(values: Values) -> bytes:
    return encode_message("PFCPSessionDeletionRequest", 54, values, [], session=True)


class GroupMessages:
    """Messages of one group's sessions; `Values` are the fields of a single user."""

    def __init__(self, upf: Upf, group: Group, own: Own) -> None:
        self.upf, self.group, self.own = upf, group, own
        self.v4, self.v6 = group.families()
        self.gnb_version = ip_address(upf.gnbs[upf.gnbs_of(group)[0]]).version

    def establishment(self, values: Values) -> bytes:
        elements = self.establishment_elements(values)
        return encode_message("PFCPSessionEstablishmentRequest", 50, values, elements, session=True)

    def establishment_elements(self, values: Values) -> list[Packet]:
        elements = [
            _node_id(self.own),
            _f_seid(self.own, int.from_bytes(values["local_seid"], "big")),
            self._uplink_pdr(values),
            self._downlink_pdr(values),
            self._uplink_far(),
            self._downlink_far(values),
            *self._create_urr(),
            *self._create_qer(),
            *self._create_bar(),
            pfcp.IE_PDNType(pdn_type=PDN_TYPES[self.v4, self.v6]),
        ]
        if self.group.dnn:
            elements.append(pfcp.IE_APN_DNN(apn_dnn=self.group.dnn))
        return elements

    def modification(self, action: Action, end_marker: bool = False) -> Callable[[Values], bytes]:
        """Returns the encoder of a new action of the downlink FAR; `forward` always has gNB and TEID."""

        def encode(values: Values) -> bytes:
            inside = [pfcp.IE_FAR_Id(id=FAR_DOWN), _apply(action, self.upf.release)]
            if action == "forward":
                inside.append(pfcp.IE_UpdateForwardingParameters(IE_list=self._to_gnb(values, end_marker)))
            elif self.group.buffer is not None:
                inside.append(pfcp.IE_BAR_Id(id=BAR))
            elements = [pfcp.IE_UpdateFAR(IE_list=inside)]
            return encode_message("PFCPSessionModificationRequest", 52, values, elements, session=True)

        return encode

    def query(self, values: Values) -> bytes:
        """Encodes a request for an immediate usage report."""
        elements = [pfcp.IE_QueryURR(IE_list=[pfcp.IE_URR_Id(id=URR)])]
        return encode_message("PFCPSessionModificationRequest", 52, values, elements, session=True)

    def _uplink_pdr(self, values: Values) -> Packet:
        detection = [pfcp.IE_SourceInterface(interface=ACCESS), self._f_teid(values)]
        detection += self._instance(self.group.access_instance) + self._sdf_filters() + self._interface(N3_INTERFACE)
        spare = _last_octet(self.upf.release)
        removal = pfcp.IE_OuterHeaderRemoval(header=0 if self.gnb_version == 4 else 1, extra_data=spare)
        return pfcp.IE_CreatePDR(IE_list=self._pdr(PDR_UP, detection, [removal], FAR_UP))

    def _downlink_pdr(self, values: Values) -> Packet:
        detection = [pfcp.IE_SourceInterface(interface=CORE)]
        detection += [*self._instance(self.group.core_instance), self._ue_address(values)]
        detection += self._sdf_filters() + self._interface(N6_INTERFACE)
        return pfcp.IE_CreatePDR(IE_list=self._pdr(PDR_DOWN, detection, [], FAR_DOWN))

    def _pdr(self, number: int, detection: list[Packet], removal: list[Packet], far: int) -> list[Packet]:
        elements = [pfcp.IE_PDR_Id(id=number), pfcp.IE_Precedence(precedence=self.group.precedence)]
        elements += [pfcp.IE_PDI(IE_list=detection), *removal, pfcp.IE_FAR_Id(id=far)]
        if self.group.usage is not None:
            elements.append(pfcp.IE_URR_Id(id=URR))
        if self.group.qos is not None:
            elements.append(pfcp.IE_QER_Id(id=QER))
        if self.group.predefined_rule is not None:
            elements.append(pfcp.IE_ActivatePredefinedRules(name=self.group.predefined_rule))
        return elements

    def _uplink_far(self) -> Packet:
        onward = [pfcp.IE_DestinationInterface(interface=CORE)]
        onward += self._instance(self.group.core_instance) + self._interface(N6_INTERFACE)
        forwarding = pfcp.IE_ForwardingParameters(IE_list=onward)
        return pfcp.IE_CreateFAR(IE_list=[pfcp.IE_FAR_Id(id=FAR_UP), _apply("forward", self.upf.release), forwarding])

    def _downlink_far(self, values: Values) -> Packet:
        forwarding = pfcp.IE_ForwardingParameters(IE_list=self._to_gnb(values))
        elements = [pfcp.IE_FAR_Id(id=FAR_DOWN), _apply("forward", self.upf.release), forwarding]
        if self.group.buffer is not None:
            elements.append(pfcp.IE_BAR_Id(id=BAR))
        return pfcp.IE_CreateFAR(IE_list=elements)

    def _to_gnb(self, values: Values, end_marker: bool = False) -> list[Packet]:
        elements = [pfcp.IE_DestinationInterface(interface=ACCESS), *self._instance(self.group.access_instance)]
        teid = int.from_bytes(values["downlink_teid"], "big")
        if self.gnb_version == 4:
            gnb = str(IPv4Address(values["gnb_v4"]))
            elements.append(pfcp.IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=teid, ipv4=gnb))
        else:
            gnb = str(IPv6Address(values["gnb_v6"]))
            elements.append(pfcp.IE_OuterHeaderCreation(GTPUUDPIPV6=1, TEID=teid, ipv6=gnb))
        if end_marker:
            elements.append(pfcp.IE_PFCPSMReqFlags(SNDEM=1))
        return elements + self._interface(N3_INTERFACE)

    def _create_urr(self) -> list[Packet]:
        usage = self.group.usage
        if usage is None:
            return []
        periodic = int(usage.period_s is not None)
        spare = _last_octet(self.upf.release)
        triggers = pfcp.IE_ReportingTriggers(volume_threshold=1, periodic_reporting=periodic, extra_data=spare)
        elements = [pfcp.IE_URR_Id(id=URR), pfcp.IE_MeasurementMethod(VOLUM=1), triggers]
        if usage.period_s is not None:
            elements.append(pfcp.IE_MeasurementPeriod(period=usage.period_s))
        elements.append(pfcp.IE_VolumeThreshold(TOVOL=1, total=usage.volume_threshold_bytes))
        return [pfcp.IE_CreateURR(IE_list=elements)]

    def _create_qer(self) -> list[Packet]:
        if self.group.qos is None:
            return []
        return [pfcp.IE_CreateQER(IE_list=[pfcp.IE_QER_Id(id=QER), *_qos(self.group.qos)])]

    def _create_bar(self) -> list[Packet]:
        buffer = self.group.buffer
        if buffer is None:
            return []
        elements = [pfcp.IE_BAR_Id(id=BAR)]
        if buffer.notification_delay_ms is not None:
            elements.append(pfcp.IE_DownlinkDataNotificationDelay(delay=buffer.notification_delay_ms // 50))
        if buffer.suggested_packets is not None:
            elements.append(pfcp.IE_SuggestedBufferingPacketsCount(count=buffer.suggested_packets))
        return [pfcp.IE_Create_BAR(IE_list=elements)]

    def _f_teid(self, values: Values) -> Packet:
        flags = {f"V{self.gnb_version}": 1}
        if self.group.first_teid == "choose":
            return pfcp.IE_FTEID(CH=1, **flags)
        address = {f"ipv{self.gnb_version}": self.upf.n3}
        return pfcp.IE_FTEID(TEID=int.from_bytes(values["uplink_teid"], "big"), **flags, **address)

    def _ue_address(self, values: Values) -> Packet:
        """Returns the destination of the downlink (S/D 1)."""
        if self.group.ue_addresses == "choose":
            return pfcp.IE_UE_IP_Address(SD=1, spare=CHOOSE_V4 * self.v4 + CHOOSE_V6 * self.v6)
        given: dict[str, int | str] = {}
        if self.v4:
            given |= {"V4": 1, "ipv4": str(IPv4Address(values["ue_v4"]))}
        if self.v6:
            given |= {"V6": 1, "ipv6": str(IPv6Address(values["ue_v6"]))}
        return pfcp.IE_UE_IP_Address(SD=1, **given)

    def _sdf_filters(self) -> list[Packet]:
        return [pfcp.IE_SDF_Filter(FD=1, flow_description=text) for text in self.group.sdf_filters]

    def _instance(self, name: str | None) -> list[Packet]:
        if name is None:
            return []
        if self.upf.instances_as == "labels":
            return [pfcp.IE_NetworkInstance(instance=name)]
        return [pfcp.IE_NotImplemented(ietype=22, data=name.encode())]

    def _interface(self, kind: int) -> list[Packet]:
        return [pfcp.IE_3GPP_InterfaceType(interface_type=kind)] if self.upf.interface_types else []


def _recovery(own: Own) -> Packet:
    return pfcp.IE_RecoveryTimeStamp(timestamp=own.recovery_stamp)


def _node_id(own: Own) -> Packet:
    try:
        version = ip_address(own.node_id).version
    except ValueError:
        return pfcp.IE_NodeId(id_type=2, id=own.node_id)
    if version == 4:
        return pfcp.IE_NodeId(id_type=0, ipv4=own.node_id)
    return pfcp.IE_NodeId(id_type=1, ipv6=own.node_id)


def _f_seid(own: Own, seid: int) -> Packet:
    if ip_address(own.address).version == 4:
        return pfcp.IE_FSEID(v4=1, seid=seid, ipv4=own.address)
    return pfcp.IE_FSEID(v6=1, seid=seid, ipv6=own.address)


def _apply(action: Action, release: int) -> Packet:
    flags = {"forward": {"FORW": 1}, "buffer": {"BUFF": 1}, "notify": {"BUFF": 1, "NOCP": 1}}[action]
    return pfcp.IE_ApplyAction(**flags, extra_data=_last_octet(release))


def _last_octet(release: int) -> bytes:
    """Returns the octet that Release 16 added to an IE of flags; its flags are 0 here."""
    return b"\0" if release >= WIDER_FLAGS_RELEASE else b""


def _qos(qos: Qos) -> list[Packet]:
    elements = [pfcp.IE_GateStatus(ul=OPEN[qos.gate_up], dl=OPEN[qos.gate_down])]
    if qos.mbr_up_bps is not None and qos.mbr_down_bps is not None:
        elements.append(pfcp.IE_MBR(ul=round(qos.mbr_up_bps / 1000), dl=round(qos.mbr_down_bps / 1000)))
    if qos.gbr_up_bps is not None and qos.gbr_down_bps is not None:
        elements.append(pfcp.IE_GBR(ul=round(qos.gbr_up_bps / 1000), dl=round(qos.gbr_down_bps / 1000)))
    if qos.qfi is not None:
        elements.append(pfcp.IE_QFI(QFI=qos.qfi))
    return elements
