"""What each node can send and receive without loss, measured (docs/calibrate.md)."""
