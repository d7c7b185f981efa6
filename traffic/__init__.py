"""What is sent and counted. Pure: no MPI, no root, no subprocess; the master and the nodes both import it."""

import os

# Nothing here multiplies matrices, and the threads that numpy would start for it cost a quarter of a node's start.
# A guard is forked, too, and what is forked had better have one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

VERSION = "0.1.0"
"""Of all of pktswarm; nodes and master must have the same."""
