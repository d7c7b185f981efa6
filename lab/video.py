"""A bursty video over UDP, as a player fetches one: chunks of different sizes at different times, each as fast as it
goes.

Two programs: video.py serve ADDRESS PORT, and video.py watch LOCAL REMOTE PORT SECONDS, which ends with an error when a
packet did not come. Sizes are those of a recorded one over QUIC (Hrustic 2022, 4.3.2): 89 % of the packets are frames
of 1,250 bytes, 40,000 packets in 26 s. What a packet says stands in its first bytes, the rest is noise.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time

HEAD = struct.Struct(">BII")
"""Kind, number of the chunk, and how many packets: the chunk's (REQUEST), those that came (ACK), this one's place."""
REQUEST, DATA, ACK = range(3)
DATA_BYTES = 1208
ACK_BYTES = 33
ACK_EVERY = 8
WINDOW = 96
"""Packets in flight: the default capacity of a socket."""
PACKETS_PER_S = 1350.0
GAP_S = 0.65
SPREAD = 0.7
"""Standard deviation of the logarithm of a chunk's size."""
SEED = 43
SILENCE_S = 2.0
NOISE = random.Random(SEED).randbytes(DATA_BYTES)  # noqa: S311 (content, no secret)


def chunks(seconds: float) -> list[tuple[float, int]]:
    """Returns (request time, packets) of each chunk: exponential gaps, lognormal sizes, reproducible."""
    draw = random.Random(SEED)  # noqa: S311 (a shape, no secret)
    times, at_s = [], 0.0
    while at_s < seconds:
        times.append(at_s)
        at_s += draw.expovariate(1 / GAP_S)
    sizes = [draw.lognormvariate(0.0, SPREAD) for _ in times]
    scale = PACKETS_PER_S * seconds / sum(sizes)
    return [(at_s, max(1, round(size * scale))) for at_s, size in zip(times, sizes, strict=True)]


def message(kind: int, chunk: int, number: int, size_bytes: int) -> bytes:
    return (HEAD.pack(kind, chunk, number) + NOISE)[:size_bytes]


def serve(address: str, port: int) -> None:
    """Sends one player's chunks, one after another, until the process ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((address, port))
        print("ready", flush=True)
        total = sent = 0
        while True:
            asked, player = line.recvfrom(2048)
            kind, chunk, number = HEAD.unpack_from(asked)
            if kind == REQUEST:
                total, sent, number = number, 0, 0
            while sent < min(total, number + WINDOW):
                line.sendto(message(DATA, chunk, sent, DATA_BYTES), player)
                sent += 1


def watch(local: str, remote: str, port: int, seconds: float) -> int:
    """Returns the number of packets received. Raises TimeoutError when one is missing."""
    whole = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        line.bind((local, 0))
        line.connect((remote, port))
        line.settimeout(SILENCE_S)
        start_s = time.monotonic()
        for chunk, (at_s, packets) in enumerate(chunks(seconds)):
            time.sleep(max(0.0, start_s + at_s - time.monotonic()))
            line.send(message(REQUEST, chunk, packets, ACK_BYTES))
            for came in range(1, packets + 1):
                line.recv(2048)
                if came % ACK_EVERY == 0:
                    line.send(message(ACK, chunk, came, ACK_BYTES))
            whole += packets
    return whole


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        watch(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
