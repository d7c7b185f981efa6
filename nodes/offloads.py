"""Offloads of an interface that are off for a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pktswarm.nodes import changes, gro, wires
from pktswarm.nodes.interface import MERGING_OFFLOADS, Interface


class OffloadsOff:
    """Each is in the record of `folder`, the guard's, before it is switched off; restore() switches it on again."""

    def __init__(self, interface: Interface, folder: Path) -> None:
        self._interface, self._folder = interface, folder
        self._were_on: list[tuple[Interface, str]] = []

    def switch_off(self, *names: str) -> None:
        """Raises EngineError where one stays on."""
        self._switch_off([(self._interface, name) for name in names])

    def switch_merging_off(self) -> None:
        """Switches MERGING_OFFLOADS off, also of the interfaces below: there frames are merged before a VLAN has them.

        Raises EngineError where one stays on.
        """
        interfaces = [self._interface, *map(Interface, wires.below(self._interface.name))]
        self._switch_off(
            [(each, name) for each in interfaces for name in MERGING_OFFLOADS if name != "gro" or gro.merges(each.name)]
        )

    def _switch_off(self, offloads: Iterable[tuple[Interface, str]]) -> None:
        on = [(interface, name) for interface, name in offloads if interface.offload(name)]
        if on:
            changes.write_down(self._folder, *(changes.of_offload(*one, was=True) for one in on))
        for interface, name in on:
            self._were_on.append((interface, name))
            interface.set_offload(name, False)

    def restore(self) -> None:
        """An interface that is gone has taken its settings along."""
        while self._were_on:
            interface, name = self._were_on.pop()
            if interface.exists():
                interface.set_offload(name, True)
