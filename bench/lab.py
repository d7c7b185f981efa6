"""A run at top speed through the lab, with switches in XDP and as bridges, and through its UPF, beside the engine alone
on one cable.

    sudo .venv/bin/python -m bench.lab

60-byte stamped frames (64 with FCS), sent as fast as they leave and counted by number, all in turn: the engine alone,
from one network namespace to another, and `pktswarm run` in a lab of each kind, through a switch, the device and a
switch. Through the UPF, which is in XDP: the smallest stamped packets of 1,000 users, in tunnels of one gNB, beside the
engine alone with the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from bench.engines import ours, rates
from bench.engines.rows import against
from bench.engines.wire import Wire
from pktswarm import lab

PKTSWARM = Path(sys.executable).with_name("pktswarm")
NODES = 3
WANTED = 0.5
"""Of what the engine does alone: one transmitter, and three together."""
USERS = {"name": "users", "sessions": ours.USERS, "ue_addresses": "10.45.0.1/16"}
Rate = Callable[[], float]


def through_switches(state: lab.LabState, folder: Path, seconds: float, one: bool) -> float:
    """Received packets/s of a run of one transmitter, or of all."""
    ends = {"from": "tx1", "to": "rx1"} if one else {}
    return run(state, folder, seconds, {"size_bytes": 64, **ends})


def through_the_upf(state: lab.LabState, folder: Path, seconds: float) -> float:
    """Received packets/s of a run of one gNB."""
    stream = {"sessions": "users", "direction": "up", "size_bytes": ours.tunnel().size_bytes}
    return run(state, folder, seconds, stream, upf={"groups": [USERS]})


def run(state: lab.LabState, folder: Path, seconds: float, fields: dict[str, Any], **more: Any) -> float:
    """A lost packet is reported on the terminal."""
    stream = {"name": "top", "engine": "xdp", "duration_s": seconds, **fields}
    scenario = folder / "scenario.yaml"
    scenario.write_text(json.dumps({"name": "lab", "streams": [stream], "receive": {"mode": "count"}, **more}))
    command = [PKTSWARM, "run", scenario, "--hosts", state.inventory, "--results", folder, "--no-report", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{state.plan.switch}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    rows = json.loads(done.stdout)["rows"]
    lost = sum(row["lost_packets"] for row in rows)
    if lost:
        print(f"{state.plan.switch}: {lost:,} packets lost", file=sys.stderr)
    return float(sum(row["received_packets"] for row in rows) / seconds)


def main() -> None:
    parser = report.parser("A run at top speed through the lab beside the engine alone.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of sending")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-lab-")))
        wire = stack.enter_context(Wire())
        labs: dict[str, lab.LabState] = {}
        for switch in lab.plan.SWITCHES:
            name = f"{switch}{os.getpid()}"
            labs[switch] = lab.up(name, NODES, NODES, folder, switch=switch)
            stack.callback(lab.down, name, folder)
        upf = lab.up(f"upf{os.getpid()}", 1, 1, folder, dut="upf")
        stack.callback(lab.down, upf.name, folder)
        contenders: dict[str, Rate] = {
            "alone": lambda: rates.of_ours([wire], ours.udp(), folder, arguments.seconds),
            "tunnels alone": lambda: rates.of_ours([wire], ours.tunnel(), folder, arguments.seconds),
            "upf": lambda: through_the_upf(upf, folder, arguments.seconds),
            "xdp, one": lambda: through_switches(labs["xdp"], folder, arguments.seconds, one=True),
            "xdp, all": lambda: through_switches(labs["xdp"], folder, arguments.seconds, one=False),
            "bridge, one": lambda: through_switches(labs["bridge"], folder, arguments.seconds, one=True),
            "bridge, all": lambda: through_switches(labs["bridge"], folder, arguments.seconds, one=False),
        }
        values: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(1, arguments.rounds + 1):
            for name, measure in contenders.items():
                values[name].append(measure())
                print(f"round {number} of {arguments.rounds}: {name} {values[name][-1]:,.0f}", file=sys.stderr)
    alone, tunnels, peer = values.pop("alone"), values.pop("tunnels alone"), "engine alone"
    names = {"one": "one transmitter", "all": f"{NODES} transmitters"}
    rows = [against(f"{ours.USERS:,} users through the UPF, packets/s", values.pop("upf"), tunnels, peer, WANTED)]
    for name, each in values.items():
        switch, who = name.split(", ")
        row = against(f"{names[who]}, switches by {switch}, packets/s", each, alone, peer, WANTED)
        rows.append(row if switch == "xdp" else replace(row, at_least=None))
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
