"""Verdicts on counts: loss, packets sent and received, packets in a wrong tunnel, rates above the MBR."""

from __future__ import annotations

from collections.abc import Sequence

from pktswarm.master.dut_host.report import DropsDocument
from pktswarm.master.results.document import Verdict
from pktswarm.master.results.document_rows import MbrResult
from pktswarm.master.results.judgement import judgement, verdict
from pktswarm.master.results.row import Row
from pktswarm.master.results.totals import totals
from pktswarm.master.scenario.expectations import Expect, allowed
from pktswarm.traffic.connections.counts import ConnectionRow

IN_WRONG_TUNNEL = "arrived as another user's"


def judge(expect: Expect, rows: Sequence[Row]) -> list[Verdict]:
    """One verdict for each stream and expectation. An expectation that was not measured does not hold."""
    verdicts = []
    for total in totals(rows)[:-1]:
        name, sent = total["stream"], total["sent_packets"]
        if (loss := expect.limits(name).loss) is not None:
            verdicts.append(_loss_verdict(name, loss, total["lost_packets"], sent, total["intended_packets"]))
        wanted = total["intended_packets"] if expect.sent == "intended" else None
        wanted = expect.sent.get(name) if isinstance(expect.sent, dict) else wanted
        if wanted is not None:
            verdicts.append(verdict(f"{name}: sent", sent, wanted, judgement(sent, sent == wanted)))
        if expect.received and name in expect.received:
            received, wanted = total["received_packets"], expect.received[name]
            verdicts.append(verdict(f"{name}: received", received, wanted, judgement(received, received == wanted)))
    return verdicts


def judge_tunnels(expect: Expect, rows: Sequence[Row]) -> list[Verdict]:
    """One verdict for each stream of sessions, where loss is judged: a packet in the tunnel of another user is not lost
    to the stream."""
    if expect.loss is None:
        return []
    misplaced: dict[str, int] = {}
    for row in rows:
        if row.leg.arrives and row.users is not None and (lost := row.users.lost()) is not None:
            surplus = sum(-packets for packets in lost if packets < 0) + row.users.unassigned
            # A packet that arrived at two gNBs is a surplus too, and its user's own.
            misplaced[row.leg.stream] = misplaced.get(row.leg.stream, 0) + max(0, surplus - row.handover.duplicated)
    return [
        verdict(f"{name}:", f"{packets} {IN_WRONG_TUNNEL}", 0, judgement(packets, packets == 0),
                f"{name}: {IN_WRONG_TUNNEL}")
        for name, packets in misplaced.items()
    ]  # fmt: skip


def judge_mbr(expect: Expect, results: Sequence[MbrResult]) -> list[Verdict]:
    """One verdict for each group of users and direction."""
    verdicts = []
    for result in results if expect.mbr else ():
        users, above = result["users"], result.get("beyond_users", 0)
        measured = "not measured" if users is None else f"{above:,} of {users:,} users above"
        label = f"MBR of {result['group']}, {result['direction']}:"
        verdicts.append(verdict(label, measured, "none", judgement(users, not above)))
    return verdicts


def judge_connections(expect: Expect, rows: Sequence[ConnectionRow]) -> list[Verdict]:
    """Verdicts for each direction of a connection stream: blocks sent and received, and loss, of datagrams on UDP and
    of blocks on TCP."""
    verdicts = []
    for row in rows:
        name, label = row.leg.stream, f"{row.leg.stream} from {row.source} to {row.target}"
        sent = None if row.sent is None else row.sent.sent_blocks
        received = None if row.received is None else row.received.blocks
        if (loss := expect.limits(name).loss) is not None:
            verdicts.append(_loss_verdict(label, loss, *_lost_of_sent(row)))
        if (wanted := _wanted_blocks(expect, row)) is not None:
            verdicts.append(verdict(f"{label}: sent", _blocks(sent), wanted, judgement(sent, sent == wanted)))
        if expect.received and name in expect.received:
            wanted = expect.received[name]
            outcome = judgement(received, received == wanted)
            verdicts.append(verdict(f"{label}: received", _blocks(received), wanted, outcome))
    return verdicts


def with_host_drops(verdicts: Sequence[Verdict], host: DropsDocument | None) -> list[Verdict]:
    """Adds the drops of the device's host as `note` to each verdict on loss that does not hold."""
    note = "" if host is None else host["words"]
    return [{**each, "note": note} if note and _is_failed_loss(each) else each for each in verdicts]


def _is_failed_loss(each: Verdict) -> bool:
    return not each["holds"] and each.get("what", "").endswith(": lost")


def _wanted_blocks(expect: Expect, row: ConnectionRow) -> int | None:
    """The expected number of sent blocks; None: there is no expectation."""
    if expect.sent == "intended":
        return None if row.sent is None else row.sent.intended_blocks
    return expect.sent.get(row.leg.stream) if isinstance(expect.sent, dict) else None


def _lost_of_sent(row: ConnectionRow) -> tuple[int | None, int | None]:
    """Lost and sent datagrams, or blocks of TCP."""
    if row.sent is None or row.received is None:
        return None, None
    if row.udp:
        return row.lost_datagrams, row.sent.datagrams
    return row.sent.sent_blocks - row.received.blocks, row.sent.sent_blocks


def _loss_verdict(
    name: str, loss: int | str, lost: int | None, sent: int | None, intended: int | None = None
) -> Verdict:
    label, most = f"{name}: lost", f"at most {loss}"
    if lost is None or (not sent and intended != 0):
        return verdict(label, lost, most, judgement(lost, False))
    # A surplus of received packets is not accepted either.
    return verdict(label, lost, most, judgement(lost, 0 <= lost <= allowed(loss, sent or 0)))


def _blocks(count: int | None) -> str:
    return f"{count} blocks"
