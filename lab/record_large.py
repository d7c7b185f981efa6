"""Records two large traces between real programs (`pktswarm lab record --large`).

A download of 60 MB over TCP (curl from an HTTPS server) and a bursty video over UDP (lab/video.py), of like size and
mix as those that Hrustic 2022, 4.3.2, replays and does not give away. In a lab of its own, whose device lets 250 Mbit/s
through: the reference's download took two seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pktswarm.lab import api, video
from pktswarm.lab.record import (
    MTU_BYTES,
    Site,
    addresses_of,
    background,
    fetch,
    lab_site,
    make_certificate,
    need_tools,
    run,
    trace_of,
    web_server,
)
from pktswarm.traffic.capture.trace import Trace

TOOLS = ("curl", "openssl", "tcpdump")
TCP_OUT = Path("configs/traces/large-tcp.pcapng")
UDP_OUT = Path("configs/traces/large-udp.pcapng")
DOWNLOAD_BYTES = 60_000_000
VIDEO_S = 26.0
VIDEO_PORT = 8443
BOTTLENECK_BPS = 250_000_000
MOST_S = 120.0
"""Time limit of a download, whose duration is unknown beforehand."""


def record_large(
    tcp: Path = TCP_OUT,
    udp: Path = UDP_OUT,
    hosts_dir: Path = api.HOSTS,
    download_bytes: int = DOWNLOAD_BYTES,
    video_s: float = VIDEO_S,
) -> tuple[Trace, Trace]:
    """Records both traces, to `tcp` and `udp`. Raises BadInput without root, PktswarmError if a program is missing or
    failed."""
    need_tools(TOOLS)
    with _lab(hosts_dir) as site:
        return (
            _recorded(site, tcp, lambda work: _download(site, work, download_bytes)),
            _recorded(site, udp, lambda work: _video(site, work, video_s)),
        )


@contextmanager
def _lab(hosts_dir: Path) -> Iterator[Site]:
    name = f"record-{os.getpid()}"
    api.up(name, 1, 1, hosts_dir, MTU_BYTES, BOTTLENECK_BPS)
    try:
        site = lab_site(name, hosts_dir)
        with addresses_of(site):
            yield site
    finally:
        api.down(name, hosts_dir)


def _recorded(site: Site, out: Path, converse: Callable[[Path], None]) -> Trace:
    with tempfile.TemporaryDirectory(prefix="pktswarm-record-") as folder:
        return trace_of(site, Path(folder), out, lambda: converse(Path(folder)))


def _download(site: Site, work: Path, size_bytes: int) -> None:
    make_certificate(work)
    with background(web_server(site, work), work, "ready"):
        run(fetch(site, work, size_bytes, MOST_S), MOST_S)


def _video(site: Site, work: Path, seconds: float) -> None:
    ends = site.client_ipv4, site.server_ipv4
    serve = [*site.server, sys.executable, video.__file__, "serve", site.server_ipv4, str(VIDEO_PORT)]
    with background(serve, work, "ready"):
        run(
            [*site.client, sys.executable, video.__file__, "watch", *ends, str(VIDEO_PORT), str(seconds)],
            4 * seconds + 30,
        )
