"""A device between in0 and out0 for both directions: each frame is late by so much, and a seeded part of them is lost.

Started in its namespace as `two_way_device.py DELAY_NS LOSS SEED`; ends when standard input does, and says how many
frames of each direction it passed on and lost.
"""

from __future__ import annotations

import heapq
import json
import random
import select
import struct
import sys
import time

from slow_device import PACKET_STATISTICS, packet_socket
from wire import PACKET_OUTGOING, SOL_PACKET


def main(delay_ns: int, loss: float, seed: int) -> None:
    ends = [packet_socket("in0"), packet_socket("out0")]
    chances = [random.Random(seed), random.Random(seed + 1)]
    due: list[tuple[int, int, int, bytes]] = []
    passed, lost = [0, 0], [0, 0]
    print("ready", flush=True)
    while True:
        wait_s = 0.05 if not due else min(0.05, max(0, due[0][0] - time.monotonic_ns()) / 1e9)
        readable, _, _ = select.select([*ends, sys.stdin], [], [], wait_s)
        if sys.stdin in readable:
            break
        for side, end in enumerate(ends):
            if end not in readable:
                continue
            data, _, _, address = end.recvmsg(65536, 256)
            if address[2] == PACKET_OUTGOING:
                continue
            if chances[side].random() < loss:
                lost[side] += 1
            else:
                heapq.heappush(due, (time.monotonic_ns() + delay_ns, sum(passed) + len(due), side, data))
        while due and due[0][0] <= time.monotonic_ns():
            _, _, side, data = heapq.heappop(due)
            ends[1 - side].send(data)
            passed[side] += 1
    for end in ends:
        assert struct.unpack("II", end.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1] == 0, "it lost frames itself"
    print(json.dumps({"passed": passed, "lost": lost}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
