"""Changes of a node's traffic interface while frames are sent, from its samples: resolution is one sample interval."""

from __future__ import annotations

from dataclasses import dataclass, field

LOSSES = ("tx_dropped", "tx_errors", "rx_dropped", "rx_errors")


@dataclass(frozen=True)
class MtuChange:
    """Times are nanoseconds since the start instant; `before`, `losses`: the interface's counters at `from_ns`."""

    was: int
    now: int
    from_ns: int
    to_ns: int
    losses: dict[str, int]


@dataclass
class LinkState:
    """State of one rank's traffic interface."""

    mtu: int | None = None
    read_ns: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    mtu_changes: list[MtuChange] = field(default_factory=list)
    gone_ns: int | None = None

    def take(self, at_ns: int, interface: dict[str, int]) -> None:
        """A sample's counters, which are since before the start, and its MTU."""
        now = interface.get("mtu")
        if self.mtu is not None and now is not None and now != self.mtu:
            self.mtu_changes.append(MtuChange(self.mtu, now, self.read_ns, at_ns, self.losses))
        self.mtu, self.read_ns = now, at_ns
        self.losses = {name: interface.get(name, 0) for name in LOSSES}

    def end(self, interface: dict[str, int] | None) -> None:
        """The counters that came with the counts; None: they could not be read any more."""
        if interface is not None:
            self.losses = {name: interface.get(name, 0) for name in LOSSES}

    def notes(self, interface: str) -> list[str]:
        """What costs no packet."""
        return [self._of_mtu(interface, change) for change in self.mtu_changes if change.now >= change.was]

    def doubts(self, interface: str) -> list[str]:
        """What may cost packets that the device under test has no part in."""
        lines = [self._of_mtu(interface, change) for change in self.mtu_changes if change.now < change.was]
        if self.gone_ns is not None:
            lines.append(f"{interface} is gone since {self.gone_ns / 1e9:.2f} s after the start")
        return lines

    def _of_mtu(self, interface: str, change: MtuChange) -> str:
        when = f"between {max(0, change.from_ns) / 1e9:.2f} s and {max(0, change.to_ns) / 1e9:.2f} s after the start"
        more = {name: self.losses[name] - change.losses[name] for name in LOSSES}
        counted = ", ".join(f"{name} +{count:,}" for name, count in more.items() if count) or "no counter of it moved"
        return f"the MTU of {interface} was changed from {change.was} to {change.now} {when} ({counted})"
