"""What the role refuses of a host: playbooks of its checks alone, on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pktswarm.master.provision import playbook
from pktswarm.traffic.errors import EngineError

ALLOWED_HOSTS = (
    "cannot be a node (allowed: Debian 12 or 13, Ubuntu 22.04 or 24.04, on x86_64 or aarch64, with 64 bits; Debian or "
    "Raspberry Pi OS 12 or 13 on armv7l or armv8l or aarch64, with 32 bits)"
)
LOOK = {
    "release": "bookworm",
    "family": "Debian",
    "machine": "x86_64",
    "bits": "64",
    "installed": "",
    "state": "{}",
    "folder": "",
    "account": "",
    "interface": "there",
}
"""What look.sh reads of a host that can be a node."""
NO_MPI = (
    "there is no wheel of MPICH for 32 bits, and Debian's MPICH for it does not connect to that of other machines "
    "(allowed: none, for a node; the master needs 64 bits)"
)
BOARD = {**LOOK, "machine": "armv7l", "bits": "32"}
CASES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "release": (
        {**LOOK, "release": "bullseye"},
        {},
        f"release = bullseye, machine = x86_64 with 64 bits: {ALLOWED_HOSTS}",
    ),
    "family": (
        {**LOOK, "family": "RedHat", "release": "9"},
        {},
        f"release = 9, machine = x86_64 with 64 bits: {ALLOWED_HOSTS}",
    ),
    "machine": (
        {**LOOK, "machine": "riscv64"},
        {},
        f"release = bookworm, machine = riscv64 with 64 bits: {ALLOWED_HOSTS}",
    ),
    "ubuntu32": (
        {**BOARD, "release": "noble"},
        {"pktswarm_mpi": "none"},
        f"release = noble, machine = armv7l with 32 bits: {ALLOWED_HOSTS}",
    ),
    "armv6": (
        {**BOARD, "machine": "armv6l"},
        {"pktswarm_mpi": "none"},
        f"release = bookworm, machine = armv6l with 32 bits: {ALLOWED_HOSTS}",
    ),
    "mpi": (BOARD, {}, f"pktswarm_mpi = wheel: {NO_MPI}"),
    "clock": (LOOK, {"pktswarm_clock": "ntp"}, "pktswarm_clock = ntp: cannot be used (allowed: chrony, ptp)"),
    "ptp": (
        LOOK,
        {"pktswarm_clock": "ptp"},
        "control_interface: is missing (allowed: the interface for pktswarm_clock = ptp)",
    ),
    "folder": (
        {**LOOK, "folder": "there"},
        {},
        "pktswarm_folder = /opt/pktswarm: is there already, and not from `pktswarm provision` (allowed: a folder "
        "that does not exist)",
    ),
    "account": (
        {**LOOK, "folder": "there", "state": '{"folder": "/opt/pktswarm", "account": "tester"}'},
        {},
        "pktswarm_folder = /opt/pktswarm, pktswarm_account = pktswarm: it was provisioned with /opt/pktswarm and "
        "tester (allowed: those, or --undo with them first)",
    ),
    "interface": (
        {**LOOK, "interface": ""},
        {"traffic_interface": "eth7"},
        "traffic_interface = eth7: no such interface on the host",
    ),
}
"""Host → what is read of it, its variables in the inventory, the message behind its name."""
FITS = {"odroid": (BOARD, {"pktswarm_mpi": "none"}), "pc": (LOOK, {})}
VERSIONS = {
    "numpy": ("1.23.5 1.10.1", "NumPy and SciPy = 1.23.5 1.10.1: too old (allowed: from 1.24 and 1.10 on)"),
    "scipy": ("1.24.2 1.9.3", "NumPy and SciPy = 1.24.2 1.9.3: too old (allowed: from 1.24 and 1.10 on)"),
    "both": ("1.24.2 1.10.1", ""),
}
STAMPS = {
    "eth0": "Time stamping parameters for eth0:\nCapabilities:\n\tsoftware-transmit\n\tsoftware-receive\n",
    "br0": "Time stamping parameters for br0:\nCapabilities:\n\tsoftware-receive\n\tsoftware-system-clock\n",
}
"""As ethtool 6.1 shows a veth, and a bridge."""


def played(folder: Path, tasks: str, hosts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Host → the last message about it. `tasks`: a file of the role."""
    try:
        playbook.fetch_ansible()
    except EngineError as error:
        pytest.skip(str(error).splitlines()[0])
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    nodes = {name: {**local, **more} for name, more in hosts.items()}
    groups = {"master": {"hosts": {"m0": local}}, "transmit": {"hosts": nodes}}
    role = {"name": "pktswarm", "tasks_from": tasks}
    steps = [{"name": "Check", "ansible.builtin.include_role": role}]
    play = {"name": "Check", "hosts": "transmit", "gather_facts": False, "tasks": steps}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    shutil.copy(playbook.FOLDER / "debian-packages.txt", folder)  # missing.yml reads it
    (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    words = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"]
    environment = playbook.environment(str(folder))
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=environment)
    return dict(playbook.FINDING.findall(done.stdout))


def test_a_host_that_cannot_be_a_node_is_refused(tmp_path: Path) -> None:
    hosts = {name: {"pktswarm_host": look, **more} for name, (look, more, _) in CASES.items()}
    hosts |= {name: {"pktswarm_host": look, **more} for name, (look, more) in FITS.items()}
    found = played(tmp_path, "judge.yml", hosts)
    assert {name: found[name] for name in CASES} == {name: message for name, (*_, message) in CASES.items()}
    for name, (look, _) in FITS.items():
        assert found[name].startswith(
            f"bookworm on {look['machine']}, {look['bits']} bits: not provisioned yet; packages"
        )


def test_packages_that_are_too_old_are_refused(tmp_path: Path) -> None:
    hosts = {name: {"pktswarm_versions": {"stdout": versions}} for name, (versions, _) in VERSIONS.items()}
    found = played(tmp_path, "refuse_versions.yml", hosts)
    assert found == {name: message for name, (_, message) in VERSIONS.items() if message}


def test_a_driver_that_stamps_no_sent_frames_is_refused(tmp_path: Path) -> None:
    hosts = {name: {"control_interface": name, "pktswarm_stamps": {"stdout": shown}} for name, shown in STAMPS.items()}
    assert played(tmp_path, "refuse_stamps.yml", hosts) == {
        "br0": "control_interface = br0: its driver stamps no sent frames, which PTP requires (allowed: another "
        "interface, or pktswarm_clock = chrony)"
    }
