"""The hosts of a run: inventory, SSH, ranks, clock offsets, link state."""
