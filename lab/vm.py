"""A virtual machine with Debian's kernel over this machine's root file system, for pktgen.

virtme-ng boots the kernel with qemu; the guest sees this machine's files read-only (writes go to an overlay that is
forgotten), and the project's folder for real. No network reaches it. The kernel package is unpacked in a folder of its
own, never installed: no boot loader, no initramfs, nothing under /boot.

    run(["uname", "-r"])
"""

from __future__ import annotations

import contextlib
import os
import platform
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pktswarm.traffic.errors import BadInput, PktswarmError

PROJECT = Path(__file__).resolve().parent.parent
STORE = Path(os.environ.get("PKTSWARM_VM_STORE", "/var/lib/pktswarm/vm"))
PACKAGES = ("qemu-system-x86", "kmod", "udev", "busybox-static", "file")
PROGRAMS = ("qemu-system-x86_64", "depmod", "udevadm", "busybox", "file")
KERNEL_PACKAGE = {"debian": "linux-image-amd64", "ubuntu": "linux-image-generic"}
TIMEOUT_S = 5400.0
"""The tests take 12 minutes on an idle machine."""
BOOT_S = 240.0
"""Without a virtual processor the boot takes 10 to 40 s; a busy machine takes longer."""
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
PYTHON = STANDARD_LIBRARY if sys.base_prefix == "/usr" else sys.base_prefix
ON_DISK = (PYTHON, *(str(PROJECT / name) for name in (".venv", "pktswarm", "traffic", "nodes", "master", "lab")))
"""Folders that every Python process reads: on a disk of the machine, because files of the host are slow."""
NOT_ON_DISK = tuple(f"{STANDARD_LIBRARY}/{name}" for name in ("site-packages", "test"))
CACHED = (str(Path("/usr/lib", str(sysconfig.get_config_var("MULTIARCH")))), "/usr/bin", "/usr/sbin")
"""Folders that are read often, and never written: cached from the host."""
CACHED_TAG = "cached"
MODULES = {
    "virtio-net-pci": "virtio_net",
    "e1000e": "e1000e",
    "e1000": "e1000",
    "rtl8139": "8139cp",
    "vmxnet3": "vmxnet3",
}
"""Interface that QEMU emulates → the kernel module of its driver."""
MODELS = tuple(MODULES)
"""`pairs` chooses among them."""

ICOUNT = "-icount shift=0,sleep=off -global virtio-net-pci.ioeventfd=off"
"""An instruction takes 1 ns, and idle time passes at once: nothing on this machine can hold the guest up. By ioeventfd
virtio would be notified by another thread, for which the guest's time does not wait: a trace over it hung."""


class VmError(PktswarmError):
    """The virtual machine could not be installed, did not boot, or was lost."""


def run(
    command: Sequence[str],
    cpus: int | None = None,
    memory: str = "2G",
    qemu_args: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
    pairs: Sequence[str] = (),
    icount: bool = False,
) -> int:
    """Runs `command` in the machine, in the working directory; returns its exit status (128 + N: signal N).

    `cpus`: 2 if left out. `icount`: the machine's clocks count its instructions (ICOUNT), with one processor.

    Its output and errors come, as one, on standard output. `pairs`: models of MODELS; the machine has two
    interfaces of each (pair_macs), connected to each other. Raises VmError when there is no status of the command to
    return.
    """
    if unknown := [model for model in pairs if model not in MODELS]:
        raise BadInput("lab vm", "unknown interface", key="--pair", value=unknown[0], allowed=", ".join(MODELS))
    if icount and cpus not in (None, 1):
        # With several, the clocks run on for one while another one computes.
        raise BadInput("lab vm", "too many processors with --icount", key="--cpus", value=cpus, allowed="1")
    cpus = cpus or (1 if icount else 2)
    ensure()
    scratch = Path(tempfile.mkdtemp(prefix="pktswarm-vm-"))
    try:
        extra = [*qemu_args, *[ICOUNT] * icount, *_disk(scratch), *_pairs(scratch, pairs)]
        for name, text in (("run", _script(scratch, list(command))), ("boot", _boot_script(scratch))):
            (scratch / name).write_text(text)
            (scratch / name).chmod(0o755)
        return _boot(scratch, cpus, memory, extra, timeout_s)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def test(arguments: Sequence[str] = (), timeout_s: float = TIMEOUT_S) -> int:
    """Runs tests/vm, and the XDP engine's tests, on the machine's kernel (`./bootstrap test --vm`).

    Again run those that depend on the kernel; with `arguments`, which choose otherwise, all.
    """
    again = sorted(str(path) for path in (PROJECT / "tests/lab").glob("test_xdp_*.py"))
    chosen = arguments or ["--another-kernel", "--durations=15"]
    command = [sys.executable, "-m", "pytest", str(PROJECT / "tests/vm"), *again, *chosen]
    return run(command, pairs=MODELS, timeout_s=timeout_s)


def pair_macs(model: str) -> tuple[str, str]:
    """The addresses of the two interfaces of a model, inside the machine."""
    number = MODELS.index(model)
    return f"02:70:6b:74:{number:02x}:01", f"02:70:6b:74:{number:02x}:02"


def ensure() -> None:
    """Installs the missing requirements of the machine. Quick when nothing is missing."""
    if platform.machine() != "x86_64":
        raise VmError(f"the virtual machine is for x86_64 only, and this is {platform.machine()}")
    if any(shutil.which(program, path=_path()) is None for program in PROGRAMS):
        _need_root("install " + " ".join(PACKAGES))
        _apt("install", "--yes", "--no-install-recommends", *PACKAGES)
    if _program("vng") is None:
        _checked([sys.executable, "-m", "pip", "install", "--quiet", "virtme-ng>=1.33"])
    if _kernel() is None:
        _fetch_kernel()


def _kernel() -> Path | None:
    """Returns the unpacked kernel image, if it and its modules are complete."""
    images = [image for image in sorted(STORE.glob("boot/vmlinuz-*")) if (_modules(image) / "modules.dep").exists()]
    return images[-1] if images else None


def _modules(image: Path) -> Path:
    return STORE / "lib/modules" / image.name.removeprefix("vmlinuz-")


def _fetch_kernel() -> None:
    """Downloads the kernel package, unpacks it beside STORE, and moves it there in one step."""
    _need_root(f"write {STORE}")
    STORE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vm-", dir=STORE.parent) as folder:
        work = Path(folder)
        for package in _kernel_packages():
            _apt("download", package, cwd=work)
        for archive in work.glob("*.deb"):
            _checked(["dpkg-deb", "--extract", str(archive), str(work / "root")])
        if not (work / "root/lib").exists():
            (work / "root/lib").symlink_to("usr/lib")  # newer packages have their modules under /usr only
        image = next((work / "root/boot").glob("vmlinuz-*"), None)
        if image is None:
            raise VmError(f"no kernel in {', '.join(path.name for path in work.glob('*.deb'))}")
        _checked(["depmod", "--basedir", str(work / "root"), image.name.removeprefix("vmlinuz-")])
        shutil.rmtree(STORE, ignore_errors=True)
        (work / "root").rename(STORE)


def _kernel_packages() -> list[str]:
    """Returns the packages of the distribution's kernel meta-package: the image and, on Ubuntu, modules."""
    meta = KERNEL_PACKAGE.get(platform.freedesktop_os_release().get("ID", ""), "linux-image-amd64")
    found = _depends(meta)
    if not found:
        _apt("update")
        found = _depends(meta)
    if not found:
        raise VmError(f"apt has no kernel package {meta}")
    return list(dict.fromkeys([*found, *(name for package in found for name in _depends(package))]))


def _depends(package: str) -> list[str]:
    command = ["apt-cache", "depends", "--important", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    return kernel_parts(done.stdout)


def kernel_parts(depends: str) -> list[str]:
    """Returns the packages with an image or modules in the output of `apt-cache depends`."""
    names = [line.partition("Depends: ")[2].strip() for line in depends.splitlines() if "Depends: " in line]
    return [name for name in names if name.startswith(("linux-image-", "linux-modules-"))]


def _boot(scratch: Path, cpus: int, memory: str, extra: list[str], timeout_s: float) -> int:
    command = ["setpriv", "--pdeathsig", "KILL"]
    if os.geteuid() == 0:
        # A namespace of processes: qemu and its helpers end with the first of them, and that one with this process.
        command += ["unshare", "--pid", "--fork", "--kill-child=KILL"]
    command += _vng(scratch, cpus, memory, extra)
    with (scratch / "console").open("wb") as console:
        machine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=console,
            start_new_session=True,
            env=_environment(scratch),
        )
    assert machine.stdout is not None
    try:
        late = _stream(machine.stdout, scratch, timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(machine.pid, signal.SIGKILL)
        machine.wait()
    return _status(scratch, late)


def _vng(scratch: Path, cpus: int, memory: str, extra: list[str]) -> list[str]:
    image, vng = _kernel(), _program("vng")
    assert image is not None and vng is not None
    # No KVM: nested, it works on some hosts only; on others the guest hangs without a message.
    command = [vng, "--run", str(image), "--disable-kvm", "--force-9p", "--user", "root", "--verbose"]
    command += ["--cpus", str(cpus), "--memory", memory, "--rwdir", str(PROJECT), "--rwdir", str(scratch)]
    share = f"-virtfs local,id=cached,path=/,security_model=none,readonly=on,mount_tag={CACHED_TAG},multidevs=remap"
    # virtme-ng's serial devices have 64 queues each, and qemu would look at an eventfd for every one, at every timer.
    quiet = "-global virtio-serial-pci.ioeventfd=off"
    command += ["--cwd", "/", *(f"--qemu-opts={argument}" for argument in [share, quiet, *extra])]
    return [*command, "--", str(scratch / "boot")]


def _script(scratch: Path, command: list[str]) -> str:
    """Returns the guest's script.

    A file carries the exit status, because that of virtme-ng does not distinguish 255 from a crash.
    """
    path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return (
        "#!/bin/sh\n"
        f"exec 2>&1\nexport PATH={shlex.quote(path)} PKTSWARM_VM=1\n"
        f"cd {shlex.quote(os.getcwd())} || exit 1\n"  # noqa: PTH109
        f"echo booted > {scratch}/booted\n"
        f"{shlex.join(command)} < /dev/null\n"
        f"echo $? > {scratch}/status.new; mv {scratch}/status.new {scratch}/status\n"
    )


def _boot_script(scratch: Path) -> str:
    """Mounts, in the guest, the disk and the cached folders over their originals.

    virtme-ng's own mounts ask the host for every look at a file. Where these cannot be had the machine is slow, and
    works.
    """
    cached, disk = "/run/pktswarm-cached", "/run/pktswarm-disk"
    options = "ro,version=9p2000.L,trans=virtio,cache=loose,access=any,msize=512000"
    binds = [(f"{cached}{name}", name) for name in CACHED]
    binds += [(f"{disk}/{number}", name) for number, name in enumerate(ON_DISK)]
    return "\n".join(
        [
            "#!/bin/sh",
            f"mkdir {cached} {disk}",
            f"mount -t 9p -o {options} {CACHED_TAG} {cached}",
            f"modprobe virtio_blk && modprobe ext4 && mount -t ext4 -o ro /dev/vda {disk}",
            *(f"[ ! -d {source} ] || mount --bind {source} {target}" for source, target in binds),
            f"exec {scratch}/run",
            "",
        ]
    )


def _disk(scratch: Path) -> list[str]:
    """An ext4 image of ON_DISK, as qemu takes it; none without root. Its parts come together in a mount namespace."""
    if os.geteuid() != 0:
        return []
    stage, image = scratch / "stage", scratch / "disk"
    (stage / "none").mkdir(parents=True)
    lines = ["set -eu"]
    for number, name in enumerate(ON_DISK):
        (stage / str(number)).mkdir()
        lines.append(f"mount --bind {shlex.quote(name)} {stage / str(number)}")
    lines += [
        f"mount --bind {stage}/none {stage}/{ON_DISK.index(PYTHON)}{name.removeprefix(PYTHON)}"
        for name in NOT_ON_DISK
        if Path(name).is_dir()
    ]
    lines.append(f"size=$(du -sm {stage} | cut -f1)")
    lines.append(f"mke2fs -q -t ext4 -O ^has_journal -N 200000 -d {stage} {image} $((size * 5 / 4 + 200))M")
    _checked(["unshare", "--mount", "sh", "-c", "\n".join(lines)])
    return [f"-drive file={image},if=virtio,format=raw,readonly=on"]


def _pairs(scratch: Path, models: Sequence[str]) -> list[str]:
    """Two interfaces of each model, joined by a pair of datagram sockets, which lose nothing (a qemu hub drops when
    full)."""
    arguments = []
    for model in models:
        ends = [f"{model}-{number}" for number in range(2)]
        for ours, theirs, mac in zip(ends, reversed(ends), pair_macs(model), strict=True):
            local = f"local.type=unix,local.path={scratch}/{ours}"
            remote = f"remote.type=unix,remote.path={scratch}/{theirs}"
            arguments.append(f"-netdev dgram,id={ours},{local},{remote}")
            arguments.append(f"-device {model},netdev={ours},mac={mac}")
    return arguments


def _stream(output: IO[bytes], scratch: Path, timeout_s: float) -> str:
    """Forwards the command's output as it arrives. Returns why it ended early; empty when it is complete."""
    begun = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if selector.select(0.5):
                data = os.read(output.fileno(), 65536)
                if not data:
                    return ""
                sys.stdout.buffer.write(data)
                sys.stdout.flush()
            if time.monotonic() - begun > timeout_s:
                return f"it was ended after {timeout_s:.0f} s"
            if time.monotonic() - begun > BOOT_S and not (scratch / "booted").exists():
                return f"it did not boot within {BOOT_S:.0f} s"


def _status(scratch: Path, late: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int((scratch / "status").read_text())
    console = (scratch / "console").read_text(errors="replace").splitlines()
    if late:
        why = late
    elif (scratch / "booted").exists():
        why = "it went down while the command ran"
    else:
        why = "it did not boot"
    raise VmError(f"the virtual machine: {why}; the end of its console:\n" + "\n".join(console[-20:]))


def _program(name: str) -> str | None:
    """Returns the path of a program in this virtual environment, or of the system."""
    return shutil.which(name, path=_path())


def _path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _environment(home: Path | None = None) -> dict[str, str]:
    # virtme-ng keeps caches in its home folder; they go with the scratch folder.
    here = {"PATH": _path(), "LC_ALL": "C.UTF-8", "HOME": str(home or Path.home()), "DEBIAN_FRONTEND": "noninteractive"}
    proxies = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    return {**proxies, **here}


def _apt(action: str, *arguments: str, cwd: Path | None = None) -> None:
    command = ["apt-get", "--quiet", "--quiet", "-o", "DPkg::Lock::Timeout=300", action, *arguments]
    try:
        _checked(command, cwd)
    except VmError:
        if action == "update":
            raise
        # The package lists of a fresh machine are empty, those of an old one name packages that are gone.
        _checked(["apt-get", "--quiet", "--quiet", "update"])
        _checked(command, cwd)


def _checked(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode != 0:
        raise VmError(f"{shlex.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")


def _need_root(what: str) -> None:
    if os.geteuid() != 0:
        raise VmError(f"the virtual machine needs root to {what}")
