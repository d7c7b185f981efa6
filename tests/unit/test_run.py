"""How the command line follows a run, with a socket and no MPI."""

import errno
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pktswarm.master.results.folder import Folder
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.run.launch import Launch
from pktswarm.master.run.run import Run
from pktswarm.master.run.signals import handled
from pktswarm.traffic.protocol.messages import Lines
from pktswarm.traffic.protocol.rank0_events import Note, decode_rank0_event
from pktswarm.traffic.protocol.rank0_orders import Rank0Order, Stop, decode_rank0_order
from pktswarm.traffic.protocol.rank_events import Alive


def test_what_rank_0_said_before_it_ended_is_read_though_mpiexec_is_gone(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    rank0 = Lines(theirs, decode_rank0_order)
    launch = SimpleNamespace(alive=True)
    launch.running = lambda: launch.alive
    run = without_a_start(tmp_path)

    def ends_while_the_terminal_is_drawn(*_: Any) -> None:
        if launch.alive:
            for text in ("one", "two"):
                rank0.send(Note(text))
            theirs.close()
            launch.alive = False

    run._began, run.watch = time.monotonic(), ends_while_the_terminal_is_drawn
    control = Lines(ours, decode_rank0_event)
    run._follow(control, cast(Launch, launch))
    assert run.ledger.notes == ["one", "two"]
    assert control.closed and run._without_mpiexec


def without_a_start(tmp_path: Path) -> Run:
    text = "name: t\nstreams: [{name: s, rate_pps: 100, count_packets: 9}]\n"
    (tmp_path / "s.yaml").write_text(text)
    return Run(tmp_path / "s.yaml", Path("hosts/cloud.example.yml"), tmp_path)


def told(control: Lines[Rank0Order]) -> list[Rank0Order]:
    control.receive(0.1)
    return [message for message, _ in control.messages()]


def test_a_terminal_that_is_gone_does_not_end_a_run_and_a_full_disk_ends_it_in_order(tmp_path: Path) -> None:
    def gone(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run, (ours, theirs) = without_a_start(tmp_path), socket.socketpair()
    control, rank0 = Lines(ours, decode_rank0_event), Lines(theirs, decode_rank0_order)
    run.watch = gone
    run._take(Note("one"), b"", control)
    run._end_without_disk(control)
    assert told(rank0) == [] and run.ledger.notes == ["one"]
    run.record.folder = cast(Folder, SimpleNamespace(log=full))
    run._take(Note("two"), b"", control)
    for _ in range(2):
        run._end_without_disk(control)
    assert [type(order) for order in told(rank0)] == [Stop] and run.ledger.notes == ["one", "two"]
    assert run.record.disk_problem == f"{tmp_path} on the master: No space left on device"


def test_what_the_disk_did_not_take_as_a_run_ended_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing left to stop, and a capture may lack its end."""
    run = without_a_start(tmp_path)
    run.record.disk_problem = "results on the master: No space left on device"
    folder = SimpleNamespace(path=tmp_path, log=lambda _: None, write=lambda _: None, close=lambda: None)
    run.record.folder = cast(Folder, folder)
    run.ledger.start_ns, run.ledger.start_utc_ns, run.ledger.over = 1, 1, True
    finished = run._result(cast(Launch, SimpleNamespace(messages=lambda: "")))
    assert finished.outcome.status == 3
    assert any(
        "No space left on device: the results there are incomplete" in doubt
        for doubt in finished.outcome.document["doubts"]
    )


def test_a_capture_that_did_not_come_whole_is_a_doubt(tmp_path: Path) -> None:
    run = without_a_start(tmp_path)
    folder = Folder(tmp_path, "t")
    told = {"rx1": {"a.pcap": 3, "b.pcap": 2000}, "rx2": {"a.pcap": 0}, "tx1": {}}
    named = {host: SimpleNamespace(host=SimpleNamespace(name=host)) for host in told}
    nodes = [SimpleNamespace(rank=named[host], captures=captures) for host, captures in told.items()]
    run.ledger = cast(Ledger, SimpleNamespace(nodes=dict(enumerate(nodes))))
    folder.capture_piece("rx1", "a.pcap", b"one")
    assert run.record.captures_missing(folder, run.ledger) == ["rx1: 0 of 2,000 bytes of b.pcap received"]
    folder.capture_piece("rx1", "b.pcap", b"two")
    assert run.record.captures_missing(folder, run.ledger) == ["rx1: 3 of 2,000 bytes of b.pcap received"]
    folder.close()


def test_a_run_that_was_told_to_stop_is_waited_for_while_rank_0_says_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pktswarm.master.run.run.STOP_TIMEOUT_S", 0.5)
    run, (ours, theirs) = without_a_start(tmp_path), socket.socketpair()
    control, rank0 = Lines(ours, decode_rank0_event), Lines(theirs, decode_rank0_order)
    run.ledger.phases = [("gather", 0)]
    run._stop(control)
    begun, said = time.monotonic(), 0

    def speaking(*_: Any) -> None:
        nonlocal said
        if time.monotonic() < begun + 1.0:
            rank0.send(Alive())
            said += 1

    run.watch = speaking
    run._follow(control, cast(Launch, SimpleNamespace(running=lambda: True)))
    assert said > 2 and time.monotonic() > begun + 1.4


def test_a_hangup_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handled(lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with handled(lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
