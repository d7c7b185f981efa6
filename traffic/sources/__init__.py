"""Application sources: the traffic of many users by models of NetSpec and of today; see docs/sources.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.random.parse import number, parse, unit_at
from pktswarm.traffic.random.rates import Rates, parse_rates
from pktswarm.traffic.sources.adaptive_video import AdaptiveVideo
from pktswarm.traffic.sources.base import Items, Packets, Source, merged
from pktswarm.traffic.sources.ftp import Ftp
from pktswarm.traffic.sources.iot import Iot
from pktswarm.traffic.sources.mpeg import Mpeg
from pktswarm.traffic.sources.telnet import Telnet
from pktswarm.traffic.sources.videoconference import Videoconference
from pktswarm.traffic.sources.voip import Voip
from pktswarm.traffic.sources.web_quic import WebQuic
from pktswarm.traffic.sources.www import Www

__all__ = ["SOURCES", "Items", "Packets", "Source", "merged", "parse_profile", "parse_source", "settle"]

SOURCES: dict[str, type[Source]] = {
    kind.name: kind for kind in (Ftp, Www, Mpeg, Videoconference, Telnet, WebQuic, AdaptiveVideo, Voip, Iot)
}
MOST_USERS = 1_000_000


def parse_source(where: object, key: str, value: Any, *, folder: Path = Path()) -> Source:
    """Parses `www`, or `{www: {parameter: value, …}}`. BadInput for an invalid source."""
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in SOURCES:
        raise BadInput(where, "not one source", key=key, value=value, allowed=", ".join(SOURCES))
    name, given = next(iter(value.items()))
    known = {one.name: one for one in fields(SOURCES[name])}
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        odd = next(iter(set(given) - set(known))) if isinstance(given, Mapping) else given
        raise BadInput(where, "unknown parameter", key=f"{key}.{name}", value=odd, allowed=", ".join(known))
    values = {one: _value(where, f"{key}.{name}.{one}", known[one], given[one], folder) for one in given}
    made = SOURCES[name](**values)
    _check(where, f"{key}.{name}", made)
    return made


def _value(where: object, key: str, one: Field[Any], value: Any, folder: Path) -> Any:
    needs = one.metadata
    if "law" in needs:
        return parse(where, key, value, folder=folder, need_mean=True, at_least=needs["law"])
    if "limit" in needs:
        return number(where, key, value, needs["limit"])
    if isinstance(value, str) and unit_at(key) is not units.PLAIN:
        converted = number(where, key, value)
        value = int(converted) if converted.is_integer() else converted
    found = needs["check"](value)
    if found is None:
        raise BadInput(where, "invalid value", key=key, value=value, allowed=needs["allowed"])
    return found


def _check(where: object, key: str, source: Source) -> None:
    in_sessions = [getattr(source, name, None) is not None for name in ("session_gap_s", "session_s")]
    if hasattr(source, "session_s") and len(set(in_sessions)) > 1:
        raise BadInput(where, "session_gap_s and session_s need each other", key=key, allowed="both, or neither")
    if source.load >= 1:
        problem = f"a user sends {source.mean_bps:.4g} bit/s on average, more than link_bps"
        raise BadInput(where, problem, key=f"{key}.link_bps", value=source.link_bps)


def settle(
    where: object, key: str, source: Source, users: int | None = None, mean_bps: float | None = None
) -> tuple[Source, int]:
    """The source and the number of users for a given number of users or a mean rate; one user by default.

    A mean rate (bits of frames with FCS) determines the nearest number of users, unless `users` is given too. The
    arrivals or, without arrivals, the frame sizes are then scaled to the exact rate. A source with neither (voip
    without calls) has the nearest number of users, and does not take both.
    """
    if users is not None and (not isinstance(users, int) or isinstance(users, bool) or not 1 <= users <= MOST_USERS):
        raise BadInput(
            where, "number of users out of range", key=f"{key}.users", value=users, allowed=f"1 to {MOST_USERS}"
        )
    if mean_bps is None:
        return source, users or 1
    wanted = number(where, f"{key}.mean_bps", mean_bps, "> 0")
    count = users or max(1, round(wanted / source.mean_bps))
    if count > MOST_USERS:
        raise BadInput(
            where, f"needs {count} users", key=f"{key}.mean_bps", value=mean_bps, allowed=f"up to {MOST_USERS}"
        )
    scaled = source.scaled(wanted / (count * source.mean_bps))
    if scaled is None and users is not None:
        allowed = f"users in place of mean_bps, {source.mean_bps:.4g} bit/s each"
        raise BadInput(where, "the codec sets the rate", key=f"{key}.mean_bps", value=mean_bps, allowed=allowed)
    if scaled is None:
        return source, count
    made = _corrected(source, scaled, wanted / count)
    if abs(made.mean_bps * count / wanted - 1) > 1e-3:
        problem = f"{count} users send at least {made.mean_bps * count:.4g} bit/s, with frames of 64 bytes"
        raise BadInput(where, problem, key=f"{key}.mean_bps", value=mean_bps, allowed="fewer users, or more bit/s")
    _check(where, key, made)
    return made, count


def _corrected(source: Source, scaled: Source, wanted_bps: float) -> Source:
    """Scales the source until it has the mean rate: headers do not grow with the frame size."""
    factor = 1.0
    for _ in range(20):
        error = wanted_bps / scaled.mean_bps
        if abs(error - 1) < 1e-6:
            break
        factor *= error
        scaled = source.scaled(factor * wanted_bps / source.mean_bps) or scaled
    return scaled


def parse_profile(where: object, key: str, value: Any, source: Source, duration_s: float, **drawn: Any) -> Rates:
    """Parses a profile of a source's session arrivals, whose unit is ignored. BadInput for an invalid one.

    `drawn`: seed, stream and folder of parse_rates().
    """
    if not source.steerable:
        allowed = "a source with arrivals; session_gap_s and session_s give it sessions"
        raise BadInput(where, f"{source.name} has no arrivals", key=key, value=value, allowed=allowed)
    return parse_rates(where, key, value, duration_s, **drawn)
