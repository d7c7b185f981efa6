"""`pktswarm preview`: a scenario's traffic, without sending it."""
