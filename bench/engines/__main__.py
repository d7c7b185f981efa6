"""The XDP engine beside trafgen, tcpreplay, testpmd and pktgen, everything in turn on the same veth pair.

sudo .venv/bin/python -m bench.engines
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import report
from bench.engines import by_clones, cards, guest, peers
from bench.engines.rates import say
from bench.engines.rows import ROWS, Bench
from bench.engines.wire import Wire, versions
from pktswarm.traffic.errors import PktswarmError

OVER_CARDS = {name: cards.rows(name) for name in cards.ROWS}
ALL = {**ROWS, by_clones.ROW: by_clones.rows, guest.ROW: guest.pktgen, **OVER_CARDS}
LEAST_ROUNDS = 5


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = report.parser("The XDP engine beside its peers.")
    parser.add_argument("--rounds", type=int, default=5, help="at least 5")
    parser.add_argument("--row", action="append", choices=ALL, help="only this one; may be given several times")
    parser.add_argument("--window", type=float, default=1.5, help="seconds in which a rate is measured")
    parser.add_argument("--try", dest="brief", action="store_true", help="one short round: does it run? No figures")
    arguments = parser.parse_args(words)
    if arguments.rounds < LEAST_ROUNDS and not arguments.brief:
        parser.error(f"--rounds is {LEAST_ROUNDS} or more, not {arguments.rounds} (--try is a short one)")
    return arguments


def measure(arguments: argparse.Namespace) -> list[report.Row]:
    names = arguments.row or list(ALL)
    if any(name != guest.ROW for name in names):
        peers.install()
        say(f"peers: {versions([*peers.PACKAGES.values(), peers.DRIVERS])}; Linux {os.uname().release}")
    with ExitStack() as stack:
        spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-engines-")))
        wires = [stack.enter_context(Wire()) for _ in range(2)]
        brief = arguments.brief
        bench = Bench(wires, spool, 1 if brief else arguments.rounds, arguments.window, brief)
        rows = []
        for name in names:
            say(f"--- {name}")
            rows += measure_row(name, bench)
        return rows


def measure_row(name: str, bench: Bench) -> list[report.Row]:
    """A row that cannot be measured does not hold; the others are measured all the same."""
    try:
        return ALL[name](bench)
    except PktswarmError as error:
        say(f"{name}: {error}")
        return [report.Row(f"{name}: NOT measured", None, None, "", None, None, at_least=0)]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is put back, as on Ctrl-C
    arguments = parse()
    if os.geteuid() != 0:
        sys.exit("bench.engines needs root: it makes network namespaces")
    try:
        rows = measure(arguments)
    except PktswarmError as error:
        sys.exit(f"bench.engines: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    report.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
