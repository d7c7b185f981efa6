"""When a node's traffic link was down, from the samples of its interface: to the distance of two of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outages:
    """Outages of one rank's traffic link. Times are nanoseconds since the start instant."""

    downs: int = 0
    since_ns: int | None = None
    """Since when it is down; None: it is up."""
    found: list[tuple[int, int | None, int]] = field(default_factory=list)
    """(from, to, how often it went down in between); `to` is None where it did not come back."""

    def take(self, at_ns: int, interface: dict[str, int]) -> None:
        """The counters of a sample: how often the link went down and up since before the run."""
        downs, ups = interface.get("link_downs", 0), interface.get("link_ups", 0)
        more, self.downs = downs - self.downs, downs
        if more > 0 and self.since_ns is None:
            self.since_ns = at_ns
            self.found.append((at_ns, None, more))
        if self.since_ns is not None and ups >= downs:
            begun_ns, _, times = self.found[-1]
            self.found[-1] = (begun_ns, at_ns, times)
            self.since_ns = None

    def describe(self, interface: str) -> list[str]:
        lines = []
        for begun_ns, ended_ns, times in self.found:
            end = "on" if ended_ns is None else f"to {ended_ns / 1e9:.2f} s"
            often = "" if times == 1 else f" ({times} times)"
            lines.append(f"the link of {interface} was down from {begun_ns / 1e9:.2f} s {end} after the start{often}")
        return lines
