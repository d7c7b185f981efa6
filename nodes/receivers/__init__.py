"""Engines that receive and count: one a file."""
