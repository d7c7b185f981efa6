"""Drop counters of a host, parsed from /proc and /sys, and their growth between two readings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

FILES = ("snmp", "netstat", "snmp6", "dev", "udp", "udp6", "softnet_stat")
"""Below /proc/net. `snmp6` and `udp6` are missing on a host without IPv6."""
REASONS = {
    "receive buffer": ("Udp.RcvbufErrors", "Udp6RcvbufErrors"),
    "UDP memory": ("Udp.MemErrors", "Udp6MemErrors"),
    "UDP checksum": ("Udp.InCsumErrors", "Udp6InCsumErrors"),
    "no socket at the UDP port": ("Udp.NoPorts", "Udp6NoPorts"),
    "no route": ("Ip.OutNoRoutes", "IpExt.InNoRoutes", "Ip6OutNoRoutes", "Ip6InNoRoutes"),
    "IP header or address": ("Ip.InHdrErrors", "Ip.InAddrErrors", "Ip6InHdrErrors", "Ip6InAddrErrors"),
    "IP discards": ("Ip.InDiscards", "Ip.OutDiscards", "Ip6InDiscards", "Ip6OutDiscards"),
}
"""Reason → the kernel's counters that it sums. They are disjoint."""
RECEIVE_BUFFER = "receive buffer"
PROC, SYS, MISSED = "/proc/net/", "/sys/class/net/", "/statistics/rx_missed_errors"
LOOPBACK = "lo"


@dataclass(frozen=True)
class Interface:
    """Packets. `rx_missed`: dropped by a full receive ring; None: not read, and part of `rx_dropped`.

    `rx_dropped`: dropped by the host, frames of unknown protocols included.
    """

    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    rx_missed: int | None = None


@dataclass(frozen=True)
class Reading:
    """The counters at one instant."""

    protocols: dict[str, int]
    """By the kernel's names: `Udp.RcvbufErrors` of snmp and netstat, `Udp6RcvbufErrors` of snmp6."""
    interfaces: dict[str, Interface]
    sockets: dict[int, tuple[int, int]]
    """UDP sockets: inode → (local port, packets dropped)."""
    softnet_dropped: int | None
    """Drops by the backlogs of all processors: of the whole machine, in all network namespaces."""


@dataclass(frozen=True)
class Drops:
    """Growth between two readings. None: not counted, or the counter decreased."""

    reasons: dict[str, int | None]
    interfaces: dict[str, Interface | None]
    ports: dict[int, int] = field(default_factory=dict)
    """UDP port → packets dropped by its open sockets."""
    softnet_dropped: int | None = None

    @property
    def parts(self) -> dict[str, int]:
        """Reason → packets, without those that are 0 or not counted."""
        found = {name: count for name, count in self.reasons.items() if count}
        for name, interface in self._counted():
            found |= {f"receive ring of {name}": interface.rx_missed} if interface.rx_missed else {}
            found |= {f"{name}, to be sent": interface.tx_dropped} if interface.tx_dropped else {}
        return found

    def _counted(self) -> list[tuple[str, Interface]]:
        return [(name, interface) for name, interface in self.interfaces.items() if interface is not None]

    @property
    def not_taken(self) -> dict[str, int]:
        """Interface → received frames that the host dropped, of the run or not."""
        return {name: interface.rx_dropped for name, interface in self._counted() if interface.rx_dropped}

    @property
    def total(self) -> int | None:
        """Packets dropped in all; None if nothing was counted."""
        counted = [part for part in (*self.reasons.values(), *self.interfaces.values()) if part is not None]
        return sum(self.parts.values()) if counted else None

    @property
    def errors(self) -> int:
        """Frames received damaged or not sent by the interfaces. A driver may count them as drops too."""
        return sum(interface.rx_errors + interface.tx_errors for _, interface in self._counted())

    @property
    def uncounted(self) -> list[str]:
        return [name for name, count in {**self.reasons, **self.interfaces}.items() if count is None]


def split_lines(text: str) -> dict[str, str]:
    """Splits the output of `grep -H "" /proc/net/… /sys/class/net/…` by file, for parse()."""
    files: dict[str, list[str]] = {}
    for line in text.splitlines():
        path, colon, rest = line.partition(":")
        if not colon or not path.startswith((PROC, SYS)):
            continue
        files.setdefault(path.removeprefix(PROC), []).append(rest)
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def parse(files: Mapping[str, str]) -> Reading:
    """`files`: path (relative to /proc/net if below it) → text. Raises ValueError for text of another format."""
    protocols = dict(_pairs_of_lines(files.get("snmp", "")))
    protocols |= dict(_pairs_of_lines(files.get("netstat", "")))
    protocols |= {name: int(value) for name, value in (line.split() for line in files.get("snmp6", "").splitlines())}
    sockets = [socket for name in ("udp", "udp6") for socket in _sockets(files.get(name, ""))]
    softnet = files.get("softnet_stat", "").splitlines()
    return Reading(
        protocols,
        {
            name: replace(interface, **_missed(files, name, interface))
            for name, interface in _interfaces(files.get("dev", ""))
        },
        {inode: (port, dropped) for inode, port, dropped in sockets},
        sum(int(line.split()[1], 16) for line in softnet) if softnet else None,
    )


def _pairs_of_lines(text: str) -> Iterator[tuple[str, int]]:
    """Parses a line of names and a line of values for each protocol."""
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        if names[0] != values[0]:
            raise ValueError(f"{names[0]} is followed by {values[0]}")
        for name, value in zip(names[1:], values[1:], strict=True):
            yield f"{names[0].removesuffix(':')}.{name}", int(value)


def _interfaces(text: str) -> Iterator[tuple[str, Interface]]:
    """Parses two lines of headings, then a line for each interface: 8 columns of reception, 8 of transmission."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        values = [int(value) for value in rest.split()]
        if len(values) != 16:
            raise ValueError(f"{len(values)} columns of interface {name.strip()}")
        yield name.strip(), Interface(values[3], values[11], values[2], values[10])


def _missed(files: Mapping[str, str], name: str, interface: Interface) -> dict[str, int]:
    """Separates the two drops that /proc/net/dev has in one column."""
    text = files.get(f"{SYS}{name}{MISSED}")
    return {} if text is None else {"rx_missed": int(text), "rx_dropped": interface.rx_dropped - int(text)}


def _sockets(text: str) -> Iterator[tuple[int, int, int]]:
    """Yields inode, local port and drops; a socket without an owner, inode 0, is skipped."""
    for line in text.splitlines()[1:]:
        words = line.split()
        inode, port, dropped = int(words[9]), int(words[1].rpartition(":")[2], 16), int(words[12])
        if inode:
            yield inode, port, dropped


def between(before: Reading, after: Reading, interfaces: Iterable[str] = (), left_out: Iterable[str] = ()) -> Drops:
    """Compares two readings. `interfaces`: only these; empty: all but loopback and those `left_out`."""
    wanted = list(interfaces) or [name for name in after.interfaces if name != LOOPBACK and name not in set(left_out)]
    return Drops(
        {name: _grown(before, after, counters) for name, counters in REASONS.items()},
        {name: _of_interface(before, after, name) for name in wanted},
        _of_ports(before, after),
        _difference(before.softnet_dropped, after.softnet_dropped),
    )


def _grown(before: Reading, after: Reading, names: Iterable[str]) -> int | None:
    """Sums the counters that both readings have; a host without IPv6 has those of IPv4 only."""
    both = [name for name in names if name in before.protocols and name in after.protocols]
    grown = [after.protocols[name] - before.protocols[name] for name in both]
    return None if not grown or min(grown) < 0 else sum(grown)


def _of_interface(before: Reading, after: Reading, name: str) -> Interface | None:
    """Returns the growth of an interface; one created in between counts from 0."""
    was, is_now = before.interfaces.get(name, Interface(0, 0, 0, 0, 0)), after.interfaces.get(name)
    if is_now is None:
        return None
    parts = ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
    grown = [getattr(is_now, part) - getattr(was, part) for part in parts]
    missed = None if is_now.rx_missed is None or was.rx_missed is None else is_now.rx_missed - was.rx_missed
    return None if min(*grown, missed or 0) < 0 else Interface(grown[0], grown[1], grown[2], grown[3], missed)


def _of_ports(before: Reading, after: Reading) -> dict[int, int]:
    ports: dict[int, int] = {}
    for inode, (port, dropped) in after.sockets.items():
        was_port, was = before.sockets.get(inode, (port, 0))
        if grown := dropped - (was if was_port == port else 0):
            ports[port] = ports.get(port, 0) + grown
    return ports


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before
