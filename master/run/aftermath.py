"""Lines of the results on an early end of mpiexec, on a lost UPF, and on rates that were changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pktswarm.master.plan.plan import Plan
from pktswarm.master.results.ledger import Ledger

if TYPE_CHECKING:
    from pktswarm.master.upf.control_plane import ControlPlane


def of_upf(ledger: Ledger, plan: Plan, plane: ControlPlane) -> Iterator[str]:
    """The last message of a UPF that was lost, and the users' packets that arrived."""
    if plane.last_word_ns is None or ledger.start_ns is None:
        return
    yield f"the UPF's last message on N4 came {(plane.last_word_ns - ledger.start_ns) / 1e9:.2f} s after the start"
    for row in ledger.rows():
        if row.leg.id in plan.tunnels | plan.trace_sessions and row.lost is not None:
            sent, last_ns = row.sent.packets, row.received.last_ns
            last = "no packet arrived" if last_ns is None else f"the last packet came at {last_ns / 1e9:.2f} s"
            yield f"{row.leg.stream} from {row.leg.source}: {last}, {row.lost:,} of {sent:,} are lost"


def of_rates(ledger: Ledger) -> Iterator[str]:
    """The rates that were set while streams were sent, and when they were stopped and started."""
    for leg in ledger.resolved.legs:
        changes = [
            f"{_change(rate_pps)} at {at_ns / 1e9:.3f} s" for at_ns, rate_pps in ledger.rates_set.get(leg.id, [])
        ]
        if leg.held:
            changes.insert(0, "held at first")
        if changes:
            yield f"{leg.stream} from {leg.source}: {', '.join(changes)}; the intended packets are not known"


def _change(rate_pps: float | None) -> str:
    if rate_pps is None:
        return "started"
    return f"rate set to {rate_pps:,.10g} packets/s" if rate_pps else "stopped"
