"""A network traffic tester made of cheap nodes. `pktswarm.__version__` is public; everything below is private."""

from pktswarm.traffic import VERSION as __version__

__all__ = ["__version__"]
