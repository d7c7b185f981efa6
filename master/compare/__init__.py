"""`pktswarm compare`: runs side by side, and whether they differ by more than such runs differ among themselves."""
