"""A whole cluster on one machine."""

from pktswarm.lab.api import (
    LabState,
    down,
    enter,
    names,
    network_files,
    order_upf,
    run_in,
    status,
    switches,
    up,
    wait_for_runs,
)

__all__ = [
    "LabState",
    "down",
    "enter",
    "names",
    "network_files",
    "order_upf",
    "run_in",
    "status",
    "switches",
    "up",
    "wait_for_runs",
]
