"""The inventory: which hosts there are, which roles they have and where they are plugged in.

It is an Ansible inventory in YAML, so that one file serves Ansible, the planner and MPICH. Groups `master`,
`transmit` and `receive`; a host in both of the last two has both roles. Host variables:

ansible_host        address on the control network (the name itself if left out)
control_interface   interface of the control network, for MPI (found by the address if left out)
traffic_interface   interface under test; for transmit and receive hosts
side                where it is plugged in: a, b, n3, n6
mac, ipv4           of the traffic interface; read from the node if left out
socket_ipv4         the address that real connections use there, with its prefix length; a list of two (transmitting,
                    receiving) for a host with both roles (198.19.0.N/16 and 198.19.128.N/15 by the host's place in
                    the file if left out)
pktswarm_gateway    the router that its frames are sent to: an IPv4 address, an IPv6 address, or a list of both
pktswarm_python     the node's Python (this one's path if left out)
pktswarm_mpi        none: the node needs no MPI, its messages go over the SSH connection that starts it (wheel if left
                    out: the MPICH of the lock file)
pktswarm_clock      what `pktswarm provision` sets the clock by: chrony (if left out), ptp (needs control_interface)
pktswarm_user       the account ranks run as
pktswarm_shared_wire_limit
                    the most that test traffic may take of a wire that it shares with the control connection, on another
                    VLAN: a share of its speed, or a bit rate (80 % if left out)
pktswarm_login      for all hosts: the account that a run logs in as over SSH (as SSH's own settings say if left out;
                    ansible_user is for `pktswarm provision`, and may be one that becomes root)

Under `all: vars`: pktswarm_under_test, a list of networks: where test traffic may go (master.plan.allowlist);
pktswarm_ssh_config, an SSH configuration; pktswarm_dut, the device under test: {name, version, settings},
which results keep, and {ssh, user, interfaces}, its host, whose counters a run may read over SSH (master.dut_host).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from yaml.constructor import ConstructorError

from pktswarm.master.cluster import dut, wire_limit
from pktswarm.master.cluster.dut import Dut
from pktswarm.master.cluster.gateways import ALLOWED as GATEWAYS_ALLOWED
from pktswarm.master.cluster.gateways import parse_gateways
from pktswarm.master.cluster.names import ADDRESS, INTERFACE, NAME
from pktswarm.master.cluster.wire_limit import WireLimit
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.task import Role
from pktswarm.traffic.yaml_loader import Loader

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
# Both reach shells: SSH's at the other end, and words that mpiexec splits at spaces.
PYTHON = re.compile(r"/[A-Za-z0-9._/+@-]+")
SSH_CONFIG = re.compile(r"[A-Za-z0-9._/~][A-Za-z0-9._/+@~-]*")
SIDES = ("a", "b", "n3", "n6")
GROUPS = ("master", "transmit", "receive")
UPF_ADDRESSES = {"n3_ipv4": 4, "n3_ipv6": 6, "n6_ipv4": 4, "n6_ipv6": 6}
Side = Literal["", "a", "b", "n3", "n6"]
SOCKET_NETWORK = ipaddress.IPv4Network("198.19.0.0/16")
"""Half of what RFC 2544 reserves for testers."""


@dataclass(frozen=True)
class Host:
    """One machine of the inventory. `mac` and `ipv4` are empty where the node is to be asked."""

    name: str
    address: str
    roles: tuple[Role, ...]
    control_interface: str = ""
    traffic_interface: str = ""
    side: Side = ""
    mac: str = ""
    ipv4: str = ""
    ipv6: str = ""
    """IPv6 address: on a node of side n6, the peer of UPF users with IPv6 addresses."""
    socket_ipv4: tuple[str, ...] = ()
    """Address with prefix length of its connections: as a transmitter, and as a receiver where it has both roles."""
    python: str = ""
    mpi: Literal["wheel", "none"] = "wheel"
    user: str = ""
    wire_limit: WireLimit = wire_limit.DEFAULT
    gateways: tuple[str, ...] = ()
    """Addresses of the router that its frames are sent to, one for each IP version."""


Hosts = dict[str, dict[str, object]]
"""Host → its variables."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Inventory:
    path: Path
    master: Host
    hosts: tuple[Host, ...]
    """Transmit and receive hosts in the order of the file; a host with both roles stands once."""
    variables: dict[str, Any] = field(default_factory=dict)
    """The variables of `all`: pktswarm_ssh_config, pktswarm_lab, …"""
    under_test: tuple[Network, ...] = ()
    """Where test traffic may go beside the hosts' own addresses; empty where nothing is declared."""
    dut: Dut | None = None
    """None: nothing is known of the device."""

    def with_role(self, role: Role) -> list[Host]:
        return [host for host in self.hosts if role in host.roles]

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


class UniqueKeys(Loader):
    """YAML that refuses a key twice in one mapping: a duplicate host would silently replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # "<<: *those" puts in what is not given here
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float)) and key in seen:
                raise ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
            if isinstance(key, (str, int, float)):
                seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path, loader: type[yaml.SafeLoader] = UniqueKeys) -> Any:
    """The file's content; BadInput with the line for what is missing, unreadable or not YAML."""
    try:
        return yaml.load(path.read_text(), loader)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise BadInput(path, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise BadInput(f"{path}:{line}", error.problem or "is not YAML") from None
    except yaml.YAMLError as error:
        raise BadInput(path, f"is not YAML: {error}") from None


def load(path: Path) -> Inventory:
    """Read and check an inventory; BadInput says what is wrong and where."""
    if not path.exists() and path.name.startswith("lab-"):
        name = path.stem.removeprefix("lab-")
        raise BadInput(path, f"lab {name} is not up (bring it up with: pktswarm lab up --name {name})")
    data = load_yaml(path)
    if not isinstance(data, dict) or not isinstance(data.get("all"), dict):
        raise BadInput(path, "no group `all` at the top", allowed="all: {children: {master, transmit, receive}}")
    everything = data["all"]
    children = _mapping(path, "all.children", everything.get("children"))
    variables = _mapping(path, "all.vars", everything.get("vars"))
    members = {group: _members(path, children, group) for group in GROUPS}
    if len(members["master"]) != 1:
        names = ", ".join(members["master"])
        raise BadInput(path, "exactly one master is needed", key="all.children.master.hosts", value=names)
    _refuse_unknown_keys(path, everything)
    master_name, master_vars = next(iter(members["master"].items()))
    hosts = _with_socket_addresses(_hosts(path, members, variables))
    master = _host(path, master_name, (), {**variables, **master_vars}, "master")
    _refuse_same(path, hosts)
    _check_login(path, variables.get("pktswarm_login", ""))
    _check_ssh_config(path, variables.get("pktswarm_ssh_config"))
    _check_upf(path, _mapping(path, "all.vars.pktswarm_upf", variables.get("pktswarm_upf")))
    under_test = _under_test(path, variables.get("pktswarm_under_test"))
    return Inventory(path, master, hosts, variables, under_test, _dut(path, variables.get("pktswarm_dut")))


def _mapping(path: Path, key: str, value: Any) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(path, "must be a mapping", key=key, value=value)
    return value


def _check_upf(path: Path, given: dict[str, object]) -> None:
    for name, version in UPF_ADDRESSES.items():
        value = given.get(name) or ""
        check = _ipv4 if version == 4 else _ipv6
        check(path, f"all.vars.pktswarm_upf.{name}", value if isinstance(value, str) else repr(value))


def _dut(path: Path, value: Any) -> Dut | None:
    return None if value is None else dut.parse(path, _mapping(path, dut.KEY, value))


def _check_login(path: Path, value: Any) -> None:
    if not isinstance(value, str) or (value and not NAME.fullmatch(value)):
        raise BadInput(path, "cannot be used", key="all.vars.pktswarm_login", value=value, allowed="an account name")


def _check_ssh_config(path: Path, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not SSH_CONFIG.fullmatch(value)):
        allowed = "the path of a file, of letters, digits, . _ / + @ ~ -"
        raise BadInput(path, "cannot be used", key="all.vars.pktswarm_ssh_config", value=value, allowed=allowed)


def _under_test(path: Path, value: Any) -> tuple[Network, ...]:
    key, allowed = "all.vars.pktswarm_under_test", "a list of networks like 10.0.0.0/8 or 2001:db8::/32"
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        raise BadInput(path, "not a list of networks", key=key, value=value, allowed=allowed)
    found: list[Network] = []
    for one in value:
        try:
            if not isinstance(one, str):
                raise ValueError
            found.append(ipaddress.ip_network(one))
        except ValueError:
            raise BadInput(path, "not a network", key=key, value=one, allowed=allowed) from None
    return tuple(found)


def _members(path: Path, children: dict[str, object], group: str) -> Hosts:
    body = children.get(group)
    key = f"all.children.{group}.hosts"
    body = body if isinstance(body, dict) else {}
    hosts = body.get("hosts")
    if not hosts:
        raise BadInput(path, "the group is empty or missing", key=key, allowed="at least one host")
    if not isinstance(hosts, dict):
        raise BadInput(path, "must be a mapping of host names", key=key, value=hosts)
    group_vars = _mapping(path, f"all.children.{group}.vars", body.get("vars"))
    for name, values in hosts.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadInput(path, "not a host name", key=key, value=name, allowed="letters, digits, . _ -")
        if values is not None and not isinstance(values, dict):
            raise BadInput(path, "a host's variables must be a mapping", key=f"{key}.{name}", value=values)
    return {name: {**group_vars, **(values or {})} for name, values in hosts.items()}


def _refuse_unknown_keys(path: Path, everything: dict[str, object]) -> None:
    unknown = set(everything) - {"vars", "children", "hosts"}
    if unknown:
        raise BadInput(path, "unknown key", key=f"all.{sorted(unknown)[0]}", allowed="vars, children, hosts")


def _hosts(path: Path, members: dict[str, Hosts], variables: dict[str, object]) -> tuple[Host, ...]:
    merged: Hosts = {}
    roles: dict[str, list[Role]] = {}
    both: tuple[Role, ...] = ("transmit", "receive")
    for role in both:
        for name, values in members[role].items():
            merged[name] = {**merged.get(name, {}), **values}
            roles.setdefault(name, []).append(role)
    return tuple(
        _host(path, name, tuple(roles[name]), {**variables, **values}, roles[name][0])
        for name, values in merged.items()
    )


def _host(path: Path, name: str, roles: tuple[Role, ...], values: dict[str, object], group: str) -> Host:
    key = f"all.children.{group}.hosts.{name}"

    def text(variable: str, pattern: re.Pattern[str] | None = None, allowed: str = "") -> str:
        value = values.get(variable, "")
        if not isinstance(value, str) or (value and pattern and not pattern.fullmatch(value)):
            raise BadInput(path, "cannot be used", key=f"{key}.{variable}", value=value, allowed=allowed)
        return value

    side = text("side", re.compile("|".join(SIDES)), ", ".join(SIDES))
    interface = text("traffic_interface", INTERFACE, "an interface name of at most 15 characters")
    if interface and interface == values.get("control_interface"):
        problem = "is the control interface too: test traffic must not meet MPI and SSH"
        raise BadInput(path, problem, key=f"{key}.traffic_interface", value=interface)
    if roles and not interface:
        raise BadInput(path, "is missing", key=f"{key}.traffic_interface", allowed="the interface under test")
    if text("pktswarm_clock", re.compile("chrony|ptp"), "chrony, ptp") == "ptp" and not values.get("control_interface"):
        raise BadInput(path, "is missing", key=f"{key}.control_interface", allowed="the interface for PTP")
    return Host(
        name=name,
        address=text("ansible_host", ADDRESS, "a host name or an IPv4 address: mpiexec takes no other") or name,
        roles=roles,
        control_interface=text("control_interface", INTERFACE, "an interface name"),
        traffic_interface=interface,
        side=side,  # type: ignore[arg-type] # one of SIDES, checked above
        mac=text("mac", MAC, "six hexadecimal bytes, lower case: 02:00:00:00:00:01"),
        ipv4=_ipv4(path, f"{key}.ipv4", text("ipv4")),
        ipv6=_ipv6(path, f"{key}.ipv6", text("ipv6")),
        socket_ipv4=_socket_ipv4(path, f"{key}.socket_ipv4", values.get("socket_ipv4"), roles),
        python=text("pktswarm_python", PYTHON, "an absolute path of letters, digits, . _ + @ -"),
        mpi="none" if text("pktswarm_mpi", re.compile("wheel|none"), "wheel, none") == "none" else "wheel",
        user=text("pktswarm_user", NAME, "an account name"),
        wire_limit=wire_limit.parse(path, f"{key}.{wire_limit.KEY}", values.get(wire_limit.KEY)),
        gateways=_gateways(path, f"{key}.pktswarm_gateway", values.get("pktswarm_gateway")),
    )


def _gateways(path: Path, key: str, value: Any) -> tuple[str, ...]:
    try:
        return () if value is None else parse_gateways(value)
    except ValueError:
        raise BadInput(path, "not a gateway", key=key, value=value, allowed=GATEWAYS_ALLOWED) from None


def _ipv4(path: Path, key: str, value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value)) if value else ""
    except ValueError:
        raise BadInput(path, "not an IPv4 address", key=key, value=value, allowed="like 10.0.0.1") from None


def _ipv6(path: Path, key: str, value: str) -> str:
    try:
        return str(ipaddress.IPv6Address(value)) if value else ""
    except ValueError:
        raise BadInput(path, "not an IPv6 address", key=key, value=value, allowed="like 2001:db8::1") from None


def _socket_ipv4(path: Path, key: str, value: Any, roles: tuple[Role, ...]) -> tuple[str, ...]:
    given = () if value is None else tuple(value) if isinstance(value, list) else (value,)
    if given and len(given) != len(roles):
        allowed = f"{len(roles)}, as many as the host has roles"
        raise BadInput(path, f"has {len(given)} addresses", key=key, value=value, allowed=allowed)
    found: list[ipaddress.IPv4Interface] = []
    for one in given:
        try:
            if not isinstance(one, str):
                raise ValueError
            interface = ipaddress.IPv4Interface(one if "/" in one else f"{one}/{SOCKET_NETWORK.prefixlen}")
        except ValueError:
            raise BadInput(path, "not an IPv4 address", key=key, value=one, allowed="like 198.19.0.1/16") from None
        found.append(interface)
    if len({one.network for one in found}) < len(found):
        problem = "the kernel takes the second away with the first: two prefix lengths are needed"
        raise BadInput(path, problem, key=key, value=value, allowed="like [198.19.0.1/16, 198.19.128.1/15]")
    return tuple(map(str, found))


def _with_socket_addresses(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Hosts that were given none have theirs by their place in the file."""
    return tuple(
        host if host.socket_ipv4 else replace(host, socket_ipv4=_default_socket_ipv4(place, host.roles))
        for place, host in enumerate(hosts, start=1)
    )


def _default_socket_ipv4(place: int, roles: tuple[Role, ...]) -> tuple[str, ...]:
    half, length = SOCKET_NETWORK.num_addresses // 2, SOCKET_NETWORK.prefixlen
    return tuple(f"{SOCKET_NETWORK[place + half * index]}/{length - index}" for index in range(len(roles)))


def _refuse_same(path: Path, hosts: tuple[Host, ...]) -> None:
    """Two hosts with one address would both be the same machine, and be counted twice."""
    for what, values in _identities(hosts):
        seen: dict[str, str] = {}
        for name, value in values:
            if value in seen:
                raise BadInput(path, f"{name} and {seen[value]} have the same {what}", key=what, value=value)
            seen[value] = name


def _identities(hosts: tuple[Host, ...]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "ansible_host", [(host.name, host.address) for host in hosts]
    yield "mac", [(host.name, host.mac) for host in hosts if host.mac]
    yield "ipv4", [(host.name, host.ipv4) for host in hosts if host.ipv4]
    yield "ipv6", [(host.name, host.ipv6) for host in hosts if host.ipv6]
    # With the others: a kernel that had the streams' address would answer them.
    own = [(host.name, one.split("/")[0]) for host in hosts for one in host.socket_ipv4]
    yield "socket_ipv4", [*own, *((host.name, host.ipv4) for host in hosts if host.ipv4)]


def made_up(sources: Sequence[str], targets: Sequence[str]) -> Inventory:
    """Hosts that are nowhere, for what is worked out without any; their addresses are left out."""
    both: tuple[tuple[Role, Sequence[str]], ...] = (("transmit", sources), ("receive", targets))
    names = dict.fromkeys([*sources, *targets])
    hosts = tuple(
        Host(name, "", tuple(role for role, those in both if name in those), traffic_interface="eth0") for name in names
    )
    return Inventory(Path("no inventory"), Host("master", "", ()), _with_socket_addresses(hosts))
