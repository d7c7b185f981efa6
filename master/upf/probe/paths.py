"""Tests of the user plane: GTP-U echo, error indication, PDU session container, largest packet."""

from __future__ import annotations

from collections.abc import Callable

from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import WORKS, Outcome
from pktswarm.master.upf.probe.packets import Tunnel, echo_request, tunnel_bytes
from pktswarm.master.upf.probe.plane import UserPlane
from pktswarm.master.upf.probe.trials import Trials
from pktswarm.master.upf.probe.variants import Variant
from pktswarm.traffic.frames.responder import ECHO_RESPONSE, ERROR_INDICATION

SMALLEST_BYTES, LARGEST_BYTES = 1200, 9000
ECHO_SEQUENCE = 4711


class Paths:
    def __init__(self, trials: Trials, plane: UserPlane) -> None:
        self.trials, self.plane = trials, plane

    def run(self) -> None:
        self._echo(self.plane)
        self._error_indication(self.plane)
        with self.trials.session(variants.CONTAINER) as (outcome, session):
            if session is not None:
                self._container(self.plane, session.tunnels[0])
        with self.trials.session(Variant("largest packet", "TS 29.281 4.4")) as (outcome, session):
            if session is not None:
                up, down = self._largest(self.plane, session.tunnels[0])
                self.trials.add("user plane", "largest packet", "TS 23.060 9.3", up=up, down=down)

    def _echo(self, plane: UserPlane) -> None:
        self.trials.progress("GTP-U echo")
        reply = plane.message(echo_request(plane.wiring, ECHO_SEQUENCE), ECHO_RESPONSE)
        outcome = Outcome("no answer") if reply is None else WORKS
        if reply is not None and reply.sequence != ECHO_SEQUENCE:
            outcome = Outcome("wrong", f"sequence number {reply.sequence}, expected {ECHO_SEQUENCE}")
        self.trials.add("user plane", "GTP-U echo", "TS 29.281 7.2.1", up=outcome)

    def _error_indication(self, plane: UserPlane) -> None:
        self.trials.progress("error indication")
        user = self.trials.users.next()
        plane.send_up(Tunnel(user.v4 or user.v6, user.uplink_teid, user.downlink_teid))
        reply = plane.message(None, ERROR_INDICATION)
        outcome = Outcome("no answer", "none for an unknown TEID") if reply is None else WORKS
        self.trials.add("user plane", "error indication", "TS 29.281 7.3.1", up=outcome)

    def _container(self, plane: UserPlane, tunnel: Tunnel) -> None:
        """Tests whether the UPF accepts a PDU session container up, and adds one down."""
        up, down = plane.up(tunnel), plane.down(tunnel)
        words = "added" if down.has_container else "not added"
        shown = Outcome(down.outcome.state, words) if down.outcome.works else down.outcome
        self.trials.add("user plane", "PDU session container", "TS 38.415", up=up, down=shown)

    def _largest(self, plane: UserPlane, tunnel: Tunnel) -> tuple[Outcome, Outcome]:
        """Finds the longest user packet that passes each way, by bisection, within the MTU of the ends."""
        up_bytes = plane.gnb.mtu_bytes - tunnel_bytes(plane.wiring, False)

        def passes_up(ip_bytes: int) -> bool:
            return plane.up(tunnel, ip_bytes, tries=2).works

        def passes_down(ip_bytes: int) -> bool:
            return plane.down(tunnel, ip_bytes, tries=2).outcome.works

        return _longest(passes_up, up_bytes), _longest(passes_down, plane.server.mtu_bytes)


def _longest(passes: Callable[[int], bool], most: int) -> Outcome:
    """`most`: the longest packet that can be sent."""
    least, beyond = SMALLEST_BYTES, min(most, LARGEST_BYTES) + 1
    if not passes(least):
        return Outcome("wrong", f"no packet of {least} bytes passes")
    if passes(beyond - 1):
        return Outcome("works", f"{beyond - 1} bytes, as much as the sender's MTU allows")
    beyond -= 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if passes(middle) else (least, middle)
    return Outcome("works", f"{least} bytes; {beyond} bytes are lost")
