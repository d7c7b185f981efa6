"""The settings of a node's traffic interface, on a cable in a network namespace of its own."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pktswarm.nodes import tune

TUNE = f"{sys.executable} -P -m pktswarm.nodes.tune"
SHOW = "ethtool -k v0; ip -o link show dev v0 up | wc -l; cat /proc/sys/net/ipv6/conf/v0/disable_ipv6"


def in_namespace(script: str, *words: str) -> str:
    script = f"ip link add v0 type veth peer name v1 && ethtool -K v0 gro on && {script}"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root, for a network namespace")
    (tmp_path / "tune.json").write_text(json.dumps({"interface": "v0", "shared_kernel": "it is the test's"}))
    return tmp_path


def test_what_was_set_is_not_set_again_and_is_given_back(folder: Path) -> None:
    mark = "echo ----"
    steps = [SHOW, f"{TUNE} apply $1", SHOW, f"{TUNE} apply $1", f"{TUNE} undo $1", SHOW]
    parts = in_namespace(f"; {mark}; ".join(steps), str(folder)).split("----\n")
    before, first, set_, second, undone, after = parts
    changed = json.loads(first)["changed"]
    assert "v0 gro: on -> off" in changed and "/proc/sys/net/ipv6/conf/v0/disable_ipv6: 0 -> 1" in changed
    assert "v0 link: down -> up" in changed
    assert "generic-receive-offload: off" in set_ and set_.endswith("1\n")
    assert json.loads(second)["changed"] == []
    assert len(json.loads(undone)["changed"]) == len(changed)
    assert after == before
    assert not (folder / "tune-before.json").exists()


def test_an_interface_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "tune.json").write_text(json.dumps({"interface": "v9", "shared_kernel": ""}))
    words = in_namespace(f"{TUNE} apply $1 2>&1 && exit 1 || test $? = 2", str(folder))
    assert "traffic_interface = 'v9': there is no such interface" in words


def test_an_interface_that_is_not_the_one_any_more_gets_its_settings_back(folder: Path) -> None:
    both = f"{SHOW}; {SHOW.replace('v0', 'v1')}"
    steps = [both, SHOW, f"{TUNE} apply $1 >$1/out", f"sed -i s/v0/v1/ $1/tune.json; {TUNE} apply $1"]
    script = "; echo ----; ".join([*steps, SHOW, f"{TUNE} undo $1", both])
    both_before, before, _, second, after, undone, both_after = in_namespace(script, str(folder)).split("----\n")
    assert json.loads((folder / "out").read_text())["changed"]
    changed = json.loads(second)["changed"]
    assert "v0 gro: -> on" in changed and "/proc/sys/net/ipv6/conf/v1/disable_ipv6: 0 -> 1" in changed
    assert (after, both_after) == (before, both_before)
    assert not any("v0" in one for one in json.loads(undone)["changed"])
    assert not (folder / "tune-before.json").exists()


def test_an_interface_that_has_gone_leaves_nothing_to_be_given_back(folder: Path) -> None:
    out = in_namespace(f"{TUNE} apply $1 >$1/out; ip link del v0; {TUNE} undo $1", str(folder))
    assert json.loads(out)["changed"] == [] and not (folder / "tune-before.json").exists()


def test_what_a_driver_refuses_is_told_and_is_nothing_to_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the interrupts of many cards on boards: else --undo could never end."""

    def refused(_: str) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    setting = tune.Setting("irq 9", lambda: "1", lambda: "0", refused)
    monkeypatch.setattr(tune, "settings", lambda interface, own_kernel: [setting])
    (tmp_path / "tune.json").write_text(json.dumps({"interface": "lo", "shared_kernel": ""}))
    before = tmp_path / "tune-before.json"
    assert tune.apply(tmp_path) == {"changed": [], "told": ["irq 9 is left alone: Invalid argument"]}
    assert json.loads(before.read_text()) == {"lo": {}}
    assert tune.undo(tmp_path) == {"changed": [], "told": []} and not before.exists()
    # As an earlier version left it.
    before.write_text(json.dumps({"irq 9": "0"}))
    assert tune.undo(tmp_path) == {"changed": [], "told": []} and not before.exists()


BELOW = """
import pathlib, sys
from pktswarm.nodes import changes
from pktswarm.nodes.interface import Interface
from pktswarm.nodes.offloads import OffloadsOff
folder = pathlib.Path(sys.argv[1])
off = OffloadsOff(Interface("br0"), folder)
shown = lambda: [Interface(name).offload("gro") for name in ("br0", "v0")]
print(shown())
off.switch_merging_off()
print(shown(), sorted(str(one) for one in changes.read(folder)[1]))
off.restore()
print(shown())
"""


def test_what_is_below_an_interface_merges_no_frames_for_it(folder: Path) -> None:
    bridge = "ip link add br0 type bridge; ip link set v0 master br0; mount -t sysfs sysfs /sys"
    script = f"{bridge}; {sys.executable} -P - $1 <<'END'\n{BELOW}END"
    before, between, after = in_namespace(script, str(folder)).splitlines()
    assert before == after == "[True, True]"
    assert between == "[False, False] ['gro of br0 (was on)', 'gro of v0 (was on)']"


def test_gro_that_merges_nothing_stays(folder: Path) -> None:
    """A cable of a lab takes frames of XDP by it."""
    script = f"ip link set v0 gro_max_size 1; {TUNE} apply $1; ethtool -k v0 | grep ^generic-receive"
    applied, shown = in_namespace(script, str(folder)).splitlines()
    assert not any(" gro:" in one for one in json.loads(applied)["changed"]) and shown.endswith("on")
