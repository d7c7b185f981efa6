"""The MAC addresses of a run's gateways, which its transmitters ask for before anything is planned in detail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState, reports_by_host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan.gateways import questions_of
from pktswarm.master.plan.resolve import with_addresses
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol import rank0_orders
from pktswarm.traffic.protocol.neighbours import Question
from pktswarm.traffic.protocol.rank0_events import Lost, Rank0Event
from pktswarm.traffic.protocol.rank_events import NeighboursFound


def hosts_of(ranks: Iterable[Rank]) -> dict[str, Host]:
    return {rank.host.name: rank.host for rank in ranks}


@dataclass
class Gateways:
    macs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Host → address of a gateway → its MAC address."""
    _hosts: dict[int, str] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)

    def begin(
        self, legs: Iterable[Leg], ranks: Sequence[Rank], nodes: Iterable[NodeState]
    ) -> list[rank0_orders.FindNeighbours]:
        """The orders for the gateways of all legs; empty where there are none."""
        routed = [leg for leg in legs if leg.gateway]
        known = with_addresses(hosts_of(ranks), reports_by_host(nodes)) if routed else {}
        return self.ask(questions_of(routed, known), ranks)

    def ask(self, questions: dict[str, list[Question]], ranks: Iterable[Rank]) -> list[rank0_orders.FindNeighbours]:
        """The orders to one rank of each host, whose answers are then waited for."""
        hosts = {rank.host.name: rank.number for rank in reversed(list(ranks)) if rank.host.name in questions}
        self._hosts = {number: name for name, number in hosts.items()}
        self._waiting = set(self._hosts)
        return [rank0_orders.FindNeighbours(number, questions[name]) for name, number in hosts.items()]

    def take(self, event: Rank0Event) -> bool:
        """Returns whether the last answer came by this event. A rank that is lost gives none."""
        rank = event.rank if isinstance(event, NeighboursFound | Lost) else 0
        if rank not in self._waiting:
            return False
        if isinstance(event, NeighboursFound):
            self.macs[self._hosts[rank]] = event.macs
        self._waiting.discard(rank)
        return not self._waiting

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)
