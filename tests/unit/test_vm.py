"""The virtual machine without the machine: its script and processes are real, a shell stands in for virtme-ng."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pktswarm.lab import vm
from pktswarm.traffic.errors import BadInput


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever vng would run in the guest runs here."""
    monkeypatch.setattr(vm, "ensure", lambda: None)
    monkeypatch.setattr(vm, "_disk", lambda _: [])
    monkeypatch.setattr(vm, "_vng", lambda scratch, *_: ["sh", str(scratch / "run")])


def scratch_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("pktswarm-vm-*"))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/no/such/program"], 127),
    ],
)
@pytest.mark.usefixtures("shell")
def test_the_status_is_the_commands_own(command: list[str], status: int) -> None:
    before = scratch_folders()
    assert vm.run(command) == status
    assert scratch_folders() == before


@pytest.mark.usefixtures("shell")
def test_arguments_folder_and_output_arrive_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert vm.run(["sh", "-c", 'pwd; printf "%s|" "$@"; echo error >&2', "-", "a b", "", "it's $HOME *"]) == 0
    assert capfdbinary.readouterr().out.decode() == f"{Path.cwd()}\na b||it's $HOME *|error\n"


@pytest.mark.usefixtures("shell")
def test_the_virtual_environment_comes_first(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert vm.run(["sh", "-c", "command -v python"]) == 0
    assert Path(capfdbinary.readouterr().out.decode().strip()).parent == Path(sys.executable).parent


@pytest.mark.parametrize(("icount", "cpus"), [(False, 2), (True, 1)])
def test_with_icount_it_has_one_processor(icount: bool, cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    booted = []

    def boot(scratch: Path, cpus: int, memory: str, extra: list[str], timeout_s: float) -> int:
        booted.append((cpus, extra))
        return 0

    monkeypatch.setattr(vm, "ensure", lambda: None)
    monkeypatch.setattr(vm, "_disk", lambda _: [])
    monkeypatch.setattr(vm, "_boot", boot)
    assert vm.run(["true"], icount=icount) == 0
    assert booted == [(cpus, [vm.ICOUNT] if icount else [])]


def test_several_processors_with_icount_are_refused() -> None:
    with pytest.raises(BadInput, match=r"--cpus.*2.*allowed.*1"):
        vm.run(["true"], cpus=2, icount=True)


@pytest.mark.usefixtures("shell")
def test_a_command_that_takes_too_long_is_killed() -> None:
    begun = time.monotonic()
    with pytest.raises(vm.VmError, match="it was ended after 1 s"):
        vm.run(["sleep", "30"], timeout_s=1.0)
    assert time.monotonic() - begun < 10
    assert subprocess.run(["pgrep", "-xf", "sleep 30"], check=False, capture_output=True).stdout == b""


def test_a_machine_that_does_not_boot_is_told_with_its_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "ensure", lambda: None)
    monkeypatch.setattr(vm, "_disk", lambda _: [])
    monkeypatch.setattr(vm, "_vng", lambda *_: ["sh", "-c", "echo Kernel panic >&2"])
    with pytest.raises(vm.VmError, match="it did not boot; the end of its console:\nKernel panic"):
        vm.run(["true"])


def test_a_machine_that_goes_down_has_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "ensure", lambda: None)
    monkeypatch.setattr(vm, "_disk", lambda _: [])
    monkeypatch.setattr(vm, "_vng", lambda scratch, *_: ["sh", "-c", f"echo booted > {scratch}/booted"])
    with pytest.raises(vm.VmError, match="it went down while the command ran"):
        vm.run(["true"])


def test_a_machine_that_hangs_at_boot_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "ensure", lambda: None)
    monkeypatch.setattr(vm, "_disk", lambda _: [])
    monkeypatch.setattr(vm, "_vng", lambda *_: ["sleep", "31"])
    monkeypatch.setattr(vm, "BOOT_S", 0.5)
    with pytest.raises(vm.VmError, match="it did not boot within"):
        vm.run(["true"])


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=ONLY_ROOT)])
def test_the_machine_ends_with_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    pid_file, lasting = tmp_path / "pid", f"sleep 32.{os.getpid()}"  # others may run this test too
    program = (
        "import signal\n"
        "from pktswarm.lab import vm\n"
        # Of a job in the background, as these tests may be, it is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "vm.ensure = lambda: None\n"
        "vm._disk = lambda _: []\n"
        "vm._vng = lambda scratch, *_: ['sh', str(scratch / 'run')]\n"
        f"vm.run(['sh', '-c', 'echo $$ > $0; exec {lasting}', {str(pid_file)!r}])\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(vm.PROJECT), "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 10
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    owner.send_signal(number)
    assert owner.wait(timeout=10) != 0
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-xf", lasting], check=False, capture_output=True).stdout:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


def test_the_pair_of_interfaces_is_connected_to_itself_only(tmp_path: Path) -> None:
    first, _, second, _ = vm._pairs(tmp_path, ["e1000"])
    assert f"local.path={tmp_path}/e1000-0" in first and f"remote.path={tmp_path}/e1000-1" in first
    assert f"local.path={tmp_path}/e1000-1" in second and f"remote.path={tmp_path}/e1000-0" in second


def test_each_interface_of_a_pair_has_an_address_of_its_own(tmp_path: Path) -> None:
    words = " ".join(vm._pairs(tmp_path, vm.MODELS))
    macs = [mac for model in vm.MODELS for mac in vm.pair_macs(model)]
    assert len(set(macs)) == 2 * len(vm.MODELS) and all(words.count(mac) == 1 for mac in macs)


def test_half_a_kernel_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vm, "STORE", tmp_path)
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1.0-1-amd64").touch()
    assert vm._kernel() is None
    modules = tmp_path / "lib/modules/6.1.0-1-amd64"
    modules.mkdir(parents=True)
    (modules / "modules.dep").touch()
    assert vm._kernel() == tmp_path / "boot/vmlinuz-6.1.0-1-amd64"


def test_the_parts_of_a_kernel_are_its_image_and_its_modules() -> None:
    told = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Depends: <linux-initramfs-tool>\n"
    assert vm.kernel_parts(told) == ["linux-image-6.1.0-56-amd64"]
    told = "x\n |Depends: linux-modules-6.8.0-60-generic\n  Depends: kmod\n  Recommends: linux-image-other\n"
    assert vm.kernel_parts(told) == ["linux-modules-6.8.0-60-generic"]


def test_another_processor_has_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(vm.VmError, match="x86_64 only, and this is aarch64"):
        vm.ensure()
