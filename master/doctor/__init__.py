"""Checks of a cluster's hosts: their reports (ask), findings (judge), output (show)."""
