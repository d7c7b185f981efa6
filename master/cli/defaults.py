"""Paths that commands take if left out."""

from pathlib import Path

DEFAULT_HOSTS = Path("hosts/lab-default.yml")
DEFAULT_RESULTS = Path("results")
