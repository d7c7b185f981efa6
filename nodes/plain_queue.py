"""A queueing discipline for the engine tc, whose counts are the kernel's results for each frame.

They are exact only with one that never drops what it has taken. The default of many distributions does: fq_codel drops
a packet that waited too long, and one of the longest queue when all is full. For the time of a run pfifo takes its
place. A discipline that somebody configured stays.
"""

from __future__ import annotations

from pathlib import Path

from pktswarm.nodes import changes, qdisc
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.qdisc import OF_THE_KERNEL, Qdisc

EXACT = ("noqueue", "pfifo", "pfifo_fast", "bfifo")
HANDLE = "7070:"
PACKETS = 1000


class PlainQueue:
    """The change is in the record of `folder`, the guard's, before it is made; restore() undoes it."""

    def __init__(self, interface: Interface, folder: Path) -> None:
        self._interface, self._folder = interface, folder
        self._change: changes.Change | None = None

    def begin(self) -> None:
        """Raises EngineError where tc fails."""
        found = qdisc.of(self._interface.name)
        if not is_to_be_replaced(found):
            return
        queues = sum(one.kind != "mq" for one in found)
        kind = "mq" if len(found) > queues else "pfifo"
        was = next(str(one) for one in found if one.is_root)
        self._change = changes.of_qdisc(self._interface, was, f"{kind} {HANDLE}")
        changes.write_down(self._folder, self._change)
        plain = ["pfifo", "limit", str(PACKETS)]
        if kind == "pfifo":
            qdisc.replace(self._interface.name, "root", HANDLE, *plain)
            return
        qdisc.replace(self._interface.name, "root", HANDLE, kind)
        for number in range(queues):  # each transmit queue keeps one of its own
            qdisc.replace(self._interface.name, f"{HANDLE}{number + 1:x}", "", *plain)

    def restore(self) -> None:
        """What somebody has set since stays. An interface that is gone has taken its settings along."""
        change, self._change = self._change, None
        if change is not None and change.now() == change.made:
            change.undo()


def is_to_be_replaced(found: list[Qdisc]) -> bool:
    """Whether one of the kernel's own could drop a frame that it has taken, and all are the kernel's own."""
    loses = any(one.kind not in (*EXACT, "mq") for one in found)
    return loses and all(one.handle == OF_THE_KERNEL for one in found)
