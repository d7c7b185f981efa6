"""The command line. Every error becomes one message and an exit status here, and nowhere else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from traffic.errors import EXIT_BAD_INPUT, EXIT_INCOMPLETE, PktswarmError

app = typer.Typer(
    name="pktswarm",
    help="A network traffic tester made of cheap nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
lab_app = typer.Typer(help="A whole cluster on this machine, in network namespaces.", no_args_is_help=True)
app.add_typer(lab_app, name="lab")

DEFAULT_HOSTS = Path("hosts/lab-default.yml")
Scenario = Annotated[Path, typer.Argument(help="A scenario, e.g. configs/demo.yaml", show_default=False)]
Hosts = Annotated[Path, typer.Option("--hosts", help="The inventory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
LabName = Annotated[str, typer.Option("--name", help="Which lab.")]


def main() -> None:
    """Entry point of the `pktswarm` command."""
    try:
        app()
    except PktswarmError as error:
        print(f"pktswarm: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("pktswarm: interrupted", file=sys.stderr)
        sys.exit(EXIT_INCOMPLETE)
    except BrokenPipeError:
        sys.exit(EXIT_INCOMPLETE)


@app.command(epilog="Example: pktswarm run configs/demo.yaml --hosts hosts/lab-default.yml")
def run(
    scenario: Scenario,
    hosts: Hosts = DEFAULT_HOSTS,
    results: Annotated[Path, typer.Option(help="Where result folders are made.")] = Path("results"),
    as_json: Json = False,
) -> None:
    """Run a scenario on the hosts of an inventory.

    Exit status: 0 as expected, 1 not as expected, 2 bad input (nothing was sent), 3 incomplete.
    """
    from master import show
    from master.run import Run

    enter_lab(hosts)
    errors = Console(stderr=True)
    current = Run(scenario, hosts, results, lambda ledger, event: watch(ledger, event))
    watch = show.Watch(errors, current.plan.expected_s)
    with watch:
        finished = current.execute()
    if as_json:
        print(json.dumps({"results": str(finished.folder), **finished.outcome.document}))
    else:
        show.print_outcome(Console(), finished.outcome, finished.folder)
    raise typer.Exit(finished.outcome.status)


@app.command(epilog="Example: pktswarm check configs/demo.yaml --hosts hosts/example.yml")
def check(scenario: Scenario, hosts: Hosts = DEFAULT_HOSTS, as_json: Json = False) -> None:
    """Explain a scenario without running it: who sends what to whom, how much, how long."""
    from master.explain import explain, explain_json

    print(explain_json(scenario, hosts) if as_json else explain(scenario, hosts))


@app.command()
def schema() -> None:
    """Write the JSON Schema of scenarios to standard output, for editors."""
    from master.scenario import schema as text

    print(text(), end="")


@app.command(epilog="Example: pktswarm recount results/20260101T120000Z-demo")
def recount(
    result: Annotated[Path, typer.Argument(help="A folder under results/", show_default=False)], as_json: Json = False
) -> None:
    """Count again offline: the captures against what was sent. Exit status 1 when it disagrees with the run."""
    from master import recount as recounts

    outcome = recounts.recount(result)
    print(json.dumps(outcome.document) if as_json else "", end="\n" if as_json else "")
    if not as_json:
        Console().print(recounts.table(outcome))
        print(outcome.summary)
    raise typer.Exit(outcome.status)


def enter_lab(hosts: Path) -> None:
    """When the inventory is a lab's, go into the namespaces of its master; before any thread exists."""
    from master import inventory

    lab_vars = inventory.load(hosts).variables.get("pktswarm_lab")
    if lab_vars:
        import lab

        lab.enter(hosts)


@lab_app.command("up", epilog="Example: pktswarm lab up --transmit 3 --receive 3")
def lab_up(
    name: LabName = "default",
    transmit: Annotated[int, typer.Option(help="Transmit nodes.")] = 3,
    receive: Annotated[int, typer.Option(help="Receive nodes.")] = 3,
) -> None:
    """Bring up a master, nodes, a switch and a device under test."""
    import lab

    state = lab.up(name=name, transmit=transmit, receive=receive)
    print(f"lab {name} is up: {state}")


@lab_app.command("down")
def lab_down(name: LabName = "default") -> None:
    """Take the lab down; nothing of it stays."""
    import lab

    lab.down(name)
    print(f"lab {name} is down")


@lab_app.command("status")
def lab_status(name: LabName = "default", as_json: Json = False) -> None:
    """Say whether the lab is up, and what is in it."""
    import lab

    status = lab.status(name)
    print(json.dumps(status, indent=None if as_json else 2))


@lab_app.command("exec", epilog="Example: pktswarm lab exec rx1 -- tcpdump -ni eth1")
def lab_exec(
    node: Annotated[str, typer.Argument(help="m0, tx1, rx1, …", show_default=False)],
    command: Annotated[list[str], typer.Argument(help="after --", show_default=False)],
    name: LabName = "default",
) -> None:
    """Run a command on a node of the lab."""
    import lab

    raise typer.Exit(lab.run_in(name, node, command))


if __name__ == "__main__":
    main()

__all__ = ["EXIT_BAD_INPUT", "app", "main"]
