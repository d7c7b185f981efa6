"""The `upf:` section of a scenario: the UPF's N4 address, the gNBs, and groups of sessions (docs/upf.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, model_validator

from pktswarm.master.cluster.inventory import Inventory, load_yaml
from pktswarm.master.scenario import upf_profile as profiles
from pktswarm.master.scenario.fields import Name, Strict, Yaml
from pktswarm.master.scenario.problems import refuse
from pktswarm.master.scenario.upf_pools import LAST_TEID, Pool, check_apart, parse_pool
from pktswarm.master.scenario.upf_profile import Numbered, Profile
from pktswarm.master.scenario.upf_rules import Buffer, Qos, Usage
from pktswarm.master.scenario.upf_servers import Servers
from pktswarm.master.scenario.upf_shape import MOST_FLOWS
from pktswarm.traffic.errors import BadInput

MOST_SESSIONS = 2**20
FIRST_POOL = 45
"""Second byte of the first group's pool, 10.45.0.0/16, if neither scenario nor UPF chooses users' addresses."""
FLOW_DESCRIPTION = re.compile(r"^permit out \S+ from \S.* to \S.*$")
LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FQDN = re.compile(rf"^(?=.{{1,253}}$){LABEL}(\.{LABEL})+$")


def _an_address(given: str) -> str:
    try:
        return str(ip_address(given))
    except ValueError:
        raise ValueError("must be an IPv4 or IPv6 address") from None


def _a_node_id(given: str) -> str:
    try:
        return str(ip_address(given))
    except ValueError:
        pass
    if not FQDN.match(given):
        raise ValueError("must be an IPv4 address, an IPv6 address or a name like smf.example.org")
    return given


def _an_sdf_filter(given: str) -> str:
    if not FLOW_DESCRIPTION.match(given):
        raise ValueError("must have the form: permit out PROTOCOL from ADDRESS to ADDRESS (TS 29.212, 5.4.2)")
    return given


Address = Annotated[str, AfterValidator(_an_address)]
Mac = Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]
Instance = Annotated[str, Field(pattern=rf"^{LABEL}(\.{LABEL})*$", max_length=99)]


class Group(Strict):
    name: Name
    sessions: int = Field(ge=1, le=MOST_SESSIONS)
    ue_addresses: str | list[str] = Field(
        "choose",
        description="first address, 10.45.0.1, or first address and pool, 10.45.0.1/16; one each of IPv4 and IPv6, "
        "where every user has a /64 of its own; or choose: by the UPF (feature UEIP); left out: by the UPF if it can",
    )
    pdn_type: Literal["ipv4", "ipv6", "ipv4v6"] | None = Field(
        None, description="type of the addresses that the UPF chooses; otherwise it follows from ue_addresses"
    )
    first_teid: int | Literal["choose"] = Field("choose", description="uplink; choose: by the UPF (feature FTUP)")
    first_downlink_teid: int | None = Field(
        None, description="first TEID at the gNB; left out: users are numbered from 1, group after group"
    )
    gnb: Name | list[Name] | None = Field(None, description="one of gnbs, or several in turn; left out: all in turn")
    access_instance: Instance | None = Field(None, description="network instance of N3")
    core_instance: Instance | None = Field(None, description="network instance of N6")
    dnn: Instance | None = None
    precedence: int = Field(255, ge=0, lt=2**32)
    predefined_rule: str | None = Field(None, min_length=1, max_length=255)
    sdf_filters: list[Annotated[str, AfterValidator(_an_sdf_filter)]] = Field(default_factory=list)
    qos: Qos | None = None
    usage: Usage | None = None
    buffer: Buffer | None = None
    flows_per_user: int = Field(
        1, ge=1, le=MOST_FLOWS, strict=True, description="UDP ports of a user in streams, one after another"
    )
    modify: Literal["forward", "buffer", "notify"] | None = Field(
        None, description="downlink action of all sessions once they are established (notify: buffer and send reports)"
    )

    @model_validator(mode="after")
    def _choices(self) -> Group:
        if (self.pdn_type is not None) and self.ue_addresses != "choose":
            raise ValueError("pdn_type goes with ue_addresses: choose; it follows from the addresses otherwise")
        self.pools()
        return self

    def pools(self) -> list[Pool]:
        """Address pools of the users: empty if the UPF chooses the addresses. Raises ValueError for an invalid one."""
        if self.ue_addresses == "choose":
            return []
        given = [self.ue_addresses] if isinstance(self.ue_addresses, str) else self.ue_addresses
        pools = [parse_pool(one) for one in given]
        if not pools or len({pool.version for pool in pools}) < len(pools):
            raise ValueError(
                f"group {self.name}: ue_addresses must be one IPv4 pool, one IPv6 pool or one of each, not {given}"
            )
        for pool in pools:
            if self.sessions > pool.room:
                raise ValueError(
                    f"group {self.name}: {self.sessions} sessions, but {pool.text} has {pool.room} addresses "
                    f"from {pool.address(0)} on"
                )
        return pools

    def skip(self, taken: list[str]) -> None:
        """Move the users' addresses beyond those of `taken`. Raises ValueError without room for them."""
        if self.ue_addresses == "choose" or not taken:
            return
        try:
            moved = [pool.beyond(taken, self.sessions).text for pool in self.pools()]
        except ValueError as problem:
            raise ValueError(f"group {self.name}: {problem}") from None
        self.ue_addresses = moved if isinstance(self.ue_addresses, list) else moved[0]

    def families(self) -> tuple[bool, bool]:
        """Whether users have an IPv4 address, and whether they have an IPv6 address."""
        if self.ue_addresses == "choose":
            return self.pdn_type != "ipv6", self.pdn_type in ("ipv6", "ipv4v6")
        versions = {pool.version for pool in self.pools()}
        return 4 in versions, 6 in versions


class Churn(Strict):
    """Sessions of a group that are established and deleted during the run; none exists before."""

    group: Name
    sessions_per_s: float = Field(gt=0, le=100_000)
    lifetime_s: float = Field(
        1.0, ge=0, le=86400, description="from the establishment response to the deletion request"
    )
    modify: bool = Field(True, description="modify each session once, at half its lifetime")


class Handover(Strict):
    """Handover of the users of a group, one after another, each to the next gNB."""

    group: Name
    users_per_s: float = Field(gt=0, le=100_000)
    end_marker: bool = Field(
        True,
        description="request End Markers to the old gNB; left out: true, unless the profile has end_markers: false",
    )


class Upf(Strict):
    n4: Address = Field("", description="the UPF's address for PFCP; left out: the lab's, or the inventory's")
    n4_port: int = Field(8805, ge=1, le=65535)
    bind: Address | None = Field(None, description="the SMF's address; left out: the kernel's source address")
    node_id: Annotated[str, AfterValidator(_a_node_id)] | None = Field(
        None, description="the SMF's Node ID, an address or a name; left out: bind"
    )
    n3: Address | None = Field(None, description="the UPF's address for GTP-U; needed where it does not choose TEIDs")
    n3_ip: Literal["ipv4", "ipv6"] = Field(
        "ipv4", description="IP version of gNBs and of the UPF on N3, from the inventory; valid without gnbs"
    )
    n6: Address | None = Field(None, description="the UPF's address on N6, which servers query by ARP as they start")
    n3_mac: Mac = Field("", description="destination MAC of gNBs: the UPF's, or that of a router before it")
    n6_mac: Mac = Field("", description="destination MAC of the data network's nodes")
    gnbs: dict[Name, Address] = Field(
        default_factory=dict, min_length=1, description="name: address for GTP-U; left out: the nodes on side n3"
    )
    servers: Servers | None = Field(
        None, description="server addresses, divided among the nodes on side n6; left out: the nodes' own"
    )
    groups: list[Group] = Field(min_length=1)
    skip: list[Address] = Field(
        default_factory=list,
        description="addresses not assigned to users, such as a gateway's: ranges begin beyond them",
    )
    churn: Churn | None = None
    handover: Handover | None = None
    window: int = Field(64, ge=1, le=4096, description="maximum number of outstanding requests")
    t1_s: float = Field(1.0, ge=0.01, le=60, description="T1: time to wait for a response before a retransmission")
    n1: int = Field(3, ge=1, le=20, description="N1: number of transmissions of a request, the first included")
    heartbeat_s: float = Field(5.0, ge=0.1, le=3600, description="interval between Heartbeat Requests of the SMF")
    release: Literal[15, 16, 17, 18] = Field(
        16,
        description="TS 29.244 release that the UPF decodes: from 16 on Apply Action and Reporting Triggers are longer",
    )
    numbered: list[Numbered] = Field(
        default_factory=list, description="values that the SMF numbers although the UPF announces that it chooses them"
    )
    association_release: bool = Field(True, description="whether the UPF is asked to release the association")
    profile: str = Field("", description="file that pktswarm upf probe wrote; left out: the inventory's")
    _profiled: Profile | None = PrivateAttr(None)
    """Set by filled_in."""
    interface_types: bool = Field(True, description="3GPP Interface Type (IE 160): N3 and N6; open5gs needs them")
    instances_as: Literal["labels", "text"] = Field("labels", description="how network instances are written")
    forward_on_notification: bool = Field(
        True, description="a buffering session is set to forward when the UPF reports downlink data"
    )

    @model_validator(mode="after")
    def _together(self) -> Upf:
        names = [group.name for group in self.groups]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two groups are called {twice[0]!r}")
        for group in self.groups:
            group.skip(self.skip)
        for group in self.groups if self.complete else ():
            self._check_gnbs(group)
            if group.first_teid != "choose" and self.n3 is None:
                raise ValueError(f"group {group.name}: first_teid = {group.first_teid} needs n3, the UPF's own address")
        check_apart("ue_addresses", [(group.name, p, group.sessions) for group in self.groups for p in group.pools()])
        self.check_taken(self.addresses())
        for group in self.groups:
            if self.servers is not None and any(self.servers.meets(pool, group.sessions) for pool in group.pools()):
                raise ValueError(f"servers: an address is also one of a user of group {group.name}")
        self._check_teids()
        for load in (self.churn, self.handover):
            if load is not None and load.group not in names:
                kind = type(load).__name__.lower()
                raise ValueError(f"{kind}: no group {load.group!r}; groups are {', '.join(names)}")
        self._check_loads()
        return self

    @property
    def found_profile(self) -> Profile | None:
        """Profile of the UPF, read by filled_in."""
        return self._profiled

    @property
    def complete(self) -> bool:
        """Whether the N4 address and the gNBs are set, which filled_in takes from the inventory."""
        return bool(self.n4 and self.gnbs)

    def _check_gnbs(self, group: Group) -> None:
        unknown = sorted(set(self.gnbs_of(group)) - set(self.gnbs))
        if unknown:
            raise ValueError(f"group {group.name}: no gNB {unknown[0]!r}; gnbs are {', '.join(self.gnbs)}")
        if len({ip_address(self.gnbs[name]).version for name in self.gnbs_of(group)}) > 1:
            raise ValueError(
                f"group {group.name}: its gNBs have IPv4 and IPv6 addresses; the gNBs of a group must have one kind"
            )
        gnb = self.gnbs[self.gnbs_of(group)[0]]
        if group.first_teid != "choose" and self.n3 and ip_address(gnb).version != ip_address(self.n3).version:
            raise ValueError(f"group {group.name}: its gNB has {gnb}, the UPF n3 = {self.n3}: one IPv4, the other IPv6")

    def check_taken(self, addresses: Mapping[str, str]) -> None:
        """Raise ValueError for a range of users that contains one of `addresses` (name of the owner → address)."""
        for group in self.groups:
            for owner, address in addresses.items():
                for pool in group.pools():
                    if pool.holds(address, group.sessions):
                        ends = f"{pool.address(0)} to {pool.address(group.sessions - 1)}"
                        raise ValueError(
                            f"group {group.name}: ue_addresses {ends} include {address}, the address of {owner} "
                            f"(skip: [{address}] begins beyond it)"
                        )

    def numbering_lacks(self, group: Group) -> str:
        """Missing key that the SMF needs to number this group's uplink TEIDs; empty: none."""
        gnb = ip_address(self.gnbs[self.gnbs_of(group)[0]])
        return "" if self.n3 and ip_address(self.n3).version == gnb.version else f"upf.n3 of IPv{gnb.version}"

    def number_users(self, index: int) -> None:
        """Assign default pools of UE addresses to group `index`. Raises ValueError if they are taken."""
        group = self.groups[index]
        pools = zip(
            group.families(), (f"10.{FIRST_POOL + index}.0.1/16", f"2001:db8:{FIRST_POOL + index}::1/48"), strict=True
        )
        group.ue_addresses = [pool for wanted, pool in pools if wanted]
        group.pools()
        group.skip(self.skip)
        check_apart("ue_addresses", [(one.name, p, one.sessions) for one in self.groups for p in one.pools()])
        self.check_taken(self.addresses())

    def next_teid(self) -> int:
        """First uplink TEID above those of all numbered groups."""
        return max((one.first_teid + one.sessions for one in self.groups if one.first_teid != "choose"), default=1)

    def _check_teids(self) -> None:
        up, down = [], []
        for group, first in zip(self.groups, self.first_downlink_teids(), strict=True):
            down.append((group.name, self._teids(group, "first_downlink_teid", first), group.sessions))
            if group.first_teid != "choose":
                up.append((group.name, self._teids(group, "first_teid", group.first_teid), group.sessions))
        check_apart("uplink TEIDs", up)
        check_apart("downlink TEIDs", down)

    def _teids(self, group: Group, key: str, first: int) -> Pool:
        last = first + group.sessions - 1
        if first < 1 or last > LAST_TEID:
            raise ValueError(
                f"group {group.name}: {key} = {first}, and {group.sessions} sessions end at {last}: "
                f"a TEID is 1 to {LAST_TEID}, and its range must not wrap"
            )
        return Pool(0, first, LAST_TEID, str(first))

    def _check_loads(self) -> None:
        if self.churn is not None and self.handover is not None and self.churn.group == self.handover.group:
            raise ValueError(
                f"churn and handover name the same group {self.churn.group}: users that come and go cannot move"
            )
        if self.complete and self.handover is not None and len({self.gnbs[one] for one in self.moved_among()}) < 2:
            raise ValueError(f"handover of group {self.handover.group}: two gNBs of one kind are needed")
        if self.churn is not None:
            group = self.group(self.churn.group)
            needed = int(self.churn.sessions_per_s * self.churn.lifetime_s) + 1
            if group.sessions < needed:
                raise ValueError(
                    f"churn of group {group.name}: {self.churn.sessions_per_s:g} sessions a second that live "
                    f"{self.churn.lifetime_s:g} s are {needed} at once, but the group has {group.sessions}"
                )

    def moved_among(self) -> list[str]:
        """gNBs that the users of the handover group move among, in turn: all of one IP version."""
        if self.handover is None:
            return []
        version = ip_address(self.gnbs[self.gnbs_of(self.group(self.handover.group))[0]]).version
        return [name for name, address in self.gnbs.items() if ip_address(address).version == version]

    def addresses(self) -> dict[str, str]:
        """Owner → address in the user plane, for gNBs and the UPF, as far as known."""
        own = {"the UPF on N3": self.n3, "the UPF on N6": self.n6}
        gnbs = {f"gNB {name}": address for name, address in self.gnbs.items()}
        return {name: address for name, address in (own | gnbs).items() if address}

    def group(self, name: str) -> Group:
        return next(group for group in self.groups if group.name == name)

    def gnbs_of(self, group: Group) -> list[str]:
        if group.gnb is None:
            return list(self.gnbs)
        return [group.gnb] if isinstance(group.gnb, str) else group.gnb

    def first_downlink_teids(self) -> list[int]:
        """First downlink TEID of each group."""
        found, following = [], 1
        for group in self.groups:
            found.append(following if group.first_downlink_teid is None else group.first_downlink_teid)
            following += group.sessions
        return found


def load(path: Path, inventory: Inventory | None = None) -> Upf:
    """The `upf:` section of a file; other sections are ignored. Raises BadInput naming the first wrong key."""
    data = load_yaml(path, Yaml)
    if not isinstance(data, dict) or not isinstance(data.get("upf"), dict):
        raise BadInput(path, "has no section upf", allowed="upf: {n4, gnbs, groups}")
    return filled_in(path, parse(path, data["upf"]), inventory)


def parse(path: Path, section: Mapping[str, object]) -> Upf:
    try:
        return Upf.model_validate(section)
    except ValidationError as error:
        raise refuse(path, error, Upf, section, "upf") from None


def filled_in(path: Path, upf: Upf, inventory: Inventory | None, profiled: bool = True) -> Upf:
    """The section with missing addresses from the inventory and, if `profiled`, missing keys from the profile.

    Raises BadInput for an address that the inventory lacks too, or a profile that cannot be used.
    """
    given = {} if inventory is None else inventory.variables.get("pktswarm_upf") or {}
    if upf.gnbs and "n3_ip" in upf.model_fields_set:
        problem = "selects addresses of the inventory and contradicts gnbs"
        raise BadInput(path, problem, key="upf.n3_ip", value=upf.n3_ip, allowed="n3_ip or gnbs")
    hosts = [host for host in inventory.hosts if host.side == "n3"] if inventory is not None else []
    gnbs = upf.gnbs or {host.name: address for host in hosts if (address := getattr(host, upf.n3_ip))}
    version = ip_address(next(iter(gnbs.values()), "0.0.0.0")).version  # noqa: S104 - no address: IPv4's
    names = {"n4": "n4_ipv4", "n3": f"n3_ipv{version}", "n6": "n6_ipv4", "n3_mac": "n3_mac", "n6_mac": "n6_mac"}
    known: dict[str, object] = {key: given[name] for key, name in names.items() if given.get(name)}
    if given.get("skip"):
        known["skip"] = given["skip"]
    profile = profiles.find(path, upf.profile, inventory) if profiled else None
    if gnbs:
        known["gnbs"] = gnbs
    section = upf.model_dump(exclude_unset=True)
    if profile is not None:
        known |= profile[1].keys()
        section["groups"] = [{**profile[1].groups, **group} for group in section["groups"]]
        if not profile[1].end_markers and section.get("handover"):
            section["handover"] = {"end_marker": False, **section["handover"]}
    made = parse(path, {**known, **section})
    if profile is not None:
        made.profile, made._profiled = str(profile[0]), profile[1]
    if not made.n4:
        raise BadInput(path, "is missing", key="upf.n4", allowed="here, or pktswarm_upf: {n4_ipv4: …} in the inventory")
    if not made.gnbs:
        allowed = f"here, or hosts of side n3 with {upf.n3_ip} in the inventory"
        raise BadInput(path, "are missing", key="upf.gnbs", allowed=allowed)
    try:
        made.check_taken(_data_network(inventory))
    except ValueError as problem:
        raise BadInput(path, str(problem), key="upf.groups") from None
    return made


def _data_network(inventory: Inventory | None) -> dict[str, str]:
    """Addresses of the hosts of side n6, by their names."""
    hosts = [host for host in inventory.hosts if host.side == "n6"] if inventory is not None else []
    return {f"{host.name} on N6": address for host in hosts for address in (host.ipv4, host.ipv6) if address}
