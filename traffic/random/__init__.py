"""Reproducible random values: distributions, random number generators, rates over time."""
