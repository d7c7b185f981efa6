"""Interactive replay: each node sends one side of a trace, driven by the packets of the other side."""
