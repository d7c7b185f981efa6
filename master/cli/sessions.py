"""`pktswarm sessions`: the N4 side of a scenario by itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from pktswarm.master.cli.options import enter_lab
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

EXAMPLES = "Example: pktswarm sessions configs/upf/sessions.yaml --hosts hosts/lab-default.yml --hold 10"


def sessions(
    config: Annotated[Path, typer.Argument(help="A file with a section upf; see docs/upf.md", show_default=False)],
    hosts: Annotated[Path | None, typer.Option("--hosts", help="The inventory: a lab's master is entered.")] = None,
    hold: Annotated[float, typer.Option(help="Seconds from the last establishment to the first deletion.", min=0)] = 0,
    users: Annotated[Path | None, typer.Option(help="Write every session there, as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Set up the sessions of a UPF over N4, hold them, take them down; no user traffic is sent."""
    from pktswarm.master.cluster import inventory
    from pktswarm.master.scenario.upf import load

    upf = load(config, None if hosts is None else inventory.load(hosts))
    if hosts is not None:
        enter_lab(hosts)
    # After that: an association's socket is in the namespace where it was made.
    from pktswarm.master.results import terminal
    from pktswarm.master.upf import session_results
    from pktswarm.master.upf.signalling_load import Loads
    from pktswarm.master.upf.smf import Smf

    with Smf(config, upf) as smf, terminal.console(stderr=True).status("association …") as shown:
        smf.progress = lambda done, asked: shown.update(f"sessions: {done:,} of {asked:,} answered")
        smf.associate()
        loads = Loads(smf)
        smf.establish()
        if users is not None:
            session_results.write_users(users, smf.sessions)
        loads.start(time.monotonic_ns())
        smf.run(hold)
        loads.stop()
        smf.end()
        document = session_results.document(smf, loads)
        status = EXIT_INCOMPLETE if session_results.failed(smf, loads) else EXIT_AS_EXPECTED
    if as_json:
        print(json.dumps(document))
    else:
        session_results.print_tables(terminal.console(), document)
    raise typer.Exit(status)
