"""The frames that a node's guard answered or received for its proxy addresses."""

from __future__ import annotations

from pktswarm.traffic.plain import plain


@plain
class ProxyCount:
    """traffic.frames.responder.ResponderCounts as a message."""

    counts: dict[str, int]
    """Kind of frame → frames."""
    teids: dict[str, list[int]]
    """Kind of frame → the first few tunnel endpoints that it named."""
    ended: dict[str, int]
    """Tunnel endpoint → End Markers."""
    missed: int
    """Frames dropped at the sockets."""
