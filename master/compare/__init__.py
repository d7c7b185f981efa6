"""`pktswarm compare`: differences between runs, and whether they exceed the noise of repeated runs."""
