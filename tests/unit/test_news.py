"""Sleeping until something may have come over MPI: woken by a socket, and never for long."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pktswarm.traffic.protocol import mpi_wakeup
from pktswarm.traffic.protocol.mpi_wakeup import News


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield near, far


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any test takes, unless something wakes it."""
    monkeypatch.setattr(mpi_wakeup, "LONGEST_S", 30.0)


def test_what_comes_over_tcp_ends_the_sleep(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    begun = time.monotonic()
    threading.Timer(0.05, lambda: far.send(b"x")).start()
    News().wait([], 30.0)
    assert 0.04 < time.monotonic() - begun < 20
    assert near.recv(1) == b"x"


def test_another_descriptor_ends_the_sleep_too(pair: tuple[socket.socket, socket.socket]) -> None:
    read, write = os.pipe()
    threading.Timer(0.05, lambda: os.write(write, b"x")).start()
    begun = time.monotonic()
    News().wait([read], 30.0)
    assert time.monotonic() - begun < 20
    os.close(read)
    os.close(write)


def test_a_socket_that_stays_readable_does_not_make_it_spin(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x")
    this, begun, waits = News(), time.monotonic(), 0
    while time.monotonic() - begun < 0.2:
        this.wait([], 30.0)
        waits += 1
    # Every other one sleeps a millisecond at least.
    assert waits <= 2 * 0.3 / mpi_wakeup.WITHOUT_SOCKETS_S


@pytest.mark.parametrize("under_way", [False, True], ids=["no socket of MPI", "something to be sent"])
def test_without_a_hint_to_trust_the_sleep_is_short(under_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_wakeup, "_is_stream_of_ip", lambda descriptor: under_way)
    begun = time.monotonic()
    News().wait([], 30.0, under_way)
    assert time.monotonic() - begun < 20


def test_the_sleep_ends_in_time_without_news(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_wakeup, "LONGEST_S", 0.05)
    begun = time.monotonic()
    News().wait([], 30.0)
    assert 0.04 < time.monotonic() - begun < 20


@pytest.mark.parametrize("module", ["guard", "probe", "rank", "receivers.xdp"])
def test_what_every_node_loads_is_light(module: str) -> None:
    """NumPy takes a fifth of a second on a board, and 25 MB; a rank, a guard and the counter do without."""
    program = f"import pktswarm.nodes.{module}, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0
