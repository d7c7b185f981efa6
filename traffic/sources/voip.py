"""VoIP: packets of a codec in talk spurts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pktswarm.traffic.random.parse import Constant, Distribution, Exponential
from pktswarm.traffic.sources.base import RTP_BYTES, UDP_BYTES, Continuous, Items, checked, law
from pktswarm.traffic.sources.counts import mean_count
from pktswarm.traffic.sources.processes import Steering, alternating, ticks

CODECS = {"g711": (0.020, 160), "g729": (0.020, 20), "amr12.2": (0.020, 32)}
"""Codec → (seconds per packet, bytes of its payload)."""


def _codec(value: Any) -> str | None:
    return value if isinstance(value, str) and value in CODECS else None


@dataclass(frozen=True, kw_only=True)
class Voip(Continuous):
    """Talk spurts and silence; RTP over UDP, nothing sent in silence, one flow a user (or call).

    codec: g711 has 64 kbit/s (ITU-T G.711), 160 bytes in the 20 ms of RFC 3551; g729 two frames of 10 bytes in 20 ms
    (ITU-T G.729, RFC 3551); amr12.2 244 bits in 20 ms, 32 bytes bandwidth-efficient (RFC 4867).
    talk_s, silence_s: exponential, means 1.004 and 1.587 s: ITU-T P.59, artificial conversational speech.
    session_s for calls: none given; 3GPP's model has exponential calls of 210 s in the mean (table 1 of EURASIP JWCN
    2012:287).
    """

    codec: str = checked("g711", _codec, ", ".join(CODECS))
    talk_s: Distribution = law(Exponential(1.004))
    silence_s: Distribution = law(Exponential(1.587))

    name: ClassVar[str] = "voip"
    transport_bytes: ClassVar[int] = UDP_BYTES + RTP_BYTES

    def item_rates(self) -> list[tuple[float, Distribution]]:
        packet_s, payload_bytes = CODECS[self.codec]
        cycle_s = float(self.talk_s.moment(1) + self.silence_s.moment(1))
        return [(self.share * mean_count(self.talk_s, packet_s) / cycle_s, Constant(payload_bytes))]

    def items(self, draws: np.random.Generator, users: int, duration_s: float, steering: Steering) -> Items:
        packet_s, payload_bytes = CODECS[self.codec]
        begin_s = -10 * float(self.talk_s.moment(1) + self.silence_s.moment(1))
        calls = self.spells(draws, users, duration_s, steering, begin_s)
        call, spurts = alternating(draws, self.talk_s, self.silence_s, calls)
        spurt, _, start_s = ticks(spurts, packet_s, -packet_s, duration_s)
        return Items(start_s, np.full(start_s.size, float(payload_bytes)), spurts.user[spurt], call[spurt])
