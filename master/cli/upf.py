"""`pktswarm upf`: the capabilities of a UPF, probed and stored as a profile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pktswarm.master.cli.defaults import DEFAULT_HOSTS, DEFAULT_RESULTS
from pktswarm.master.cli.options import Hosts, Json, Results, enter_lab, examples
from pktswarm.traffic.errors import BadInput

if TYPE_CHECKING:
    from pktswarm.master.cluster.inventory import Inventory
    from pktswarm.master.scenario.upf import Upf
    from pktswarm.master.upf.probe.plane import UserPlane

EXAMPLES = examples(
    "upf probe --hosts hosts/lab-default.yml",
    "upf probe --hosts hosts/upf.yml --json",
    "upf probe --hosts hosts/upf.yml --n4-only --no-profile",
)
app = typer.Typer(help="Find out the capabilities of a UPF under test.", no_args_is_help=True)


@app.command(epilog=EXAMPLES)
def probe(
    hosts: Hosts = DEFAULT_HOSTS,
    users: Annotated[
        list[str] | None,
        typer.Option(help="Address pool of the users, IPv4 or IPv6; repeatable.", show_default="10.45.0.10/16"),
    ] = None,
    access_instance: Annotated[
        str, typer.Option(help="Network instance of N3, if the UPF refuses sessions without it.")
    ] = "",
    core_instance: Annotated[str, typer.Option(help="Network instance of N6.")] = "",
    dnn: Annotated[str, typer.Option(help="DNN, if the UPF refuses sessions without it.")] = "",
    n4_only: Annotated[bool, typer.Option("--n4-only", help="Probe N4 only; no user packets are sent.")] = False,
    profile: Annotated[
        Path | None, typer.Option(help="Profile file to write.", show_default="hosts/NAME.upf.yml")
    ] = None,
    no_profile: Annotated[bool, typer.Option("--no-profile", help="Write no profile.")] = False,
    results: Results = DEFAULT_RESULTS,
    as_json: Json = False,
) -> None:
    """Probe a UPF with sessions of one user and one packet in each direction, in less than a minute.

    Exit status: 0 a session passes packets in both directions; 1 no session does; 2 bad input or no association;
    3 incomplete.
    """
    from pktswarm.master.cluster import inventory as inventories
    from pktswarm.master.results import terminal
    from pktswarm.master.scenario import upf_profile as profiles
    from pktswarm.master.upf.probe.outcome import Probed
    from pktswarm.master.upf.probe.users import DEFAULT_USERS, section

    inventory = inventories.load(hosts)
    upf = section(hosts, inventory, users or DEFAULT_USERS, {})
    enter_lab(hosts)
    instances = {"access_instance": access_instance, "core_instance": core_instance, "dnn": dnn}
    base = {"group": {name: value for name, value in instances.items() if value}}
    with terminal.console(stderr=True).status("associating with the UPF") as shown:
        findings, problem = _found(hosts, inventory, upf, base, n4_only, shown)
    probed = Probed(findings, problem, None if no_profile else profile or profiles.beside(hosts))
    folder = probed.write(results, f"pktswarm upf probe --hosts {hosts}")
    if as_json:
        print(json.dumps({"results": str(folder), **probed.document}))
    else:
        probed.print(terminal.console(), folder)
    raise typer.Exit(probed.status)


def _found(
    where: Path, inventory: Inventory, upf: Upf, base: dict[str, Any], n4_only: bool, shown: Any
) -> tuple[Any, str]:
    """Return the findings, and why the probe ended early (empty: it did not)."""
    from pktswarm.master.upf.probe.probe import Probe
    from pktswarm.master.upf.probe.signalling import Signalling
    from pktswarm.master.upf.probe.trials import UpfLostError

    known = inventory.variables.get("pktswarm_upf") or {}
    with contextlib.ExitStack() as stack:
        signalling = stack.enter_context(contextlib.closing(Signalling(where, upf)))
        plane = None if n4_only else stack.enter_context(_user_plane(where, inventory, upf))
        probe = Probe(signalling, plane, known.get("n3_ipv6") or "", base, lambda name: shown.update(name))
        try:
            return probe.run(), ""
        except UpfLostError as lost:
            return probe.findings, str(lost)


@contextlib.contextmanager
def _user_plane(where: Path, inventory: Inventory, upf: Upf) -> Iterator[UserPlane]:
    """Open the first gNB and the first data network node. Raises BadInput if the inventory lacks one, or an address."""
    from pktswarm.master.upf.probe.ends import End
    from pktswarm.master.upf.probe.packets import Wiring
    from pktswarm.master.upf.probe.plane import UserPlane

    gnb, server = (next((host for host in inventory.hosts if host.side == side), None) for side in ("n3", "n6"))
    if gnb is None or server is None:
        problem = f"no host of side {'n3' if gnb is None else 'n6'}"
        raise BadInput(where, problem, key="side", allowed="a host on n3 and one on n6, or --n4-only")
    for key, value in (("n3", upf.n3), ("n3_mac", upf.n3_mac), ("n6_mac", upf.n6_mac)):
        if not value:
            raise BadInput(where, "missing", key=f"pktswarm_upf.{key}", allowed="an address, or --n4-only")
    assert upf.n3 is not None
    wiring = Wiring(gnb.mac, server.mac, upf.n3_mac, upf.n6_mac, gnb.ipv4, upf.n3, server.ipv4, server.ipv6)
    arp_targets = {"4": upf.n3}, {"4": upf.n6 or ""}
    with End(inventory, gnb, arp_targets[0]) as gnb_end, End(inventory, server, arp_targets[1]) as server_end:
        yield UserPlane(gnb_end, server_end, wiring)
