"""A rank on a node: role loops, engines, guard."""

from pktswarm.traffic.garbage import collect_rarely

collect_rarely()
