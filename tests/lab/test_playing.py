"""A node answers a real kernel for addresses that it has not: neighbours are found, echo requests answered."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from pktswarm.nodes.responder_sockets import Answers
from wire import SOL_PACKET, A, Wire, inside, ip

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")
PLAYED = ("192.0.2.11", "2001:db8::11")
PACKET_STATISTICS = 6
ECHO = bytes.fromhex("320100040000000012340000")
END_MARKER = bytes.fromhex("30fe000000000005")
G_PDU = bytes.fromhex("30ff00040000000500000000")


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    made.up()
    try:
        made.address()
        settings = [f"net.ipv6.conf.rx0.{name}" for name in ("disable_ipv6=0", "accept_dad=0")]
        subprocess.run(["ip", "netns", "exec", made.receiver, "sysctl", "-qw", *settings], check=True)
        ip("-n", made.receiver, "address", "add", "2001:db8::2/64", "dev", "rx0", "nodad")
        yield made
    finally:
        made.down()


def asked(address: str) -> socket.socket:
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    one.connect((address, 2152))
    one.setblocking(False)
    return one


def response(answers: Answers, one: socket.socket) -> bytes:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answers.serve()
        try:
            return one.recv(100)
        except BlockingIOError:
            time.sleep(0.005)
    raise AssertionError(f"no response; {answers.responder.received}")


def neighbours(wire: Wire) -> dict[str, str]:
    told = json.loads(ip("-n", wire.receiver, "-j", "neighbour", "show", "dev", "rx0"))
    return {one["dst"]: one.get("lladdr", "") for one in told}


def test_a_kernel_knows_its_neighbours_before_it_looks_for_them(wire: Wire) -> None:
    with inside(wire.receiver):
        own = json.loads(ip("-j", "-4", "address", "show", "dev", "rx0"))[0]["addr_info"][0]["local"]
    with inside(wire.sender):
        answers = Answers("tx0", A, ["192.0.2.11", "192.0.2.12"], [own])
    deadline = time.monotonic() + 20
    while not {"192.0.2.11", "192.0.2.12"} <= set(neighbours(wire)) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = neighbours(wire)
    assert (found["192.0.2.11"], found["192.0.2.12"]) == (A, A)
    answers.close()


@pytest.mark.parametrize("address", PLAYED)
def test_a_kernel_finds_its_neighbour_and_its_path(wire: Wire, address: str) -> None:
    with inside(wire.sender):
        answers = Answers("tx0", A, [*PLAYED])
    with inside(wire.receiver):
        upf = asked(address)
    with upf:
        upf.send(ECHO)
        assert response(answers, upf) == bytes.fromhex("3202000600000000123400000e00")
        assert neighbours(wire)[address] == A
        # A kernel may ask for the same neighbour twice.
        counts = dict(answers.responder.received.counts)
        assert counts["echo"] == 1 and counts["neighbour" if ":" in address else "arp"] >= 1
        # Users' packets are not handed to the sockets at all.
        seen(answers)
        for _ in range(50):
            upf.send(G_PDU)
        upf.send(ECHO)
        response(answers, upf)
        now = answers.responder.received.counts
        assert seen(answers) == sum(now.values()) - sum(counts.values()) and now["echo"] == 2
    answers.close()


def seen(answers: Answers) -> int:
    """Frames that the sockets were given since this was last asked."""
    told = [one.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8) for one in answers._sockets]
    return sum(struct.unpack("=II", one)[0] for one in told)


def test_nothing_is_left_of_it(wire: Wire) -> None:
    def multicast() -> str:
        return ip("-n", wire.sender, "-d", "link", "show", "tx0").split("allmulti ")[1].split()[0]

    assert multicast() == "0"
    with inside(wire.sender):
        answers = Answers("tx0", A, [*PLAYED])
    assert multicast() == "1"
    answers.close()
    assert multicast() == "0"
    with inside(wire.sender), pytest.raises(OSError, match="No such device"):
        Answers("tx9", A, [*PLAYED])


def test_what_comes_too_fast_is_told(wire: Wire) -> None:
    with inside(wire.sender):
        answers = Answers("tx0", A, [*PLAYED])
    with inside(wire.receiver):
        upf = asked(PLAYED[0])
    with upf:
        upf.send(ECHO)
        response(answers, upf)
        for one in answers._sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        # Fewer than net.core.netdev_max_backlog, 1000: no other queue drops one, however late its turn comes.
        for _ in range(900):
            upf.send(END_MARKER)
        deadline = time.monotonic() + 20
        while sum(found := [answers.counts().missed, answers.responder.received.ended[5]]) < 900:
            assert time.monotonic() < deadline, found
        missed, ended = found
    answers.close()
    assert missed > 0 and ended > 0 and missed + ended == 900


def test_a_link_that_goes_down_and_comes_back_ends_nothing(wire: Wire) -> None:
    with inside(wire.sender):
        answers = Answers("tx0", A, [*PLAYED])
    with inside(wire.receiver):
        upf = asked(PLAYED[0])
    with upf:
        ip("-n", wire.sender, "link", "set", "tx0", "down")
        answers.serve()
        ip("-n", wire.sender, "link", "set", "tx0", "up")
        upf.send(ECHO)
        response(answers, upf)
    answers.close()
