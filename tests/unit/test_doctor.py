"""What the doctor says of what hosts told: each thing that is wrong, its mending, the exit status."""

import copy
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory, ssh
from pktswarm.master.cluster.host_names import compact
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.doctor import judge, show
from pktswarm.master.doctor.ask import Answer, Round
from pktswarm.master.doctor.report import HostReport
from pktswarm.nodes import health, memory, tune

VERSIONS = {"pktswarm": "0.1.0", "python": "3.11.7", "word_bits": "64", "mpi4py": "4.1.2", "mpi": "MPICH Version: 5"}
PTP = {
    "tai_offset_s": 37,
    "problem": "",
    "state": "SLAVE",
    "grandmaster": "020000.fffe.00000a",
    "offset_ns": -80,
    "path_delay_ns": 5200,
}
# As nodes.doctor printed it in a lab, with a board's temperatures and governors put in.
WELL: dict[str, Any] = {
    "versions": VERSIONS,
    "proxy_missing": False,
    "tools_missing": [],
    "health": {
        "governors": ["performance"],
        "zones": [{"name": "cpu", "celsius": 48.3, "passive_c": 70.0, "critical_c": 90.0}],
        "throttled": 0,
        "clock_synchronised": True,
        "free_bytes": 2**40,
        "spools": "/var/tmp",
    },
    "guard_trouble": "",
    "probed": {"unfit": {}, "on_request": []},
    "leftovers": {"holder": {}, "folders": [], "bytes": 0, "processes": [], "xdp_program": 0, "changed": []},
    "mended": [],
    "memory": {"rank_bytes": 30 * 2**20, "guard_bytes": 20 * 2**20, "available_bytes": 2**30},
    "ptp": PTP,
    "interface": {
        "name": "eth1",
        "exists": True,
        "mac": "02:00:00:00:00:0b",
        "mtu": 1500,
        "driver": "igc",
        "speed_mbps": 1000,
        "carrier": True,
        "native_xdp": True,
        "carries": [],
        "shared_wire": "",
        "transmit_queues": 4,
        "receive_queues": 4,
        "offloads": {"gro": True},
    },
    "on_request": [],
    "senders": {"xdp": "", "tc": "", "pktgen": "", "trafgen": ""},
    "receivers": {"xdp": "", "netsniff-ng": ""},
}
MASTER = Answer(Host("m0", "10.0.0.1", ()), document=cast("HostReport", {key: WELL[key] for key in list(WELL)[:4]}))


def answer(changes: dict[str, Any] | None = None, name: str = "tx1", **more: Any) -> Answer:
    """`changes`: dotted place → value."""
    document = copy.deepcopy(WELL)
    for place, value in (changes or {}).items():
        *path, last = place.split(".")
        at = document
        for step in path:
            at = at[step]
        at[last] = value
    host = Host(name, "10.0.0.11", ("transmit",), traffic_interface="eth1", mac="02:00:00:00:00:0b")
    return Answer(host, document=cast("HostReport", document), **{"offset_ns": 1000, "bound_ns": 50_000, **more})


def found(*answers: Answer) -> list[judge.Finding]:
    return judge.findings([MASTER, *answers])


def test_of_what_is_well_nothing_is_said() -> None:
    assert found(answer()) == []
    assert judge.status([]) == 0


@pytest.mark.parametrize("what", ["mpi", "mpi4py", "mpi_missing", "word_bits", "pktswarm"])
def test_a_node_without_mpi_is_judged_by_the_rest(what: str) -> None:
    one = answer({f"versions.{what}": "4.0"})
    assert len(found(one)) == 1
    without = replace(one, host=replace(one.host, mpi="none"))
    assert [finding.what for finding in found(without)] == (
        ["pktswarm is 4.0, the master's is 0.1.0"] if what == "pktswarm" else []
    )


def test_a_node_that_the_inventorys_own_cluster_holds_is_no_fault() -> None:
    held = answer({"leftovers.holder": HOLDER})
    (finding,) = judge.findings([MASTER, held], HOLDER["run"])
    assert (finding.level, judge.status([finding])) == ("note", 0)
    assert finding.what == "held by ann@desk since 2026-01-01T00:00:00Z: engines not tested"
    assert [one.level for one in judge.findings([MASTER, held], "2")] == ["wrong"]


HOLDER = {"run": "1", "by": "ann@desk", "since": "2026-01-01T00:00:00Z"}
PROCESS = {"pid": 41, "command": "trafgen --dev eth1"}
ZONE = {"name": "cpu", "celsius": 71.0, "passive_c": 70.0, "critical_c": 90.0}


@pytest.mark.parametrize(
    ("changes", "level", "what", "mend"),
    [
        ({"versions.word_bits": "32"}, "wrong", "word_bits is 32, the master's is 64", "one word size"),
        ({"versions.mpi": "MPICH Version: 4"}, "wrong", "mpi is MPICH Version: 4, the master's is", "one MPICH"),
        ({"versions.mpi4py": "4.0.0"}, "wrong", "mpi4py is 4.0.0", "the master's version"),
        ({"versions.python": "3.12.1"}, "note", "Python is 3.12, the master's is 3.11", "pktswarm_python"),
        ({"versions.pktswarm": "0.0.9"}, "wrong", "pktswarm is 0.0.9", "the master's version"),
        ({"versions.mpi_missing": "no libmpi"}, "wrong", "MPI does not load: no libmpi", "install mpi4py"),
        ({"proxy_missing": True}, "wrong", "hydra_pmi_proxy", "the master's path"),
        ({"tools_missing": ["setpriv"]}, "wrong", "setpriv is not installed", "apt install"),
        ({"health.governors": ["ondemand"]}, "note", "governor is ondemand", "scaling_governor"),
        ({"health.zones": [ZONE]}, "wrong", "cpu is at 71 °C", "cool the board"),
        ({"health.throttled": 0x50005}, "wrong", "throttled now (0x50005)", "power supply"),
        ({"health.throttled": 0x50000}, "note", "throttled since it started", "power supply"),
        ({"health.free_bytes": 2**20}, "wrong", "1 MiB free", "free disk space"),
        ({"health.free_bytes": 2**30}, "note", "1024 MiB free", "free disk space"),
        (
            {"memory.available_bytes": 40 * 2**20},
            "wrong",
            "take 50 MiB of memory at least, 40 are",
            "end other programs",
        ),
        (
            {"ptp": {**PTP, "state": "LISTENING", "problem": "the port of ptp4l is LISTENING"}},
            "note",
            "PTP: the port of ptp4l is",
            "ptp4l",
        ),
        ({"guard_trouble": "sudo did not start it"}, "wrong", "no guard: sudo did not", "sudo rule of docs/guide.md"),
        ({"leftovers.holder": HOLDER}, "wrong", "in use by ann@desk since 2026-01-01T00:00:00Z", "wait for the end"),
        ({"leftovers.processes": [PROCESS]}, "wrong", "process 41 is an engine whose guard is gone", "kill 41"),
        ({"leftovers.xdp_program": 7}, "wrong", "XDP program 7 is on eth1", "ip link set eth1 xdp off"),
        ({"leftovers.folders": ["/var/tmp/pktswarm-x"]}, "note", "spool folders", "rm -r /var/tmp/pktswarm-x"),
        ({"interface.exists": False}, "wrong", "there is no interface eth1", "traffic_interface"),
        ({"interface.carrier": False}, "wrong", "eth1 is down or has no link", "ip link set eth1 up"),
        ({"interface.mac": "02:00:00:00:00:0c"}, "wrong", "02:00:00:00:00:0c", "mac: 02:00:00:00:00:0b"),
        ({"interface.carries": ["the node's default route"]}, "wrong", "carries the node's default route", "another"),
        ({"interface.shared_wire": "eth0"}, "note", "eth1 shares eth0 with the connection", "limited to 800 Mbit/s"),
        (
            {"interface.shared_wire": "eth0", "interface.speed_mbps": None},
            "note",
            "eth1 shares eth0",
            "set pktswarm_shared_wire_limit to a bit rate",
        ),
        ({"interface.native_xdp": False}, "note", "igc has no native XDP", "a card"),
        ({"leftovers.changed": ["gro of eth1 (was on)"]}, "wrong", "gro of eth1 (was on)", "pktswarm doctor --mend"),
        ({"mended": ["gro of eth1 (was on) was put back"]}, "note", "gro of eth1 (was on) was put back", "none needed"),
        ({"senders.pktgen": "no module"}, "note", "cannot transmit with pktgen", "no module"),
        (
            {"senders.xdp": "with a program", "on_request": ["xdp"]},
            "note",
            "transmits with xdp only where a stream names it",
            "with a program",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_mending(changes: dict[str, Any], level: str, what: str, mend: str) -> None:
    (one,) = found(answer(changes))
    assert (one.host, one.level) == ("tx1", level)
    assert what in one.what and mend in one.mend
    assert judge.status([one]) == (1 if level == "wrong" else 0)


def test_what_a_counter_without_tail_calls_lacks_is_said_of_a_receiver() -> None:
    given = answer({"tail_calls": "the kernel of armv7l takes no tail call"})
    assert found(given) == []
    (one,) = found(replace(given, host=replace(given.host, roles=("receive",))))
    assert (one.level, one.mend) == ("note", "the kernel of armv7l takes no tail call")
    assert one.what == "the counter in the kernel has no filter and no echo, and puts no fragments together"


def test_what_provisioning_switched_off_is_no_leftover(tmp_path: Path) -> None:
    assert found(answer({"interface.offloads": {"gro": False}})) == []
    assert not tune.keeps("eth1", tmp_path)
    (tmp_path / tune.CONFIG).write_text(json.dumps({"interface": "eth1", "shared_kernel": ""}))
    assert tune.keeps("eth1", tmp_path) and not tune.keeps("eth2", tmp_path)


def test_a_transmitter_that_can_send_nothing_is_wrong() -> None:
    none = {f"senders.{name}": f"no {name}" for name in ("xdp", "tc", "pktgen", "trafgen")}
    assert [one.level for one in found(answer(none))] == ["wrong", *["note"] * 4]


def test_a_clock_is_far_off_only_beyond_what_the_reading_is_good_for() -> None:
    assert [one.what for one in found(answer(offset_ns=-2 * 10**9))] == ["clock offset -2.00 s from the master's"]
    assert found(answer(offset_ns=2 * 10**9, bound_ns=3 * 10**9)) == []


def test_the_mtu_that_most_have_not_is_told() -> None:
    others = [answer(), answer(name="tx2"), answer({"interface.mtu": 9000}, name="tx3")]
    assert [(one.host, one.what) for one in found(*others)] == [("tx3", "MTU is 9000, most have 1500")]


@pytest.mark.parametrize(
    ("status", "words", "trouble", "mend"),
    [
        (255, "Host key verification failed.", "host key is not the one", "ssh-keyscan 10.0.0.11"),
        (255, "root@10.0.0.11: Permission denied (publickey).", "refuses the key", "ssh-copy-id 10.0.0.11"),
        (255, "connect to host 10.0.0.11 port 22: No route to host", "does not answer", "ssh 10.0.0.11 true"),
        (127, "sh: /opt/python: not found", "has no pktswarm at /opt/python", "pktswarm_python"),
    ],
)
def test_a_host_that_is_not_reached_is_3(status: int, words: str, trouble: str, mend: str) -> None:
    host = answer().host
    (one,) = found(Answer(host, ssh.trouble(status, words, "/opt/python")))
    assert one.level == "unreachable" and trouble in one.what and mend in one.mend
    wrong = judge.Finding("rx1", "wrong", "", "")
    assert judge.status([one, wrong]) == 3


def test_the_document_is_json_with_each_host() -> None:
    answers = [MASTER, answer({"interface.carrier": False})]
    shown = json.loads(json.dumps(show.document(answers, judge.findings(answers), 1)))
    assert shown["status"] == 1 and shown["hosts"]["tx1"]["reachable"]
    assert [one["level"] for one in shown["hosts"]["tx1"]["findings"]] == ["wrong"]
    assert shown["hosts"]["m0"]["findings"] == []


def test_a_finding_of_several_hosts_is_one_line() -> None:
    text = ("Python is 3.13", "none needed")
    findings = [judge.Finding(name, "note", *text) for name in ("tx1", "tx2", "tx3", "rx1")]
    findings.insert(2, judge.Finding("tx2", "wrong", *text))
    console = Console(file=io.StringIO(), width=100)
    show.print_health(console, [MASTER], findings)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined] # a StringIO
    assert lines[-4:] == [
        "tx1–tx3, rx1: Python is 3.13",
        "    → none needed",
        "tx2: Python is 3.13",
        "    → none needed",
    ]


def test_a_clock_that_is_nearly_the_masters_is_not_shown_as_minus_0() -> None:
    console = Console(file=io.StringIO(), width=200)
    show.print_health(console, [answer(offset_ns=-3_000, bound_ns=20_000)], [])
    assert "+0.0 ± 0.0 ms" in console.file.getvalue()  # type: ignore[attr-defined] # a StringIO


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["tx1"], "tx1"),
        (["tx1", "tx2"], "tx1, tx2"),
        (["tx9", "tx10", "tx11", "rx1"], "tx9–tx11, rx1"),
        (["n08", "n09", "n10", "n12"], "n08–n10, n12"),
        (["tx1", "tx3", "tx2"], "tx1, tx3, tx2"),
        (["a", "a", "b"], "a, b"),
    ],
)
def test_names_of_hosts_are_compact(names: list[str], text: str) -> None:
    assert compact(names) == text


# --- asking -------------------------------------------------------------------------------------------------------


INVENTORY = """
all:
  vars: {pktswarm_ssh_config: CONFIG, pktswarm_python: /nowhere/python}
  children:
    master: {hosts: {m0: {ansible_host: 127.0.0.1}}}
    transmit: {hosts: {tx1: {ansible_host: 127.0.0.2, traffic_interface: eth1}}}
    receive: {hosts: {rx1: {ansible_host: 127.0.0.3, traffic_interface: eth1}}}
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory whose ssh is a program of the test's: it runs what is left after the host's name."""
    (tmp_path / "config").write_text("")
    (tmp_path / "hosts.yml").write_text(INVENTORY.replace("CONFIG", str(tmp_path / "config")))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "hosts.yml"


def ssh_is(hosts: Path, script: str) -> None:
    fake = hosts.with_name("ssh")
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)


def test_the_clock_is_read_before_the_document(hosts: Path) -> None:
    """What comes in one piece with the last reading is not lost."""
    hosts.with_name("node.py").write_text(
        "import sys, time\n"
        "for left in range(7, -1, -1):\n"
        "    sys.stdin.readline()\n"
        "    print(time.time_ns() + 5 * 10**9, flush=left > 0)\n"
        "print('{}')\n"
    )
    ssh_is(hosts, f"exec {sys.executable} {hosts.with_name('node.py')}")
    told: list[str] = []
    answers = Round(inventory.load(hosts)).answers(lambda one: told.append(one.host.name))
    assert [one.host.name for one in answers] == ["m0", "tx1", "rx1"] and sorted(told) == ["m0", "rx1", "tx1"]
    one = answers[1]
    assert one.document == {} and one.offset_ns is not None and one.bound_ns is not None
    assert abs(one.offset_ns - 5 * 10**9) <= one.bound_ns


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "refuses the key"),
        ("echo hello", "its output is not a report: 'hello'"),
        ("echo 'not found' >&2; exit 127", "has no pktswarm at /nowhere/python"),
        ("exec sleep 60", "no response within 1 s"),
    ],
)
def test_who_does_not_answer_is_told_beside_the_others(hosts: Path, script: str, trouble: str) -> None:
    ssh_is(hosts, script)
    patience = 0.05 if "sleep" in script else 1.0
    answers = Round(inventory.load(hosts), patience).answers(lambda one: None)
    assert [trouble in one.trouble for one in answers[1:]] == [True, True]


def test_bad_input_is_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--hosts", str(tmp_path / "none.yml")])
    assert getattr(done.exception, "exit_status", None) == 2 and "there is no such file" in str(done.exception)


# --- what a board tells -------------------------------------------------------------------------------------------


def test_zones_and_governors_are_read_from_sysfs(tmp_path: Path) -> None:
    zone = tmp_path / "thermal_zone0"
    zone.mkdir()
    files = {"type": "soc", "temp": "61500", "trip_point_0_type": "passive", "trip_point_0_temp": "80000"}
    files |= {"trip_point_1_type": "critical", "trip_point_1_temp": "110000"}
    for name, text in files.items():
        (zone / name).write_text(text + "\n")
    (tmp_path / "thermal_zone1").mkdir()  # a sensor that does not answer
    assert health.zones(tmp_path) == [health.Zone("soc", celsius=61.5, passive_c=80.0, critical_c=110.0)]
    for cpu, governor in (("cpu0", "ondemand"), ("cpu1", "ondemand")):
        (tmp_path / cpu / "cpufreq").mkdir(parents=True)
        (tmp_path / cpu / "cpufreq" / "scaling_governor").write_text(f"{governor}\n")
    assert health.governors(tmp_path) == ["ondemand"]


def test_a_raspberry_pi_says_whether_it_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = tmp_path / "vcgencmd"
    tool.write_text('#!/bin/sh\n[ "$1" = get_throttled ] && echo throttled=0x50005\n')
    tool.chmod(0o755)
    assert health.throttled() == 0x50005
    tool.write_text("#!/bin/sh\necho VCHI initialization failed\n")
    assert health.throttled() is None


def test_memory_that_the_kernel_does_not_report_is_unknown(tmp_path: Path) -> None:
    assert memory._field(tmp_path / "smaps_rollup", "Pss") is None
    (tmp_path / "smaps_rollup").write_text("Rss:  40 kB\nPss:  12 kB\nPss_Anon:  8 kB\n")
    assert memory._field(tmp_path / "smaps_rollup", "Pss") == 12 * 1024
    assert memory._field(tmp_path / "smaps_rollup", "Swap") is None
