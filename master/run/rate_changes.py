"""Streams whose rate is changed, or which are stopped and started, while a run sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.results.ledger import Ledger
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.leg import FIELD_ENGINES, Leg
from pktswarm.traffic.protocol.rank0_orders import SetRate

LEAST_PPS, MOST_PPS = 0.001, 1e9
CHANGEABLE = "streams at one rate, also with random gaps, that xdp or tc sends to one receiver"
STOPPABLE = "streams with a duration that xdp or tc sends"


def orders(ledger: Ledger, ranks: list[Rank], path: Path, stream: str, rate_pps: float) -> Iterator[SetRate]:
    """The orders that set the rate of a stream, packets/s of all its nodes, which share it as they were planned.

    `path`: the scenario file, for messages. Raises BadInput for a stream or a rate that cannot be, and Error where no
    stream is being sent.
    """
    legs = _legs(ledger, path, stream, "set_rate")
    _check_rate(path, legs, rate_pps)
    planned_pps = sum(leg.rate_pps or 0.0 for leg in legs)
    for leg, rank in _by_rank(legs, ranks):
        yield SetRate(rank, leg.id, rate_pps * (leg.rate_pps or 0.0) / planned_pps)


def switch_orders(ledger: Ledger, ranks: list[Rank], path: Path, stream: str, sends: bool) -> Iterator[SetRate]:
    """The orders that start a stream, at the rate that it had, or stop it. Raises as orders() does."""
    key = "start_stream" if sends else "stop_stream"
    legs = _legs(ledger, path, stream, key)
    if not all(_is_stoppable(leg) for leg in legs):
        raise BadInput(path, "it cannot be stopped and started", key=key, value=stream, allowed=STOPPABLE)
    for leg, rank in _by_rank(legs, ranks):
        yield SetRate(rank, leg.id, None if sends else 0.0)


def steered(path: Path, legs: Iterable[Leg], by_program: bool) -> tuple[Leg, ...]:
    """The legs of a run in which a program changes streams, or of one without it: BadInput for what would never be sent
    then."""
    given = [*legs]
    if held := [leg.stream for leg in given if leg.held and not by_program]:
        problem = "it would never be sent: only a program can start it, by Cluster.start() of Python"
        raise BadInput(path, problem, key=f"{held[0]}.held", value=True, allowed="false")
    return tuple(replace(leg, steered=by_program) for leg in given)


def _legs(ledger: Ledger, path: Path, stream: str, key: str) -> list[Leg]:
    if ledger.phase != "send":
        raise PktswarmError(f"{path}: {key} {stream}: not in phase {ledger.phase!r}: no stream is sent")
    legs = [leg for leg in ledger.resolved.legs if leg.stream == stream and leg.echo_of is None]
    if not legs:
        names = ", ".join(dict.fromkeys(leg.stream for leg in ledger.resolved.legs))
        raise BadInput(path, "no such stream", key=key, value=stream, allowed=names)
    return legs


def _by_rank(legs: list[Leg], ranks: list[Rank]) -> Iterator[tuple[Leg, int]]:
    senders = {rank.host.name: rank.number for rank in ranks if rank.role == "transmit"}
    return ((leg, senders[leg.source]) for leg in legs)


def _is_stoppable(leg: Leg) -> bool:
    own_schedule = leg.kind == "stream" and leg.sequence_file is None
    return own_schedule and leg.engine in FIELD_ENGINES and leg.duration_s is not None


def _is_changeable(leg: Leg) -> bool:
    """Several receivers of a leg have marks for its planned numbers, and no more."""
    one_rate = leg.kind == "stream" and bool(leg.rate_pps) and not leg.rates
    return one_rate and leg.engine in FIELD_ENGINES and not leg.handover_targets


def _check_rate(path: Path, legs: list[Leg], rate_pps: float) -> None:
    stream = legs[0].stream
    planned_pps = sum(leg.rate_pps or 0.0 for leg in legs)
    if not all(_is_changeable(leg) for leg in legs):
        raise BadInput(path, "its rate cannot be changed", key="set_rate", value=stream, allowed=CHANGEABLE)
    least_pps = LEAST_PPS if all(leg.duration_s for leg in legs) else planned_pps
    if not least_pps <= rate_pps <= MOST_PPS:
        allowed = f"{least_pps:,.10g} to {MOST_PPS:,.10g} packets/s"
        if least_pps == planned_pps:
            allowed += ": a stream of a number of packets cannot last longer than planned"
        raise BadInput(path, "rate out of range", key=f"set_rate {stream}", value=rate_pps, allowed=allowed)
