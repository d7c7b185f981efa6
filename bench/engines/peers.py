"""The peers: their commands at their best, and their own closing words, which must bear out what the far end counted.

What was tried to make each faster is in bench/README.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.engines.wire import NEAR, BenchError, Channel, sink, stack
from pktswarm.nodes.senders import tcpreplay, trafgen
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.frames.template import Template

PACKAGES = {"trafgen": "netsniff-ng", "tcpreplay": "tcpreplay", "dpdk-testpmd": "dpdk-dev"}
DRIVERS = "dpdk"
"""The package that brings testpmd's drivers, net_af_packet among them."""
SENDING_CORE = 0
"""trafgen's only process goes to processor 0 whatever it is told; so all senders send from there."""
OTHER_CORE = 1
TESTPMD_BURST = 64
FOREVER = 1 << 30
LARGE_RING = ("--ring-size", "8MiB")
NO_PORT = "No probed ethernet devices"
"""testpmd goes on without one, and ends well."""

_TESTPMD_SENT = re.compile(r"Accumulated forward statistics.*?TX-packets: (\d+)\s+TX-dropped: (\d+)", re.S)


@dataclass(frozen=True)
class Peer:
    name: str
    command: list[str]
    sent: Callable[[str], int]
    """Frames that it says it sent, out of its output."""
    far: Callable[[Channel], None] = sink
    """The far end at which it is fastest."""


def install() -> None:
    """What is missing of the peers, from Debian's packages."""
    wanted = [package for program, package in PACKAGES.items() if not shutil.which(program)]
    if not wanted:
        return
    wanted += [DRIVERS] * ("dpdk-dev" in wanted)
    print(f"installing {' '.join(wanted)}", file=sys.stderr, flush=True)
    command = ["apt-get", "install", "--yes", "--quiet", "--quiet", "--no-install-recommends", *wanted]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    for attempt in (["apt-get", "--quiet", "--quiet", "update"], None):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode == 0:
            return
        if attempt:
            subprocess.run(attempt, capture_output=True, check=False, env=environment)
    raise BenchError(f"{' '.join(wanted)} cannot be installed: {done.stderr[-1000:]}")


def _pinned(*command: str) -> list[str]:
    return ["taskset", "--cpu-list", str(SENDING_CORE), *command]


def trafgen_stream(template: Template, spool: Path, ring: Sequence[str] = LARGE_RING) -> Peer:
    """As the product starts it, with a larger ring: all frames of a round in a list, none made while it sends."""
    # A file of its own: peers are made before the first of them is started.
    config = Path(tempfile.mkdtemp(prefix="trafgen-", dir=spool)) / "trafgen.cfg"
    config.write_text(trafgen.frame_list(template, 0))
    return Peer("trafgen", _trafgen(config, ring), lambda output: trafgen.parse(output)[0])


def trafgen_trace(file: Path, packets: int) -> Peer:
    """A pcap file is sent at its recorded times."""
    command = [*_trafgen(file), "--num", str(packets)]
    return Peer("trafgen", command, lambda output: trafgen.parse(output)[0])


def _trafgen(source: Path, ring: Sequence[str] = LARGE_RING) -> list[str]:
    shared = ["--no-sock-mem", "--notouch-irq", "--cpus", "1", *ring]
    return _pinned("trafgen", *shared, "--in", str(source), "--out", NEAR)


def tcpreplay_top(file: Path) -> Peer:
    return Peer("tcpreplay", _tcpreplay("--topspeed", f"--loop={FOREVER}", str(file)), _tcpreplay_sent)


def tcpreplay_trace(file: Path) -> Peer:
    return Peer("tcpreplay", _tcpreplay(str(file)), _tcpreplay_sent)


def _tcpreplay(*options: str) -> list[str]:
    return _pinned("tcpreplay", "--no-flow-stats", f"--intf1={NEAR}", "--preload-pcap", *options)


def _tcpreplay_sent(output: str) -> int:
    return tcpreplay.parse_closing(output).packets


AF_PACKET = f"net_af_packet0,iface={NEAR},qdisc_bypass=1,framecnt=2048"
AF_XDP = f"net_af_xdp0,iface={NEAR},start_queue=0,queue_count=1"
"""testpmd's drivers for an interface that has no other: what is in Debian's package."""


def testpmd(frame_bytes: int, device: str) -> Peer:
    """It makes frames of its own, the same ones over and over."""
    return _testpmd([device], "--forward-mode=txonly", f"--txpkts={frame_bytes}", "--total-num-mbufs=16384")


def testpmd_trace(file: Path, packets: int, device: str) -> Peer:
    """A pcap file that it reads whole when it starts, passed on over and over."""
    source = f"net_pcap0,rx_pcap={file},infinite_rx=1"
    return _testpmd([source, device], "--forward-mode=io", f"--total-num-mbufs={packets + 32768}", "--auto-start")


def _testpmd(devices: list[str], *forward: str) -> Peer:
    """Its main core, the other one, sleeps."""
    eal = ["--no-huge", "-m", "1024", "--no-pci", "--no-telemetry", "--no-shconf"]
    cores = ["--lcores", f"0@{OTHER_CORE},1@{SENDING_CORE}", *(f"--vdev={device}" for device in devices)]
    # With statistics it does not wait for a key; they are printed once in this many seconds, so never.
    usual = [f"--burst={TESTPMD_BURST}", "--mbcache=256", "--stats-period=1000"]
    name = f"testpmd, {devices[-1].partition('0,')[0]}"
    return Peer(name, ["dpdk-testpmd", *eal, *cores, "--", *forward, *usual], testpmd_sent, stack)


def testpmd_sent(output: str) -> int:
    """TX-packets of its closing statistics. Raises EngineError when they are not there."""
    found = _TESTPMD_SENT.search(output)
    if found is None or NO_PORT in output:
        raise EngineError("testpmd", "it ended without saying how much it sent", output[-2000:])
    return int(found[1])
