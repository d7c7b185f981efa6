"""Expectations of a run: limits of measured figures.

Runs, searches, services (Y.1564), comparisons and JUnit's test cases name figures by these keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from pktswarm.master.scenario.fields import Name, Strict, unit_of
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

Packets = Annotated[int, Field(ge=0, strict=True)] | Annotated[str, Field(pattern=units.SHARE_PATTERN)]
"""Number of packets, or a percentage: 0.1 %."""
Microseconds = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
Unit = Literal["packets", "us", "per_s"]


@dataclass(frozen=True)
class Metric:
    """A measured figure with a limit: an upper limit for packets and times, a lower limit for rates.

    `column`: column of streams.csv; `of`: column that a percentage refers to; `rounded`: a percentile, with the
    resolution of a histogram bucket.
    """

    column: str
    unit: Unit
    of: str = ""
    stamped: bool = True
    """Available only for stamped packets."""
    rounded: bool = False

    @property
    def at_least(self) -> bool:
        return self.unit == "per_s"


METRICS = {
    "altered": Metric("altered_packets", "packets", of="received_packets"),
    "reordered": Metric("reordered_packets", "packets", of="received_packets"),
    "duplicated": Metric("duplicated_packets", "packets", of="received_packets"),
    "misdelivered": Metric("misdelivered_packets", "packets", of="sent_packets"),
    "latency_mean_us": Metric("latency_mean_ns", "us", stamped=False),
    "latency_p50_us": Metric("latency_p50_ns", "us", stamped=False, rounded=True),
    "latency_p90_us": Metric("latency_p90_ns", "us", stamped=False, rounded=True),
    "latency_p99_us": Metric("latency_p99_ns", "us", stamped=False, rounded=True),
    "latency_p999_us": Metric("latency_p999_ns", "us", stamped=False, rounded=True),
    "latency_max_us": Metric("latency_max_ns", "us", stamped=False),
    "jitter_sd_us": Metric("jitter_sd_ns", "us"),
    "jitter_rfc3550_us": Metric("jitter_rfc3550_ns", "us"),
    "sent_pps": Metric("sent_pps", "per_s", stamped=False),
    "received_pps": Metric("received_pps", "per_s", stamped=False),
    "sent_bps": Metric("sent_bps", "per_s", stamped=False),
    "received_bps": Metric("received_bps", "per_s", stamped=False),
}
"""All metrics except `loss`, which applies to every sent packet."""


class Limits(Strict):
    """Limits of one stream: each key of METRICS, and `loss`."""

    loss: Packets | None = Field(None, description="maximum of lost packets: a number or a percentage, 0.1 %")
    altered: Packets | None = Field(None, description="maximum: a number or a percentage of received packets")
    reordered: Packets | None = Field(None, description="as altered (RFC 4737)")
    duplicated: Packets | None = Field(None, description="as altered")
    misdelivered: Packets | None = Field(
        None, description="arrived at a wrong receiver: a number or a percentage of sent packets"
    )
    latency_mean_us: Microseconds | None = None
    latency_p50_us: Microseconds | None = Field(None, description="median")
    latency_p90_us: Microseconds | None = None
    latency_p99_us: Microseconds | None = None
    latency_p999_us: Microseconds | None = Field(None, description="99.9 %")
    latency_max_us: Microseconds | None = None
    jitter_sd_us: Microseconds | None = Field(None, description="standard deviation of the differences of delay")
    jitter_rfc3550_us: Microseconds | None = Field(None, description="the running estimate of RFC 3550")
    sent_pps: Rate | None = Field(None, description="at least")
    received_pps: Rate | None = Field(None, description="at least")
    sent_bps: Rate | None = Field(None, description="at least; with FCS")
    received_bps: Rate | None = Field(None, description="at least; with FCS")

    def over(self, others: Limits) -> Limits:
        """These limits, with those of the other where one is not set."""
        keys = Limits.model_fields
        mine = {key: getattr(self, key) for key in keys}
        return Limits(**{key: getattr(others, key) if value is None else value for key, value in mine.items()})

    def given(self) -> dict[str, int | str | float]:
        """Limits of METRICS that are set."""
        return {key: limit for key in METRICS if (limit := getattr(self, key)) is not None}


class UserLimits(Strict):
    """Limits of each single user of a stream."""

    loss: Packets | None = Field(None, description="of the packets sent to this user")
    latency_mean_us: Microseconds | None = None
    latency_max_us: Microseconds | None = None


class Expect(Limits):
    """Limits of every stream; `streams` overrides them for single streams."""

    sent: Literal["intended"] | dict[Name, int] | None = None
    received: dict[Name, int] | None = None
    streams: dict[Name, Limits] = Field(
        default_factory=dict, description="limits of single streams, which override those above"
    )
    users: UserLimits = Field(
        default_factory=lambda: UserLimits.model_validate({}),
        description="limits of each user of every stream that counts users",
    )
    mbr: bool = Field(False, strict=True, description="no user of sessions receives more than its MBR; see docs/upf.md")
    sessions_accepted: Packets | None = Field(
        None, description="minimum of accepted sessions: a number or a percentage of requested ones"
    )

    def limits(self, stream: str) -> Limits:
        own = self.streams.get(stream)
        return self if own is None else own.over(self)

    @property
    def of_users(self) -> dict[str, int | str | float]:
        return {key: limit for key in UserLimits.model_fields if (limit := getattr(self.users, key)) is not None}

    @property
    def names(self) -> set[str]:
        """Names of the streams that the limits refer to."""
        named = set(self.received or {}) | set(self.streams)
        return named | (set(self.sent) if isinstance(self.sent, dict) else set())


def parse(where: object, option: str, texts: Iterable[str]) -> Limits:
    """Parse KEY=LIMIT of a command line into limits as in a file. Raises BadInput naming the option."""
    given = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in METRICS:
            raise BadInput(
                where, "is no limit", key=option, value=text, allowed=f"KEY=LIMIT, KEY of {', '.join(METRICS)}"
            )
        given[key] = _number(value)
    try:
        return Limits.model_validate(given)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        own = unit_of(key)
        allowed_ = (
            f"packets, {own.forms}, or a share with its sign: 0.1 %"
            if METRICS[key].of
            else f"{own.allowed}, more than 0"
        )
        raise BadInput(where, "is no limit", key=option, value=f"{key}={given[key]}", allowed=allowed_) from None


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


def allowed(limit: int | str | float, whole: float) -> float:
    """A share of `whole`, or the number itself."""
    return float(Fraction(whole) * units.share(limit)) if isinstance(limit, str) else limit
