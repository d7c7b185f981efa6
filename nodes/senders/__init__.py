"""Engines that send: one a file."""
