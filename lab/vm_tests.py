"""`python -m lab.vm_tests [PYTEST OPTION…]`: tests/vm in the virtual machine, which is installed if it is missing."""

from __future__ import annotations

import sys

from lab import vm
from traffic.errors import PktswarmError


def main() -> int:
    try:
        return vm.test(sys.argv[1:])
    except PktswarmError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
