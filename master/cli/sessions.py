"""`pktswarm sessions`: the N4 signalling of a scenario, without user traffic."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.defaults import DEFAULT_RESULTS
from pktswarm.master.cli.options import Json, Labels, Results, enter_lab, examples, shipped_or_file
from pktswarm.master.cli.quantity import NOT_NEGATIVE, time_option
from pktswarm.master.cli.report import attempt
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE

if TYPE_CHECKING:
    from pktswarm.master.sessions.storage import SessionsDocument

EXAMPLES = examples("sessions configs/upf/sessions.yaml --hosts hosts/lab-default.yml --hold 10")
SessionsFile = Annotated[
    Path,
    typer.Argument(
        help="File with a section upf; see docs/upf.md.",
        show_default=False,
        callback=shipped_or_file,
        autocompletion=complete.scenarios,
    ),
]


def sessions(
    config: SessionsFile,
    hosts: Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            help="Inventory file; of a lab, its master is entered.",
            autocompletion=complete.inventories,
        ),
    ] = None,
    hold: Annotated[
        float,
        typer.Option(
            parser=time_option("--hold", NOT_NEGATIVE),
            metavar="TIME",
            help="Time from the last establishment to the first deletion, s or 2min, 0 or more.",
        ),
    ] = 0,
    results: Results = DEFAULT_RESULTS,
    users: Annotated[Path | None, typer.Option(help="Write a row for each session into this CSV file.")] = None,
    as_json: Json = False,
    label: Labels = None,
) -> None:
    """Establish the sessions of a UPF over N4, hold them and delete them; no user traffic is sent.

    Exit status: 0 all sessions were established and deleted; 2 bad input; 3 incomplete.
    """
    from pktswarm.master.cluster import dut, inventory
    from pktswarm.master.scenario.upf import load

    labels = dut.labels("sessions", label or [])
    cluster = None if hosts is None else inventory.load(hosts)
    upf = load(config, cluster)
    if hosts is not None:
        enter_lab(hosts)
    # The sockets of the association belong to the namespace in which they are created: the lab is entered before.
    from pktswarm.master.results import terminal
    from pktswarm.master.sessions import storage
    from pktswarm.master.upf import session_results
    from pktswarm.master.upf.signalling_load import Loads
    from pktswarm.master.upf.smf import Smf

    shown = terminal.console(stderr=True).status("associating with the UPF")
    with storage.folder(results, config) as folder, Smf(config, upf) as smf, shown:
        smf.progress = lambda done, total: shown.update(f"sessions: {done:,} of {total:,} answered")
        smf.associate()
        loads = Loads(smf)
        smf.establish()
        for file in filter(None, (users, folder / "sessions.csv")):
            session_results.write_users(file, smf.sessions)
        loads.start(time.monotonic_ns())
        smf.run(hold)
        loads.stop()
        smf.end()
        document = session_results.document(smf, loads)
        if (device := dut.entry(None if cluster is None else cluster.dut, labels)) is not None:
            document["dut"] = device
        status = EXIT_INCOMPLETE if session_results.failed(smf, loads) else EXIT_AS_EXPECTED
    _finish(folder, storage.document(config, hosts, hold, status, document), as_json)


def _finish(folder: Path, document: SessionsDocument, as_json: bool) -> NoReturn:
    """Store the document, print it and make the page."""
    from pktswarm.master.results import terminal
    from pktswarm.master.sessions import page, storage
    from pktswarm.master.upf.session_results import print_tables

    storage.write(folder, document)
    if as_json:
        print(json.dumps({"results": str(folder), **document}))
    else:
        print_tables(terminal.console(), document)
        print(f"results: {folder}")
    attempt("the report", lambda: print(f"report: {page.make(folder, document)}", file=sys.stderr))
    raise typer.Exit(document["status"])
