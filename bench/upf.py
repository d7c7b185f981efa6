"""How fast sessions are set up over N4: our SMF, one process on one core, to a peer on the other core, over loopback.
And how fast a gNB sends, how fast the data network's echo is (bench/echo.py), and how long a run takes to its first
user packet, which all need root.

    sudo .venv/bin/python bench/upf.py --rounds 5

The peer (bench/upf_peer.c, compiled here with `cc`) decodes what its answers need, keeps each session by its SEID and
answers at once; it keeps no rules. Its counts must be ours: a session that is lost, or set up twice, is an error.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench import echo, report
from bench.engines import ours, rates
from bench.engines.wire import Wire
from bench.start import one_start
from pktswarm import lab

SESSIONS = 65536
SMF_CORE, PEER_CORE = 0, 1
PEER, SMF = "127.88.5.2", "127.88.5.1"
TUNNELLED_BYTES = 14 + 20 + 8 + 8 + 20 + 8 + 64 + 4
"""With FCS: Ethernet, the tunnel, the user's IPv4 and UDP, and 64 bytes of payload."""
WINDOW_S = 1.5
MANY_SESSIONS = 10_000
FIRST_PACKET = {
    "name": "first-packet",
    "upf": {"groups": [{"name": "users", "sessions": MANY_SESSIONS, "ue_addresses": "10.0.0.1/8"}]},
    "streams": [
        {"name": "up", "sessions": "users", "direction": "up", "size_bytes": 128, "rate_pps": 1000, "duration_s": 1}
    ],
    "receive": {"mode": "count"},
}
SOURCE = Path(__file__).parent / "upf_peer.c"
GROUP = {
    "name": "all",
    "sessions": SESSIONS,
    "ue_addresses": "10.0.0.1/8",
    "core_instance": "internet",
    "qos": {"qfi": 9, "mbr_up_bps": 1e8, "mbr_down_bps": 1e8},
    "sdf_filters": ["permit out ip from any to assigned"],
}


def measure(program: Path, window: int, sessions: int, **group: Any) -> dict[str, Any]:
    """Sets up and deletes them all; what was measured. RuntimeError if the peer counted other than we did."""
    with subprocess.Popen(
        ["taskset", "-c", str(PEER_CORE), str(program), PEER, str(sessions)], stdout=subprocess.PIPE, text=True
    ) as peer:
        assert peer.stdout is not None
        try:
            if peer.stdout.readline() != "ready\n":
                raise RuntimeError("the peer did not start")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                told: dict[str, Any] = pool.apply(_smf, (window, {**GROUP, **group, "sessions": sessions}))
        finally:
            peer.terminate()
        counted = json.loads(peer.stdout.read())
    ours = {"established": told["establishment"]["accepted"], "deleted": told["deletion"]["accepted"]}
    wanted = {**ours, "standing": 0, "refused": 0}
    seen = {name: counted[name] for name in wanted}
    if seen != wanted:
        raise RuntimeError(f"the peer counted {seen}, we {ours}")
    return {**told, "lost": sessions - min(ours.values())}


def _smf(window: int, group: dict[str, Any]) -> dict[str, Any]:
    from pktswarm.master.scenario.upf import parse
    from pktswarm.master.upf.smf import Smf

    os.sched_setaffinity(0, {SMF_CORE})
    gnbs = {"one": "198.18.0.1", "two": "198.18.0.2"}
    section = {"n4": PEER, "bind": SMF, "window": window, "gnbs": gnbs, "groups": [group]}
    with Smf(Path("bench"), parse(Path("bench"), section)) as smf:
        smf.associate()
        before = time.process_time()
        establishment = smf.establish()
        processor_s = time.process_time() - before
        deletion = smf.delete()
        return {
            "establishment": establishment.to_json(),
            "deletion": deletion.to_json(),
            "processor_us": 1e6 * processor_s / len(smf.sessions.state),
            "datagrams": smf.exchange.counts,
        }


def main() -> None:
    parser = report.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", action="append", choices=ROWS, help="only this one; may be given several times")
    given = parser.parse_args()
    report.finish([row for name in given.row or ROWS for row in ROWS[name](given.rounds)], given.json)


def echoes(rounds: int) -> list[report.Row]:
    told = []
    for number in range(rounds):
        told.append(echo.measure())
        print(f"echo, round {number + 1}: {told[-1]['rate_pps']:.4g} packets/s sent back", file=sys.stderr)
    rates = [one["rate_pps"] for one in told]
    return [
        report.measured("60-byte UDP counted and echoed at 100 %, packets/s", rates, at_least=3e6),
        report.measured("  processor time for each, ns", [one["each_ns"] for one in told]),
        report.measured("  of those due, not taken by the far end's ring", [one["failed"] for one in told]),
    ]


def gtpu(rounds: int) -> list[report.Row]:
    """From one core, stamped, to a receiver on the other that counts each user and measures each frame."""
    leg = ours.stream({"headers": ours.TUNNEL_HEADERS}, TUNNELLED_BYTES)
    with tempfile.TemporaryDirectory() as folder, Wire() as apart, Wire() as together:
        told: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            told[True].append(rates.of_ours([apart], leg, Path(folder), WINDOW_S, receiving_core=PEER_CORE))
            told[False].append(rates.of_ours([together], leg, Path(folder), WINDOW_S))
            print(f"GTP-U, round {number + 1}: {told[True][-1]:.4g}, {told[False][-1]:.4g}", file=sys.stderr)
    work = f"GTP-U, {ours.USERS:,} users, payload of 64 bytes, packets/s"
    return [
        report.measured(work, told[True], at_least=4e6),
        report.measured("  sender and receiver on one processor", told[False]),
    ]


def first_packet(rounds: int) -> list[report.Row]:
    """A whole run on a lab with its own UPF."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = folder / "first.yaml"
        scenario.write_text(json.dumps(FIRST_PACKET))
        state = lab.up(f"f{os.getpid()}", 1, 1, folder, dut="upf")
        try:
            seen = [one_start(scenario, state.inventory, folder / "results") for _ in range(rounds)]
        finally:
            lab.down(state.name, folder)
    work = f"from the command to the first user packet, {MANY_SESSIONS:,} sessions, s"
    return [report.measured(work, [one["first_s"] for one in seen], at_most=10.0)]


def sessions(rounds: int) -> list[report.Row]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "upf_peer"
        subprocess.run(["cc", "-O2", "-o", str(program), str(SOURCE)], check=True)
        many, one, large = [], [], []
        for number in range(rounds):
            many.append(measure(program, 64, SESSIONS))
            one.append(measure(program, 1, SESSIONS // 8))
            large.append(measure(program, 1024, SESSIONS))
            print(f"round {number + 1}: {_line(many[-1])}", file=sys.stderr)
    repeated = [float(told["datagrams"].repeated) for told in many]
    return [
        report.measured("sessions established a second, window 64", _rates(many, "establishment"), at_least=8000),
        report.measured("  window 1024", _rates(large, "establishment")),
        report.measured("  window 1", _rates(one, "establishment")),
        report.measured("  processor time for each, us", [told["processor_us"] for told in many]),
        report.measured("  p99 of the response, ms", _p99(many)),
        report.measured("sessions deleted a second, window 64", _rates(many, "deletion")),
        report.measured(f"{SESSIONS:,} sessions: lost, most", [float(told["lost"]) for told in many], at_most=0),
        report.measured("  requests repeated", repeated),
    ]


def _rates(told: list[dict[str, Any]], name: str) -> list[float]:
    return [one[name]["per_s"] for one in told]


def _p99(told: list[dict[str, Any]]) -> list[float]:
    return [one["establishment"]["response"]["p99_ns"] / 1e6 for one in told]


def _line(told: dict[str, Any]) -> str:
    return f"{told['establishment']['per_s']:.0f} established, {told['deletion']['per_s']:.0f} deleted a second"


ROWS = {"sessions": sessions, "gtpu": gtpu, "echo": echoes, "first": first_packet}

if __name__ == "__main__":
    main()
