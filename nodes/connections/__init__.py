"""Real connections through the host's own stack: an address of their own, and a process that holds them."""
