"""The results folder of a run, written during the run. The log of events comes first; the tables are made from it."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pktswarm.master.files import new_folder, replace_text, utc, write_csv
from pktswarm.master.results import latency_histogram, replayed_flows, samples, trace_verify, users
from pktswarm.master.results.document import RunDocument, empty_document
from pktswarm.master.results.document_rows import NodeRow, ReplayedFlow
from pktswarm.master.results.node_rows import NODE_COLUMNS
from pktswarm.master.results.row import Row
from pktswarm.master.results.streams_csv import STREAM_COLUMNS, stream_values
from pktswarm.traffic.connections.counts import COLUMNS, ConnectionRow, values

STATUS = "status.json"


class Folder:
    """`results/<UTC time>-<name>/`; captures are readable by their owner only."""

    def __init__(self, results: Path, name: str) -> None:
        self.path = new_folder(results, name)
        for part in ("captures", "sent"):
            (self.path / part).mkdir(mode=0o700)
        self._log = (self.path / "log.jsonl").open("a", buffering=1)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._log, fcntl.LOCK_EX)  # held until this process ends: `pktswarm status` tests it
        self._samples = (self.path / "samples.csv").open("a", buffering=1, newline="")
        self._sample_writer = csv.writer(self._samples)
        self._sample_writer.writerow(samples.COLUMNS)

    def log(self, event: Mapping[str, object]) -> None:
        """Appends an event. Its time is its key "utc"; without one, now."""
        self._log.write(json.dumps({"utc": utc(time.time_ns()), **event}, separators=(",", ":")) + "\n")

    def write_status(self, document: Mapping[str, object]) -> None:
        """Writes the live document (master.live.document) for `pktswarm status`."""
        replace_text(self.path / STATUS, json.dumps(document) + "\n")

    def sample(self, rows: Iterable[Iterable[object]]) -> None:
        self._sample_writer.writerows(rows)

    def capture_piece(self, node: str, name: str, data: bytes) -> None:
        with self.capture(node, name).open("ab") as file:
            file.write(data)

    def capture(self, node: str, name: str) -> Path:
        """The path of a capture. The node chooses `name`: characters that could lead elsewhere are replaced."""
        return self.path / "captures" / re.sub(r"[^A-Za-z0-9._-]", "_", f"{node}-{name}").lstrip(".")

    def capture_bytes(self, node: str, name: str) -> int:
        path = self.capture(node, name)
        return path.stat().st_size if path.exists() else 0

    def sent(self, name: str, data: bytes | bytearray) -> None:
        (self.path / "sent" / name).write_bytes(data)

    def write(self, outcome: Outcome) -> None:
        """Writes the tables and `run.json`; each file is complete or absent."""
        replace_text(self.path / "run.json", json.dumps(outcome.document, indent=2) + "\n")
        write_csv(self.path / "streams.csv", STREAM_COLUMNS, [stream_values(row) for row in outcome.rows])
        if any(row.received.delays for row in outcome.rows):
            histogram = latency_histogram.rows(outcome.rows)
            write_csv(self.path / latency_histogram.FILE, latency_histogram.COLUMNS, histogram)
        if outcome.connections:
            write_csv(self.path / "connections.csv", COLUMNS, [values(row) for row in outcome.connections])
        write_csv(self.path / "nodes.csv", NODE_COLUMNS, outcome.nodes)
        counted = [row.users for row in outcome.rows if row.users is not None]
        if counted:
            write_csv(self.path / "users.csv", users.COLUMNS, (row for leg in counted for row in leg.rows()))
        if outcome.flows:
            write_csv(self.path / "flows.csv", replayed_flows.COLUMNS, outcome.flows)
        if outcome.flow_counts:
            write_csv(self.path / "flow_counts.csv", trace_verify.FLOW_COLUMNS, outcome.flow_counts)

    def discard(self) -> None:
        self.close()
        shutil.rmtree(self.path)

    def close(self) -> None:
        (self.path / STATUS).unlink(missing_ok=True)
        self._log.close()
        self._samples.close()


@dataclass
class Outcome:
    """The result of a run. `document` becomes run.json."""

    status: int
    reason: str
    rows: list[Row] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    connections: list[ConnectionRow] = field(default_factory=list)
    document: RunDocument = field(default_factory=empty_document)
    flows: list[ReplayedFlow] = field(default_factory=list)
    """Flows of interactive traces."""
    flow_counts: list[trace_verify.FlowCountRow] = field(default_factory=list)
    """Flows of the other traces, where they were captured."""
