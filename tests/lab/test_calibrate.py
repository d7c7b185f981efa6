"""Calibration of a real lab, small: what it finds is confirmed by runs that are there; and a run planned by a file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from pktswarm.master.plan import capacity
from running import cluster_of, held_up

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SIZE_BYTES = 512


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"calib{os.getpid()}"
        self.hosts = lab.up(self.name, 2, 1, folder).inventory

    def pktswarm(self, *words: object) -> tuple[int, dict[str, Any], str]:
        command = [PKTSWARM, *words, "--hosts", self.hosts, "--results", self.folder / "results", "--json"]
        done = forked.run(command, timeout=280)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr


cluster = cluster_of(Cluster, stands=False)


def runs(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((one / "run.json").read_text()) for one in sorted((folder / "runs").iterdir())]


def test_a_calibration_finds_what_nodes_hold_and_keeps_it(cluster: Cluster) -> None:
    options = ["--engines", "xdp", "--sizes", SIZE_BYTES, "--node", "tx1", "--node", "rx1"]
    for _ in range(3):  # again where a busy machine held the sender up too often; it then says so
        status, told, err = cluster.pktswarm("calibrate", *options, "--quick", "--seconds", 0.3, "--again")
        if status != 3 or not held_up(err):
            break
    sent, received = told["figures"]
    known = capacity.beside(cluster.hosts)
    assert known is not None and [one.model_dump() for one in known.figures] == [sent, received], err
    assert told["wiring"] == known.wiring == "through the lab's switches, with no device"
    assert (sent["role"], received["role"], received["senders"]) == ("transmit", "receive", ["tx1"])
    assert {(one["kernel"], one["driver"]) for one in (sent, received)} == {(os.uname().release, "veth")}
    done = runs(Path(told["results"]))
    assert len(done) == 1 + sent["trials"] + received["trials"], "the first one asks the nodes"
    tops = [run["rows"][0] for run in done[1:] if run["legs"][0]["rate_pps"] is None]
    assert len(tops) == 1 and sent["top_pps"] <= tops[0]["sent_pps"] * 1.001
    of_sent, of_received = done[2 : 1 + sent["trials"]], done[1 + sent["trials"] :]
    expected = 0
    for figure, those in ((sent, of_sent), (received, of_received)):
        at_it = [run["totals"][-1] for run in those if asked_pps(run) == pytest.approx(figure["rate_pps"])]
        above = [run["totals"][-1] for run in those if asked_pps(run) == pytest.approx(figure["above_pps"])]
        if figure["state"] == "not confirmed":
            expected = 1
            continue
        assert len(at_it) >= 2 and bool(above) == (figure["state"] == "confirmed")
        whole = [total for total in at_it if total["sent_packets"] >= 0.999 * total["intended_packets"]]
        assert len(whole) >= 2
        if figure is received:
            assert sum(total["lost_packets"] == 0 for total in whole) >= 2
            assert not above or any(total["lost_packets"] > 0 for total in above)
    assert status == expected, err


def asked_pps(run: dict[str, Any]) -> float | None:
    rates = [leg["rate_pps"] for leg in run["legs"]]
    return None if None in rates else sum(rates)


def test_a_run_is_split_by_what_is_known_and_its_counts_are_whole(cluster: Cluster) -> None:
    kernel = os.uname().release
    usual = {"role": "transmit", "engine": "xdp", "size_bytes": 64, "state": "confirmed", "driver": "veth"}
    made = [
        capacity.Figure(node="tx1", rate_pps=500, kernel=kernel, **usual),
        capacity.Figure(node="tx2", rate_pps=50_000, kernel=kernel, **usual),
        capacity.Figure(
            node="rx1",
            rate_pps=2000,
            kernel="0.0.1",
            **usual | {"role": "receive", "mode": "count"},  # long ago
        ),
    ]
    capacity.Capacity(capacity.path_of(cluster.hosts), tuple(made)).write()
    scenario = cluster.folder / "split.yaml"
    stream = "{name: a, engine: xdp, rate_pps: 3000, duration_s: 1}"
    scenario.write_text(f"name: split\nstreams: [{stream}]\nreceive: {{mode: count}}\nexpect: {{sent: intended}}\n")
    status, told, err = cluster.pktswarm("run", scenario, "--no-report")
    assert status == 0, err
    assert {row["from"]: row["sent_packets"] for row in told["rows"]} == {"tx1": 500, "tx2": 2500}
    assert told["totals"][-1]["sent_packets"] == told["totals"][-1]["intended_packets"] == 3000
    assert "warning: rx1 receives 3,000 packets/s, 150% of the 2,000" in err, "before it starts nobody knows its kernel"
    stale = f"rx1: what it was seen to do is not used any more, it has changed since (kernel 0.0.1 then, {kernel} now)"
    assert stale in told["notes"] and told["capacity"]["not_used"] == [stale]
    assert {one["node"]: round(one["share"], 6) for one in told["capacity"]["nodes"]} == {"tx1": 1.0, "tx2": 0.05}
