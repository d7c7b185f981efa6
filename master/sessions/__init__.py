"""`pktswarm sessions` on disk: its folder and its page."""
