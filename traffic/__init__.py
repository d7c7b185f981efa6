"""What is sent and counted. Pure: no MPI, no root, no subprocess; the master and the nodes both import it."""
