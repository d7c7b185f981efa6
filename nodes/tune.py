"""What a node's traffic interface is set to, once and for all runs, and how it was before.

`python -m pktswarm.nodes.tune apply FOLDER` and `… undo FOLDER`, as root: FOLDER/tune.json says for which interface,
and FOLDER/tune-before.json has each value before its first change. On standard output one line of JSON: what was
changed, and what could not be set and why. Ansible and, at every start of the node, systemd call it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from pktswarm.nodes import gro, vlan
from pktswarm.nodes.interface import SYS_NET, Interface
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.plain import plain

CONFIG, BEFORE = "tune.json", "tune-before.json"
PROVISIONED = Path("/etc/pktswarm")
"""FOLDER of a node that `pktswarm provision` has been to."""
OFFLOADS = {
    "gro": "one large frame of several would be counted as one",
    "lro": "as gro, in the card",
    "gso": "a frame that the stack cuts late is counted before it is cut",
    "tso": "as gso, in the card",
    "rxvlan": "a tag that the card takes out is not in what XDP counts",
}
CPUS = Path("/sys/devices/system/cpu")


@plain
class Setting:
    name: str
    wanted: Callable[[], str]
    read: Callable[[], str]
    """OSError where this node has no such thing."""
    write: Callable[[str], None]


def settings(interface: str, own_kernel: bool) -> Iterator[Setting]:
    """Those of `interface`; of the whole kernel only where it is the node's own."""
    if tagged := _vlan_of(interface):
        yield _vlan(interface, tagged)
    # Router solicitations and listener reports would leave on the wire and be counted with the test traffic.
    yield _file(Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1")
    device = Interface(interface)
    for name in OFFLOADS:
        # On a cable of a lab GRO is on so that frames of XDP arrive, and merges nothing.
        if name != "gro" or gro.merges(interface):
            yield _offload(device, name)
    for ring in ("rx", "tx"):
        yield _ring(device, ring)
    # Nothing else sets it up at a start, as it has no address. Behind the rings, for which drivers take it down.
    yield _link(device)
    if own_kernel:
        yield from _interrupts(interface)
        for path in sorted(CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")):
            # A processor that has to wake up to its speed sends its first frames late.
            yield _file(path, "performance")


def keeps(interface: str, folder: Path = PROVISIONED) -> bool:
    """Whether `interface` is set here for good: what is off then is so on purpose."""
    try:
        return bool(json.loads((folder / CONFIG).read_text())["interface"] == interface)
    except (OSError, ValueError, KeyError, TypeError):
        return False


Done = dict[str, list[str]]
Before = dict[str, dict[str, str]]
"""Interface → setting → its value before its first change."""


def apply(folder: Path) -> Done:
    """Set what is not as wanted; returns the changes, and the settings that could not be set. An interface that was
    set before, and is not the configured one any more, gets its own settings back. Raises BadInput."""
    interface, own_kernel = _config(folder)
    if not Interface(interface).exists() and _vlan_of(interface) is None:
        raise BadInput(folder / CONFIG, "there is no such interface", key="traffic_interface", value=interface)
    before, done = _read_before(folder), Done({"changed": [], "told": []})
    for former in [name for name in before if name != interface]:
        _give_back(former, before, done)
        _write_before(folder, before)
    values = before.setdefault(interface, {})
    for one in settings(interface, own_kernel):
        with _reporting(done, f"{one.name} is left alone"):
            now, wanted = one.read(), one.wanted()
            if now == wanted:
                continue
            first = one.name not in values
            if first:
                # What --undo needs, before the change: whatever ends us in between.
                values[one.name] = now
                _write_before(folder, before)
            try:
                one.write(wanted)
            except (OSError, EngineError):
                if first and one.read() == now:
                    del values[one.name]
                    _write_before(folder, before)
                raise
            done["changed"].append(f"{one.name}: {now} -> {wanted}")
    return done


def undo(folder: Path) -> Done:
    """Set everything back to what it was before its first change."""
    before, done = _read_before(folder), Done({"changed": [], "told": []})
    for interface in list(before):
        _give_back(interface, before, done)
    if not before:
        (folder / BEFORE).unlink(missing_ok=True)
    return done


def _give_back(interface: str, before: Before, done: Done) -> None:
    """Restores an interface. Failed settings are reported and stay in `before`, unless the interface is missing."""
    stays, gone = {}, not Interface(interface).exists()
    # The last first, as a driver may take one setting only with another.
    for one in reversed([one for one in settings(interface, own_kernel=True) if one.name in before[interface]]):
        stays[one.name] = before[interface][one.name]
        with _reporting(done, f"{one.name} stays"):
            if one.read() != before[interface][one.name]:  # what a driver refused to take need not be given back
                one.write(before[interface][one.name])
                done["changed"].append(f"{one.name}: -> {before[interface][one.name]}")
            del stays[one.name]
    del before[interface]
    if stays and not gone:
        before[interface] = stays


@contextlib.contextmanager
def _reporting(done: Done, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EngineError) as error:
        done["told"].append(f"{what}: {getattr(error, 'strerror', None) or error}")


def _config(folder: Path) -> tuple[str, bool]:
    """The interface, and whether the node has a kernel of its own."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text())
        return str(config["interface"]), not config["shared_kernel"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(path, "cannot be read", allowed='{"interface": NAME, "shared_kernel": ""}') from None


def _read_before(folder: Path) -> Before:
    path = folder / BEFORE
    found = dict(json.loads(path.read_text())) if path.exists() else {}
    # Until 2026-11 the file was of one interface, and did not name it.
    flat = {name: value for name, value in found.items() if isinstance(value, str)}
    return {_config(folder)[0]: flat} if flat else found


def _write_before(folder: Path, before: Before) -> None:
    """In one step: half a record would be none."""
    draft = folder / f"{BEFORE}.draft"
    draft.write_text(json.dumps(before, indent=1) + "\n")
    draft.replace(folder / BEFORE)


def _file(path: Path, wanted: str) -> Setting:
    def write(value: str) -> None:
        path.write_text(value)

    return Setting(str(path), lambda: wanted, lambda: path.read_text().strip(), write)


def _vlan_of(interface: str) -> vlan.Vlan | None:
    """None: it is not the name of a VLAN on an interface of this node."""
    tagged = vlan.of_name(interface)
    return tagged if tagged and Interface(tagged.on).exists() else None


def _vlan(interface: str, tagged: vlan.Vlan) -> Setting:
    """The interface itself, which nothing else makes on a board with one port for control and test."""

    def write(value: str) -> None:
        if value == "there":
            vlan.add(interface, tagged)
        else:
            vlan.remove(interface)

    return Setting(
        f"{interface} on {tagged.on}",
        lambda: "there",
        lambda: ("missing", "there")[Interface(interface).exists()],
        write,
    )


def _offload(device: Interface, name: str) -> Setting:
    def write(value: str) -> None:
        device.set_offload(name, value == "on")

    return Setting(f"{device.name} {name}", lambda: "off", lambda: "on" if device.offload(name) else "off", write)


def _ring(device: Interface, which: str) -> Setting:
    """As large as the card has it: a burst waits in it while the processor is elsewhere."""

    def write(value: str) -> None:
        device.set_ring(which, int(value))

    return Setting(
        f"{device.name} ring {which}", lambda: str(device.ring(which)[1]), lambda: str(device.ring(which)[0]), write
    )


def _link(device: Interface) -> Setting:
    def write(value: str) -> None:
        device.set_up(value == "up")

    return Setting(f"{device.name} link", lambda: "up", lambda: "up" if device.is_up() else "down", write)


def _interrupts(interface: str) -> Iterator[Setting]:
    """One processor for each queue, in turn: an interrupt that wanders takes the queue's cache along."""
    numbers = sorted(int(path.name) for path in (SYS_NET / interface / "device/msi_irqs").glob("[0-9]*"))
    processors = len(list(CPUS.glob("cpu[0-9]*")))
    for place, number in enumerate(numbers):
        yield _file(Path(f"/proc/irq/{number}/smp_affinity_list"), str(place % processors))


def main() -> int:
    parser = argparse.ArgumentParser(prog="pktswarm.nodes.tune", description="Settings of the traffic interface.")
    parser.add_argument("what", choices=["apply", "undo"])
    parser.add_argument("folder", type=Path, help="with tune.json")
    arguments = parser.parse_args()
    try:
        done = (apply if arguments.what == "apply" else undo)(arguments.folder)
    except BadInput as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print(json.dumps(done))
    return 1 if arguments.what == "undo" and (arguments.folder / BEFORE).exists() else 0


if __name__ == "__main__":
    sys.exit(main())
