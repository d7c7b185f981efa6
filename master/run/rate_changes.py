"""Changes of the rate of streams that are being sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results.ledger import Ledger
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.rank0_orders import SetRate

ENGINES = ("xdp", "tc")
LEAST_PPS, MOST_PPS = 0.001, 1e9
CHANGEABLE = "streams at one rate, also with random gaps, that xdp or tc sends"


def orders(ledger: Ledger, ranks: list[Rank], path: Path, stream: str, rate_pps: float) -> Iterator[SetRate]:
    """The orders that set the rate of a stream, packets/s of all its nodes, which share it as they were planned.

    `path`: the scenario file, for messages. Raises BadInput for a stream or a rate that cannot be, and Error where no
    stream is being sent.
    """
    if ledger.phase != "send":
        raise PktswarmError(f"{path}: {stream}: the rate cannot be set in phase {ledger.phase!r}: no stream is sent")
    legs = [leg for leg in ledger.resolved.legs if leg.stream == stream and leg.echo_of is None]
    if not legs:
        names = ", ".join(dict.fromkeys(leg.stream for leg in ledger.resolved.legs))
        raise BadInput(path, "no such stream", key="set_rate", value=stream, allowed=names)
    _check(path, legs, rate_pps)
    planned_pps = sum(leg.rate_pps or 0.0 for leg in legs)
    senders = {rank.host.name: rank.number for rank in ranks if rank.role == "transmit"}
    for leg in legs:
        yield SetRate(senders[leg.source], leg.id, rate_pps * (leg.rate_pps or 0.0) / planned_pps)


def _check(path: Path, legs: list[Leg], rate_pps: float) -> None:
    stream = legs[0].stream
    planned_pps = sum(leg.rate_pps or 0.0 for leg in legs)
    if any(leg.kind != "stream" or leg.engine not in ENGINES or leg.rates or not leg.rate_pps for leg in legs):
        raise BadInput(path, "its rate cannot be changed", key="set_rate", value=stream, allowed=CHANGEABLE)
    least_pps = LEAST_PPS if all(leg.duration_s for leg in legs) else planned_pps
    if not least_pps <= rate_pps <= MOST_PPS:
        allowed = f"{least_pps:,.10g} to {MOST_PPS:,.10g} packets/s"
        if least_pps == planned_pps:
            allowed += ": a stream of a number of packets cannot last longer than planned"
        raise BadInput(path, "rate out of range", key=f"set_rate {stream}", value=rate_pps, allowed=allowed)
