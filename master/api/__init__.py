"""The Python interface: what `import pktswarm` exports (docs/python.md)."""
