"""Provisioning, but for what Ansible does on a node (tests/bare): what is refused, and what its words say."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pktswarm.lab import bare, mirror
from pktswarm.lab.plan import plan
from pktswarm.lab.record_file import Keeper, read, write
from pktswarm.master.cli.app import app
from pktswarm.master.cluster import inventory
from pktswarm.master.provision import bundle, playbook
from pktswarm.master.run.launch import Launch
from pktswarm.traffic.errors import BadInput, EngineError

KEEPER = Keeper("x", 1, 1, 1, {"m0": 1})
FAILED = """\
fatal: [tx1]: FAILED! => {"changed": false, "msg": "no"}

PLAY RECAP *********************************************************************
rx1                        : ok=55   changed=19   unreachable=0    failed=0    skipped=6    rescued=0    ignored=0
tx1                        : ok=3    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0
tx2                        : ok=0    changed=0    unreachable=1    failed=0    skipped=0    rescued=0    ignored=0

"""
"""As ansible-core 2.19 prints it."""


def lab_inventory(folder: Path, suite: str = "") -> inventory.Inventory:
    path = folder / "lab-x.yml"
    write(path, plan("x", 1, 1, bare=suite), KEEPER)
    return inventory.load(path)


def test_the_recap_tells_which_hosts_failed() -> None:
    outcome = playbook.read(FAILED, 4)
    assert [(one.host, one.changed) for one in outcome.hosts] == [("rx1", 19), ("tx1", 0), ("tx2", 0)]
    assert outcome.failed == ["tx1", "tx2"]


@pytest.mark.parametrize("words", ["", "ERROR! no such file\n", FAILED.split("tx1   ", maxsplit=1)[0]])
def test_ansible_that_fails_without_naming_a_host_is_an_error(words: str) -> None:
    with pytest.raises(EngineError, match="exit status 1 without a failed host"):
        playbook.read(words, 1)


CHECKED = """\
ok: [rx1] => {
    "msg": "rx1: trixie on armv7l, 32 bits: not provisioned yet; packages to install: sudo; account pktswarm: is there"
}
fatal: [tx1]: FAILED! => {"assertion": "pktswarm_host.interface == 'there'", "changed": false, "evaluated_to": false, \
"msg": "tx1: traffic_interface = eth7: no such interface on the host"}

PLAY RECAP *********************************************************************
rx1                        : ok=9    changed=0    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
tx1                        : ok=6    changed=0    unreachable=0    failed=1    skipped=0    rescued=0    ignored=0

"""
"""As ansible-core 2.19 prints it."""


def test_a_check_has_a_finding_for_each_host() -> None:
    outcome = playbook.with_findings(playbook.read(CHECKED, 2))
    assert {one.host: one.finding for one in outcome.hosts} == {
        "rx1": "trixie on armv7l, 32 bits: not provisioned yet; packages to install: sudo; account pktswarm: is there",
        "tx1": "traffic_interface = eth7: no such interface on the host",
    }
    assert outcome.failed == ["tx1"]


def test_a_check_is_not_an_undo() -> None:
    done = CliRunner().invoke(app, ["provision", "--check", "--undo", "--hosts", "hosts/example.yml"])
    assert isinstance(done.exception, BadInput)
    assert str(done.exception) == "provision: --check: not with --undo (allowed: one of the two)"


def test_a_lab_whose_nodes_are_this_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nodes of this lab share the files of this machine.*--bare"):
        playbook.check(lab_inventory(tmp_path).path)


def test_an_installation_without_playbooks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "LOCK", tmp_path / "requirements.lock")
    with pytest.raises(BadInput, match=r"provision: no playbooks in .*allowed: a whole installation of pktswarm"):
        playbook.check(Path("hosts/cloud.example.yml"))


def test_a_bare_lab_is_provisioned_but_for_its_master(tmp_path: Path) -> None:
    found = playbook.check(lab_inventory(tmp_path, "bookworm").path)
    assert playbook.command(found, "provision")[-2:] == ["--limit", "transmit:receive"]
    assert playbook.command(found, "undo")[3].endswith("ansible/undo.yml")
    assert read(found.path) == KEEPER


def test_real_hosts_are_all_provisioned() -> None:
    command = playbook.command(playbook.check(Path("hosts/cloud.example.yml")), "provision")
    assert "--limit" not in command and command[3].endswith("ansible/provision.yml")


def test_a_run_logs_in_as_the_inventory_says_and_starts_mpiexec_where_the_nodes_have_it() -> None:
    launch = Launch(inventory.load(Path("hosts/cloud.example.yml")), [])
    try:
        assert "-oUser=pktswarm" in launch.environment()["HYDRA_LAUNCHER_EXTRA_ARGS"].split()
        assert launch.command()[0] == "/opt/pktswarm/bin/mpiexec"
    finally:
        launch.stop()


def test_a_login_cannot_become_an_option(tmp_path: Path) -> None:
    text = Path("hosts/cloud.example.yml").read_text()
    path = tmp_path / "hosts.yml"
    path.write_text(text.replace("pktswarm_login: pktswarm", 'pktswarm_login: "x -oProxyCommand=id"'))
    with pytest.raises(BadInput, match=r"all.vars.pktswarm_login = 'x -oProxyCommand=id'.*allowed: an account name"):
        inventory.load(path)


def test_a_release_that_is_not_known_is_named() -> None:
    with pytest.raises(BadInput, match=r"bare = 'potato'.*allowed: bookworm, trixie, jammy, noble"):
        bare.check("x", "potato")


def test_the_mirror_takes_requests_apart() -> None:
    head = b"GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nProxy-Foo: 1\r\nConnection: close\r\n\r\nGET next"
    host, port, first = mirror.request(head)
    assert (host, port) == ("a.example", 80)
    assert first == b"GET /x?y HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
    assert mirror.request(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n") == ("a.example", 443, b"")


@pytest.mark.parametrize(
    "line", ["GET http://a.example:22/ HTTP/1.1", "CONNECT a.example:25 HTTP/1.1", "GET / HTTP/1.1"]
)
def test_the_mirror_is_for_packages_alone(line: str) -> None:
    with pytest.raises(ValueError, match="not for packages"):
        mirror.request(line.encode() + b"\r\n\r\n")


def test_a_machine_without_wheels_gets_pktswarms_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = bundle.bundle("3.11", None)
    with tarfile.open(found["path"]) as archive:
        assert archive.getnames() == [f"bundle/{found['wheel']}"]
    assert bundle.bundle("3.13", None) == found, "one for all Pythons"


def test_a_wheel_is_built_once_of_each_state_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And built again, where the first is gone, it is the same: else a second run would install it again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle.cache().mkdir(parents=True)
    kept = bundle._own_wheel()
    built = kept.stat().st_ino
    assert bundle._own_wheel().stat().st_ino == built
    (tmp_path / "scratch").mkdir()
    digest = bundle._digest([kept])
    assert bundle._digest([bundle.build_wheel(tmp_path / "scratch")]) == digest
    # Another state: the one kept is not taken for it, and goes.
    (tmp_path / "source").mkdir()
    for name in bundle.PARTS:
        (tmp_path / "source" / name).symlink_to(bundle.SOURCE / name)
    readme = tmp_path / "source/README.md"
    readme.unlink()
    readme.write_text((bundle.SOURCE / "README.md").read_text() + "More.\n")
    monkeypatch.setattr(bundle, "SOURCE", tmp_path / "source")
    other = bundle._own_wheel()
    assert not kept.exists() and bundle._digest([other]) != digest
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(other)], capture_output=True, text=True, check=True
    ).stdout
    assert "nodes/bpf/send.o" in listing and "nodes/tune.py" in listing
