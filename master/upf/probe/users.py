"""The users of a probe: one for each session, so that sessions share no address and no TEID."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from pktswarm.master.cluster.inventory import Inventory
from pktswarm.master.scenario.upf import Upf, filled_in, parse
from pktswarm.master.scenario.upf_pools import Pool, parse_pool
from pktswarm.master.upf.pfcp_decode import Answer
from pktswarm.master.upf.pfcp_encode import GroupMessages, Own
from pktswarm.master.upf.probe.packets import Tunnel
from pktswarm.master.upf.probe.variants import Keys, Variant

MOST_USERS = 64
FIRST_UPLINK_TEID, FIRST_DOWNLINK_TEID = 0x00F00000, 0x00E00000
DEFAULT_USERS = ("10.45.0.10/16", "2001:db8:45::1/48")


def section(where: Path, inventory: Inventory | None, users: Sequence[str], given: Keys) -> Upf:
    """Returns the section upf of a probe: `given` keys, the rest from the inventory. Raises BadInput."""
    group = {"name": "probe", "sessions": MOST_USERS, "ue_addresses": list(users)}
    return filled_in(where, parse(where, {"groups": [group], **given}), inventory, profiled=False)


@dataclass(frozen=True)
class User:
    """One user. `number` is also the SMF's SEID of its session."""

    number: int
    v4: str
    v6: str
    uplink_teid: int
    downlink_teid: int

    def values(self, gnb: str) -> dict[str, bytes]:
        """Returns the fields of the session's messages (template.WIDTHS) but sequence and SEID of the header."""
        address = ip_address(gnb)
        return {
            "local_seid": self.number.to_bytes(8, "big"),
            "uplink_teid": self.uplink_teid.to_bytes(4, "big"),
            "downlink_teid": self.downlink_teid.to_bytes(4, "big"),
            "ue_v4": ip_address(self.v4).packed if self.v4 else bytes(4),
            "ue_v6": ip_address(self.v6).packed if self.v6 else bytes(16),
            "gnb_v4": address.packed if address.version == 4 else bytes(4),
            "gnb_v6": address.packed.rjust(16, b"\0"),
        }


class Users:
    def __init__(self, where: Path, upf: Upf, own: Own, base: Mapping[str, Keys]) -> None:
        """`base`: keys `upf` and `group` of each session."""
        self.where, self.upf, self.own, self.base = where, upf, own, base
        given = upf.groups[0].ue_addresses
        pools = [parse_pool(pool) for pool in ([given] if isinstance(given, str) else given)]
        self._pools: dict[int, Pool] = {pool.version: pool for pool in pools}
        self._count = 0

    def next(self) -> User:
        number, self._count = self._count + 1, self._count + 1
        addresses = {version: pool.address(number - 1) for version, pool in self._pools.items()}
        teids = FIRST_UPLINK_TEID + number, FIRST_DOWNLINK_TEID + number
        return User(number, addresses.get(4, ""), addresses.get(6, ""), *teids)

    def messages(self, variant: Variant, user: User, gnb: str, n3: str | None) -> GroupMessages:
        """Returns the encoder of a session's messages. BadInput if the variant needs an unknown address."""
        addresses = {4: user.v4, 6: user.v6}
        group: dict[str, object] = {
            "name": "probe",
            "sessions": 1,
            "ue_addresses": [addresses[version] for version in variant.ip],
            "first_teid": user.uplink_teid,
            **self.base.get("group", {}),
            **variant.group,
        }
        keys: dict[str, object] = {"n4": self.upf.n4, "n3": n3, "gnbs": {"gnb": gnb}, "groups": [group]}
        known = {name: value for name, value in keys.items() if value is not None}
        upf = parse(self.where, {**known, **self.base.get("upf", {}), **variant.upf})
        return GroupMessages(upf, upf.groups[0], self.own)

    @staticmethod
    def tunnels(variant: Variant, user: User, answer: Answer) -> list[Tunnel] | str:
        """Returns the user's tunnels, one for each address; a text if the response lacks what the UPF was to choose."""
        teid, addresses = user.uplink_teid, [{4: user.v4, 6: user.v6}[version] for version in variant.ip]
        if variant.group.get("first_teid") == "choose":
            if answer.teid is None:
                return "accepted without the F-TEID that the UPF was to choose"
            teid = answer.teid
        if variant.group.get("ue_addresses") == "choose":
            if answer.ue_v4 is None:
                return "accepted without the UE address that the UPF was to choose"
            addresses = [str(IPv4Address(answer.ue_v4))]
        return [Tunnel(address, teid, user.downlink_teid, variant.qfi) for address in addresses]
