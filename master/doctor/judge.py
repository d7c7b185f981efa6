"""Findings in the hosts' reports, with their remedies. Pure.

`wrong`: prevents a run, or makes its results wrong; `note`: does neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pktswarm.master.cluster import wire_limit
from pktswarm.master.cluster.inventory import Host
from pktswarm.master.doctor.ask import Answer
from pktswarm.master.doctor.report import Health, HostReport, InterfaceReport, Leftovers, Memory, Ptp
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED
from pktswarm.traffic.protocol.ptp_reading import SYNCHRONIZED

Level = Literal["unreachable", "wrong", "note"]
FRAME_SENDERS, FRAME_RECEIVERS = ("xdp", "tc", "pktgen", "trafgen"), ("xdp", "netsniff-ng")
LEAST_FREE_BYTES, LITTLE_FREE_BYTES = 100 * 2**20, 2 * 2**30
"""A minute of captures at 100 Mbit/s takes 0.7 GiB."""
FAR_NS = 50_000_000
"""Offset between two clocks that makes logs hard to compare; a run measures clocks itself."""
THROTTLED_NOW, THROTTLED_ONCE = 0xF, 0xF0000
SAME = {
    "pktswarm": "install the master's version there",
    "mpi": "use one MPICH: the master's mpiexec and every node's library must have the same version",
    "mpi4py": "install the master's version there",
    "word_bits": "MPI needs one word size: 32 or 64 bits on all hosts",
}
OF_MPI = ("mpi", "mpi4py", "mpi_missing", "word_bits")
"""Versions that do not matter on a node without MPI."""


@dataclass(frozen=True)
class Finding:
    host: str
    level: Level
    what: str
    mend: str


def findings(answers: list[Answer], own_run: str = "") -> list[Finding]:
    """Returns the findings of all hosts, in their order. `own_run`: the run by which the cluster of this inventory
    holds its nodes, if it is up."""
    versions = answers[0].document.get("versions", {}) if answers[0].document else {}
    found = []
    for answer in answers:
        found += [Finding(answer.host.name, *parts) for parts in _host(answer, versions, own_run)]
    return found + _unlike(answers)


def status(found: Iterable[Finding]) -> int:
    levels = {finding.level for finding in found}
    if "unreachable" in levels:
        return EXIT_INCOMPLETE
    return EXIT_NOT_AS_EXPECTED if "wrong" in levels else EXIT_AS_EXPECTED


Findings = Iterator[tuple[Level, str, str]]


def _host(answer: Answer, versions: dict[str, str], own_run: str) -> Findings:
    document = answer.document
    if document is None:
        yield "unreachable", answer.trouble, _how_to_reach(answer)
        return
    yield from _versions(document, versions, answer.host.mpi == "none")
    yield from _health(document["health"])
    yield from _clock(answer)
    if "interface" in document:
        yield from _guard(document, own_run)
        yield from _memory(document["memory"])
        yield from _ptp(document["ptp"])
        yield from _interface(document["interface"], answer)
        yield from _engines(document, answer.host.roles)


def _how_to_reach(answer: Answer) -> str:
    host, trouble = answer.host, answer.trouble
    if "host key" in trouble:
        return f"verify the host's identity, then: ssh-keyscan {host.address} >> known_hosts"
    if "refuses the key" in trouble:
        return f"ssh-copy-id {host.address}"
    if "has no pktswarm" in trouble:
        return "install pktswarm there, or set its path: pktswarm_python"
    return f"check its power and its address, {host.address}; test from the master: ssh {host.address} true"


def _versions(document: HostReport, wanted: dict[str, str], without_mpi: bool) -> Findings:
    has = {name: version for name, version in document["versions"].items() if not (without_mpi and name in OF_MPI)}
    if "mpi_missing" in has:
        yield "wrong", f"MPI does not load: {has['mpi_missing']}", "install mpi4py and MPICH: ./bootstrap"
    for name, mend in SAME.items():
        if name in has and name in wanted and has[name] != wanted[name]:
            yield "wrong", f"{name} is {has[name]}, the master's is {wanted[name]}", mend
    if (minor := _minor(has)) != (masters := _minor(wanted)) and minor and masters:
        # Several Pythons are common on nodes of several releases; the messages are the same.
        yield (
            "note",
            f"Python is {minor}, the master's is {masters}",
            "none needed, or use one version (pktswarm_python)",
        )
    if document["proxy_missing"] and not without_mpi:
        yield "wrong", "hydra_pmi_proxy is not at the master's path", "install pktswarm at the master's path"
    for tool in document["tools_missing"]:
        yield "wrong", f"{tool} is not installed", "apt install util-linux coreutils"


def _minor(versions: dict[str, str]) -> str:
    return ".".join(versions.get("python", "").split(".")[:2])


def _health(health: Health) -> Findings:
    if slow := [name for name in health["governors"] if name != "performance"]:
        what = f"the processors' governor is {', '.join(slow)}: rates and times vary with their clock"
        yield "note", what, "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    for zone in health["zones"]:
        limit = zone["passive_c"] or zone["critical_c"]
        if limit and limit > 0 and zone["celsius"] >= limit:
            yield (
                "wrong",
                f"{zone['name']} is at {zone['celsius']:.0f} °C: the processor is throttled",
                "cool the board",
            )
    throttled = health["throttled"] or 0
    if throttled & THROTTLED_NOW:
        yield "wrong", f"the board is throttled now (0x{throttled:x})", "cool it, and use a stronger power supply"
    elif throttled & THROTTLED_ONCE:
        yield "note", f"the board was throttled since it started (0x{throttled:x})", "check cooling and power supply"
    free = health["free_bytes"]
    if free < LITTLE_FREE_BYTES:
        level: Level = "wrong" if free < LEAST_FREE_BYTES else "note"
        yield level, f"{free / 2**20:.0f} MiB free for captures in {health['spools']}", "free disk space there"


def _clock(answer: Answer) -> Findings:
    offset, bound = answer.offset_ns, answer.bound_ns
    if offset is not None and bound is not None and abs(offset) - bound > FAR_NS:
        what = f"clock offset {offset / 1e9:+.2f} s from the master's"
        yield "note", what, "apt install chrony; where it runs: chronyc sources"


def _guard(document: HostReport, own_run: str) -> Findings:
    if document["guard_trouble"]:
        yield (
            "wrong",
            f"no guard: {document['guard_trouble']}",
            "log in as root, or add the sudo rule of docs/guide.md",
        )
    if document["leftovers"] is not None:
        yield from _leftovers(document["leftovers"], document, own_run)


def _memory(memory: Memory | None) -> Findings:
    if memory is None:
        return
    wanted, free = memory["rank_bytes"] + memory["guard_bytes"], memory["available_bytes"]
    if wanted > free:
        what = (
            f"a rank and its guard take {wanted / 2**20:.0f} MiB of memory at least, {free / 2**20:.0f} are available"
        )
        yield "wrong", what, "end other programs there"


def _ptp(ptp: Ptp | None) -> Findings:
    """A host without PTP is no finding."""
    if ptp is not None and ptp["state"] not in ("", *SYNCHRONIZED):
        yield "note", f"PTP: {ptp['problem']}: it follows no clock", "journalctl -u ptp4l@*; check the grandmaster"


def _leftovers(left: Leftovers, document: HostReport, own_run: str) -> Findings:
    if left["holder"]:
        holder = f"{left['holder']['by']} since {left['holder']['since']}"
        if left["holder"]["run"] == own_run:
            yield "note", f"held by {holder}: engines not tested", "none needed: runs of this inventory use the cluster"
            return
        yield "wrong", f"in use by {holder}: engines not tested", "wait for the end of that run"
        return
    for process in left["processes"]:
        what = f"process {process['pid']} is an engine whose guard is gone: {process['command']}"
        yield "wrong", what, f"kill {process['pid']}"
    if left["xdp_program"]:
        what = f"XDP program {left['xdp_program']} is on {document['interface']['name']} without a run"
        yield "wrong", what, f"ip link set {document['interface']['name']} xdp off"
    for what in left["changed"]:
        yield "wrong", f"left changed by a guard that was killed: {what}", "pktswarm doctor --mend, or the next run"
    for what in document["mended"]:
        yield "note", what, "none needed"
    if left["folders"]:
        size = f"{left['bytes'] / 2**20:.0f} MiB"
        yield (
            "note",
            f"spool folders of guards that were killed, {size}",
            f"pktswarm doctor --mend, or rm -r {' '.join(left['folders'])}",
        )


def _interface(interface: InterfaceReport, answer: Answer) -> Findings:
    name, host = interface["name"], answer.host
    if not interface["exists"]:
        yield "wrong", f"there is no interface {name}", "set the interface under test: traffic_interface"
        return
    if not interface["carrier"]:
        yield "wrong", f"{name} is down or has no link", f"ip link set {name} up; check its cable"
    for what in interface["carries"]:
        yield "wrong", f"{name} carries {what}: runs are refused", "use another traffic_interface, or another route"
    if wire := interface.get("shared_wire"):
        yield "note", f"{name} shares {wire} with the connection to the master", _wire_limit(interface, host)
    if host.mac and host.mac != interface["mac"]:
        yield "wrong", f"the MAC of {name} is {interface['mac']}", f"the inventory has mac: {host.mac}"
    if interface["native_xdp"] is False:
        yield (
            "note",
            f"{interface['driver']} has no native XDP: {name} sends by tc, or by pktgen or trafgen",
            "use a card that has it",
        )


def _wire_limit(interface: InterfaceReport, host: Host) -> str:
    limit_bps = host.wire_limit.at(interface["speed_mbps"])
    if limit_bps is None:
        return f"its speed is unknown: set {wire_limit.KEY} to a bit rate"
    return f"runs are limited to {limit_bps / 1e6:,.6g} Mbit/s there ({wire_limit.KEY})"


def _engines(document: HostReport, roles: tuple[str, ...]) -> Findings:
    tested: dict[str, dict[str, str]] = {"transmit": document["senders"], "receive": document["receivers"]}
    needed = {"transmit": FRAME_SENDERS, "receive": FRAME_RECEIVERS}
    for role in roles:
        engines = tested[role]
        if all(engines[name] for name in needed[role]):
            yield (
                "wrong",
                f"no engine can {role} frames: none of {', '.join(needed[role])}",
                engines[needed[role][-1]],
            )
        for name, why in engines.items():
            if why and role == "transmit" and name in document.get("on_request", []):
                yield "note", f"transmits with {name} only where a stream names it", why
            elif why:
                yield "note", f"cannot {role} with {name}", why
    if (lacks := document.get("tail_calls")) and "receive" in roles:
        yield "note", "the counter in the kernel has no filter and no echo, and puts no fragments together", lacks


def _unlike(answers: list[Answer]) -> list[Finding]:
    """Finds interfaces whose MTU differs from the most common one: the smallest limits a run's frames."""
    interfaces = {a.host.name: a.document["interface"] for a in answers if a.document and "interface" in a.document}
    mtus = {name: interface["mtu"] for name, interface in interfaces.items() if interface["exists"]}
    if len(set(mtus.values())) < 2:
        return []
    most = Counter(mtus.values()).most_common(1)[0][0]
    return [
        Finding(name, "note", f"MTU is {mtu}, most have {most}", f"ip link set {interfaces[name]['name']} mtu {most}")
        for name, mtu in mtus.items()
        if mtu != most
    ]
