"""One run: launch, rank 0, and the phases from hello to restore."""

from pktswarm.traffic.garbage import collect_rarely

collect_rarely()
