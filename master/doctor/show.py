"""Findings of the doctor on a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pktswarm.master.cluster.host_names import compact
from pktswarm.master.doctor.ask import Answer
from pktswarm.master.doctor.judge import Finding
from pktswarm.master.doctor.report import Health, Memory

COLOURS = {"unreachable": "bold red", "wrong": "red", "note": "yellow"}


def document(answers: list[Answer], found: list[Finding], status: int) -> dict[str, object]:
    hosts = {
        answer.host.name: {
            "reachable": answer.document is not None,
            "offset_ns": answer.offset_ns,
            "offset_bound_ns": answer.bound_ns,
            "told": answer.document,
            "findings": [asdict(finding) for finding in found if finding.host == answer.host.name],
        }
        for answer in answers
    }
    return {"status": status, "hosts": hosts}


def print_health(console: Console, answers: list[Answer], found: list[Finding]) -> None:
    table = Table("host", "roles", "interface", "link", "MTU", "queues", "XDP", "clock", "CPU", "memory", "ok")
    for answer in answers:
        table.add_row(*_row(answer), _verdict(answer, found))
    console.print(table)
    for names, finding in once(found):
        line = Text(f"{names}: {finding.what}", style=COLOURS[finding.level])
        console.print(line.append(f"\n    → {finding.mend}", style="default"))


def once(found: list[Finding]) -> list[tuple[str, Finding]]:
    """Combines equal findings of several hosts: the names of the hosts, and the finding of the first of them."""
    hosts: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in found:
        hosts.setdefault((finding.level, finding.what, finding.mend), []).append(finding)
    return [(compact([each.host for each in equal]), equal[0]) for equal in hosts.values()]


def _row(answer: Answer) -> list[str]:
    report, host = answer.document, answer.host
    roles = ", ".join(host.roles) or "master"
    if report is None:
        return [host.name, roles, *[""] * 8]
    board = [_clock(answer), _board(report["health"]), _memory(report.get("memory"))]
    interface = report.get("interface")
    if interface is None or not interface["exists"]:
        return [host.name, roles, host.traffic_interface, *[""] * 4, *board]
    speed = f"{interface['speed_mbps']} Mbit/s" if interface["speed_mbps"] else "up"
    native = {True: "native", False: "generic", None: "unknown"}[interface["native_xdp"]]
    queues = f"{interface['transmit_queues']} + {interface['receive_queues']}"
    shown = f"{interface['name']} ({interface['driver'] or 'unknown driver'})"
    link = speed if interface["carrier"] else "none"
    return [host.name, roles, shown, link, str(interface["mtu"]), queues, native, *board]


def _clock(answer: Answer) -> str:
    """By the readings over SSH; where it follows a clock by PTP, what ptp4l reports, too."""
    if answer.offset_ns is None or answer.bound_ns is None:
        return ""
    read = f"{answer.offset_ns / 1e6:+z.1f} ± {answer.bound_ns / 1e6:.1f} ms"
    ptp = None if answer.document is None else answer.document.get("ptp")
    if ptp is None or ptp["state"] != "SLAVE":
        return read
    return f"{read}; PTP {ptp['offset_ns'] / 1e3:+.1f} µs, path {ptp['path_delay_ns'] / 1e3:.1f} µs"


def _board(health: Health) -> str:
    hottest = max((zone["celsius"] for zone in health["zones"]), default=None)
    return ", ".join([*health["governors"], *([] if hottest is None else [f"{hottest:.0f} °C"])])


def _memory(memory: Memory | None) -> str:
    """The sum of rank and guard, before MPI_Init."""
    return "" if memory is None else f"≥ {(memory['rank_bytes'] + memory['guard_bytes']) / 2**20:.0f} MiB"


def _verdict(answer: Answer, found: list[Finding]) -> Text:
    levels = {finding.level for finding in found if finding.host == answer.host.name}
    for level, verdict in (("unreachable", "not reached"), ("wrong", "no"), ("note", "yes, see below")):
        if level in levels:
            return Text(verdict, style=COLOURS[level])
    return Text("yes", style="green")
