"""Records a trace between real programs on two nodes of a lab (`pktswarm lab record`).

On the server: dnsmasq, an HTTPS server (Python's, with OpenSSL), iperf3, one end of a call. On the client: dig, curl,
iperf3, the other end. Some 5 s and 400 kB, captured on the client's traffic interface with nanoseconds.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pktswarm.lab import api, https_server, record_file, rtp
from pktswarm.lab.plan import TRAFFIC_INTERFACE, plan
from pktswarm.traffic.capture.trace import Trace, read_trace, write_pcapng
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.replay.prepare import Nodes, Settings, check_lengths, frames_of, prepare

TOOLS = {
    "curl": "curl",
    "dig": "bind9-dnsutils",
    "dnsmasq": "dnsmasq-base",
    "iperf3": "iperf3",
    "openssl": "openssl",
    "tcpdump": "tcpdump",
}
"""Tools for recording (the demo needs none), with their Debian packages."""

DEFAULT_OUT = Path("configs/traces/lab.pcapng")
CLIENT, SERVER = "tx1", "rx1"
DOMAIN = "example.test"
HOSTS = ("www", "media", "api", "mail", "files", "time")
CALL_S = 4.5
CALL_PORT = 16_384
MTU_BYTES = 1500
COMMENT = "Recorded in a pktswarm lab between real programs; every name, key and byte of content was generated for it."
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Site:
    """Two nodes: the command prefix of each, and their traffic addresses."""

    client: list[str]
    """The prefix that runs a command on the client."""
    server: list[str]
    client_ipv4: str
    server_ipv4: str
    client_interface: str


def record(lab_name: str = "default", out: Path = DEFAULT_OUT, hosts_dir: Path = api.HOSTS) -> Trace:
    """Records in lab `lab_name`, between its first transmitter and its first receiver, to `out`.

    Raises BadInput if the lab is not up, PktswarmError if a program is missing or did not do its part.
    """
    site = lab_site(lab_name, hosts_dir)
    with addresses_of(site):
        return record_at(site, out)


@contextlib.contextmanager
def addresses_of(site: Site) -> Iterator[None]:
    """Gives the traffic interfaces addresses, which real programs need and the lab's nodes lack."""
    ends = ((site.client, site.client_ipv4), (site.server, site.server_ipv4))
    with contextlib.ExitStack() as undo:
        for enter, ipv4 in ends:
            run([*enter, "ip", "address", "add", f"{ipv4}/24", "dev", site.client_interface])
            undo.callback(run, [*enter, "ip", "address", "del", f"{ipv4}/24", "dev", site.client_interface])
        yield


def lab_site(name: str, hosts_dir: Path) -> Site:
    path = record_file.path_of(name, hosts_dir)
    keeper = record_file.read(path) if api.status(name, hosts_dir)["up"] else None
    if keeper is None:
        raise BadInput(path, f"lab {name} is not up (bring it up with: pktswarm lab up --name {name})")
    # Only the network namespace is entered: programs and files are this machine's.
    enter = {node: ["nsenter", f"--net=/proc/{keeper.pids[node]}/ns/net"] for node in (CLIENT, SERVER)}
    addresses = {node.name: node.ipv4 for node in plan(name).nodes}
    return Site(enter[CLIENT], enter[SERVER], addresses[CLIENT], addresses[SERVER], TRAFFIC_INTERFACE)


def record_at(site: Site, out: Path) -> Trace:
    """Records, checks that the trace can be replayed exactly, and writes it to `out`."""
    need_tools()
    with tempfile.TemporaryDirectory(prefix="pktswarm-record-") as folder:
        work = Path(folder)
        make_certificate(work)
        with servers(site, work):
            return trace_of(site, work, out, lambda: converse(site, work))


def trace_of(site: Site, work: Path, out: Path, conversation: Callable[[], None]) -> Trace:
    """Captures a conversation on the client's interface, checks it, and writes it to `out`. `work`: for the capture."""
    capture_file = work / "capture.pcap"
    with capture(site, capture_file):
        conversation()
    trace = read_trace(capture_file)
    check(capture_file)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Two processors receive frames in parallel, so a capture is not exactly in order of time.
    out.write_bytes(write_pcapng(sorted(trace.packets, key=lambda packet: packet.time_ns), COMMENT))
    return read_trace(out)


def need_tools(tools: Iterable[str] = TOOLS) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise PktswarmError(f"recording needs {', '.join(missing)}: apt install --no-install-recommends {packages}")


def make_certificate(work: Path) -> None:
    name = f"www.{DOMAIN}"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "3650", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    run([*command, "-keyout", str(work / "key.pem"), "-out", str(work / "certificate.pem")])


@contextlib.contextmanager
def servers(site: Site, work: Path) -> Iterator[None]:
    address = site.server_ipv4
    dns = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces"]
    dns += [f"--listen-address={address}", f"--pid-file={work / 'dnsmasq.pid'}", "--user=root", "--local-ttl=60"]
    dns += [f"--address=/{host}.{DOMAIN}/{address}" for host in HOSTS] + [f"--local=/{DOMAIN}/"]
    with contextlib.ExitStack() as stack:
        for command, ready in (
            ([*site.server, *dns], "started"),
            (web_server(site, work), "ready"),
            ([*site.server, "iperf3", "-s", "--forceflush", "-B", address], "listening"),
        ):
            stack.enter_context(background(command, work, ready))
        yield


def web_server(site: Site, work: Path) -> list[str]:
    files = [str(work / "certificate.pem"), str(work / "key.pem")]
    return [*site.server, sys.executable, https_server.__file__, site.server_ipv4, "443", *files]


def fetch(site: Site, work: Path, size_bytes: int, most_s: float = 10) -> list[str]:
    """Returns the command for a download of `size` bytes from the web server."""
    command = [*site.client, "curl", "-sS", "--fail", "--max-time", f"{most_s:g}"]
    command += ["--cacert", str(work / "certificate.pem"), "--resolve", f"www.{DOMAIN}:443:{site.server_ipv4}"]
    return [*command, "-o", "/dev/null", f"https://www.{DOMAIN}/{size_bytes}"]


@contextlib.contextmanager
def capture(site: Site, file: Path) -> Iterator[None]:
    """Runs tcpdump on the client's interface; raises PktswarmError if the kernel dropped a frame."""
    command = ["tcpdump", "-n", "-i", site.client_interface, "--time-stamp-precision=nano", "--immediate-mode"]
    command += ["-B", "65536", "-Z", "root", "-w", str(file), f"host {site.server_ipv4} or arp"]
    with background(site.client + command, file.parent, "listening on") as log:
        yield
        time.sleep(0.3)
    if "\n0 packets dropped by kernel" not in log.read_text():
        raise PktswarmError(f"tcpdump did not capture every frame:\n{log.read_text()}")


@contextlib.contextmanager
def background(command: list[str], work: Path, ready: str) -> Iterator[Path]:
    """Runs a program in the block; it is ready when its output (the file yielded) contains `ready`."""
    with tempfile.NamedTemporaryFile("wb", dir=work, suffix=".log", delete=False) as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    output = Path(log.name)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while ready not in output.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise PktswarmError(f"{' '.join(command)}: did not become ready:\n{output.read_text()}")
            time.sleep(0.02)
        yield output
    finally:
        process.send_signal(2)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def converse(site: Site, work: Path) -> None:
    """Runs everything in parallel, as on a real line: a call, look-ups, downloads, a transfer."""
    address = site.server_ipv4
    here, there = site.client_ipv4, site.server_ipv4
    steps: list[tuple[float, list[str]]] = [
        (0.0, [*site.server, sys.executable, rtp.__file__, there, here, str(CALL_PORT), str(CALL_S), "440"]),
        (0.0, [*site.client, sys.executable, rtp.__file__, here, there, str(CALL_PORT), str(CALL_S), "350"]),
        (1.1, [*site.client, "iperf3", "-c", address, "-t", "3", "-b", "400K", "-l", "1448"]),
    ]
    for number, host in enumerate(HOSTS):
        query = ["dig", f"@{address}", "+tries=1", "+short", f"{host}.{DOMAIN}", "A", f"{host}.{DOMAIN}", "AAAA"]
        steps.append((0.2 + 0.7 * number, [*site.client, *query]))
    for at_s, size_bytes in ((0.4, 20_000), (1.3, 60_000), (2.6, 40_000), (3.7, 5_000)):
        steps.append((at_s, fetch(site, work, size_bytes)))
    _run_at(steps)


def _run_at(steps: list[tuple[float, list[str]]]) -> None:
    """Starts each command at its time; raises PktswarmError for the first that failed."""
    failures: list[Exception] = []

    def step(at_s: float, command: list[str]) -> None:
        time.sleep(at_s)
        try:
            run(command)
        except PktswarmError as error:
            failures.append(error)

    threads = [threading.Thread(target=step, args=arguments) for arguments in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def run(command: list[str], most_s: float = TIMEOUT_S) -> None:
    try:
        subprocess.run(command, check=True, timeout=most_s, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise PktswarmError(f"{' '.join(command)}: not done after {most_s:.0f} s") from None
    except subprocess.CalledProcessError as error:
        raise PktswarmError(f"{' '.join(command)}: exit {error.returncode}\n{error.stdout}{error.stderr}") from None


def check(capture_file: Path) -> None:
    """Checks that every frame is as on the wire: not merged by an offload, checksums correct."""
    prepared = prepare(capture_file, Settings())
    rows = np.arange(len(prepared.due.order))
    check_lengths(prepared, rows, MTU_BYTES, "the lab")
    wrong = frames_of(prepared, rows, Nodes(bytes(6), bytes(6), bytes(4), bytes(4))).mended
    if wrong:
        raise PktswarmError(f"{wrong} frames were recorded before their checksums were made: turn tx offload off")
