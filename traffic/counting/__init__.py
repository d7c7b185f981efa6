"""Counts: matching frames to flows, tallies, users, samples, recounts."""
