"""Orders of a command line to the daemon of a cluster that stays up."""

from __future__ import annotations

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Order


@plain
class Take(Order):
    """Use the cluster as long as the connection lasts. `inventory`: the digest of the inventory as the command line
    read it. `waits`: behind other users, rather than be refused. `gone`: the socket of the ranks that it was granted
    before, which began no run; the daemon need not have noticed yet."""

    NAME = "take"
    by: str
    command: str
    inventory: str
    waits: bool
    gone: str = ""


@plain
class Show(Order):
    """Report the state of the cluster."""

    NAME = "show"


@plain
class Down(Order):
    """End the cluster; `now`: also while it is in use."""

    NAME = "down"
    now: bool


ClusterOrder = Take | Show | Down
decode_cluster_order: Decoder[ClusterOrder] = Decoder(ClusterOrder)
