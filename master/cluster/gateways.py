"""The gateways of a host or a flow, as inventories and scenarios have them: one address for each IP version."""

from __future__ import annotations

from ipaddress import ip_address

ALLOWED = "an IPv4 address, an IPv6 address, or a list of both: [10.0.0.1, 2001:db8::1]"
NONE = "none"
"""In a scenario: the frames of a flow go to no gateway, although the host has one."""


def parse_gateways(value: object) -> tuple[str, ...]:
    """ValueError for what is not an address that a router can have, and for two of one IP version."""
    given = value if isinstance(value, list) else [value]
    texts = [one for one in given if isinstance(one, str)]
    if not given or len(texts) < len(given):
        raise ValueError(f"must be {ALLOWED}")
    try:
        found = [ip_address(one) for one in texts]
    except ValueError:
        raise ValueError(f"must be {ALLOWED}") from None
    odd = [one for one in found if one.is_multicast or one.is_unspecified or one.is_loopback]
    if odd or len({one.version for one in found}) < len(found):
        raise ValueError(f"must be {ALLOWED}")
    return tuple(map(str, found))
