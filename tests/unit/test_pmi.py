"""What stands between a rank and its proxy: two sockets, and a child whose end is the end."""

import os
import signal
import socket
import threading
from collections.abc import Callable

import pytest

from pktswarm.traffic.protocol.pmi import FINALIZING, Relay

QUESTION = b"cmd=get kvsname=kvs_1 key=PMI_hwloc_xmlfile\n"


def relayed(child: Callable[[socket.socket], int], proxy: Callable[[socket.socket], None]) -> int:
    """The child's exit status; `proxy` plays the other side meanwhile."""
    far, near = socket.socketpair()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            for end in (ours, far, near):
                end.close()
            status = child(theirs)
        finally:
            os._exit(status)
    theirs.close()
    player = threading.Thread(target=proxy, args=(far,))
    player.start()
    status = Relay(near, ours).until_end_of(pid)
    near.close()
    player.join(10)
    far.close()
    return os.waitstatus_to_exitcode(status)


def heard(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := end.recv(1 << 12)):
        data += more
    return data


def test_words_pass_both_ways_however_they_are_cut() -> None:
    said = [b"cmd=init pmi_version=1\ncmd=get", b"_maxes\n", b"cmd=barrier_in\n"]
    whole = b"".join(said)

    def child(end: socket.socket) -> int:
        for one in said:
            end.sendall(one)
        return 0 if heard(end, 8) == b"cmd=ok\n\n" else 1

    def proxy(end: socket.socket) -> None:
        if heard(end, len(whole)) == whole:
            end.sendall(b"cmd=ok\n\n")

    assert relayed(child, proxy) == 0


def test_the_question_for_the_topology_is_answered_here() -> None:
    words = []

    def child(end: socket.socket) -> int:
        end.sendall(QUESTION + b"cmd=after\n")
        return 7 if heard(end, 20).endswith(b"value=unavailable\n") else 1

    assert relayed(child, lambda end: words.append(heard(end, 1 << 20))) == 7
    assert words == [b"cmd=after\n"]


@pytest.mark.parametrize("gone_at_once", [True, False])
def test_a_proxy_that_is_gone_is_gone_for_the_rank_too(gone_at_once: bool) -> None:
    def child(end: socket.socket) -> int:
        return 5 if end.recv(10) == b"" else 1

    def proxy(end: socket.socket) -> None:
        if gone_at_once:
            end.close()
        else:
            end.shutdown(socket.SHUT_RDWR)

    assert relayed(child, proxy) == 5


def test_signals_go_where_they_went_before() -> None:
    """A descriptor that is closed becomes another one, into which Python would write the numbers of signals."""
    before = signal.getsignal(signal.SIGCHLD)
    assert relayed(lambda end: 0, lambda end: None) == 0
    assert signal.set_wakeup_fd(-1) == -1 and signal.getsignal(signal.SIGCHLD) == before


def test_a_child_that_dies_ends_it() -> None:
    def child(_: socket.socket) -> int:
        os.kill(os.getpid(), 9)
        return 0

    assert relayed(child, lambda _: None) == -9


def test_a_rank_that_finalizes_says_so_to_the_relay_alone() -> None:
    before = signal.getsignal(signal.SIGUSR1)

    def child(end: socket.socket) -> int:
        end.sendall(FINALIZING + b"\n")
        if heard(end, len(FINALIZING) + 1) != FINALIZING + b"\n":
            return 1
        end.sendall(b"cmd=finalize\n")
        return 0 if heard(end, 4) == b"ack\n" else 2

    def proxy(end: socket.socket) -> None:
        if heard(end, 13) == b"cmd=finalize\n":
            end.sendall(b"ack\n")

    try:
        assert relayed(child, proxy) == 0
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
