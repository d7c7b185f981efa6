"""Where a run refuses to send, and that names from a file cannot become options or commands."""

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pktswarm.master.benchmark.load import load_of
from pktswarm.master.benchmark.runs import Runs
from pktswarm.master.benchmark.trial import Tolerance
from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory, ssh
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.node import NodeState
from pktswarm.master.cluster.ranks import Rank, ranks
from pktswarm.master.plan import allowlist, plan
from pktswarm.master.results.folder import Folder
from pktswarm.master.run.kept_ranks import KeptRanks
from pktswarm.master.run.launch import Launch
from pktswarm.master.scenario import scenario
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import AddressPool, Shift
from run_events import node_report

HOSTS = """
all:
  vars: {VARS}
  children:
    master: {hosts: {m0: {ansible_host: 10.9.0.1}}}
    transmit: {hosts: {tx1: {ansible_host: 10.9.0.11, traffic_interface: eth1, ipv4: 8.8.4.1}}}
    receive: {hosts: {rx1: {ansible_host: 10.9.0.21, traffic_interface: eth1, ipv4: 8.8.4.2}}}
"""
STREAM = """name: t
streams: [{name: s, size_bytes: 128, count_packets: 1, rate_pps: 1, headers: [{ethernet: {}}, {%s}]}]
"""
IN_GTPU = "{udp: {src: 1, dst: 2152}}, {gtpu: {teid: 1}}"


def hosts(folder: Path, variables: str = "") -> Path:
    path = folder / "hosts.yml"
    path.write_text(HOSTS.replace("VARS", variables))
    return path


def check(folder: Path, header: str, variables: str = "", allow: allowlist.Allow | None = None) -> None:
    file = folder / "s.yaml"
    file.write_text(STREAM % header)
    read = (allow or allowlist.Allow()).inventory(inventory.load(hosts(folder, variables)))
    allowlist.check_plan(read, plan.plan(scenario.load(file), file, read))


@pytest.mark.parametrize(
    ("header", "variables"),
    [
        ("ipv4: {}", ""),
        ("ipv4: {dst: 192.168.7.7}", ""),
        ("ipv4: {dst: 8.8.4.2}", ""),  # a host's own, and so the inventory's
        ("ipv4: {dst: {random: [10.0.0.0, 10.255.255.255]}}", ""),
        ("ipv4: {dst: {decrement: [8.8.4.9, 8.8.4.0]}}", "pktswarm_under_test: [8.8.4.0/24]"),
        ("ipv4: {dst: {increment: [1.2.2.0, 1.2.3.255]}}", "pktswarm_under_test: [1.2.3.0/24, 1.2.2.0/24]"),
        ("ipv6: {src: fd00::1, dst: fd00::2}", ""),
        ("ipv6: {src: fd00::1, dst: '2a00::2'}", "pktswarm_under_test: ['2a00::/16']"),
        ("ipv4: {src: 8.8.8.8, dst: 10.0.0.1}", ""),  # what a frame says of its source goes nowhere
    ],
)
def test_what_is_under_test_is_sent_to(tmp_path: Path, header: str, variables: str) -> None:
    check(tmp_path, header, variables)


@pytest.mark.parametrize(
    ("header", "variables", "words"),
    [
        ("ipv4: {dst: 8.8.8.8}", "", ["ipv4.dst = '8.8.8.8'", "none is declared", "--allow-any-address"]),
        ("ipv4: {dst: 10.0.0.1}", "pktswarm_under_test: [198.18.0.0/15]", ["'10.0.0.1'", "198.18.0.0/15"]),
        ("ipv4: {dst: {increment: [10.255.255.250, 11.0.0.5]}}", "", ["'10.255.255.250 to 11.0.0.5'"]),
        ("ipv4: {dst: {decrement: [11.0.0.5, 10.255.255.250]}}", "", ["'10.255.255.250 to 11.0.0.5'"]),
        ("ipv4: {dst: {list: [10.0.0.1, 9.9.9.9]}}", "", ["'9.9.9.9'"]),
        ("ipv4: {dst: {pick: [9.9.9.9, 10.0.0.1]}}", "", ["'9.9.9.9'"]),
        (f"ipv4: {{}}}}, {IN_GTPU}, {{ipv4: {{src: 10.0.0.1, dst: 9.9.9.9}}", "", ["'9.9.9.9'"]),
        ("ipv6: {src: fd00::1, dst: '2a00::2'}", "", ["ipv6.dst = '2a00::2'"]),
        ("arp: {sender_mac: '02:00:00:00:00:01', sender_ip: 10.0.0.1, target_ip: 1.1.1.1}", "", ["arp.target_ip"]),
    ],
)
def test_what_is_not_is_refused_unless_allowed(tmp_path: Path, header: str, variables: str, words: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        check(tmp_path, header, variables)
    for word in [str(tmp_path / "hosts.yml"), "'s' would be sent there", *words]:
        assert word in str(caught.value)
    check(tmp_path, header, variables, allowlist.Allow(any_address=True))


TRACE = f"""name: t
traces: [{{name: s, file: {Path("configs/traces/ericload-udp.pcap").resolve()}, scale: SCALE}}]
"""


def trace_plan(folder: Path, scale: str, more: str = "") -> tuple[inventory.Inventory, plan.Plan]:
    file = folder / "s.yaml"
    file.write_text(TRACE.replace("SCALE", scale + more))
    read = inventory.load(hosts(folder))
    return read, plan.plan(scenario.load(file), file, read)


@pytest.mark.parametrize("name", ["users", "servers"])
def test_the_addresses_of_all_instances_of_a_trace_are_looked_at(tmp_path: Path, name: str) -> None:
    pools = {"users": "10.0.0.0", "servers": "10.1.0.0", name: "10.255.255.250"}
    given = "".join(f", {which}: {{first: {first}}}" for which, first in pools.items())
    allowlist.check_plan(*trace_plan(tmp_path, "1", given))
    with pytest.raises(BadInput, match=rf"{name} = '(10\.255.* to )?11\.0\.0\..*'s' would be sent there"):
        allowlist.check_plan(*trace_plan(tmp_path, "200", given))


def test_instances_that_leave_a_nodes_own_address_are_looked_at_when_it_is_known(tmp_path: Path) -> None:
    read, made = trace_plan(tmp_path, "{instances: 3, servers: 16777216}")
    allowlist.check_plan(read, made)
    legs = [replace(leg, pools={"servers": AddressPool("8.8.4.2", 1)}) for leg in made.legs]
    with pytest.raises(BadInput, match=r"servers = '9\.8\.4\.2'"):
        allowlist.check_legs(allowlist.Allowed(read), legs, made.shares)
    wrapping = replace(legs[0], pools={"servers": AddressPool("255.255.255.255", 2)})
    with pytest.raises(BadInput, match=r"servers = '8\.8\.4\.2 to 8\.8\.4\.3'"):
        shifted = replace(wrapping, shift=Shift(server=int(IPv4Address("8.8.4.2")) + 1))
        allowlist.check_legs(allowlist.Allowed(read), [shifted], made.shares)


def test_the_tunnel_that_a_upf_asks_for_is_looked_at(tmp_path: Path) -> None:
    read, made = trace_plan(tmp_path, "1")
    with pytest.raises(BadInput, match=r"gtpu\.target = '9\.9\.9\.9'"):
        allowlist.check_legs(allowlist.Allowed(read), made.legs, made.shares, {made.legs[0].id: "9.9.9.9"})


def test_the_command_refuses_before_any_host_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STREAM % "ipv4: {dst: 8.8.8.8}")
    for command in ("check", "run"):
        done = CliRunner().invoke(app, [command, str(file), "--hosts", str(hosts(tmp_path))])
        assert getattr(done.exception, "exit_status", None) == 2 and "8.8.8.8" in str(done.exception)


def test_what_makes_many_runs_can_be_told_otherwise_too(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STREAM % "ipv4: {dst: 8.8.8.8}")
    load = load_of(file, scenario.load(file), inventory.load(hosts(tmp_path)), [])
    given = (load, hosts(tmp_path), tmp_path, Tolerance(0.005), 1.0, Console(quiet=True))
    with pytest.raises(BadInput, match=r"8\.8\.8\.8"):
        Runs(*given, allowlist.Allow(), KeptRanks()).plan(load.own_pps, 1.0)
    assert Runs(*given, allowlist.Allow(any_address=True), KeptRanks()).plan(load.own_pps, 1.0).allow.any_address
    for command in ("run", "search", "rfc2544", "y1564", "table"):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        assert "--allow-any-address" in shown and "--allow-control-interface" in shown


def node(carries: list[str]) -> NodeState:
    rank = Rank(1, Host("tx1", "", ("transmit",), traffic_interface="eth1"), "transmit")
    return NodeState(rank, node_report(interface={"name": "eth1", "exists": True, "carries": carries}))


def test_an_interface_with_the_default_route_is_refused() -> None:
    allowlist.refuse_interfaces([node([])], allowlist.Allow())
    with pytest.raises(BadInput, match=r"tx1: traffic_interface = 'eth1': carries the node's default route.*--allow-c"):
        allowlist.refuse_interfaces([node(["the node's default route"])], allowlist.Allow())
    allowlist.refuse_interfaces([node(["the node's default route"])], allowlist.Allow(control_interface=True))


# --- names that would be options or commands ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ansible_host", "-oProxyCommand=touch"),
        ("ansible_host", "10.0.0.1;id"),
        ("ansible_host", "$(id)"),
        ("traffic_interface", "-i"),
        ("traffic_interface", "eth1;id"),
        ("traffic_interface", "../eth1"),
        ("control_interface", "eth0 -env X"),
        ("pktswarm_python", "/usr/bin/python;id"),
        ("pktswarm_python", "/usr/bin/$(id)"),
        ("pktswarm_python", "python3"),
        ("pktswarm_user", "-root"),
        ("pktswarm_user", "a b"),
    ],
)
def test_a_hosts_variables_cannot_be_options_or_commands(tmp_path: Path, key: str, value: str) -> None:
    path = hosts(tmp_path)
    text = path.read_text().replace("{ansible_host: 10.9.0.11, traffic_interface: eth1,", "{")
    given = {"ansible_host": "10.9.0.11", "traffic_interface": "eth1", key: value}
    path.write_text(text.replace("tx1: {", "tx1: {" + ", ".join(f"{k}: {v!r}" for k, v in given.items()) + ","))
    with pytest.raises(BadInput, match=key):
        inventory.load(path)


@pytest.mark.parametrize("name", ["-oX=1", "a b", "$(id)", "../x", "a;b", "a/b", "", "a\nb"])
def test_hosts_streams_and_scenarios_have_plain_names(tmp_path: Path, name: str) -> None:
    path = hosts(tmp_path)
    path.write_text(path.read_text().replace("tx1:", f"{name!r}:".replace("'", '"')))
    with pytest.raises(BadInput):
        inventory.load(path)
    for text in ("name: {}\nstreams: [{{name: s}}]", "name: t\nstreams: [{{name: {}, count_packets: 1}}]"):
        file = tmp_path / "s.yaml"
        file.write_text(text.format(f"{name!r}".replace("'", '"')))
        with pytest.raises(BadInput, match="name"):
            scenario.load(file)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("pktswarm_ssh_config", "'x -oProxyCommand=id'"),
        ("pktswarm_ssh_config", "-oProxyCommand=id"),
        ("pktswarm_ssh_config", "[a]"),
        ("pktswarm_under_test", "10.0.0.0/8"),
        ("pktswarm_under_test", "[10.0.0.1/8]"),
        ("pktswarm_under_test", "[]"),
        ("pktswarm_under_test", "[7]"),
    ],
)
def test_variables_of_all_are_checked(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(BadInput, match=rf"hosts.yml: all.vars.{variable} = .*allowed"):
        inventory.load(hosts(tmp_path, f"{variable}: {value}"))


def test_what_the_other_ends_shell_reads_is_quoted(tmp_path: Path) -> None:
    read = inventory.load(hosts(tmp_path))
    command = ssh.command(read, read.hosts[0], ["python", "-c", "import x; $(id)"])
    assert command[-3:] == ["--", "10.9.0.11", "python -c 'import x; $(id)'"]


def test_no_word_of_a_rank_is_from_a_scenario(tmp_path: Path) -> None:
    """What a scenario says goes over MPI to the guard, never into a command line of mpiexec's."""
    file = tmp_path / "s.yaml"
    file.write_text(STREAM % "ipv4: {}" + "description: MARK\nreceive: {filter: 'udp port 4242'}\n")
    read = inventory.load(hosts(tmp_path))
    launch = Launch(read, ranks(read, plan.plan(scenario.load(file), file, read).legs))
    words = " ".join(launch.command())
    launch.stop()
    assert "nodes" in words and "MARK" not in words and "4242" not in words


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", "a/../../x", "-x"])
def test_a_nodes_capture_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path, "t")
    path = folder.capture("rx1", name)
    folder.close()
    assert path.parent == folder.path / "captures" and path.parent.resolve() == path.resolve().parent
    assert (folder.path / "captures").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("words", ["-w /tmp/x", "; id", "$(id)", "--help", "udp\0port 1"])
def test_a_filter_is_compiled_never_a_word_of_a_command(words: str) -> None:
    from pktswarm.traffic.capture import filter as pcap

    with pytest.raises(BadInput):
        pcap.compile_ethernet(words, "receive")
