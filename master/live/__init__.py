"""Live figures of a run: on its terminal, for `pktswarm status`, and for Prometheus."""
