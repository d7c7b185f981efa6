"""Schedules: which frame is due when, compiled for each engine."""
