"""The engines this version has, by name. Adding one is a file and a line here."""

from __future__ import annotations

from nodes.engine import Receiver, Sender
from nodes.receivers.netsniff import NetsniffReceiver
from nodes.receivers.xdp import XdpReceiver
from nodes.senders.pktgen import PktgenSender
from nodes.senders.tcpreplay import TcpreplaySender
from nodes.senders.trafgen import TrafgenSender
from nodes.senders.xdp import XdpSender
from traffic.errors import EngineError

SENDERS: dict[str, type[Sender]] = {
    engine.name: engine for engine in (XdpSender, PktgenSender, TrafgenSender, TcpreplaySender)
}
RECEIVERS: dict[str, type[Receiver]] = {engine.name: engine for engine in (XdpReceiver, NetsniffReceiver)}


def sender_class(name: str) -> type[Sender]:
    if name not in SENDERS:
        raise EngineError(name, f"there is no such sender; there are {', '.join(SENDERS)}")
    return SENDERS[name]


def receiver_class(name: str) -> type[Receiver]:
    if name not in RECEIVERS:
        raise EngineError(name, f"there is no such receiver; there are {', '.join(RECEIVERS)}")
    return RECEIVERS[name]
