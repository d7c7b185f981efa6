"""The engines this version has, by name. Adding one is a file and a line here.

An engine is loaded where it is used: NumPy and what else it needs would be half of the start of every rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from pktswarm.nodes import availability, clones, live_frames
from pktswarm.nodes.engine import Receiver, Sender
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.senders import pktgen_module
from pktswarm.traffic.errors import EngineError


class Known(NamedTuple):
    """`place`: module and class. `missing`: why a node has it not. `unfit`: why it cannot work on an interface, though
    it is there; that needs root. `on_request`: whether it can be made fit nevertheless, by a change of
    the interface for which a stream has to name it."""

    place: str
    missing: Callable[[], str]
    unfit: Callable[[Interface], str] | None = None
    on_request: Callable[[Interface], bool] | None = None

    def load(self) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


SENDERS = {
    "xdp": Known(
        "pktswarm.nodes.senders.xdp:XdpSender", availability.xdp_sender, live_frames.trouble, live_frames.needs_program
    ),
    "tc": Known("pktswarm.nodes.senders.tc:TcSender", availability.tc_sender, clones.trouble),
    "pktgen": Known("pktswarm.nodes.senders.pktgen:PktgenSender", pktgen_module.missing),
    "trafgen": Known("pktswarm.nodes.senders.trafgen:TrafgenSender", availability.trafgen),
    "tcpreplay": Known("pktswarm.nodes.senders.tcpreplay:TcpreplaySender", availability.tcpreplay),
    "interactive": Known("pktswarm.nodes.interactive.sender:InteractiveSender", availability.nothing),
    "socket": Known("pktswarm.nodes.senders.socket:SocketSender", availability.sockets),
}
RECEIVERS = {
    "xdp": Known("pktswarm.nodes.receivers.xdp:XdpReceiver", availability.xdp_receiver),
    "netsniff-ng": Known("pktswarm.nodes.receivers.netsniff:NetsniffReceiver", availability.netsniff),
    "interactive": Known("pktswarm.nodes.interactive.receiver:InteractiveReceiver", availability.nothing),
    "socket": Known("pktswarm.nodes.receivers.socket:SocketReceiver", availability.sockets),
}


def sender_class(name: str) -> type[Sender]:
    found: type[Sender] = _known(SENDERS, name, "sender").load()
    return found


def receiver_class(name: str) -> type[Receiver]:
    found: type[Receiver] = _known(RECEIVERS, name, "receiver").load()
    return found


def unfit(interface: Interface) -> dict[str, str]:
    """Sender → why it cannot work on this interface. Needs root."""
    found = {}
    for name, engine in SENDERS.items():
        try:
            found[name] = "" if engine.unfit is None or engine.missing() else engine.unfit(interface)
        except (EngineError, OSError) as error:
            found[name] = str(error)
    return {name: why for name, why in found.items() if why}


def on_request(interface: Interface, unfit: Iterable[str]) -> list[str]:
    """Those of the unfit senders that a stream can name nevertheless. Needs root."""
    found: list[str] = []
    if not interface.carrier:  # that is the reason then, and no request helps
        return found
    for name in unfit:
        fits = SENDERS[name].on_request
        with contextlib.suppress(EngineError, OSError):
            found += [name] if fits is not None and fits(interface) else []
    return found


def _known(engines: Mapping[str, Known], name: str, kind: str) -> Known:
    if name not in engines:
        raise EngineError(name, f"there is no such {kind}; there are {', '.join(engines)}")
    return engines[name]
