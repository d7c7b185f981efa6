"""A Debian on ARM, emulated by qemu, in place of a bare node of a lab: another machine with another kernel.

    state = lab.up("arm", 1, 1, bare="bookworm")
    with emulated.in_place_of(state, "rx1", emulated.ARM64): ...

It has the node's addresses, MACs, names and SSH keys; the node's two cables lead to it over bridges in the node's own
network namespace. Everything is computed, about thirty times slower than a board does it. Its disk is made once, below
the cache of bare roots; what a machine writes is forgotten with it. No package of ARM comes to this machine: Debian's
kernel is unpacked, and the second half of debootstrap runs in the emulation.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pktswarm.lab import ssh
from pktswarm.lab.api import LabState
from pktswarm.lab.bare import CACHE
from pktswarm.lab.namespaces import network_of
from pktswarm.lab.plan import CONTROL_INTERFACE, TRAFFIC_INTERFACE, Node
from pktswarm.traffic.errors import PktswarmError

SUITES = ("bookworm", "trixie")
DISK, KERNEL, FIRST, DEVICE_TREES = "disk", "kernel", "first.cpio", "device-trees"
"""The stored files of a machine: disk, kernel, initial RAM disk, and the boards' device trees."""
FORM = 2
"""A number in their folder's name. It changes with what is in them, so that none of an earlier version is taken."""
DISK_BYTES = 8 << 30
"""A sparse file: 1 GB of it is written. A card of a board has a power of 2."""
PACKAGES = ("openssh-server", "systemd-sysv", "udev", "iproute2", "kmod", "busybox-static")
LEFT_OUT = ("linux-image-", "initramfs-tools")
"""Downloaded, but not installed there: this machine makes the initial RAM disk."""
PROGRAMS = {"debootstrap": "debootstrap", "cpio": "cpio", "depmod": "kmod"}
QEMU_PACKAGE = "qemu-system-arm"
MODULES = ("virtio_pci", "virtio_blk", "ext4")
MODULES_OF_BOARDS = ("sunxi_mmc", "mmc_block")
OF_USB_NET = "40"
"""First byte of the address that qemu's usb-net shows in the machine; the others are the given ones."""
SECOND_STAGE_S, BOOT_S = 1800.0, 600.0
DONE = "pktswarm: the second stage is done"


TAP = "tap,id={tap},ifname={tap},script=no,downscript=no"
VIRTIO_NET = ("-netdev", TAP, "-device", "virtio-net-pci,netdev={tap},mac={mac},romfile=")
USB_NET = ("-netdev", TAP, "-device", "usb-net,netdev={tap},mac={mac}")
SUN8I_EMAC = ("-nic", f"{TAP},model=allwinner-sun8i-emac,mac={{mac}}")


@dataclass(frozen=True)
class Machine:
    """A kind of machine. `architecture`: Debian's name of it; `options`: of qemu; `memory` as qemu takes it. `drive`:
    the bus of its disk. `interfaces`: options of qemu for those to the control and the traffic network. `device_tree`:
    its file in the kernel's package; empty: qemu makes it."""

    name: str
    architecture: str
    qemu: str
    options: tuple[str, ...]
    kernel: str
    memory: str
    cpus: int = 2
    console: str = "ttyAMA0"
    drive: str = "virtio"
    interfaces: tuple[tuple[str, ...], tuple[str, ...]] = (VIRTIO_NET, VIRTIO_NET)
    device_tree: str = ""
    suite: str = SUITES[0]

    @property
    def folder(self) -> Path:
        """The folder of its disk, which machines of one architecture share."""
        return CACHE / f"{self.architecture}-{self.suite}-{FORM}"


# qemu computes Arm's pointer authentication slowly; its own algorithm is sufficient.
ARM64 = Machine(
    "arm64",
    "arm64",
    "qemu-system-aarch64",
    ("-machine", "virt", "-cpu", "max,pauth-impdef=on"),
    "linux-image-arm64",
    "4G",
)
# As much memory as the ODROID-C1 has. Debian's kernel for armhf addresses 32 bits: the PCI bus must lie within them.
ARMHF = Machine(
    "armhf",
    "armhf",
    "qemu-system-arm",
    ("-machine", "virt,highmem=off", "-cpu", "cortex-a15"),
    "linux-image-armmp",
    "1G",
)
# A board with the Ethernet of the ODROID-C1's family (stmmac: dwmac-sun8i). It has one port: control is on USB.
ORANGEPI = replace(
    ARMHF,
    name="orangepi-pc",
    options=("-machine", "orangepi-pc"),
    cpus=4,
    console="ttyS0",
    drive="sd",
    interfaces=(USB_NET, SUN8I_EMAC),
    device_tree="sun8i-h3-orangepi-pc.dtb",
)
MACHINES = {machine.name: machine for machine in (ARM64, ARMHF, ORANGEPI)}

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
until [ -b /dev/vda ] || [ -b /dev/mmcblk0 ]; do sleep 0.1; done
mount -t ext4 /dev/vda /disk || mount -t ext4 /dev/mmcblk0 /disk
if [ -e /node ]; then
  cp -a /node/. /disk/
  umount /proc
  exec switch_root /disk /sbin/init
fi
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
chroot /disk /debootstrap/debootstrap --second-stage && rm -rf /disk/var/cache/apt/archives/*.deb && echo "{DONE}"
umount /disk
poweroff -f
"""


@contextlib.contextmanager
def in_place_of(state: LabState, name: str, kind: Machine) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the machine, from the first answer of its sshd to the end of the block.

    Raises PktswarmError if it is not there within BOOT_S, with the last words of its console.
    """
    folder = make_machine(kind)
    node = next(one for one in state.plan.nodes if one.name == name)
    pid = state.keeper.pids[name]
    scratch = Path(tempfile.mkdtemp(prefix=f"pktswarm-{kind.architecture}-"))
    try:
        _join_cables(pid)
        _pack(scratch / "node.cpio", files_of(node, state, Path(f"/proc/{pid}/root{ssh.FOLDER}"), scratch / "files"))
        first = (folder / FIRST).read_bytes() + (scratch / "node.cpio").read_bytes()
        (scratch / "first").write_bytes(first)
        ends = zip(kind.interfaces, (node.control_mac, node.mac), strict=True)
        interfaces = [word.format(tap=f"tap{n}", mac=mac) for n, (words, mac) in enumerate(ends) for word in words]
        inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        machine = _start(kind, inside, folder, scratch, ["-snapshot", *interfaces])
        try:
            _await_sshd(machine, state, node, scratch)
            yield machine
        finally:
            _end(machine)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_machine(kind: Machine) -> Path:
    """Returns the folder with a machine's disk and kernel, made on first use in about ten minutes."""
    programs = {**PROGRAMS, kind.qemu: QEMU_PACKAGE}
    missing = {package for program, package in programs.items() if not shutil.which(program)}
    if missing:
        raise PktswarmError(f"not installed: apt install {' '.join(sorted(missing))}")
    folder = kind.folder
    if folder.is_dir():
        return folder
    print(
        f"lab: making a disk of {kind.architecture}, {kind.suite}, in {folder}, once: about ten minutes",
        file=sys.stderr,
    )
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name}.making-", dir=CACHE))
    try:
        _first_stage(kind, making)
        _second_stage(kind, making)
        shutil.rmtree(making / "root")
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _first_stage(kind: Machine, folder: Path) -> None:
    """Unpacks packages with this machine's programs, and makes the disk, the kernel and the initial RAM disk."""
    root, unpacked = folder / "root", folder / "root/unpacked"
    include = f"--include={','.join((*PACKAGES, kind.kernel))}"
    _checked(
        "debootstrap", f"--arch={kind.architecture}", "--foreign", "--variant=minbase", include, kind.suite, str(root)
    )
    chosen = root / "debootstrap/base"
    chosen.write_text(" ".join(name for name in chosen.read_text().split() if not name.startswith(LEFT_OUT)) + "\n")
    for package in ("linux-image-[0-9]", "busybox-static"):
        (archive,) = (root / "var/cache/apt/archives").glob(f"{package}*.deb")
        _checked("dpkg-deb", "--extract", str(archive), str(unpacked))
    for name in ("bin", "lib"):  # from Debian 13 on, packages have them below /usr alone
        if not (unpacked / name).exists():
            (unpacked / name).symlink_to(f"usr/{name}")
    (image,) = unpacked.glob("boot/vmlinuz-*")
    version = image.name.removeprefix("vmlinuz-")
    _checked("depmod", "--basedir", str(unpacked), version)
    _pack(folder / FIRST, _first_files(kind, unpacked, version, folder / "first"))
    shutil.rmtree(folder / "first")
    image.rename(folder / KERNEL)
    if trees := [*unpacked.glob("usr/lib/linux-image-*")]:
        trees[0].rename(folder / DEVICE_TREES)
    modules = root / "usr/lib/modules"  # /lib is a link to /usr/lib
    modules.mkdir(parents=True, exist_ok=True)
    (unpacked / "lib/modules" / version).rename(modules / version)
    shutil.rmtree(unpacked)
    _checked("truncate", f"--size={DISK_BYTES}", str(folder / DISK))
    _checked("mkfs.ext4", "-q", "-d", str(root), str(folder / DISK))


def _first_files(kind: Machine, unpacked: Path, version: str, folder: Path) -> Path:
    """Packs busybox, the modules for the disk in their order, and INIT."""
    for name in ("bin", "modules", "proc", "dev", "disk"):
        (folder / name).mkdir(parents=True)
    shutil.copy2(unpacked / "bin/busybox", folder / "bin/busybox")
    order: list[str] = []
    for module in (*MODULES, *(MODULES_OF_BOARDS if kind.architecture == ORANGEPI.architecture else ())):
        shown = _checked("modprobe", "--dirname", str(unpacked), "--set-version", version, "--show-depends", module)
        order += [words.split()[1] for words in shown.splitlines() if words.startswith("insmod")]
    for path in dict.fromkeys(order):
        shutil.copy2(path, folder / "modules")
    (folder / "modules/order").write_text("".join(f"{Path(path).name}\n" for path in dict.fromkeys(order)))
    (folder / "init").write_text(INIT)
    (folder / "init").chmod(0o755)
    return folder


def _second_stage(kind: Machine, folder: Path) -> None:
    kind = replace(MACHINES[kind.architecture], suite=kind.suite)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        shutil.copy2(folder / FIRST, scratch / "first")
        machine = _start(kind, [], folder, scratch, ["-nic", "none"])
        try:
            machine.wait(SECOND_STAGE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(machine)
        if DONE not in (scratch / "console").read_text(errors="replace"):
            raise PktswarmError(f"the machine of {kind.architecture} was not made: {_last_output(scratch)}")


def _start(
    kind: Machine, inside: Sequence[str], folder: Path, scratch: Path, more: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Starts a process that ends with this one, however this one ends."""
    command = ["setpriv", "--pdeathsig", "KILL", *inside, kind.qemu, *kind.options, "-accel", "tcg,thread=multi"]
    command += ["-m", kind.memory, "-smp", str(kind.cpus), "-display", "none"]
    command += ["-kernel", str(folder / KERNEL), "-initrd", str(scratch / "first")]
    # cdc_subset takes qemu's usb-net for its own, if it is loaded first, and fails.
    words = f"console={kind.console} quiet modprobe.blacklist=cdc_subset"
    command += ["-append", words, *_device_tree(kind, folder)]
    command += ["-drive", f"file={folder / DISK},format=raw,if={kind.drive},cache=unsafe"]
    command += ["-serial", f"file:{scratch / 'console'}", "-monitor", "none", "-no-reboot", *more]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(scratch / "qemu").open("wb")
    )


def _device_tree(kind: Machine, folder: Path) -> list[str]:
    """Options of qemu: a board's device tree. For the others qemu makes it; they have a PCI bus, and a source of random
    numbers on it."""
    if not kind.device_tree:
        return ["-device", "virtio-rng-pci"]
    (tree,) = (folder / DEVICE_TREES).rglob(kind.device_tree)
    return ["-dtb", str(tree)]


def _join_cables(pid: int) -> None:
    """Makes a bridge for each cable in the node's network namespace; the machine gets the node's interface names.

    A bridge keeps what is for the address of one of its own ports: so the cable's end gets another.
    """
    with network_of(pid):
        for number, cable in enumerate((CONTROL_INTERFACE, TRAFFIC_INTERFACE)):
            tap, bridge = f"tap{number}", f"to-tap{number}"
            _checked("ip", "tuntap", "add", tap, "mode", "tap")
            _checked("ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0", "stp_state", "0")
            _checked("ip", "address", "flush", "dev", cable)
            _checked("ip", "link", "set", cable, "address", f"02:94:00:00:00:{number:02x}")
            for one in (cable, tap):
                _checked("ip", "link", "set", one, "master", bridge)
            for one in (cable, tap, bridge):
                Path(f"/proc/sys/net/ipv6/conf/{one}/disable_ipv6").write_text("1")
                _checked("ip", "link", "set", one, "up")


def files_of(node: Node, state: LabState, keys: Path, folder: Path) -> Path:
    """Writes names, addresses and keys of the node, as files of the machine's root, below `node`."""
    network = folder / "node/etc/systemd/network"
    network.mkdir(parents=True)
    for name, mac, how in (
        (CONTROL_INTERFACE, node.control_mac, f"Address={node.address}/24\n"),
        (TRAFFIC_INTERFACE, node.mac, ""),
    ):
        (network / f"10-{name}.link").write_text(
            f"[Match]\nMACAddress={mac} {OF_USB_NET}{mac[2:]}\n[Link]\nName={name}\nMACAddress={mac}\n"
        )
        (network / f"10-{name}.network").write_text(
            f"[Match]\nName={name}\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n{how}"
        )
    wanted = folder / "node/etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True)
    (wanted / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    others = "".join(f"{one.address} {one.name}\n" for one in state.plan.nodes)
    (folder / "node/etc/hosts").write_text(f"127.0.0.1 localhost\n{others}")
    (folder / "node/etc/hostname").write_text(f"{node.name}\n")
    daemon, root = folder / "node/etc/ssh/sshd_config.d", folder / "node/root/.ssh"
    daemon.mkdir(parents=True)
    root.mkdir(mode=0o700, parents=True)
    (daemon / "lab.conf").write_text("HostKey /etc/ssh/lab_host_key\nPermitRootLogin prohibit-password\nUseDNS no\n")
    for source, target in (("host_key", daemon.parent / "lab_host_key"), ("authorized_keys", root / "authorized_keys")):
        shutil.copy2(keys / source, target)
        target.chmod(0o600)
    return folder


def _pack(archive: Path, folder: Path) -> None:
    """Packs an initial RAM disk; several may follow each other in one file."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    with archive.open("wb") as file:
        command = ["cpio", "--create", "--format=newc", "--owner=+0:+0", "--quiet"]
        subprocess.run(command, input="\n".join(names).encode(), stdout=file, cwd=folder, check=True)


def _await_sshd(machine: subprocess.Popen[bytes], state: LabState, node: Node, scratch: Path) -> None:
    """Waits until a login from the master succeeds."""
    master = state.keeper.pids["m0"]
    login = ["nsenter", f"--target={master}", "--mount", "--net", "ssh", "-F", str(ssh.CONFIG), node.name, "true"]
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline and machine.poll() is None:
        if subprocess.run(login, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0:
            return
        time.sleep(1.0)
    raise PktswarmError(f"{node.name}: the machine does not answer: {_last_output(scratch)}")


def _last_output(scratch: Path) -> str:
    files = [path for path in (scratch / "qemu", scratch / "console") if path.exists()]
    return " / ".join(" / ".join(path.read_text(errors="replace").strip().splitlines()[-8:]) for path in files)


def _end(machine: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        machine.send_signal(signal.SIGKILL)
    machine.wait()


def _checked(*command: str) -> str:
    """Runs a command; returns its output. Raises PktswarmError with the end of its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        words = (done.stderr + done.stdout).strip().splitlines()[-5:]
        raise PktswarmError(f"{command[0]} failed: {' / '.join(words)}")
    return done.stdout
