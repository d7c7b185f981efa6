"""`python -m pktswarm.lab.upf N4-IPV4 N4-IPV6 SOCKET`: the lab's UPF on this host's n3 and n6. Prints "ready"."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from pktswarm.lab.upf.process import Upf


def main() -> None:
    # Sessions are many small objects without cycles: searching for cycles would take most of the time.
    gc.disable()
    upf = Upf(sys.argv[1:3], Path(sys.argv[3]))
    print("ready", flush=True)
    upf.run()


if __name__ == "__main__":
    main()
