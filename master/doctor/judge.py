"""What is wrong with a host, by what it told, and how to mend it. Pure.

`wrong` keeps a run from being right, or from being at all; `note` does not, and is worth knowing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pktswarm.master.doctor.ask import Answer
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED

Level = Literal["unreachable", "wrong", "note"]
FRAME_SENDERS, FRAME_RECEIVERS = ("xdp", "pktgen", "trafgen"), ("xdp", "netsniff-ng")
LEAST_FREE_BYTES, LITTLE_FREE_BYTES = 100 * 2**20, 2 * 2**30
"""With less a capture soon fills the disk; a minute of full 100 Mbit/s is three quarters of a GiB."""
FAR_NS = 50_000_000
"""Clocks further apart make the nodes' logs hard to read beside each other; a run measures them for itself."""
THROTTLED_NOW, THROTTLED_ONCE = 0xF, 0xF0000
SAME = {
    "pktswarm": "install the master's version there",
    "mpi": "use one MPICH: the master's mpiexec and every node's library must be of one version",
    "mpi4py": "install the master's version there",
    "word_bits": "MPI needs one word size: one kind of system, 32 or 64 bits, on all hosts",
}


@dataclass(frozen=True)
class Finding:
    host: str
    level: Level
    what: str
    mend: str


def findings(answers: list[Answer]) -> list[Finding]:
    """Of all hosts, in their order."""
    master = answers[0].document or {}
    versions: dict[str, str] = master.get("versions", {})
    found = []
    for answer in answers:
        found += [Finding(answer.host.name, *one) for one in _host(answer, versions)]
    return found + _unlike(answers)


def status(found: Iterable[Finding]) -> int:
    levels = {one.level for one in found}
    if "unreachable" in levels:
        return EXIT_INCOMPLETE
    return EXIT_NOT_AS_EXPECTED if "wrong" in levels else EXIT_AS_EXPECTED


Found = Iterator[tuple[Level, str, str]]


def _host(answer: Answer, versions: dict[str, str]) -> Found:
    document = answer.document
    if document is None:
        yield "unreachable", answer.trouble, _how_to_reach(answer)
        return
    yield from _versions(document, versions)
    yield from _health(document["health"])
    yield from _clock(answer)
    if "interface" in document:
        yield from _guard(document)
        yield from _interface(document["interface"], answer)
        yield from _engines(document, answer.host.roles)


def _how_to_reach(answer: Answer) -> str:
    host, words = answer.host, answer.trouble
    if "host key" in words:
        return f"make sure that it is that host, then: ssh-keyscan {host.address} >> known_hosts"
    if "refuses the key" in words:
        return f"ssh-copy-id {host.address}"
    if "has no pktswarm" in words:
        return "install pktswarm there, or say where it is: pktswarm_python"
    return f"is it on, and is {host.address} its address? Try from the master: ssh {host.address} true"


def _versions(document: dict[str, Any], wanted: dict[str, str]) -> Found:
    has = document["versions"]
    if "mpi_missing" in has:
        yield "wrong", f"MPI does not load: {has['mpi_missing']}", "install mpi4py and MPICH: ./bootstrap"
    for name, mend in SAME.items():
        if name in has and name in wanted and has[name] != wanted[name]:
            yield "wrong", f"{name} is {has[name]}, the master's {wanted[name]}", mend
    if (minor := _minor(has)) != (masters := _minor(wanted)) and minor and masters:
        # Nodes of several releases have several; what they send each other is the same.
        yield "note", f"its Python is {minor}, the master's {masters}", "nothing, or one version (pktswarm_python)"
    if document["proxy_missing"]:
        yield "wrong", "hydra_pmi_proxy is not where the master has it", "install pktswarm at the master's path"
    for tool in document["tools_missing"]:
        yield "wrong", f"{tool} is not installed", "apt install util-linux coreutils"


def _minor(versions: dict[str, str]) -> str:
    return ".".join(versions.get("python", "").split(".")[:2])


def _health(health: dict[str, Any]) -> Found:
    if slow := [name for name in health["governors"] if name != "performance"]:
        what = f"the processors' governor is {', '.join(slow)}: rates and times vary with the clock"
        yield "note", what, "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    for zone in health["zones"]:
        limit = zone["passive_c"] or zone["critical_c"]
        if limit and limit > 0 and zone["celsius"] >= limit:
            yield "wrong", f"{zone['name']} is at {zone['celsius']:.0f} °C: it is slowed down", "cool the board"
    throttled = health["throttled"] or 0
    if throttled & THROTTLED_NOW:
        yield "wrong", f"the board is throttled now (0x{throttled:x})", "cool it, and give it a stronger power supply"
    elif throttled & THROTTLED_ONCE:
        yield "note", f"the board was throttled since it started (0x{throttled:x})", "cooling, power supply"
    free = health["free_bytes"]
    if free < LITTLE_FREE_BYTES:
        level: Level = "wrong" if free < LEAST_FREE_BYTES else "note"
        yield level, f"{free / 2**20:.0f} MiB are free for captures in {health['spools']}", "make room there"


def _clock(answer: Answer) -> Found:
    offset, bound = answer.offset_ns, answer.bound_ns
    if offset is not None and bound is not None and abs(offset) - bound > FAR_NS:
        what = f"its clock is {offset / 1e9:+.2f} s from the master's"
        yield "note", what, "apt install chrony; where it runs: chronyc sources"


def _guard(document: dict[str, Any]) -> Found:
    if document["guard_trouble"]:
        yield (
            "wrong",
            f"no guard: {document['guard_trouble']}",
            "log in as root, or give the sudo rule of docs/guide.md",
        )
    left = document["leftovers"]
    if left is None:
        return
    if left["holder"]:
        who = f"{left['holder']['by']} since {left['holder']['since']}"
        yield "wrong", f"in use by {who}: engines were not tried", "wait for the end of that run"
        return
    for process in left["processes"]:
        what = f"process {process['pid']} is an engine whose guard is gone: {process['command']}"
        yield "wrong", what, f"kill {process['pid']}"
    if left["xdp_program"]:
        what = f"XDP program {left['xdp_program']} is on {document['interface']['name']}, and no run is under way"
        yield "wrong", what, f"ip link set {document['interface']['name']} xdp off"
    for what in left["changed"]:
        yield "wrong", f"left changed by a guard that was killed: {what}", "pktswarm doctor --mend, or the next run"
    for what in document["mended"]:
        yield "note", what, "nothing"
    if left["folders"]:
        size = f"{left['bytes'] / 2**20:.0f} MiB"
        yield (
            "note",
            f"spool folders of guards that were killed, {size}",
            f"pktswarm doctor --mend, or rm -r {' '.join(left['folders'])}",
        )


def _interface(interface: dict[str, Any], answer: Answer) -> Found:
    name, host = interface["name"], answer.host
    if not interface["exists"]:
        yield "wrong", f"there is no interface {name}", "name the one under test: traffic_interface"
        return
    if not interface["carrier"]:
        yield "wrong", f"{name} is down or has no link", f"ip link set {name} up; is its cable plugged in?"
    for what in interface["carries"]:
        yield "wrong", f"{name} carries {what}: no run sends there", "another traffic_interface, or another route"
    if host.mac and host.mac != interface["mac"]:
        yield "wrong", f"the MAC of {name} is {interface['mac']}", f"the inventory says mac: {host.mac}"
    if interface["native_xdp"] is False:
        yield (
            "note",
            f"{interface['driver']} has no native XDP: {name} sends by pktgen or trafgen",
            "a card that has it",
        )


def _engines(document: dict[str, Any], roles: tuple[str, ...]) -> Found:
    tried: dict[str, dict[str, str]] = {"transmit": document["senders"], "receive": document["receivers"]}
    needed = {"transmit": FRAME_SENDERS, "receive": FRAME_RECEIVERS}
    for role in roles:
        engines = tried[role]
        if all(engines[name] for name in needed[role]):
            yield (
                "wrong",
                f"nothing can {role} frames here: none of {', '.join(needed[role])}",
                engines[needed[role][-1]],
            )
        for name, why in engines.items():
            if why:
                yield "note", f"cannot {role} with {name}", why


def _unlike(answers: list[Answer]) -> list[Finding]:
    """Interfaces that differ from most: a run works, and its largest frame is the smallest MTU's."""
    shown = {a.host.name: a.document["interface"] for a in answers if a.document and "interface" in a.document}
    mtus = {name: interface["mtu"] for name, interface in shown.items() if interface["exists"]}
    if len(set(mtus.values())) < 2:
        return []
    most = Counter(mtus.values()).most_common(1)[0][0]
    return [
        Finding(name, "note", f"its MTU is {mtu}, most have {most}", f"ip link set {shown[name]['name']} mtu {most}")
        for name, mtu in mtus.items()
        if mtu != most
    ]
