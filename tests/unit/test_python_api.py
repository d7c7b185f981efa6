"""The Python interface, without a cluster: names, scenarios, results, errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import pktswarm
from pktswarm.master.api import errors
from pktswarm.master.api.cluster import _options
from pktswarm.master.api.orders import (
    Command,
    Done,
    Failed,
    RateAnswer,
    RateOrder,
    SetRate,
    Switch,
    decode_worker_event,
)
from pktswarm.master.api.process import Process
from pktswarm.master.api.rates import RateChanges
from pktswarm.master.api.worker import Worker
from pktswarm.traffic.errors import BadInput, BadInputs, Busy, PktswarmError
from pktswarm.traffic.protocol.codec import encode, parse
from pktswarm.traffic.protocol.messages import Lines
from result_folders import Made, leg

ROOT = Path(__file__).parents[2]


def test_the_public_names_are_there() -> None:
    for name in pktswarm.__all__:
        assert getattr(pktswarm, name)
    assert pktswarm.Error is PktswarmError and issubclass(pktswarm.BadInput, pktswarm.Error)
    with pytest.raises(AttributeError, match="no attribute 'Clusters'"):
        _ = pktswarm.Clusters  # type: ignore[attr-defined]  # which a type checker says, too


def test_the_processes_on_nodes_load_none_of_it() -> None:
    code = "import pktswarm, sys; print(*{'pydantic', 'numpy', 'rich', 'typer', 'pktswarm.master'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "\n"


def test_a_command_in_a_lab_loads_nothing_that_makes_labs() -> None:
    code = "import pktswarm.lab, sys; print(*{'pyroute2', 'numpy', 'pktswarm.nodes'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "\n"


def test_a_scenario_is_checked_like_a_file(tmp_path: Path) -> None:
    stream = {"name": "s", "size_bytes": 128, "rate": "1000 pps", "duration_s": 1}
    made = pktswarm.Scenario(name="made", streams=[stream], traces=[{"name": "t", "file": "a.pcap"}])
    made.write(tmp_path / "made.yaml")
    again = pktswarm.Scenario.load(tmp_path / "made.yaml")
    assert (again.name, again.keys) == (
        "made",
        {**made.keys, "traces": [{"name": "t", "file": str(Path("a.pcap").resolve())}]},
    )
    changed = made.replace(streams=[{**stream, "rate": "2000 pps"}])
    assert changed.keys["streams"][0]["rate"] == "2000 pps" and made.keys["streams"][0]["rate"] == "1000 pps"
    with pytest.raises(pktswarm.BadInput) as raised:
        pktswarm.Scenario(streams=[{**stream, "size_byts": 3}])
    assert (raised.value.where, raised.value.key) == ("Scenario", "streams.0.size_byts")


@pytest.mark.parametrize(
    "error",
    [
        BadInput("hosts.yml", "no such host", key="transmit", value="tx9", allowed="tx1, tx2"),
        BadInput("a.yaml", "there is no such file"),
        BadInputs([BadInput("a", "wrong", key="b", value=3), BadInput("a", "wrong", key="c", value=[1, "x"])]),
        Busy("in use by somebody"),
        PktswarmError("tx1 was lost"),
    ],
)
def test_errors_arrive_as_they_were_raised(error: PktswarmError) -> None:
    event = errors.to_event(error)
    again = errors.to_error(errors_decoded(event))
    assert (type(again), str(again), again.exit_status) == (type(error), str(error), error.exit_status)
    if isinstance(error, BadInput):
        assert isinstance(again, BadInput)
        assert (again.where, again.key, again.value) == (error.where, error.key, error.value)


def errors_decoded(event: Failed) -> Failed:
    decoded = decode_worker_event(parse(encode(event)))
    assert isinstance(decoded, Failed)
    return decoded


def test_results_are_typed(tmp_path: Path) -> None:
    legs = [leg(0, "small"), leg(1, "small", "tx2", "rx2"), leg(2, "large")]
    folder = Made(legs, lost={1: 3}).write(tmp_path)
    result = pktswarm.Result.load(folder)
    small, large = result.streams["small"], result.streams["large"]
    assert [*result.streams] == ["small", "large"] and [len(small.flows), len(large.flows)] == [2, 1]
    assert (small.sent_packets, small.received_packets, small.lost_packets) == (600, 597, 3)
    assert small.loss_ratio == 3 / 600 and large.loss_ratio == 0
    assert result.total.lost_packets == 3 and len(result.flows) == 3
    flow = small.flows[1]
    assert (flow.source, flow.target, flow.engine, flow.lost_packets) == ("tx2", "rx2", "xdp", 3)
    assert not result.as_expected and result.complete and result.status == 1
    with pytest.raises(pktswarm.NotAsExpected, match="made: "):
        result.check()
    assert "<td>small</td><td>600</td><td>597</td><td>3</td>" in result._repr_html_()
    assert result.report.read_text().startswith("<!DOCTYPE html>")
    assert [line.get_label() for line in result.plot().axes[0].lines] == ["in", "out"]


def test_percentiles_of_several_flows_are_those_of_their_histograms(tmp_path: Path) -> None:
    legs = [leg(0, "small"), leg(1, "small", "tx2", "rx2")]
    folder = Made(legs, delays={0: [[1000, 300]], 1: [[1000, 290], [9000, 10]]}).write(tmp_path)
    result = pktswarm.Result.load(folder)
    merged = result.streams["small"].latency_ns
    assert (merged.p50, merged.p99) == (1000, 9000)


def test_the_mean_of_several_flows_is_weighted_by_their_packets(tmp_path: Path) -> None:
    legs = [leg(0, "small"), leg(1, "small", "tx2", "rx2")]
    folder = Made(legs, delays={0: [[1000, 300]], 1: [[1000, 100]]}).write(tmp_path)
    document = json.loads((folder / "run.json").read_text())
    for row, mean_ns in zip(document["rows"], (1000, 5000), strict=True):
        row["latency_mean_ns"] = mean_ns
    (folder / "run.json").write_text(json.dumps(document))
    result = pktswarm.Result.load(folder)
    assert [flow.latency_ns.mean for flow in result.flows] == [1000, 5000]
    assert result.streams["small"].latency_ns.mean == result.total.latency_ns.mean == 2000


def test_a_crashed_run_has_what_its_log_has(tmp_path: Path) -> None:
    result = pktswarm.Result.load(Made().write(tmp_path, over=False))
    assert result.crashed and not result.complete and "did not come to its end" in result.reason
    with pytest.raises(pktswarm.Error) as raised:
        result.check()
    assert raised.value.exit_status == 3
    with pytest.raises(pktswarm.BadInput, match="no results of a run"):
        pktswarm.Result.load(tmp_path)


def test_an_answer_that_comes_with_the_end_of_a_run_is_not_lost() -> None:
    """Both in one piece: the thread of the run takes the first, that of set_rate() the second."""
    process = Process()
    try:
        ours, theirs = socket.socketpair()
        process._lines.socket.close()
        process._lines = Lines(ours, decode_worker_event)
        late = RateAnswer(errors.to_event(PktswarmError("no run goes on")))
        theirs.sendall(b"".join(encode(event) + b"\n" for event in (Done(0, "folder"), late)))
        assert process._answer(lambda document: None) == Done(0, "folder")
        process._read_rate_answer()
        assert process._answers.get(timeout=1) == late.error
        theirs.close()
        with pytest.raises(pktswarm.Error, match="the worker process ended: no message"):
            process._answer(lambda document: None)
    finally:
        process.close()


def test_a_change_that_comes_with_the_order_for_its_run_is_begun_in_that_run() -> None:
    """Both in one piece: it would have been answered behind the run."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Worker(ours)
        asked: list[RateOrder] = [Switch("first", True), SetRate("second", 5.0)]
        worker._later += [asked[0], Command(["down"], "/")]
        theirs.sendall(encode(asked[1]) + b"\n")
        begun: list[RateOrder] = []
        worker._take_rates(cast(RateChanges, SimpleNamespace(begin=begun.append)))
        assert begun == asked and [*worker._later] == [Command(["down"], "/")]


def test_options_become_words() -> None:
    given = {"loss": [0, "2 %"], "max": "10kpps", "min": None, "full": True, "quick": False, "trials": 3}
    assert [*_options(given)] == ["--loss", "0", "--loss", "2 %", "--max", "10kpps", "--full", "--trials", "3"]
