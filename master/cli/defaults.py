"""Paths that commands take if left out."""

from pathlib import Path

from pktswarm.master.cli import default_names

DEFAULT_HOSTS = Path(default_names.HOSTS)
DEFAULT_RESULTS = Path("results")
