"""`python -m pktswarm.lab.vm_tests [PYTEST OPTION…]`: tests/vm in the virtual machine, installed if it is missing."""

from __future__ import annotations

import signal
import sys

from pktswarm.lab import vm
from pktswarm.traffic.errors import PktswarmError


def main() -> int:
    # So that the machine's folder is removed, as it is on Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return vm.test(sys.argv[1:])
    except PktswarmError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
