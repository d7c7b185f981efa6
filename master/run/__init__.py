"""One run: launch, rank 0, and the phases from hello to restore."""
