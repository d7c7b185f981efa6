"""The scenario file: its sections, checked."""
