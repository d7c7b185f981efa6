"""A network traffic tester made of cheap nodes.

Public is what `__all__` lists (docs/python.md); everything below this package is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pktswarm.traffic import VERSION as __version__

if TYPE_CHECKING:
    from pktswarm.master.api.benchmarks import Y1564, Calibration, Health, Rfc2544, Search, Sessions, Table
    from pktswarm.master.api.cluster import Cluster, Live
    from pktswarm.master.api.lab import Lab
    from pktswarm.master.api.result import Counts, Flow, Latency, Result, StreamResult
    from pktswarm.master.api.scenario import Scenario
    from pktswarm.traffic.errors import BadInput, Busy, NotAsExpected
    from pktswarm.traffic.errors import PktswarmError as Error

__all__ = [
    "BadInput",
    "Busy",
    "Calibration",
    "Cluster",
    "Counts",
    "Error",
    "Flow",
    "Health",
    "Lab",
    "Latency",
    "Live",
    "NotAsExpected",
    "Result",
    "Rfc2544",
    "Scenario",
    "Search",
    "Sessions",
    "StreamResult",
    "Table",
    "Y1564",
    "__version__",
]
_MODULES = {
    "benchmarks": ("Calibration", "Health", "Rfc2544", "Search", "Sessions", "Table", "Y1564"),
    "cluster": ("Cluster", "Live"),
    "lab": ("Lab",),
    "result": ("Counts", "Flow", "Latency", "Result", "StreamResult"),
    "scenario": ("Scenario",),
}


if not TYPE_CHECKING:  # with it, a type checker accepts every name

    def __getattr__(name: str) -> object:
        """Loads a public name on first use: the processes on the nodes import this package, and need none of them."""
        from importlib import import_module

        if name in ("BadInput", "Busy", "Error", "NotAsExpected"):
            errors = import_module("pktswarm.traffic.errors")
            return getattr(errors, "PktswarmError" if name == "Error" else name)
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"pktswarm.master.api.{module}"), name)
        raise AttributeError(f"module 'pktswarm' has no attribute {name!r}")
