"""The process that sends for the xdp engine: it does nothing but run the program, in one call to the kernel.

Started as `python -m nodes.senders.xdp_run PROGRAM_ID FRAME_BYTES BATCH REPEAT`. Program, maps and counts belong to
the guard. A signal ends the call and this process; until then it runs, sending or waiting.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from nodes.libbpf import program_by_id, run_live

MOST_REPEATS = 2**32 - 1
"""What one call can do: its counter has 32 bits. One more call follows, some 50 ms later."""
PAUSE = "pktswarm: a new call to the kernel, after ns: "


def main() -> None:
    # The default action, not Python's: a fatal signal ends the call in the kernel too, and cannot come between two
    # lines of Python and be forgotten.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    number, frame_bytes, batch, repeat = (int(word) for word in sys.argv[1:])
    program = program_by_id(number)
    while True:
        run_live(program, bytes(frame_bytes), repeat, batch)
        before_ns = time.monotonic_ns()
        os.write(1, f"{PAUSE}{before_ns}\n".encode())


if __name__ == "__main__":
    main()
