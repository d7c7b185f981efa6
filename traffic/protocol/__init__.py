"""Tasks and messages between the processes of a run, and what MPI needs."""
