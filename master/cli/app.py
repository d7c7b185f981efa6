"""The command line. Every error becomes one message and an exit status here, and nowhere else."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pktswarm.master.cli import (
    calibrate,
    compare,
    dependence,
    doctor,
    preview,
    provision,
    rfc2544,
    search,
    sessions,
    status,
    table,
    upf,
    y1564,
)
from pktswarm.master.cli import lab as cli_lab
from pktswarm.master.cli import repeat as cli_repeat
from pktswarm.master.cli import report as cli_report
from pktswarm.master.cli.options import AnyAddress, ControlInterface, enter_lab
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, PktswarmError

if TYPE_CHECKING:
    from pktswarm.master.live.metrics import Served

app = typer.Typer(
    name="pktswarm",
    help="A network traffic tester made of cheap nodes. Exit status: 0 as expected, 1 not as expected, "
    "2 bad input (nothing was sent), 3 incomplete (a node lost, an engine failed, Ctrl-C).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cli_lab.app, name="lab")
app.add_typer(upf.app, name="upf")
app.command(epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog="Example: pktswarm dependence trace.pcap --repeat 4 --scale 4")(dependence.dependence)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(epilog=preview.EXAMPLES)(preview.preview)
app.command(epilog=provision.EXAMPLES)(provision.provision)
app.command(epilog=cli_report.EXAMPLES)(cli_report.report)
app.command(epilog=status.EXAMPLES)(status.status)
app.command(epilog=search.EXAMPLES)(search.search)
app.command(epilog=rfc2544.EXAMPLES)(rfc2544.rfc2544)
app.command(epilog=y1564.EXAMPLES)(y1564.y1564)
app.command(epilog=table.EXAMPLES)(table.table)
app.command(epilog=sessions.EXAMPLES)(sessions.sessions)

Scenario = Annotated[Path, typer.Argument(help="A scenario, e.g. configs/demo.yaml", show_default=False)]
Hosts = Annotated[Path, typer.Option("--hosts", help="The inventory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
DEFAULT_HOSTS = Path("hosts/lab-default.yml")
RUN_EXAMPLES = (
    "Examples: pktswarm run configs/demo.yaml --hosts hosts/lab-default.yml · "
    "pktswarm run configs/demo.yaml --metrics 9464 · pktswarm run configs/demo.yaml --repeat 5 --no-report"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pktswarm {VERSION}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point of the `pktswarm` command."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except PktswarmError as error:
        print(f"pktswarm: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(EXIT_INCOMPLETE)
    finally:
        # Nothing is left to interrupt, and another Ctrl-C would take the place of the exit status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(*_: object) -> NoReturn:
    """Ctrl-C outside of a run (which handles it in order): unwinds, so that everything is undone on the way."""
    raise PktswarmError("interrupted")


@app.command(epilog=RUN_EXAMPLES)
def run(
    scenario: Scenario,
    hosts: Hosts = DEFAULT_HOSTS,
    results: Annotated[Path, typer.Option(help="Where result folders are made.")] = Path("results"),
    patience: Annotated[float, typer.Option(help="Multiplies every deadline, for slow hosts.", min=0.1)] = 1.0,
    as_json: Json = False,
    junit: cli_report.Junit = None,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Make report.html at the end.")] = True,
    repeat: Annotated[int | None, typer.Option(help="So many times, to see how its figures scatter.", min=2)] = None,
    metrics: Annotated[
        int | None, typer.Option("--metrics", help="Serve the figures to Prometheus on this port of loopback; 0: any.")
    ] = None,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
) -> None:
    """Run a scenario on the hosts of an inventory."""
    from pktswarm.master import report
    from pktswarm.master.live.watch import watched
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results import terminal
    from pktswarm.master.run.run import Run

    allow = Allow(any_address, control_interface)
    report.check_target(junit, "--junit", "run")
    served = _metrics(metrics)
    enter_lab(hosts)
    if repeat is not None:
        cli_repeat.repeat(scenario, hosts, results, patience, repeat, as_json, junit, page, served, allow)
    finished = watched(Run(scenario, hosts, results, patience, allow=allow), served)
    if as_json:
        print(json.dumps({"results": str(finished.folder), **finished.outcome.document}))
    else:
        terminal.print_outcome(terminal.console(), finished.outcome, finished.folder)
    cli_report.after_run(finished, junit, page)
    raise typer.Exit(finished.outcome.status)


@app.command(epilog="Example: pktswarm check configs/demo.yaml --hosts hosts/example.yml")
def check(scenario: Scenario, hosts: Hosts = DEFAULT_HOSTS, as_json: Json = False) -> None:
    """Explain a scenario without running it: who sends what to whom, how much, how long."""
    from pktswarm.master.plan.explain import explain, explain_json

    print(explain_json(scenario, hosts) if as_json else explain(scenario, hosts))


@app.command(epilog="Example: pktswarm schema > scenario.schema.json")
def schema() -> None:
    """Write the JSON Schema of scenarios to standard output, for editors."""
    from pktswarm.master.scenario.scenario import schema as text

    print(text(), end="")


@app.command(epilog="Example: pktswarm recount results/20260101T120000Z-demo")
def recount(
    result: Annotated[Path, typer.Argument(help="A folder under results/", show_default=False)], as_json: Json = False
) -> None:
    """Count again offline: the captures against what was sent. Exit status 1 when it disagrees with the run."""
    from pktswarm.master.results import recount as recounts
    from pktswarm.master.results import terminal

    outcome = recounts.recount(result)
    if as_json:
        print(json.dumps(outcome.document))
    else:
        terminal.console().print(recounts.table(outcome))
        print(outcome.summary)
    raise typer.Exit(outcome.status)


@app.command(epilog="Example: pktswarm verify results/20260101T120000Z-demo mirror.pcap")
def verify(
    result: Annotated[Path, typer.Argument(help="A folder under results/", show_default=False)],
    capture: Annotated[Path, typer.Argument(help="A capture made during the run, e.g. at a mirror port.")],
    as_json: Json = False,
) -> None:
    """Compare a capture from elsewhere with what the run's traces intended, packet by packet.

    Exit status 1 when a packet is lost, altered, duplicated or out of order there.
    """
    from pktswarm.master.results import trace_verify as verifies

    results = verifies.elsewhere(result, capture)
    if as_json:
        print(json.dumps({"verified": verifies.document(results)}))
    else:
        print("\n".join(verdict["text"] for verdict in verifies.verdicts(results)))
    whole = all(one.verified.holds and not one.verified.lost for one in results if one.verified is not None)
    raise typer.Exit(EXIT_AS_EXPECTED if whole else EXIT_NOT_AS_EXPECTED)


def _metrics(port: int | None) -> Served | None:
    """Bound where this command was typed, not in the lab that it enters; no thread yet."""
    if port is None:
        return None
    from pktswarm.master.live.metrics import Served

    return Served(port)


if __name__ == "__main__":
    main()
