"""The part of a wire that test traffic may take where the wire carries the control connection too."""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput

KEY = "pktswarm_shared_wire_limit"
ALLOWED = "a percentage of more than 0 and less than 100 %, or a bit rate: 80 %, 100M"


@dataclass(frozen=True)
class WireLimit:
    """A share of the speed of the wire; or, where `rate_bps` is not None, a rate. Both on layer 1."""

    share: float = 0.8
    rate_bps: float | None = None

    def at(self, speed_mbps: int | None) -> float | None:
        """Bits/s; None: a share of a speed that is unknown."""
        if self.rate_bps is not None:
            return self.rate_bps
        return None if speed_mbps is None else self.share * speed_mbps * 1e6


DEFAULT = WireLimit()


def parse(where: object, key: str, value: object) -> WireLimit:
    """Parse the value of the inventory; None: it has none. Raises BadInput."""
    if value is None:
        return DEFAULT
    try:
        if isinstance(value, str) and value.rstrip().endswith("%"):
            share = float(units.share(value))
            if 0 < share < 1:
                return WireLimit(share)
        else:
            return WireLimit(rate_bps=units.parse(value, units.BIT_RATE, units.Range(above=0)))
    except units.UnitError as error:
        raise BadInput(where, error.problem, key=key, value=value, allowed=ALLOWED) from None
    raise BadInput(where, "out of range", key=key, value=value, allowed=ALLOWED)
