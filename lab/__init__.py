"""A whole cluster on one machine."""

from pktswarm.lab.api import LabState, down, enter, names, network_files, run_in, status, tell_upf, up

__all__ = ["LabState", "down", "enter", "names", "network_files", "run_in", "status", "tell_upf", "up"]
