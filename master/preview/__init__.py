"""`pktswarm preview`: computes the traffic of a scenario without sending it."""
