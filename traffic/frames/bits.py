"""Bit rates as people write them: 64kbit, 100mbit, 1gbit."""

from __future__ import annotations

import re

from pktswarm.traffic.errors import BadInput

UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
LIKE = "like 64kbit, 100mbit, 1gbit"


def rate_bps(where: object, key: str, text: str) -> int:
    """Bits a second; `kbit`, `mbit` and `gbit` as the tool tc has them. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(bit|kbit|mbit|gbit)", text.strip().lower())
    if not found or float(found[1]) == 0:
        raise BadInput(where, "is not a rate", key=key, value=text, allowed=LIKE)
    return round(float(found[1]) * UNITS[found[2]])
