"""Labs: whole clusters on this machine."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pktswarm.master.api.orders import LabUp
from pktswarm.master.api.process import Process

_numbers = itertools.count(1)


class Lab:
    """A lab: a master, nodes, a switch and a device under test, on this machine (docs/lab.md). Needs root.

    It comes up at the begin of a `with` block, or with up(), and goes at its end, with close(), and with this process.
    The arguments are those of `pktswarm lab up`. `name`: if left out, one that no other lab has.
    """

    def __init__(
        self,
        transmit: int = 3,
        receive: int = 3,
        *,
        name: str | None = None,
        mtu: int = 1500,
        bottleneck_bps: int = 0,
        queue_bytes: int = 0,
        both_roles: bool = False,
        dut: Literal["switch", "router", "upf", "exec"] = "switch",
        command: Sequence[str] = (),
        routes: Sequence[str] = (),
        switch: Literal["xdp", "bridge"] | None = None,
    ) -> None:
        self.name = name or f"py{os.getpid()}-{next(_numbers)}"
        self._options = {
            "name": self.name,
            "transmit": transmit,
            "receive": receive,
            "mtu": mtu,
            "bottleneck_bps": bottleneck_bps,
            "queue_bytes": queue_bytes,
            "both_roles": both_roles,
            "dut": dut,
            "command": list(command),
            "routes": list(routes),
            "switch": switch,
        }
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: Process | None = None
        self._inventory: Path | None = None

    @property
    def inventory(self) -> Path:
        """The inventory of the lab, which is up."""
        if self._inventory is None:
            raise ValueError(f"lab {self.name} is not up")
        return self._inventory

    def up(self) -> None:
        """Raises BadInput for wrong arguments, and without root."""
        self._folder, self._process = tempfile.TemporaryDirectory(prefix="pktswarm-lab-"), Process()
        try:
            done = self._process.call(LabUp(json.dumps({**self._options, "hosts_dir": self._folder.name})))
            self._inventory = Path(done.output)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Takes the lab down, if it is up."""
        self._inventory = None
        if self._process is not None:
            self._process.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
