"""A user's own program as the UPF: what it finds prepared, and that it is gone with the lab."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pktswarm import lab
from pktswarm.lab.birth import started_ticks
from pktswarm.lab.namespaces import network_of
from pktswarm.lab.upf_host import NICE, weigh_session
from pktswarm.traffic.errors import BadInput, PktswarmError
from upf_ends import ethernet, mac, user4

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

LOOK = """
set -eu
echo "$N3_INTERFACE $N4_INTERFACE $N6_INTERFACE $N3_IPV4 $N4_IPV4 $N6_IPV4 $SMF_IPV4 $N3_IPV6 $N4_IPV6 $SMF_IPV6"
pwd
cat /proc/sys/net/ipv4/conf/n3/forwarding /proc/sys/net/ipv4/conf/n6/forwarding
cat /proc/sys/net/ipv4/conf/all/rp_filter /proc/sys/net/ipv4/conf/n3/rp_filter /proc/sys/net/ipv6/conf/n6/forwarding
stat -f -c %T /sys/fs/bpf
ping -c1 -W5 -q "$SMF_IPV4" | grep -c ' 0% packet loss'
ip route get 10.60.0.1 | head -1
ip route get 10.61.0.1 | head -1
ip -6 route get 2001:db8:60::1 | head -1
ip neighbour show nud permanent
echo done
exec sleep 600
"""


def name() -> str:
    return f"upx{os.getpid()}"


def read_log(folder: Path, until: str) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid = lab.status(name(), folder)["pids"]["dut"]
        text = Path(f"/proc/{pid}/root/run/pktswarm-lab/upf.log").read_text()
        if until in text:
            return text
        time.sleep(0.05)
    raise AssertionError(text)


def test_a_program_finds_its_host_prepared_and_ends_with_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    routes = ["10.61.0.0/16=rx2", "10.100.0.0/24=tx1"]
    state = lab.up(name(), 1, 2, tmp_path, dut="exec", command=["bash", "-c", LOOK], routes=routes)
    try:
        upf = state.plan.upf
        assert upf is not None
        gnb, server, second = state.plan.nodes[1:]
        lines = read_log(tmp_path, "done").splitlines()
        ipv4 = f"{upf.n3_ipv4} {upf.n4_ipv4} {upf.n6_ipv4} {upf.smf_ipv4}"
        assert lines[0] == f"n3 n4 n6 {ipv4} {upf.n3_ipv6} {upf.n4_ipv6} {upf.smf_ipv6}"
        assert lines[1] == str(tmp_path)
        assert lines[2:7] == ["1", "1", "0", "0", "1"]
        assert lines[7:9] == ["bpf_fs", "1"]
        assert f"via {server.ipv4} dev n6" in lines[9]
        assert f"via {second.ipv4} dev n6" in lines[10]
        assert "dev n6" in lines[11]
        for node in (gnb, server, second):
            assert any(line.startswith(f"{node.ipv4} dev {node.side} lladdr {node.mac}") for line in lines)
        inside = guests(state)
        assert len(inside) >= 2  # the namespace's keeper, and the program
        assert state.notes == ()
        assert {pid: os.getpriority(os.PRIO_PROCESS, pid) for pid in inside} == {
            pid: 0 if pid == state.keeper.pids["dut"] else NICE for pid in inside
        }
        assert {weight_of_session(pid) for pid in inside if pid != state.keeper.pids["dut"]} <= {None, NICE}
        assert weight_of_session(state.keeper.pids["rx1"]) in (None, 0)
    finally:
        lab.down(name(), tmp_path)
    assert not [pid for pid in inside if started_ticks(pid) is not None]
    assert list(tmp_path.iterdir()) == []


def weight_of_session(pid: int) -> int | None:
    """The nice value of its autogroup; None where the kernel has none."""
    path = Path(f"/proc/{pid}/autogroup")
    shown = path.read_text() if path.exists() else ""
    return int(shown.split()[-1]) if shown else None


def test_a_session_that_may_not_be_weighted_is_a_note(tmp_path: Path) -> None:
    """A folder in the place of the file cannot be written; a kernel without autogroups has no file."""
    (tmp_path / "7" / "autogroup").mkdir(parents=True)
    (note,) = weigh_session(7, tmp_path)
    assert note.startswith("the UPF's program has the same CPU weight as senders") and "its session" in note
    assert weigh_session(8, tmp_path) == []


def test_a_lab_without_the_right_to_raise_a_priority_comes_up_and_says_so(tmp_path: Path) -> None:
    """CAP_SYS_NICE is bit 23; without it in the bounding set no program of the lab can have it."""
    python = "import sys; from pktswarm.master.cli.app import main; sys.argv[0] = 'pktswarm'; main()"
    drop = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    words = ["lab", "up", "--name", name(), "--transmit", "1", "--receive", "1", "--dut", "exec", "--", "sleep", "600"]
    command = [*drop, sys.executable, "-P", "-c", python, *words]
    up = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    try:
        assert up.returncode == 0, up.stderr
        assert "note: the UPF's program has the same CPU weight as senders and receivers" in up.stdout
    finally:
        lab.down(name(), tmp_path / "hosts")


def guests(state: lab.LabState) -> list[int]:
    """Processes on the UPF's host."""
    keeper = state.keeper.pids["dut"]
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [pid for pid in pids if _is_beside(pid, keeper)]


def _is_beside(pid: int, keeper: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path(f"/proc/{keeper}/ns/net").stat().st_ino
    except OSError:
        return False


def test_the_host_forwards_what_its_program_leaves_to_the_kernel(tmp_path: Path) -> None:
    """From N3 to N6, as the slow path of a UPF does: by the routes and neighbours that are there."""
    state = lab.up(name(), 1, 1, tmp_path, dut="exec", command=["sleep", "600"])
    try:
        upf = state.plan.upf
        assert upf is not None
        gnb, server = state.plan.nodes[1:]
        ends = []
        for node in (gnb, server):
            with network_of(state.keeper.pids[node.name]):
                ends.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)))
                ends[-1].bind(("eth1", 0x0800))
                ends[-1].settimeout(5)
        ends[0].send(ethernet(upf.n3_mac, gnb.mac, 0x0800) + user4(100, 7))
        frame = ends[1].recv(2000)
        assert frame[:12] == mac(server.mac) + mac(upf.n6_mac)
        assert frame[14 + 20 :] == user4(100, 7)[20:]
    finally:
        lab.down(name(), tmp_path)


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        (["sh", "-c", "echo no licence >&2; exit 3"], PktswarmError, "exit status 3: no licence"),
        (["no-such-upf"], BadInput, "command = 'no-such-upf'.*not a command"),
        ([], BadInput, "a command after -- is needed with exec"),
    ],
)
def test_a_program_that_fails_fails_the_lab(
    tmp_path: Path, command: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lab.up(name(), 1, 1, tmp_path, dut="exec", command=command)
    assert list(tmp_path.iterdir()) == []


def test_only_the_lab_s_own_upf_takes_orders(tmp_path: Path) -> None:
    lab.up(name(), 1, 1, tmp_path, dut="exec", command=["sleep", "600"])
    try:
        with pytest.raises(BadInput, match="not the lab's UPF"):
            lab.order_upf(name(), {"status": {}}, tmp_path)
    finally:
        lab.down(name(), tmp_path)


def test_a_killed_upf_is_no_more_there_and_the_lab_still_ends(tmp_path: Path) -> None:
    state = lab.up(name(), 1, 1, tmp_path, dut="upf")
    try:
        (pid,) = [pid for pid in guests(state) if b"pktswarm.lab.upf" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(pid, 9)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:  # killed at once, reaped by the keeper
            time.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(BadInput, match="has ended"):
            lab.order_upf(name(), {"status": {}}, tmp_path)
    finally:
        lab.down(name(), tmp_path)


def test_the_command_line_brings_one_up_and_speaks_to_it(tmp_path: Path) -> None:
    python = "import sys; from pktswarm.master.cli.app import main; sys.argv[0] = 'pktswarm'; main()"
    program = [sys.executable, "-P", "-c", python]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, "lab", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    up = run("up", "--name", name(), "--transmit", "1", "--receive", "1", "--dut", "upf")
    try:
        assert up.returncode == 0, up.stderr
        told = run("upf", "--name", name())
        assert told.returncode == 0 and '"sessions": 0' in told.stdout
        wrong = run("upf", "--name", name(), '{"faults": {"n4": {"cause": 1}}}')
        assert wrong.returncode == 2 and "n4.cause = 1" in wrong.stderr
        assert run("upf", "--name", name(), "{").returncode == 2
    finally:
        assert run("down", "--name", name()).returncode == 0
