"""Drops by the kernel of the device's host during a run, read from its counters, for comparison with the loss."""
