"""What a run's rows come to: totals by stream and group, and verdicts on what was expected of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pktswarm.master.results.limits import Outcome, verdict
from pktswarm.master.results.row import Row
from pktswarm.master.scenario.expectations import Expect, allowed
from pktswarm.traffic.connections.counts import ConnectionRow


def totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Per stream and over all: sums of what was measured; a sum with an unmeasured part is None."""
    names = list(dict.fromkeys(row.leg.stream for row in rows))
    streams = [(name, [row for row in rows if row.leg.stream == name]) for name in names]
    return [_total(name, part) for name, part in [*streams, ("total", rows)]]


def group_totals(rows: list[Row]) -> list[dict[str, Any]]:
    """Of targets and of the background, where there are both."""
    names = sorted({row.leg.group for row in rows}, reverse=True)
    parts = [(name, [row for row in rows if row.leg.group == name]) for name in names]
    return [_total(name, part, "group") for name, part in parts] if len(parts) > 1 else []


def _total(name: str, rows: list[Row], called: str = "stream") -> dict[str, Any]:
    def add(values: list[int | None]) -> int | None:
        return None if any(value is None for value in values) else sum(value or 0 for value in values)

    intended, sent = add([row.intended for row in rows]), add([row.sent for row in rows])
    received = add([row.received for row in rows])
    return {
        called: name,
        "intended_packets": intended,
        "sent_packets": sent,
        "received_packets": received,
        "lost_packets": add([row.lost for row in rows]),
        "k": received / intended if received is not None and intended else None,
        "k_sender": sent / intended if sent is not None and intended else None,
    }


def node_totals(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of what each node was to send, and of what was to come to each, with the k of both; from rows of streams.csv.
    A sum with an unmeasured part is None."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(("transmit", row["from"]), []).append(row)
        found.setdefault(("receive", row["to"]), []).append(row)
    return [
        {"node": node, "role": role, **_sums(those)}
        for (role, node), those in sorted(found.items(), key=lambda one: (one[0][0] != "transmit", one[0][1]))
    ]


def _sums(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [f"{name}_packets" for name in ("intended", "sent", "received", "lost")]
    values = {name: [row.get(name) for row in rows] for name in names}
    sums = {name: None if None in those else sum(value or 0 for value in those) for name, those in values.items()}
    intended, sent, received, _ = sums.values()
    ratios = {"k": received, "k_sender": sent}
    return {
        **sums,
        **{name: None if part is None or not intended else part / intended for name, part in ratios.items()},
    }


def judge(expect: Expect, rows: list[Row]) -> list[dict[str, Any]]:
    """One verdict an expectation and stream: {"text", "holds", "what", "found", "expected"}. What was not measured does
    not hold."""
    verdicts = []
    for total in totals(rows)[:-1]:
        name, sent = total["stream"], total["sent_packets"]
        if (loss := expect.limits(name).loss) is not None:
            verdicts.append(_loss_verdict(loss, total))
        wanted = total["intended_packets"] if expect.sent == "intended" else None
        wanted = expect.sent.get(name) if isinstance(expect.sent, dict) else wanted
        if wanted is not None:
            verdicts.append(verdict(f"{name}: sent", sent, wanted, _outcome(sent, sent == wanted)))
        if expect.received and name in expect.received:
            received, wanted = total["received_packets"], expect.received[name]
            verdicts.append(verdict(f"{name}: received", received, wanted, _outcome(received, received == wanted)))
    return verdicts


def judge_tunnels(expect: Expect, rows: list[Row]) -> list[dict[str, Any]]:
    """Of streams of sessions, where loss is judged: a packet in another user's tunnel is not lost to the stream."""
    invalid_sequence: dict[str, int] = {}
    for row in rows:
        if row.leg.arrives and row.users is not None and (lost := row.users.lost()) is not None:
            more = sum(-packets for packets in lost if packets < 0) + row.users.nobodys
            # What came to two gNBs is one too many as well, and nobody else's.
            invalid_sequence[row.leg.stream] = invalid_sequence.get(row.leg.stream, 0) + max(0, more - row.at_several)
    told = invalid_sequence if expect.loss is not None else {}
    words = "came as another user's"
    return [
        verdict(f"{name}:", f"{more} {words}", 0, _outcome(more, more == 0), f"{name}: {words}")
        for name, more in told.items()
    ]


def judge_mbr(expect: Expect, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`told`: of fared.mbr()."""
    verdicts = []
    for one in told if expect.mbr else ():
        above = "not measured" if one["users"] is None else f"{one['beyond_users']:,} of {one['users']:,} users above"
        holds = one["users"] is not None and not one["beyond_users"]
        outcome = _outcome(one["users"], holds)
        verdicts.append(verdict(f"MBR of {one['group']}, {one['direction']}:", above, "none", outcome))
    return verdicts


def judge_connections(expect: Expect, rows: list[ConnectionRow]) -> list[dict[str, Any]]:
    """As for streams, of each direction: blocks sent and received; lost are datagrams, or a TCP's blocks."""
    verdicts = []
    for row in rows:
        name, label = row.leg.stream, f"{row.leg.stream} from {row.source} to {row.target}"
        sent = None if row.sent is None else row.sent.sent_blocks
        received = None if row.received is None else row.received.blocks
        if (loss := expect.limits(name).loss) is not None:
            verdicts.append(_loss_verdict(loss, _lost_total(row, label)))
        if expect.sent == "intended" and row.sent is not None and row.sent.intended_blocks is not None:
            wanted: int | None = row.sent.intended_blocks
        else:
            wanted = expect.sent.get(name) if isinstance(expect.sent, dict) else None
        if wanted is not None:
            verdicts.append(verdict(f"{label}: sent", _blocks(sent), wanted, _outcome(sent, sent == wanted)))
        if expect.received and name in expect.received:
            wanted = expect.received[name]
            verdicts.append(
                verdict(f"{label}: received", _blocks(received), wanted, _outcome(received, received == wanted))
            )
    return verdicts


def _lost_total(row: ConnectionRow, label: str) -> dict[str, Any]:
    if row.sent is None or row.received is None:
        return {"stream": label, "sent_packets": None, "lost_packets": None}
    sent = row.sent.datagrams if row.udp else row.sent.sent_blocks
    lost = row.lost_datagrams if row.udp else row.sent.sent_blocks - row.received.blocks
    return {"stream": label, "sent_packets": sent, "lost_packets": lost}


def _loss_verdict(loss: int | str, total: dict[str, Any]) -> dict[str, Any]:
    lost, sent = total["lost_packets"], total["sent_packets"]
    what, most = f"{total['stream']}: lost", f"at most {loss}"
    if lost is None or (not sent and total.get("intended_packets") != 0):
        return verdict(what, lost, most, _outcome(lost, False))
    # More received than sent is no loss, and nothing to be content with either.
    return verdict(what, lost, most, _outcome(lost, 0 <= lost <= allowed(loss, sent or 0)))


def _blocks(count: int | None) -> str:
    return f"{count} blocks"


def _outcome(found: object, holds: bool) -> Outcome:
    if found is None:
        return "not measured"
    return "held" if holds else "failed"
