"""A cluster with the lab's own UPF, and what a run of it told."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import forked
from forked import PKTSWARM
from pktswarm import lab

USERS = {"name": "users", "sessions": 100, "ue_addresses": "10.45.0.1/16", "qos": {"qfi": 9}, "usage": {}}
COMING = {"name": "coming", "sessions": 60, "ue_addresses": "10.46.0.1/16"}
CHURN = {"group": "coming", "sessions_per_s": 50, "lifetime_s": 0.2}
_COUNT = itertools.count()


class UpfCluster:
    """Two gNBs and a server, if nothing else is said. Several files share one (conftest.py): who asks the UPF for
    faults, or changes a node, sets it right again."""

    def __init__(self, folder: Path, transmit: int = 2, receive: int = 1, **more: Any) -> None:
        self.name, self.folder = f"upr{os.getpid()}-{next(_COUNT)}", folder
        state = lab.up(self.name, transmit, receive, folder, dut="upf", **more)
        assert state.plan.upf is not None
        self.hosts, self.upf, self.pids = state.inventory, state.plan.upf, state.keeper.pids
        self.nodes = {node.name: node for node in state.plan.nodes}

    def tell(self, **order: Any) -> Any:
        return lab.order_upf(self.name, order, self.folder)

    def start(
        self,
        seconds: float,
        users: dict[str, Any] = USERS,
        rate_pps: float = 1000,
        mode: str = "count",
        both: bool = False,
        expect: dict[str, Any] | None = None,
        **section: Any,
    ) -> subprocess.Popen[str]:
        """Users both ways, with churn beside; `both`: of both IP versions."""
        stream = {"sessions": "users", "size_bytes": 200, "rate_pps": rate_pps, "duration_s": seconds}
        streams = [{"name": way, "direction": way, **stream} for way in ("up", "down")]
        if both:
            streams += [{**one, "name": f"{one['name']}6", "ip": "ipv6"} for one in streams]
        upf = {"groups": [users, COMING], "churn": CHURN, **section}
        more = {"expect": expect} if expect else {}
        return self.launch({"upf": upf, "streams": streams, "receive": {"mode": mode}, **more})

    def run(self, seconds: float, **changes: Any) -> tuple[int, dict[str, Any]]:
        return ended(self.start(seconds, **changes))

    def launch(self, scenario: dict[str, Any]) -> subprocess.Popen[str]:
        """A run of it; where nothing else is said packets are counted, and none may be lost."""
        common = {"name": "t", "receive": {"mode": "count"}, "expect": {"loss": 0, "sent": "intended"}}
        config = self.folder / "run.yaml"
        config.write_text(json.dumps({**common, **scenario}))
        command = [PKTSWARM, "run", config, "--json", "--hosts", self.hosts]
        command += ["--results", self.folder / "results", "--no-report"]
        return forked.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def totals(self) -> dict[str, int]:
        return dict(self.tell(status={})["totals"])

    def forwarded(self) -> list[int]:
        totals = self.totals()
        return [totals["forwarded_uplink"], totals["forwarded_downlink"]]


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    with process:
        output, words = process.communicate(timeout=120)
    assert output, words
    return process.returncode, json.loads(output)


def table(told: dict[str, Any], name: str) -> list[dict[str, str]]:
    with (Path(told["results"]) / name).open() as file:
        return list(csv.DictReader(file))


def rows_of(told: dict[str, Any], stream: str) -> list[dict[str, Any]]:
    return [row for row in told["rows"] if row["stream"] == stream]
