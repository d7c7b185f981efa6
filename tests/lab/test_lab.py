"""A real lab: what it is made of, that counts are true in it, and that nothing of it stays."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dpkt
import pytest

from pktswarm import lab
from pktswarm.lab.birth import started_ticks
from pktswarm.lab.plan import plan
from pktswarm.nodes import changes, stale_spools
from pktswarm.traffic.errors import BadInput

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SSH = ["ssh", "-F", "/run/pktswarm-lab/ssh_config"]
RUN_IN = (
    "from pktswarm import lab; import sys, pathlib\n"
    "sys.exit(lab.run_in(sys.argv[1], sys.argv[2], sys.argv[3:], pathlib.Path('.')))"
)
FROZEN_GUARD = """
import os, signal
from pktswarm.nodes import guard
from pktswarm.traffic.protocol import guard_events, guard_orders
pipe = guard.spawn("nobody")
pipe.send(guard_orders.Leftovers("eth1"))
guard.answer(pipe, guard_events.Leftovers, 10)
print(os.getpid(), flush=True)
os.kill(int(open(f"/proc/self/task/{os.getpid()}/children").read()), signal.SIGSTOP)
print("frozen", flush=True)
signal.pause()
"""
UP = "from pktswarm import lab; import sys, pathlib; lab.up(sys.argv[1], 1, 1, pathlib.Path('.'))"


class Lab:
    """A lab and its folder."""

    def __init__(self, name: str, hosts: Path, transmit: int = 1, receive: int = 1) -> None:
        self.name, self.hosts = name, hosts
        self.state = lab.up(name, transmit, receive, hosts)

    def popen(self, node: str, *command: str) -> subprocess.Popen[str]:
        start = [sys.executable, "-P", "-c", RUN_IN, self.name, node, *command]
        return subprocess.Popen(start, cwd=self.hosts, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def on(self, node: str, *command: str, status: int = 0) -> str:
        process = self.popen(node, *command)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == status, output
        return output

    def end(self) -> None:
        if lab.status(self.name, self.hosts)["up"]:
            lab.down(self.name, self.hosts)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for the tests that leave it as it was."""
    this = Lab(f"t{os.getpid()}", tmp_path_factory.mktemp("hosts"), transmit=2, receive=2)
    yield this
    this.end()


def test_down_takes_the_folder_of_a_frozen_guard_along(tmp_path: Path) -> None:
    this = Lab(f"z{os.getpid()}", tmp_path)
    with namespaces_of(this) as made:
        try:
            rank = this.popen("rx1", sys.executable, "-P", "-c", FROZEN_GUARD)
            assert rank.stdout is not None and rank.stdout.readline() and rank.stdout.readline() == "frozen\n"
            (spool,) = spools_in(made)
        finally:
            this.end()
        rank.communicate(timeout=30)
        assert not spool.exists()


def spools_in(namespaces: set[int]) -> list[Path]:
    """Of guards in these network namespaces; those of other tests are in the same place."""
    spools = list(stale_spools.SPOOLS.glob("pktswarm-*"))
    return [path for path in spools if (found := changes.read(path)) and found[0].namespace in namespaces]


def network_namespaces() -> set[int]:
    """Those of all processes that we may look into."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add((entry / "ns/net").stat().st_ino)
            except OSError:
                continue
    return found


def processes_of(name: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and started_ticks(int(entry.name)) is not None:
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "pktswarm.lab.keeper" in words and name in words:
                found.append(f"{entry.name}: {' '.join(words)}")
    return found


def within(seconds: float, condition: object) -> bool:
    """Whether `condition()` came true in time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def namespaces_of(this: Lab) -> Iterator[set[int]]:
    """Their numbers. Kept open meanwhile: the kernel would give a number that is free to another test's lab."""
    with contextlib.ExitStack() as kept:
        handles = [kept.enter_context(Path(f"/proc/{pid}/ns/net").open()) for pid in this.state.keeper.pids.values()]
        yield {os.fstat(handle.fileno()).st_ino for handle in handles}


def test_down_leaves_nothing(tmp_path: Path) -> None:
    root_links = sorted(entry.name for entry in Path("/sys/class/net").iterdir())
    run_before = sorted(entry.name for entry in Path("/run").iterdir())
    this = Lab("leaves-nothing", tmp_path)
    with namespaces_of(this) as made:
        try:
            assert len(made) == 5  # m0, tx1, rx1, switch, dut
            assert made <= network_namespaces()
            assert sorted(entry.name for entry in Path("/sys/class/net").iterdir()) == root_links
            assert not {"pktswarm-lab", "sshd"} & {entry.name for entry in Path("/run").iterdir()} - set(run_before)
        finally:
            lab.down(this.name, tmp_path)
        assert list(tmp_path.iterdir()) == []
        assert not made & network_namespaces()
    assert processes_of(this.name) == []


def test_a_killed_keeper_takes_everything_along(tmp_path: Path) -> None:
    this = Lab("killed", tmp_path)
    try:
        with namespaces_of(this) as made:
            os.kill(this.state.keeper.keeper_pid, signal.SIGKILL)
            assert within(5, lambda: not made & network_namespaces())
        assert within(5, lambda: lab.status(this.name, tmp_path)["why"].endswith("is gone"))
        again = Lab(this.name, tmp_path)  # the stale inventory is no obstacle
        again.on("tx1", "true")
    finally:
        lab.down(this.name, tmp_path)
    assert processes_of(this.name) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, sent: signal.Signals, after_s: float) -> None:
    name = f"cut-{int(after_s * 1000)}-{int(sent)}"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", UP, name], cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(after_s)
        process.send_signal(sent)
        finished = process.wait(20) == 0
        if finished or lab.status(name, tmp_path)["up"]:  # it was quicker than the signal
            return
        assert within(5, lambda: processes_of(name) == []), processes_of(name)
        assert sent == signal.SIGKILL or list(tmp_path.iterdir()) == []
    finally:
        if (tmp_path / f"lab-{name}.yml").exists():
            lab.down(name, tmp_path)


def test_up_twice_is_refused(shared: Lab) -> None:
    with pytest.raises(BadInput, match=r"lab-.*\.yml: lab .* is up already") as error:
        lab.up(shared.name, hosts_dir=shared.hosts)
    assert error.value.exit_status == 2
    assert lab.status(shared.name, shared.hosts)["up"] is True


def test_two_labs_stand_side_by_side(shared: Lab, tmp_path: Path) -> None:
    # Addresses follow from the name: one lab in 255 has those of another.
    addresses = {node.address for node in shared.state.plan.nodes}
    names = (name for name in ("beside", "aside") if addresses.isdisjoint(node.address for node in plan(name).nodes))
    other = Lab(next(names), tmp_path)
    try:
        with namespaces_of(shared) as ours, namespaces_of(other) as theirs:
            assert not ours & theirs
        for this in (shared, other):
            assert this.on("m0", *SSH, "rx1", "hostname").strip() == "rx1"
        peers = [node.address for node in other.state.plan.nodes]
        shared.on("m0", *SSH, "-oConnectTimeout=1", peers[1], "true", status=255)
    finally:
        other.end()
    shared.on("tx1", "true")


def test_the_master_reaches_every_node_by_name_and_address(shared: Lab) -> None:
    for node in shared.state.plan.nodes:
        for target in (node.name, node.address):
            assert shared.on("m0", *SSH, target, "hostname").strip() == node.name


def test_the_nodes_know_each_other_for_ever(shared: Lab) -> None:
    for node in shared.state.plan.nodes:
        told = json.loads(shared.on(node.name, *"ip -j neigh show dev ctl0 nud permanent".split()))
        others = {one.address: one.control_mac for one in shared.state.plan.nodes if one != node}
        assert {one["dst"]: one["lladdr"] for one in told} == others


def test_a_wrong_host_key_is_refused(shared: Lab) -> None:
    swap = "sed '/^tx1,/d; s/^rx1,[^ ]*/tx1/' /run/pktswarm-lab/known_hosts > /run/swapped"
    command = " ".join([*SSH, "-o", "UserKnownHostsFile=/run/swapped", "tx1", "hostname"])
    output = shared.on("m0", "sh", "-c", f"{swap}; {command}", status=255)
    assert "Host key verification failed" in output


def test_only_the_master_has_the_key(shared: Lab) -> None:
    shared.on("m0", "test", "-f", "/run/pktswarm-lab/id_ed25519")
    assert shared.on("m0", "stat", "-c", "%a %U", "/run/pktswarm-lab", "/run/pktswarm-lab/id_ed25519").split() == [
        "700",
        "root",
        "600",
        "root",
    ]
    shared.on("tx1", "test", "-e", "/run/pktswarm-lab/id_ed25519", status=1)


def test_a_node_sees_its_own_interfaces_processes_and_name(shared: Lab) -> None:
    assert shared.on("tx1", "ls", "/sys/class/net").split() == ["ctl0", "eth1", "lo"]
    assert shared.on("tx1", "cat", "/etc/hostname").strip() == "tx1"
    assert shared.on("tx1", "cat", "/proc/1/comm").strip() == f"lab-{shared.name}"[:15]
    assert "10.91." in shared.on("tx1", "getent", "hosts", "rx1")


def test_traffic_interfaces_are_quiet_and_without_offloads(shared: Lab) -> None:
    for node, interface in (("tx1", "eth1"), ("switch", "tx1"), ("switch", "to-dut-a"), ("dut", "to-b")):
        assert shared.on(node, "cat", f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").strip() == "1"
        features = dict(
            line.strip().split(": ", 1) for line in shared.on(node, "ethtool", "-k", interface).splitlines()[1:]
        )
        for name in ("tcp-segmentation-offload", "generic-segmentation-offload"):
            assert features[name].split()[0] == "off", (node, interface, name)
        # Where XDP live frames come in, GRO is on and can merge nothing: the burst below shows that.
        ends = [("switch", "tx1"), ("tx1", "eth1")]
        assert features["generic-receive-offload"] == ("on" if (node, interface) in ends else "off")
        assert features["tx-checksumming"] == "off"


def tcp_frames(this: Lab, count: int) -> list[bytes]:
    """A burst of one TCP connection, as a card with receive offload likes to merge it."""
    nodes = {node.name: node for node in this.state.plan.nodes}
    sender, receiver = nodes["tx1"], nodes["rx1"]
    frames = []
    for number in range(count):
        segment = dpkt.tcp.TCP(sport=40000, dport=80, seq=1 + 1400 * number, ack=1, flags=dpkt.tcp.TH_ACK)
        segment.data = bytes([number % 256]) * 1400
        packet = dpkt.ip.IP(
            src=bytes(map(int, sender.ipv4.split("."))), dst=bytes(map(int, receiver.ipv4.split("."))), p=6, id=number
        )
        packet.data, packet.len = segment, 20 + len(segment)
        frame = dpkt.ethernet.Ethernet(
            src=bytes.fromhex(sender.mac.replace(":", "")),
            dst=bytes.fromhex(receiver.mac.replace(":", "")),
            data=packet,
        )
        frames.append(bytes(frame))
    return frames


def counter(this: Lab, node: str, interface: str, name: str) -> int:
    return int(this.on(node, "cat", f"/sys/class/net/{interface}/statistics/{name}"))


def test_a_tcp_burst_crosses_the_device_frame_by_frame(shared: Lab, tmp_path: Path) -> None:
    frames = tcp_frames(shared, 20)
    with (tmp_path / "in.pcap").open("wb") as file:
        writer = dpkt.pcap.Writer(file, snaplen=65535)
        for frame in frames:
            writer.writepkt(frame, ts=0)
    before = counter(shared, "dut", "to-a", "rx_packets"), counter(shared, "dut", "to-b", "tx_packets")
    capture = shared.popen(
        "rx1",
        "timeout",
        "10",
        "tcpdump",
        "-i",
        "eth1",
        "-Q",
        "in",
        "-U",
        "-c",
        "20",
        "-w",
        str(tmp_path / "out.pcap"),
        "tcp",
    )
    assert within(5, lambda: (tmp_path / "out.pcap").exists() and (tmp_path / "out.pcap").stat().st_size >= 24)
    shared.on("tx1", "tcpreplay", "-q", "--preload-pcap", "--topspeed", "-i", "eth1", str(tmp_path / "in.pcap"))
    output, _ = capture.communicate(timeout=20)
    assert capture.returncode == 0, output
    with (tmp_path / "out.pcap").open("rb") as file:
        assert [data for _, data in dpkt.pcap.Reader(file)] == frames
    assert counter(shared, "dut", "to-a", "rx_packets") - before[0] >= 20
    assert counter(shared, "dut", "to-b", "tx_packets") - before[1] >= 20


def test_a_command_on_a_node_gives_its_status(shared: Lab) -> None:
    shared.on("tx1", "sh", "-c", "exit 7", status=7)
    shared.on("tx1", "sh", "-c", "kill -9 $$", status=137)


def test_an_unknown_node_or_command_is_refused(shared: Lab) -> None:
    with pytest.raises(BadInput, match=r"node = 'tx9'.*allowed: .*tx1"):
        lab.run_in(shared.name, "tx9", ["true"], shared.hosts)
    with pytest.raises(BadInput, match="command = 'no-such-tool'"):
        lab.run_in(shared.name, "tx1", ["no-such-tool"], shared.hosts)


def test_entering_keeps_process_number_folder_and_proc(shared: Lab) -> None:
    script = (
        "from pktswarm import lab; import os, json, pathlib; before = os.getpid(), os.getcwd()\n"
        f"lab.enter('{shared.name}', hosts_dir=pathlib.Path('.'))\n"
        "print(json.dumps([before == (os.getpid(), os.getcwd()), os.readlink('/proc/self') == str(os.getpid()),"
        " os.uname().nodename, sorted(os.listdir('/sys/class/net'))]))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=shared.hosts, capture_output=True, check=True)
    assert json.loads(done.stdout) == [True, True, "m0", ["ctl0", "lo"]]


def test_down_ends_a_guest_and_what_runs_on_nodes(tmp_path: Path) -> None:
    this = Lab("guests", tmp_path)
    script = "from pktswarm import lab; import pathlib, time; lab.enter('guests', hosts_dir=pathlib.Path('.'))"
    script += "; print(1, flush=True); time.sleep(60)"
    guest = subprocess.Popen([sys.executable, "-P", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE)
    command = this.popen("tx1", "sh", "-c", "echo 1; exec sleep 60")
    try:
        assert guest.stdout is not None and guest.stdout.readline() and command.stdout and command.stdout.readline()
        with namespaces_of(this) as made:
            lab.down("guests", tmp_path)
            assert guest.wait(5) == -signal.SIGTERM
            assert command.wait(5) != 0
            assert within(5, lambda: not made & network_namespaces())
    finally:
        for process in (guest, command):
            process.kill()
            process.communicate()
        this.end()


def test_what_runs_on_nodes_ends_in_order(tmp_path: Path) -> None:
    """As a rank's guard does, which restores its node and removes its folder: in a session of its own, on SIGTERM."""
    this = Lab("ordered", tmp_path)
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    try:
        script = f"trap 'sleep 0.5; : >{ended}; exit' TERM; : >{ready}; while :; do sleep 0.1; done"
        this.on("tx1", "setsid", "--fork", "sh", "-c", f"exec >/dev/null 2>&1; {script}")
        assert within(20, ready.exists)
        this.end()
        assert ended.exists()
    finally:
        this.end()


CHROOT = """
set -e
mount -t tmpfs tmpfs "$1"; mkdir "$1/root"
for entry in /*; do
    new="$1/root$entry"
    if [ -L "$entry" ]; then cp -P "$entry" "$new"
    elif [ -d "$entry" ]; then mkdir "$new"; mount --rbind "$entry" "$new"; fi
done
shift_root="$1/root"; shift
exec chroot "$shift_root" "$@"
"""


def test_it_works_where_the_root_is_no_mount_point(tmp_path: Path) -> None:
    """In a chroot, as an installer's or a container's, "/" cannot be made private."""
    folder, hosts = tmp_path / "tree", tmp_path / "hosts"
    folder.mkdir()
    script = (
        "from pktswarm import lab; import sys, pathlib; hosts = pathlib.Path(sys.argv[1])\n"
        "lab.up('chroot', 1, 1, hosts)\n"
        f"try: print(lab.run_in('chroot', 'm0', {[*SSH, 'tx1', 'hostname']}, hosts))\n"
        "finally: lab.down('chroot', hosts)"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", CHROOT, "sh", str(folder)]
    done = subprocess.run(
        [*command, sys.executable, "-P", "-c", script, str(hosts)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["tx1", "0"]
    assert processes_of("chroot") == []
    assert list(hosts.iterdir()) == []
