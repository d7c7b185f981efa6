"""The sessions of a probe: each differs from the plain one in one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scapy.contrib import pfcp
from scapy.packet import Packet

QFI = 9
INSTANCE = "internet"
MBR_BPS, GBR_BPS = 100_000_000, 10_000_000
SDF_FILTER = "permit out ip from any to assigned"
PREDEFINED_RULE = "pktswarm"
INACTIVITY_S = 1
Alter = Callable[[list[Packet]], None]
Keys = Mapping[str, object]
"""Keys of a scenario's section upf, or of a group in it."""


@dataclass(frozen=True)
class Variant:
    """One session of a probe. `alter` changes the elements of the Establishment Request.

    `ip`: IP versions of the user; `outer`: of the tunnel. `passes`: packets are expected to pass.
    """

    name: str
    source: str
    group: Keys = field(default_factory=dict)
    upf: Keys = field(default_factory=dict)
    alter: Alter | None = None
    ip: tuple[int, ...] = (4,)
    outer: int = 4
    passes: bool = True

    @property
    def qfi(self) -> int | None:
        qos = self.group.get("qos")
        return qos.get("qfi") if isinstance(qos, dict) else None


def _two_qers(elements: list[Packet]) -> None:
    """Adds a second QER, of the session's aggregate rate, to each PDR."""
    for element in elements:
        if isinstance(element, pfcp.IE_CreatePDR):
            element.IE_list.append(pfcp.IE_QER_Id(id=2))
    place = next(number for number, element in enumerate(elements) if isinstance(element, pfcp.IE_CreateQER))
    rate = pfcp.IE_MBR(ul=MBR_BPS // 1000, dl=MBR_BPS // 1000)
    second = [pfcp.IE_QER_Id(id=2), pfcp.IE_GateStatus(), rate]
    elements.insert(place + 1, pfcp.IE_CreateQER(IE_list=second))


def _by_time(elements: list[Packet]) -> None:
    """Makes the URR measure time, with a threshold of 1 s."""
    urr = next(element for element in elements if isinstance(element, pfcp.IE_CreateURR))
    number, _, triggers, *_ = urr.IE_list
    triggers.volume_threshold, triggers.time_threshold = 0, 1
    urr.IE_list = [number, pfcp.IE_MeasurementMethod(DURAT=1), triggers, pfcp.IE_TimeThreshold(threshold=1)]


def _without_pdn_type(elements: list[Packet]) -> None:
    elements[:] = [element for element in elements if not isinstance(element, pfcp.IE_PDNType)]


def _inactivity_timer(elements: list[Packet]) -> None:
    elements.append(pfcp.IE_UserPlaneInactivityTimer(timer=INACTIVITY_S))


TWO_OCTETS = Variant("Apply Action, two octets", "TS 29.244 8.2.26, Release 16", upf={"release": 16})
ONE_OCTET = Variant("Apply Action, one octet", "TS 29.244 8.2.26, Release 15", upf={"release": 15})
WITHOUT_TYPES = Variant("without 3GPP interface types", "TS 29.244 8.2.118", upf={"interface_types": False})
WITHOUT_TYPES_OLD = "without 3GPP interface types, one octet"
CHOSEN_TEID = Variant("F-TEID chosen by the UPF", "TS 29.244 8.2.3", group={"first_teid": "choose"})
CHOSEN_TEID_IPV6 = Variant(
    "F-TEID chosen by the UPF, over IPv6", "TS 29.244 8.2.3", group={"first_teid": "choose"}, outer=6
)
CHOSEN_USER = Variant("UE IPv4 address chosen by the UPF", "TS 29.244 8.2.62", group={"ue_addresses": "choose"})
CLOSED = Variant(
    "QER, gates closed", "TS 29.244 8.2.7", passes=False, group={"qos": {"gate_up": "closed", "gate_down": "closed"}}
)
VOLUME = Variant("URR, volume", "TS 29.244 7.5.2.4", group={"usage": {"volume_threshold_bytes": 40}})
TIME = Variant("URR, time", "TS 29.244 7.5.2.4", group={"usage": {}}, alter=_by_time)
QUERY = Variant("Query URR", "TS 29.244 7.5.4.10", group={"usage": {}})
BUFFER = Variant("buffering and downlink data report", "TS 29.244 5.2.3", group={"buffer": {}})
INACTIVITY = Variant("inactivity report", "TS 29.244 8.2.83", alter=_inactivity_timer)
HANDOVER = Variant("Update FAR with end marker (SNDEM)", "TS 29.244 8.2.31")
CONTAINER = Variant("QER with QFI", "TS 29.244 8.2.89", group={"qos": {"qfi": QFI}})
OUTER_IPV6 = Variant("tunnel over IPv6", "TS 29.281 4.4", outer=6)

PLAIN = (
    CHOSEN_TEID,
    CHOSEN_USER,
    Variant("UE IPv6 address", "TS 29.244 8.2.62", ip=(6,)),
    Variant("UE IPv4 and IPv6 addresses", "TS 29.244 8.2.62", ip=(4, 6)),
    Variant("SDF filter", "TS 29.244 8.2.5", group={"sdf_filters": [SDF_FILTER]}),
    CONTAINER,
    Variant("QER with MBR", "TS 29.244 8.2.8", group={"qos": {"mbr_up_bps": MBR_BPS, "mbr_down_bps": MBR_BPS}}),
    Variant(
        "QER with MBR and GBR",
        "TS 29.244 8.2.9",
        group={"qos": {"mbr_up_bps": MBR_BPS, "mbr_down_bps": MBR_BPS, "gbr_up_bps": GBR_BPS, "gbr_down_bps": GBR_BPS}},
    ),
    Variant("two QERs in a PDR", "TS 29.244 7.5.2.2", group={"qos": {"qfi": QFI}}, alter=_two_qers),
    CLOSED,
    Variant(
        "network instance as labels",
        "TS 29.244 8.2.4",
        group={"access_instance": INSTANCE, "core_instance": INSTANCE},
        upf={"instances_as": "labels"},
    ),
    Variant(
        "network instance as text",
        "TS 29.244 8.2.4",
        group={"access_instance": INSTANCE, "core_instance": INSTANCE},
        upf={"instances_as": "text"},
    ),
    Variant("predefined rule", "TS 29.244 8.2.72", group={"predefined_rule": PREDEFINED_RULE}),
    Variant("APN/DNN", "TS 29.244 8.2.117", group={"dnn": INSTANCE}),
    Variant("without PDN Type", "TS 29.244 8.2.79", alter=_without_pdn_type),
    OUTER_IPV6,
    CHOSEN_TEID_IPV6,
)
"""Variants that are tested with one packet each way."""
