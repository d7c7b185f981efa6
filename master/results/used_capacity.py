"""The part of the measured capacity that a run was planned by, for its document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pktswarm.master.plan import capacity_limits
from pktswarm.master.plan.capacity import Capacity
from pktswarm.master.plan.capacity_limits import LegLimit
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.document import CapacityResult


def used_capacity(
    resolved: Resolved, limits: Iterable[LegLimit], known: Capacity, not_used: Sequence[str]
) -> CapacityResult:
    """The planned loads and capacities of the nodes, where the capacity was measured with the engine in use."""
    senders = {leg.id: leg.engine for leg in resolved.legs}
    receivers = {host: task.engine.split("+")[0] for host, task in resolved.receives.items()}
    used = [
        limit
        for limit in limits
        if limit.limit.engine == (senders.get(limit.leg) if limit.role == "transmit" else receivers.get(limit.node))
    ]
    return cast(CapacityResult, capacity_limits.document(used, known, not_used))
