"""TCP_INFO parsed: a captured one of a real connection, and what the fields must be."""

import socket
import struct

import pytest

from pktswarm.traffic.connections import tcp_info
from pktswarm.traffic.errors import EngineError


def made(**fields: int) -> bytes:
    """A struct with some fields set, by their offsets in linux/tcp.h."""
    data = bytearray(232)
    places = {"unacked": (24, "I"), "rtt": (68, "I"), "rttvar": (72, "I"), "total_retrans": (100, "I")}
    places |= {"pacing_rate": (104, "Q"), "notsent": (144, "I"), "min_rtt": (148, "I"), "data_segs_out": (156, "I")}
    data[0] = fields.pop("state", 1)
    for name, value in fields.items():
        at, kind = places[name]
        struct.pack_into(f"={kind}", data, at, value)
    return bytes(data)


def test_microseconds_become_nanoseconds_and_the_counts_are_their_own() -> None:
    info = tcp_info.parse(
        made(
            rtt=1500, rttvar=200, min_rtt=900, total_retrans=7, data_segs_out=99, unacked=3, notsent=4, pacing_rate=125
        )
    )
    assert (info.rtt_ns, info.rttvar_ns, info.min_rtt_ns) == (1_500_000, 200_000, 900_000)
    assert (info.retransmitted_segments, info.data_segments, info.unacked_segments) == (7, 99, 3)
    assert info.notsent_bytes == 4
    assert info.pacing_rate_bps == 1000
    assert not info.all_acknowledged


def test_what_was_not_measured_is_none() -> None:
    info = tcp_info.parse(made(min_rtt=0xFFFFFFFF, pacing_rate=0xFFFFFFFFFFFFFFFF))
    assert (info.rtt_ns, info.min_rtt_ns, info.pacing_rate_bps) == (None, None, None)
    assert info.all_acknowledged


@pytest.mark.parametrize("state", tcp_info.CLOSED_STATES)
def test_a_closed_connection_waits_for_nothing(state: int) -> None:
    assert tcp_info.parse(made(state=state, unacked=1)).all_acknowledged


def test_a_short_struct_is_refused() -> None:
    with pytest.raises(EngineError, match="TCP_INFO has 104 bytes"):
        tcp_info.parse(bytes(104))


def test_the_kernels_own_struct_agrees_with_what_was_sent() -> None:
    """Against the running kernel, over loopback: data segments, acknowledged bytes, a round trip."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            for _ in range(5):
                client.sendall(b"x" * 100)
                assert peer.recv(100, socket.MSG_WAITALL) == b"x" * 100
                peer.sendall(b"y")
                assert client.recv(1) == b"y"
            info = tcp_info.parse(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, tcp_info.ASKED_BYTES))
    assert info.state == 1
    assert info.data_segments == 5 + info.retransmitted_segments
    assert info.all_acknowledged
    assert info.rtt_ns is not None and info.min_rtt_ns is not None and 0 < info.min_rtt_ns < 10**9
