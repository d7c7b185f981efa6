"""What the kernel of the device's host dropped while a run sent: read from its counters, and set beside the loss."""
