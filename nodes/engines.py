"""The engines this version has, by name. Adding one is a file and a line here."""

from __future__ import annotations

from nodes.engine import Receiver, Sender
from nodes.interface import Interface
from nodes.receivers.interactive import InteractiveReceiver
from nodes.receivers.netsniff import NetsniffReceiver
from nodes.receivers.socket import SocketReceiver
from nodes.receivers.xdp import XdpReceiver
from nodes.senders.interactive import InteractiveSender
from nodes.senders.pktgen import PktgenSender
from nodes.senders.socket import SocketSender
from nodes.senders.tcpreplay import TcpreplaySender
from nodes.senders.trafgen import TrafgenSender
from nodes.senders.xdp import XdpSender
from traffic.errors import EngineError

SENDERS: dict[str, type[Sender]] = {
    engine.name: engine
    for engine in (XdpSender, PktgenSender, TrafgenSender, TcpreplaySender, InteractiveSender, SocketSender)
}
RECEIVERS: dict[str, type[Receiver]] = {
    engine.name: engine for engine in (XdpReceiver, NetsniffReceiver, InteractiveReceiver, SocketReceiver)
}


def sender_class(name: str) -> type[Sender]:
    if name not in SENDERS:
        raise EngineError(name, f"there is no such sender; there are {', '.join(SENDERS)}")
    return SENDERS[name]


def receiver_class(name: str) -> type[Receiver]:
    if name not in RECEIVERS:
        raise EngineError(name, f"there is no such receiver; there are {', '.join(RECEIVERS)}")
    return RECEIVERS[name]


def unfit(interface: Interface) -> dict[str, str]:
    """Sender → why it cannot work on this interface. Needs root."""
    found = {}
    for name, engine in SENDERS.items():
        try:
            found[name] = "" if engine.missing() else engine.unfit(interface)
        except (EngineError, OSError) as error:
            found[name] = str(error)
    return {name: why for name, why in found.items() if why}
