"""The lab's inventory file, which a run reads, with the record of the lab's processes."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from pktswarm.lab.bare import ENVIRONMENT
from pktswarm.lab.mirror import PORT
from pktswarm.lab.plan import CONTROL_INTERFACE, TRAFFIC_INTERFACE, Node, Plan
from pktswarm.lab.ssh import CONFIG, FOLDER
from pktswarm.traffic import VERSION
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.yaml_loader import safe_load

LONGEST_SETTING = 200  # characters, as master.cluster.dut allows
HEADER = "# made by `pktswarm lab up`; removed by `pktswarm lab down`\n"


@dataclass(frozen=True)
class Keeper:
    """The processes of a lab, numbered as in the PID namespace of `up`."""

    name: str
    keeper_pid: int
    keeper_started: int
    """Start time in clock ticks since boot (/proc/PID/stat): a later process with the same number has another."""
    master_pid: int
    pids: dict[str, int]
    """The process that holds the namespaces of each node, of `switch` and of `dut`."""


def path_of(name: str, hosts_dir: Path) -> Path:
    return hosts_dir / f"lab-{name}.yml"


def profile_of(inventory: Path) -> Path:
    """Returns the file for the results of `pktswarm upf probe` on the lab's UPF."""
    return inventory.with_suffix(".upf.yml")


def write(path: Path, plan: Plan, keeper: Keeper) -> None:
    """Writes the inventory in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = HEADER + yaml.safe_dump(_inventory(plan, keeper), default_flow_style=None, sort_keys=False, width=10_000)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> Keeper | None:
    """Returns the lab's record; None if there is no such file. Raises BadInput if it is not a lab's inventory."""
    try:
        data = safe_load(path.read_text())
        return Keeper(**data["all"]["vars"]["pktswarm_lab"])
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        raise BadInput(path, "is not the inventory of a lab", allowed="a file made by `pktswarm lab up`") from None


def _inventory(plan: Plan, keeper: Keeper) -> dict[str, object]:
    children = {
        group: {"hosts": {node.name: _host(node) for node in plan.nodes if group in _groups(plan, node)}}
        for group in ("master", "transmit", "receive")
    }
    variables: dict[str, object] = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F {CONFIG}",
        "pktswarm_ssh_config": str(CONFIG),
        "pktswarm_lab": asdict(keeper),
        # The lab's namespaces have no other network.
        "pktswarm_under_test": ["0.0.0.0/0", "::/0"],
    }
    variables["pktswarm_dut"] = _device(plan)
    if plan.bare:
        variables |= _of_bare_nodes(plan)
    if plan.upf:
        variables["pktswarm_upf"] = asdict(plan.upf)
    if plan.bottleneck:
        variables["pktswarm_bottleneck"] = asdict(plan.bottleneck)
    return {"all": {"vars": variables, "children": children}}


def _device(plan: Plan) -> dict[str, object]:
    """Returns the device under test, which results keep: a changed bottleneck is visible there."""
    names = {
        "switch": "switch of the lab",
        "router": "router of the lab",
        "upf": "UPF of the lab",
        "exec": "UPF program in the lab",
    }
    settings: dict[str, object] = {"kind": plan.dut, "mtu_bytes": plan.mtu}
    if plan.dut == "switch":
        settings["forwards_by"] = plan.dut_switch
    if plan.bottleneck:
        settings |= {"bottleneck_bps": plan.bottleneck.rate_bps, "queue_bytes": plan.bottleneck.queue_bytes}
    if plan.upf and plan.upf.command:
        text = shlex.join(plan.upf.command)[:LONGEST_SETTING]
        settings["command"] = "".join(each if each.isprintable() else " " for each in text)
    own = {} if plan.dut == "exec" else {"version": VERSION}
    return {"name": names[plan.dut], **own, "settings": settings}


def _of_bare_nodes(plan: Plan) -> dict[str, str]:
    """Returns the variables of `pktswarm provision`, and the account for runs on provisioned nodes."""
    master = next(node for node in plan.nodes if node.group == "master")
    return {
        "pktswarm_login": "pktswarm",
        "pktswarm_python": str(ENVIRONMENT / "bin/python"),
        "pktswarm_bare": plan.bare,
        "pktswarm_proxy": f"http://{master.address}:{PORT}",
        "pktswarm_public_key": str(FOLDER / "id_ed25519.pub"),
        "pktswarm_shared_kernel": "it is the kernel of the lab's machine",
    }


def _groups(plan: Plan, node: Node) -> tuple[str, ...]:
    return ("transmit", "receive") if plan.both_roles and node.side else (node.group,)


def _host(node: Node) -> dict[str, object]:
    host: dict[str, object] = {"ansible_host": node.address, "control_interface": CONTROL_INTERFACE}
    if node.side:
        host |= {"traffic_interface": TRAFFIC_INTERFACE, "side": node.side, "mac": node.mac, "ipv4": node.ipv4}
        host |= {"ipv6": node.ipv6} if node.ipv6 else {}
        host |= {"pktswarm_gateway": list(node.gateways)} if node.gateways else {}
    return host
