"""What the device's host dropped: its counters parsed, compared, and said beside the loss."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster import dut, inventory, ssh
from pktswarm.master.dut_host import reading, report
from pktswarm.master.dut_host.counters import FILES, REASONS, Drops, Interface, Reading, between, parse, split_lines
from pktswarm.master.dut_host.reading import OverSsh, source_of
from pktswarm.master.dut_host.watch import DutHost, HostDrops
from pktswarm.master.results.count_verdicts import with_host_drops
from pktswarm.master.results.document import Verdict
from pktswarm.traffic.errors import BadInput, PktswarmError

SAMPLES = Path(__file__).parent / "samples"
"""The host of open5gs' UPF, before and after a run that lost 44,810 of its packets, by `grep -H ""` of FILES."""


def captured(when: str) -> Reading:
    return parse(split_lines((SAMPLES / f"dut-host-{when}.txt").read_text()))


def test_a_reading_has_the_kernel_s_counters() -> None:
    after = captured("after")
    assert after.protocols["Udp.RcvbufErrors"] == 44244
    assert after.protocols["Udp6RcvbufErrors"] == 0
    assert after.protocols["IpExt.InNoRoutes"] == 0
    assert after.interfaces["n3"] == Interface(12, tx_dropped=0, rx_errors=0, tx_errors=0, rx_missed=0)
    assert after.interfaces["ogstun"] == Interface(0, 566, 0, 0, 0)
    assert after.sockets == {118132: (2152, 44244), 118131: (8805, 0)}
    assert after.softnet_dropped == 0
    assert all(set(names) <= set(after.protocols) for names in REASONS.values())


def test_drops_are_what_the_counters_grew_by() -> None:
    drops = between(captured("before"), captured("after"), left_out=["n4"])
    assert drops.parts == {"receive buffer": 44244, "ogstun, to be sent": 566}
    assert drops.total == 44810
    assert set(drops.interfaces) == {"n3", "n6", "ogstun"}
    assert drops.not_taken == {"n3": 12, "n6": 12}  # announcements of nodes: nothing that a run counts
    assert drops.ports == {2152: 44244}
    assert drops.uncounted == []
    line = report.describe(drops, 44810, "UPF")
    dropped = "receive buffer of UDP port 2152 44,244; ogstun, to be sent 566"
    assert line == f"44,810 lost, of which the UPF's host dropped 44,810 ({dropped})"


def test_only_the_interfaces_asked_for_count() -> None:
    drops = between(captured("before"), captured("after"), interfaces=["n3", "n9"])
    assert drops.parts == {"receive buffer": 44244}
    assert drops.interfaces == {"n3": Interface(12, 0, 0, 0, 0), "n9": None}
    assert drops.uncounted == ["n9"]
    assert report.describe(drops, 44810, "UPF").endswith("; not counted: n9")


def test_what_is_missing_or_went_back_is_not_counted() -> None:
    before, after = captured("before"), captured("after")
    back = between(after, before)
    assert back.reasons["receive buffer"] is None and back.interfaces["ogstun"] is None
    assert back.reasons["UDP memory"] == 0
    without = between(Reading({}, {}, {}, None), Reading({}, {}, {}, None))
    assert without.total is None and without.softnet_dropped is None
    assert report.describe(without, 5, "device") == "drops of the device's host not counted"
    ipv4 = {name: value for name, value in after.protocols.items() if "6" not in name}
    assert between(before, Reading(ipv4, {}, {}, 0)).reasons["receive buffer"] == 44244


def test_a_full_ring_is_told_from_frames_that_the_host_did_not_take() -> None:
    """The kernel's table has both in one column; a file of its own has the one."""
    dev = "a\nb\n  n3: 0 0 0 {} 0 0 0 0 0 0 0 0 0 0 0 0\n"
    missed = "/sys/class/net/n3/statistics/rx_missed_errors"
    before, after = (parse({"dev": dev.format(both), missed: f"{ring}\n"}) for both, ring in ((10, 4), (40, 31)))
    drops = between(before, after)
    assert drops.parts == {"receive ring of n3": 27} and drops.not_taken == {"n3": 3}
    without = between(parse({"dev": dev.format(10)}), parse({"dev": dev.format(40)}))
    assert without.parts == {} and without.not_taken == {"n3": 30}


def test_a_socket_of_another_program_with_the_same_inode_counts_from_0() -> None:
    before, after = Reading({}, {}, {7: (53, 90)}, 0), Reading({}, {}, {7: (2152, 4), 8: (2152, 2)}, 0)
    assert between(before, after).ports == {2152: 6}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("snmp", "Udp: InDatagrams NoPorts\nUdp: 1\n"),
        ("snmp", "Udp: InDatagrams\nTcp: 1\n"),
        ("dev", "a\nb\neth0: 1 2 3\n"),
        ("snmp6", "Ip6InReceives\n"),
        ("softnet_stat", "zz zz\n"),
    ],
)
def test_another_form_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        parse({name: text})
    with pytest.raises(PktswarmError, match="unknown format of its counters"):
        reading._parsed({name: text})


def drops(buffer: int | None = 0, softnet: int = 0, /, **interfaces: Interface) -> Drops:
    return Drops({"receive buffer": buffer}, dict(interfaces), {}, softnet)


@pytest.mark.parametrize(
    ("found", "lost", "line"),
    [
        (drops(30299), 30364, "30,364 lost, of which the UPF's host dropped 30,299 (receive buffer)"),
        (
            drops(12),
            9,
            "9 lost; the UPF's host dropped 12 (receive buffer), more than the packets counted as lost",
        ),
        (drops(12), None, "the UPF's host dropped 12 (receive buffer); loss not measured"),
        (drops(), 9, "9 lost; the UPF's host counted no drop (drops of its queueing disciplines are not read)"),
        (drops(), 0, ""),
        (drops(), None, ""),
        (
            drops(0, 3),
            9,
            "9 lost; the UPF's host counted no drop (drops of its queueing disciplines are not read); the backlogs of "
            "its machine dropped 3, in all network namespaces",
        ),
        (
            drops(1, n3=Interface(5, 4, 8, 16, 2)),
            9,
            "9 lost, of which the UPF's host dropped 7 (n3, to be sent 4; receive ring of n3 2; receive buffer 1); "
            "frames of any kind dropped on reception: n3 5; its interfaces counted 24 errors",
        ),
        (drops(9, n3=Interface(5, 0, 0, 0, 0)), 9, "9 lost, of which the UPF's host dropped 9 (receive buffer)"),
    ],
)
def test_the_line_claims_what_was_counted(found: Drops, lost: int | None, line: str) -> None:
    said = report.describe(found, lost, "UPF")
    assert said == line


def test_many_reasons_are_summed_up() -> None:
    found = drops(1, **{f"e{n}": Interface(0, 10 * n, 0, 0) for n in range(1, 7)})
    assert report.parts(found).endswith("e3, to be sent 30; others 31")


def test_a_failed_verdict_on_loss_has_the_line_and_others_have_not() -> None:
    verdicts: list[Verdict] = [
        {"text": what, "what": what, "holds": holds} for what in ("up: lost", "up: sent") for holds in (True, False)
    ]
    noted = with_host_drops(verdicts, report.document(HostDrops("UPF", "dut", drops(3)), 5))
    assert ["note" in one for one in noted] == [False, True, False, False]
    assert noted[1]["note"] == "5 lost, of which the UPF's host dropped 3 (receive buffer)"
    assert with_host_drops(verdicts, None) == verdicts


# --- reading ----------------------------------------------------------------------------------------------------------


class Fake:
    host = "dut"
    interfaces: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __init__(self, *readings: Reading | Exception) -> None:
        self.readings = list(readings)

    def begin(self) -> reading.Finish:
        one = self.readings.pop(0)

        def finish(_: float) -> Reading:
            if isinstance(one, Exception):
                raise one
            return one

        return finish


def test_two_readings_make_the_drops() -> None:
    host = DutHost(Fake(captured("before"), captured("after")), "UPF")
    host.before()
    host.after()
    host.after()
    found = host.finish()
    assert found is not None and found.drops is not None and found.drops.total == 44810
    assert report.notes(found) == []


def test_a_reading_that_fails_is_a_note_and_no_figure() -> None:
    first = DutHost(Fake(PktswarmError("refuses the key")), "UPF")
    first.before()
    first.after()
    second = DutHost(Fake(captured("before"), PktswarmError("no response within 15 s")), "device")
    second.before()
    for host, device, why in (
        (first, "UPF", "before packets were sent: refuses the key"),
        (second, "device", "after packets were sent: no response within 15 s"),
    ):
        found = host.finish()
        assert found == HostDrops(device, "dut", None, why)
        assert report.notes(found) == [f"the {device}'s host dut: drops not counted, {why}"]
        told = report.document(found, 7)
        assert told["dropped_packets"] is None and told["words"] == ""


def test_nothing_is_said_where_nothing_was_read_or_sent() -> None:
    unread, unsent = DutHost(None, "UPF"), DutHost(Fake(), "UPF")
    unread.before()
    assert unread.finish() is None and unsent.finish() is None
    assert report.notes(None) == []


# --- over SSH ---------------------------------------------------------------------------------------------------------


def load(tmp_path: Path, dut: str) -> inventory.Inventory:
    hosts = "transmit: {hosts: {a: {traffic_interface: e1}}}, receive: {hosts: {b: {traffic_interface: e1}}}"
    path = tmp_path / "hosts.yml"
    children = f"{{master: {{hosts: {{m: }}}}, {hosts}}}"
    path.write_text(f"all: {{vars: {{pktswarm_login: nodes, {dut}}}, children: {children}}}")
    return inventory.load(path)


def test_an_inventory_without_the_entry_allows_no_reading(tmp_path: Path) -> None:
    assert source_of(load(tmp_path, "")) is None


def test_an_entry_without_a_host_describes_the_device_and_allows_no_reading(tmp_path: Path) -> None:
    read = load(tmp_path, "pktswarm_dut: {name: edge, version: '1.10', settings: {queue: 64k, shaper_bps: 40000000}}")
    assert source_of(read) is None and read.dut is not None
    assert dut.entry(read.dut, {"firmware": "2.1"}) == {
        "name": "edge",
        "version": "1.10",
        "settings": {"queue": "64k", "shaper_bps": 40_000_000},
        "labels": {"firmware": "2.1"},
    }
    text = "name edge, version 1.10, queue 64k, shaper_bps 40,000,000, firmware 2.1"
    assert dut.line(dut.entry(read.dut, {"firmware": "2.1"})) == text
    assert dut.entry(None) is None and dut.entry(dut.Dut(ssh="u")) is None


@pytest.mark.parametrize("texts", [["firmware"], ["=2"], ["a="], ["a=1", "a=2"], ["a=1\n2"], [f"a={'x' * 201}"]])
def test_a_wrong_label_is_named(texts: list[str]) -> None:
    with pytest.raises(BadInput, match=r"search: --label = (?s:.*)(KEY=VALUE|given twice)"):
        dut.labels("search", texts)


def test_labels_are_read() -> None:
    assert dut.labels("run", ["firmware=2.1", "port speed = 1 = x"]) == {"firmware": "2.1", "port speed": "1 = x"}


def test_the_entry_says_whom_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(load(tmp_path, "pktswarm_dut: {ssh: upf-1, user: ops, interfaces: [n3, n6]}"))
    assert isinstance(source, OverSsh) and (source.host, source.interfaces) == ("upf-1", ("n3", "n6"))
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: asked.append(command))
    source.begin()
    assert asked[0][:2] == ["ssh", "-oUser=ops"] and asked[0][-3:-1] == ["--", "upf-1"]
    words = shlex.split(asked[0][-1])
    files = [*(f"/proc/net/{name}" for name in FILES), "/sys/class/net/*/statistics/rx_missed_errors"]
    assert words == ["sh", "-c", "grep -H '' " + " ".join(files)]
    plain = source_of(load(tmp_path, "pktswarm_dut: {ssh: upf-1}"))
    assert plain is not None
    plain.begin()
    assert not [word for word in asked[1] if "User" in word]


@pytest.mark.parametrize(
    ("dut", "words"),
    [
        ("pktswarm_dut: upf-1", "pktswarm_dut = 'upf-1': must be a mapping"),
        ("pktswarm_dut: {}", "pktswarm_dut: is empty"),
        ("pktswarm_dut: {user: ops}", "pktswarm_dut.ssh: is missing"),
        ("pktswarm_dut: {name: [x]}", "pktswarm_dut.name"),
        ("pktswarm_dut: {name: x, version: 1.10}", "pktswarm_dut.version = 1.1: cannot be used .*quote numbers"),
        ("pktswarm_dut: {settings: [x]}", "pktswarm_dut.settings"),
        ("pktswarm_dut: {settings: {queue: {a: 1}}}", "pktswarm_dut.settings.queue"),
        ("pktswarm_dut: {ssh: -oProxyCommand=x}", "pktswarm_dut.ssh = '-oProxyCommand=x'"),
        ("pktswarm_dut: {ssh: u, user: -l}", "pktswarm_dut.user = '-l'"),
        ("pktswarm_dut: {ssh: u, interfaces: n3}", "pktswarm_dut.interfaces = 'n3'"),
        (
            "pktswarm_dut: {ssh: u, command: id}",
            r"pktswarm_dut.command: unknown key \(allowed: name, version, set",
        ),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, dut: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(tmp_path, dut)


def over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> OverSsh:
    """With a program of ours for ssh."""
    source = source_of(load(tmp_path, "pktswarm_dut: {ssh: upf-1}"))
    assert isinstance(source, OverSsh)
    monkeypatch.setattr(ssh, "command", lambda *_: [sys.executable, "-c", program])
    return source


def test_what_ssh_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status of grep is 2 where a file is missing."""
    sample = SAMPLES.resolve() / "dut-host-after.txt"
    program = f"import sys; print(open({str(sample)!r}).read(), end=''); sys.exit(2)"
    assert over_ssh(tmp_path, monkeypatch, program).begin()(20) == captured("after")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; print('u: Permission denied (publickey).', file=sys.stderr); sys.exit(255)", "refuses the key"),
        ("import sys; print('Host key verification failed.', file=sys.stderr); sys.exit(255)", "known_hosts"),
        ("import sys; print('sh: grep: not found', file=sys.stderr); sys.exit(127)", "sh: grep: not found"),
        ("", "no output"),
    ],
)
def test_what_ssh_says_is_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    finish = over_ssh(tmp_path, monkeypatch, program).begin()
    with pytest.raises(PktswarmError, match=words):
        finish(20)


def test_a_host_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = over_ssh(tmp_path, monkeypatch, "import time; time.sleep(60)").begin()
    before = time.monotonic()
    with pytest.raises(PktswarmError, match="no response within 0 s"):
        finish(0.2)
    assert time.monotonic() - before < 20


def test_a_lab_that_is_gone_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    vars_: dict[str, Any] = {"keeper_pid": 0}
    source = source_of(load(tmp_path, f"pktswarm_lab: {vars_}"))
    assert source is not None
    with pytest.raises(PktswarmError):
        source.begin()
