"""What each node was seen to send and receive without loss, and what a plan makes of it."""
