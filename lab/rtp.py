"""One end of a call: an RTP stream (RFC 3550) of G.711 frames, 160 bytes every 20 ms, to the other end.

A program of its own: rtp.py LOCAL_ADDRESS REMOTE_ADDRESS PORT SECONDS TONE_HZ. It ends with an error when it received
no packet.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import sys
import time

SAMPLES_PER_S = 8000
FRAME_SAMPLES = 160
FRAME_NS = 20_000_000
PAYLOAD_TYPE_PCMU = 0  # RFC 3551, table 4
FIRST_SEQUENCE = 1000
SETTLE_S = 0.6


def mu_law(sample: int) -> int:
    """Returns a 14-bit sample as one byte: ITU-T G.711, table 2a."""
    sign, magnitude = (0x80, -sample) if sample < 0 else (0, sample)
    magnitude = min(magnitude, 8158) + 33
    exponent = magnitude.bit_length() - 6
    return ~(sign | exponent << 4 | (magnitude >> (exponent + 1)) & 0x0F) & 0xFF


def audio_frame(number: int, tone_hz: float) -> bytes:
    first = number * FRAME_SAMPLES
    angles = (2 * math.pi * tone_hz * n / SAMPLES_PER_S for n in range(first, first + FRAME_SAMPLES))
    return bytes(mu_law(round(4000 * math.sin(angle))) for angle in angles)


def rtp_packet(number: int, tone_hz: float) -> bytes:
    marker = 0x80 if number == 0 else 0
    sequence, timestamp, source = FIRST_SEQUENCE + number, number * FRAME_SAMPLES, round(tone_hz)
    header = struct.pack(">BBHII", 0x80, marker | PAYLOAD_TYPE_PCMU, sequence & 0xFFFF, timestamp, source)
    return header + audio_frame(number, tone_hz)


def call(local: str, remote: str, port: int, seconds: float, tone_hz: float) -> int:
    """Sends for `seconds`; returns the number of packets received meanwhile."""
    received = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind((local, port))
        line.connect((remote, port))
        line.setblocking(False)
        # The other end starts and ends at about the same time; this port must be open all the while.
        time.sleep(SETTLE_S)
        start_ns = time.monotonic_ns()
        for number in range(round(seconds * 1e9) // FRAME_NS):
            time.sleep(max(0, start_ns + number * FRAME_NS - time.monotonic_ns()) / 1e9)
            line.send(rtp_packet(number, tone_hz))
            with contextlib.suppress(BlockingIOError):
                while line.recv(2048):
                    received += 1
        time.sleep(SETTLE_S)
    return received


if __name__ == "__main__":
    if not call(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])):
        sys.exit("no packet received from the other end")
