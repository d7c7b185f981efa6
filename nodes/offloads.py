"""Offloads of an interface that are off for a run."""

from __future__ import annotations

from pathlib import Path

from pktswarm.nodes import changes
from pktswarm.nodes.interface import Interface


class OffloadsOff:
    """Each is in the record of `folder`, the guard's, before it is switched off; restore() switches it on again."""

    def __init__(self, interface: Interface, folder: Path) -> None:
        self._interface, self._folder = interface, folder
        self._were_on: list[str] = []

    def switch_off(self, *names: str) -> None:
        """Raises EngineError where one stays on."""
        on = [changes.of_offload(self._interface, name, was=True) for name in names if self._interface.offload(name)]
        if on:
            changes.write_down(self._folder, *on)
        for one in on:
            self._were_on.append(one.name)
            self._interface.set_offload(one.name, False)

    def restore(self) -> None:
        """An interface that is gone has taken its settings along."""
        while self._were_on and self._interface.exists():
            self._interface.set_offload(self._were_on.pop(), True)
