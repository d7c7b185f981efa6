"""Real TCP and UDP connections: blocks of application bytes, and their counts."""
