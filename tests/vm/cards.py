"""Two emulated interfaces of one model, connected to each other, in place of the veth pair of a Wire."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pktswarm.lab.vm import MODULES, pair_macs
from wire import Wire, ip, shown

READY_S = 30.0
"""Until drivers have found their interfaces, and those each other. Cards of Intel negotiate for some seconds."""


def links() -> dict[str, str]:
    """Interfaces outside of all namespaces, by their own address."""
    found: list[dict[str, Any]] = json.loads(ip("-j", "link", "show"))
    return {link.get("permaddr", link["address"]): link["ifname"] for link in found}


class Cards(Wire):
    """`rx0` and `tx0` keep their counters between tests, so these are counted from begin() on."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.model = model
        self._before: dict[tuple[str, str], int] = {}
        self._moved: list[tuple[str, str, str]] = []

    def _up(self) -> None:
        subprocess.run(["modprobe", MODULES[self.model]], check=True, timeout=60)
        super()._up()

    def join(self, *ends: tuple[str, str, str]) -> None:
        self._wait("the interfaces", lambda: set(pair_macs(self.model)) <= set(links()))
        for own, (namespace, interface, mac) in zip(pair_macs(self.model), ends, strict=True):
            name = links()[own]
            ip("link", "set", name, "down")
            ip("link", "set", name, "netns", namespace, "name", interface, "address", mac)
            self._moved.append((namespace, interface, own))
            ip("-n", namespace, "link", "set", interface, "up")
        self.begin()

    def begin(self) -> None:
        """Once both have a carrier, which they lose for a while when they go down, and with a new MTU."""
        for namespace, interface in ((self.sender, "tx0"), (self.receiver, "rx0")):
            self._wait("a carrier", partial(self._is_up, namespace, interface))
        self._before = {}
        both = [(side, what) for side in ("tx", "rx") for what in ("packets", "bytes")]
        self._before = {(side, what): self.counter(side, what) for side, what in both}

    @staticmethod
    def _is_up(namespace: str, interface: str) -> bool:
        return "LOWER_UP" in shown(namespace, interface)["flags"]

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < deadline, f"{self.model}: {what} did not come"
            time.sleep(0.1)

    def counter(self, side: str, what: str = "packets") -> int:
        return super().counter(side, what) - self._before.get((side, what), 0)

    def driver(self) -> str:
        path = "/sys/class/net/tx0/device/driver"
        return Path(ip("netns", "exec", self.sender, "readlink", path).strip()).name

    def down(self) -> None:
        """Back to where they were: with the namespace they would go some time later, under another name."""
        for namespace, interface, own in self._moved:
            name = "pk" + own.replace(":", "")[-6:]
            ip("-n", namespace, "link", "set", interface, "down")
            ip("-n", namespace, "link", "set", interface, "address", own, "netns", "1", "name", name)
        super().down()
