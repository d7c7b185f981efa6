"""Traffic and its counts, for the master and the nodes. Pure: no MPI, no root, no subprocess."""

import os

# Nothing here multiplies matrices, and the threads that numpy would start for it cost a quarter of a node's start.
# A guard is forked, too, and what is forked had better have one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

VERSION = "0.1.0"
"""Version of pktswarm; it must be the same on nodes and master."""
