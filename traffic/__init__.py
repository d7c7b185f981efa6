"""What is sent and counted. Pure: no MPI, no root, no subprocess; the master and the nodes both import it."""

VERSION = "0.1.0"
"""Of all of pktswarm; nodes and master must have the same."""
