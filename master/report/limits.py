"""What limited a run: the sender that did not send all, the link that was full, what the interfaces dropped.

Only what was measured is told. A limit of the tester's is never one of the device's.
"""

from __future__ import annotations

from typing import Any

from pktswarm.master.report.formatting import bps, count, percent, pps, ratio
from pktswarm.master.report.over_time import OverTime

FULL = 0.95
"""Of a link's speed on layer 1, in one bin."""


def describe(document: dict[str, Any], nodes: list[dict[str, str]], over_time: OverTime | None) -> list[str]:
    """Sentences. `nodes`: of nodes.csv."""
    streams = document.get("totals", [])[:-1]
    return [
        *_of_sending(streams, document.get("rows", [])),
        *_of_capacity(document),
        *_of_links(document, over_time),
        *_of_interfaces(nodes),
        *_of_lateness(document.get("rows", [])),
    ]


def asked_and_obtained(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each leg: the rate that was asked for, of a steady one, what left, what came (packets/s)."""
    asked = {leg["id"]: _asked_pps(leg) for leg in document.get("legs", [])}
    return [{**row, "asked_pps": asked.get(row.get("leg"))} for row in document.get("rows", [])]


def _asked_pps(leg: dict[str, Any]) -> float | None:
    steady = leg.get("kind") == "stream" and not leg.get("rates") and not leg.get("sequence_file")
    return leg.get("rate_pps") if steady else None


def _of_sending(streams: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    told, whole = [], True
    for one in streams:
        intended, sent = one["intended_packets"], one["sent_packets"]
        if intended is None and sent is not None:
            rates = [row["sent_pps"] for row in rows if row["stream"] == one["stream"]]
            rate = "" if None in rates else f", {pps(sum(rates))} in all"
            told.append(
                f"{one['stream']} was sent as fast as its senders could{rate}: they, or their links, set its rate."
            )
        elif sent is not None and sent < intended:
            told.append(
                f"{one['stream']}: the tester sent {count(sent)} of {count(intended)} packets (k_sender "
                f"{ratio(one['k_sender'])}). What did not leave is no loss of the device."
            )
        whole = whole and sent is not None and intended is not None and sent >= intended
    if whole and streams:
        told.append("The tester sent everything that was intended: what is lost was lost behind its senders.")
    return told


def _of_capacity(document: dict[str, Any]) -> list[str]:
    """By what the nodes were seen to do (docs/calibrate.md): whether a loss may be the tester's own."""
    capacity = document.get("capacity", {})
    rows = {row["leg"]: row for row in document.get("rows", [])}
    ends: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for end in capacity.get("legs", []):
        ends.setdefault((end["node"], end["role"]), []).append(end)
    told = [_of_node(node, role, those, rows) for (node, role), those in ends.items()]
    return [words for words in [*told, *capacity.get("not_used", [])] if words]


def _of_node(node: str, role: str, ends: list[dict[str, Any]], rows: dict[int, dict[str, Any]]) -> str:
    """A transmitter by what was asked of it, a receiver by what was sent to it, at the mean rates."""
    received = role == "receive"
    if any(end["leg"] not in rows for end in ends):
        return ""
    of_them = [rows[end["leg"]] for end in ends]
    rates = [row["sent_pps"] if received else end["pps"] for end, row in zip(ends, of_them, strict=True)]
    if None in rates:
        return ""
    share = sum(rate / end["limit"]["rate_pps"] for rate, end in zip(rates, ends, strict=True))
    possible = f"{percent(share, 1)} of what it was seen to {'receive without loss' if received else 'send'}"
    lost = [row.get("lost_packets") for row in of_them]
    if not received:
        return (
            f"{node} was asked for {pps(sum(rates))}, {possible}: it cannot have sent all in time." if share > 1 else ""
        )
    if share > 1:
        return f"{node} was offered {pps(sum(rates))}, {possible}: what is lost may be its own loss, not the device's."
    if None not in lost and any(lost) and _all_of(node, ends, rows):
        return (
            f"{node} was offered {pps(sum(rates))}, {possible}: at such a rate it lost nothing when it was calibrated."
        )
    return ""


def _all_of(node: str, ends: list[dict[str, Any]], rows: dict[int, dict[str, Any]]) -> bool:
    """Whether there is nothing else that came to it, of which nothing is known."""
    known = {end["leg"] for end in ends}
    return all(leg in known for leg, row in rows.items() if node in row["to"].split("+"))


def _of_links(document: dict[str, Any], over_time: OverTime | None) -> list[str]:
    told = []
    peaks = {} if over_time is None else {(one.node, one.role): one for one in over_time.nodes}
    for rank in document.get("ranks", {}).values():
        mbps, peak = rank.get("interface", {}).get("speed_mbps"), peaks.get((rank.get("host"), rank.get("role")))
        load = None if peak is None else peak.load(mbps)
        if load is not None and load >= FULL:
            speed = bps(mbps * 1e6)
            told.append(f"{rank['host']}: its link of {speed} was full (up to {100 * load:.0f} % on layer 1).")
    return told


def _of_interfaces(nodes: list[dict[str, str]]) -> list[str]:
    """Of each role's own direction; an interface counts whatever came, so what it dropped may be others'."""
    reasons = {
        (
            "transmit",
            "failed_packets",
        ): "its interface did not take {} packets: its queue was full, or it refused them.",
        ("transmit", "tx_error_packets"): "its interface counted {} errors in sending.",
        ("receive", "rx_error_packets"): "its interface counted {} errors in receiving, of whatever traffic.",
        ("transmit", "tx_dropped_packets"): "its interface dropped {} packets that were to be sent.",
        ("receive", "rx_dropped_packets"): "its interface dropped {} packets that had come, of whatever traffic.",
        ("receive", "missed_packets"): "the receiving engine missed {} packets: a limit of the receiving node.",
    }
    found = (
        (node, words, int(node.get(name) or 0))
        for node in nodes
        for (role, name), words in reasons.items()
        if node.get("role") == role
    )
    return [f"{node['node']}: {words.format(count(number))}" for node, words, number in found if number]


def _of_lateness(rows: list[dict[str, Any]]) -> list[str]:
    late: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.get("late_packets") and row.get("sent_packets"):
            before, sent = late.get(row["stream"], (0, 0))
            late[row["stream"]] = before + row["late_packets"], sent + row["sent_packets"]
    return [
        f"{name}: {count(number)} of {count(sent)} packets left after they were due."
        for name, (number, sent) in late.items()
    ]
