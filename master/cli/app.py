"""The `pktswarm` command: its subcommands, and the one place that turns errors into messages and exit statuses."""

from __future__ import annotations

import copy
import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from typer.models import CommandInfo

from pktswarm.master.cli import (
    calibrate,
    cluster,
    compare,
    complete,
    configs,
    demo,
    dependence,
    doctor,
    manual,
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
from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import (
    AnyAddress,
    ControlInterface,
    Hosts,
    Json,
    Labels,
    Metrics,
    Patience,
    ResultFolder,
    Results,
    ScenarioFile,
    Wait,
    enter_lab,
    examples,
    serve_metrics,
)
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED, BadInputs, PktswarmError

app = typer.Typer(
    name="pktswarm",
    help="Test networks and 5G user planes with traffic from many small nodes.\n\n"
    "Exit status: 0 as expected; 1 not as expected; 2 bad input, nothing was sent; 3 incomplete (a node was lost, "
    "an engine failed, or Ctrl-C).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cli_lab.app, name="lab")
app.add_typer(upf.app, name="upf")
app.add_typer(cluster.app, name="cluster")
app.command(epilog=calibrate.EXAMPLES)(calibrate.calibrate)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog=configs.EXAMPLES)(configs.configs)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=dependence.EXAMPLES)(dependence.dependence)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(epilog=manual.EXAMPLES)(manual.man)
app.command(epilog=preview.EXAMPLES)(preview.preview)
app.command(epilog=provision.EXAMPLES)(provision.provision)
app.command(epilog=cli_report.EXAMPLES)(cli_report.report)
app.command(epilog=status.EXAMPLES)(status.status)
app.command(epilog=search.EXAMPLES)(search.search)
app.command(epilog=rfc2544.EXAMPLES)(rfc2544.rfc2544)
app.command(epilog=y1564.EXAMPLES)(y1564.y1564)
app.command(epilog=table.EXAMPLES)(table.table)
app.command(epilog=sessions.EXAMPLES)(sessions.sessions)

RUN_EXAMPLES = examples(
    "run configs/demo.yaml --hosts hosts/lab-default.yml",
    "run configs/demo.yaml --metrics 9464",
    "run configs/demo.yaml --repeat 5 --no-report",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pktswarm {VERSION}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Run the `pktswarm` command."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        invoke(sys.argv[1:])
    except PktswarmError as error:
        for each in error.problems if isinstance(error, BadInputs) else (error,):
            print(f"pktswarm: {each}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(EXIT_INCOMPLETE)
    finally:
        # A second Ctrl-C must not replace the exit status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def invoke(words: list[str]) -> None:
    """Run the command that `words` are, without the name of the program.

    typer builds all commands of an app at each start: it gets an app with the named one only. `man`, which describes
    all of them, finds the whole app as the context's object.
    """
    named = copy.copy(app)
    named.registered_commands = [each for each in app.registered_commands if [_name(each)] == words[:1]]
    named.registered_groups = [each for each in app.registered_groups if [each.name] == words[:1]]
    (named if named.registered_commands or named.registered_groups else app)(words, obj=app)


def _name(command: CommandInfo) -> str:
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def _interrupt(*_: object) -> NoReturn:
    """Handle Ctrl-C outside a run: unwind the stack, so that every cleanup runs. A run has a handler of its own."""
    raise PktswarmError("interrupted")


@app.command(epilog=RUN_EXAMPLES)
def run(
    scenario: ScenarioFile,
    hosts: Hosts = DEFAULT_HOSTS,
    results: Results = DEFAULT_RESULTS,
    patience: Patience = 1.0,
    as_json: Json = False,
    junit: cli_report.Junit = None,
    page: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html after the run.")] = True,
    repeat: Annotated[
        int | None, typer.Option(help="Number of runs, 2 or more, and the dispersion of their figures.", min=2)
    ] = None,
    metrics: Metrics = None,
    any_address: AnyAddress = False,
    control_interface: ControlInterface = False,
    label: Labels = None,
    wait: Wait = False,
) -> None:
    """Run a scenario on the hosts of an inventory, and write its counts into a results folder."""
    from pktswarm.master import report
    from pktswarm.master.cluster import dut
    from pktswarm.master.live.watch import watched
    from pktswarm.master.plan.allowlist import Allow
    from pktswarm.master.results import terminal
    from pktswarm.master.run.run import Run

    allow, labels = Allow(any_address, control_interface), dut.labels("run", label or [])
    report.check_target(junit, "--junit", "run")
    served = serve_metrics(metrics)
    enter_lab(hosts)
    if repeat is not None:
        cli_repeat.repeat(scenario, hosts, results, patience, repeat, as_json, junit, page, served, allow, labels, wait)
    with cluster.kept_ranks(wait, several=False) as kept:
        finished = watched(Run(scenario, hosts, results, patience, allow=allow, kept=kept, labels=labels), served)
    if as_json:
        print(json.dumps({"results": str(finished.folder), **finished.outcome.document}))
    else:
        terminal.print_outcome(terminal.console(), finished.outcome, finished.folder)
    cli_report.after_run(finished, junit, page)
    raise typer.Exit(finished.outcome.status)


@app.command(epilog=examples("check configs/demo.yaml", "check configs/demo.yaml --hosts hosts/example.yml"))
def check(
    scenario: ScenarioFile,
    hosts: Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            help="Inventory file.",
            show_default=f"{DEFAULT_HOSTS} if it exists, else none",
            autocompletion=complete.inventories,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a scenario and print its flows, rates and duration; no host is contacted and no lab is needed.

    Without an inventory, the hosts that the scenario names are assumed to exist.
    """
    from pktswarm.master.plan.explain import explain, explain_json

    hosts = DEFAULT_HOSTS if hosts is None and DEFAULT_HOSTS.exists() else hosts
    print(explain_json(scenario, hosts) if as_json else explain(scenario, hosts))


@app.command(epilog=examples("schema > scenario.schema.json", "schema run > run.schema.json"))
def schema(
    file: Annotated[
        Literal["scenario", "run"], typer.Argument(help="A scenario file, or run.json of a result.")
    ] = "scenario",
) -> None:
    """Print the JSON Schema of scenario files, for editors, or of run.json."""
    if file == "run":
        from pktswarm.master.results.read_document import schema as text
    else:
        from pktswarm.master.scenario.scenario import schema as text

    print(text(), end="")


@app.command(epilog=examples("recount results/20260101T120000Z-demo"))
def recount(result: ResultFolder, as_json: Json = False) -> None:
    """Count the packets of a run's captures again, offline, and compare the counts with those of the run.

    Exit status: 0 the counts agree; 1 they differ; 2 bad input.
    """
    from pktswarm.master.results import recount as recounts
    from pktswarm.master.results import terminal

    outcome = recounts.recount(result)
    if as_json:
        print(json.dumps(outcome.document))
    else:
        terminal.console().print(recounts.table(outcome))
        print(outcome.summary)
    raise typer.Exit(outcome.status)


@app.command(epilog=examples("verify results/20260101T120000Z-demo mirror.pcap"))
def verify(
    result: ResultFolder,
    capture: Annotated[
        Path, typer.Argument(help="Capture file recorded during the run, e.g. at a mirror port.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Compare an external capture with the packets that the traces of a run intended, packet by packet.

    Exit status: 0 all packets match; 1 a packet is lost, altered, duplicated or reordered; 2 bad input.
    """
    from pktswarm.master.results import trace_verify as verifies

    results = verifies.elsewhere(result, capture)
    if as_json:
        print(json.dumps({"verified": verifies.document(results)}))
    else:
        print("\n".join(verdict["text"] for verdict in verifies.verdicts(results)))
    matches = [result.verified for result in results if result.verified is not None]
    whole = all(match.holds and not match.lost for match in matches)
    raise typer.Exit(EXIT_AS_EXPECTED if whole else EXIT_NOT_AS_EXPECTED)


if __name__ == "__main__":
    main()
