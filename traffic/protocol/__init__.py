"""Tasks and messages between the processes of a run, and the support for MPI."""
