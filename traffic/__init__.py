"""Traffic and its counts, for the master and the nodes. Pure: no MPI, no root, no subprocess."""

import os

# NumPy's threads for matrix products, which are not used, take a quarter of a node's start.
# A process that forks, as the guard's does, must have one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

VERSION = "0.1.0"
"""Version of pktswarm; it must be the same on nodes and master."""
