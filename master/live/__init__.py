"""A run while it goes: its figures, on the terminal, for another terminal, and for Prometheus."""
