"""The command line: one module per command."""

from pktswarm.traffic.garbage import collect_rarely

collect_rarely()
