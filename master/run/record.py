"""The folder of a run while it goes: its log, samples and captures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from pktswarm.master.files import utc
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results import samples
from pktswarm.master.results.folder import Folder
from pktswarm.master.results.ledger import Ledger
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.codec import to_fields
from pktswarm.traffic.protocol.rank0_events import Piece, Rank0Event
from pktswarm.traffic.protocol.rank_events import Sample


class Record:
    """There is no folder before begin(): bad input leaves none behind."""

    def __init__(self, results: Path) -> None:
        self.folder: Folder | None = None
        self.disk_problem = ""
        """The first error of the disk."""
        self._results = results
        self._early: list[dict[str, object]] = []
        """Lines of the log before there is a folder."""
        self._legs: dict[int, Leg] = {}

    def begin(self, name: str, resolved: Resolved) -> Folder:
        self.folder = folder = Folder(self._results, name)
        for line in self._early:
            folder.log(line)
        self._legs = {leg.id: leg for leg in resolved.legs}
        return folder

    def keep(self, event: Rank0Event, raw: bytes, ledger: Ledger) -> None:
        """Writes an event that the ledger has taken."""
        with self.on_disk():
            match event:
                case Piece(rank, name):
                    if self.folder is not None:
                        self.folder.capture_piece(ledger.nodes[rank].rank.host.name, name, raw)
                case Sample():
                    self._sample(event, ledger)
                case _:
                    self._log(event)

    def _log(self, event: Rank0Event) -> None:
        line = {"utc": utc(time.time_ns()), **to_fields(event)}
        if self.folder is None:
            self._early.append(line)
        else:
            self.folder.log(line)

    def _sample(self, event: Sample, ledger: Ledger) -> None:
        """Samples have a file of their own, and are not in the log."""
        if self.folder is not None:
            rank, at_ns = ledger.nodes[event.rank].rank, ledger.sampled_ns(event)
            self.folder.sample(samples.rows(event, rank.host.name, rank.role, at_ns, self._legs))

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[None]:
        """An error of the disk is kept, not raised: the run ends in order, and its counts are still reported."""
        try:
            yield
        except OSError as error:
            self.disk_problem = self.disk_problem or f"{self._results} on the master: {error.strerror}"

    def captures_missing(self, folder: Folder, ledger: Ledger) -> list[str]:
        """Captures that did not arrive whole: a node or rank 0 can be lost while they are fetched."""
        missing = []
        for node in ledger.nodes.values():
            host = node.rank.host.name
            for name, due in node.captures.items():
                if (came := folder.capture_bytes(host, name)) != due:
                    missing.append(f"{host}: {came:,} of {due:,} bytes of {name} received")
        return missing

    def discard(self) -> None:
        """Removes the folder of a run that sent nothing because of bad input."""
        if self.folder is not None:
            self.folder.discard()
