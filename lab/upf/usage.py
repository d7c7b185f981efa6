"""Usage reports: measurements of a session's URRs since their last report (3GPP TS 29.244, section 7.5.8.3)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace

from pktswarm.lab.upf.ie import Ie, ie, time_stamp
from pktswarm.lab.upf.rules import ACCESS, Urr
from pktswarm.lab.upf.session import Session

_DURATION, _VOLUME = 1, 2
"""Measurement Method, section 8.2.40."""
_PACKETS = 16
"""Measurement Information, section 8.2.68: MNOP."""
_TERMINATION, _IMMEDIATE = bytes([0, 8, 0]), bytes([128, 0, 0])
"""Usage Report Trigger, section 8.2.41: TERMR, IMMER."""


def usage_reports(
    session: Session, which: list[int], read_volume: Callable[[int], tuple[int, int]], kind: int
) -> bytes:
    """Returns a report for each URR in `which`; the next reports start where these end."""
    now_s, reports = time.time(), b""
    trigger = _TERMINATION if kind == Ie.USAGE_REPORT_DELETION else _IMMEDIATE
    for each in which:
        urr = session.content.urrs[each]
        measured = _measured(session, each, read_volume)
        body = ie(Ie.URR_ID, each.to_bytes(4, "big")) + ie(Ie.UR_SEQN, urr.reports.to_bytes(4, "big"))
        body += ie(Ie.USAGE_REPORT_TRIGGER, trigger)
        body += ie(Ie.START_TIME, time_stamp(urr.started_s)) + ie(Ie.END_TIME, time_stamp(now_s))
        reports += ie(kind, body + _measurement(urr, measured, now_s))
        session.content.urrs[each] = replace(urr, reports=urr.reports + 1, started_s=now_s, base=measured)
    return reports


def _measured(session: Session, which: int, read_volume: Callable[[int], tuple[int, int]]) -> tuple[int, int, int, int]:
    """Returns bytes up and down, packets up and down, since the start of the session."""
    found = [0, 0, 0, 0]
    living = [(pdr, read_volume(pdr.counts)) for pdr in session.content.pdrs.values()]
    for pdr, (packets, size) in living + session.gone:
        if which in pdr.urrs:
            down = pdr.interface != ACCESS
            found[down] += size
            found[2 + down] += packets
    return found[0], found[1], found[2], found[3]


def _measurement(urr: Urr, measured: tuple[int, int, int, int], now_s: float) -> bytes:
    up, down, packets_up, packets_down = (now - before for now, before in zip(measured, urr.base, strict=True))
    body = b""
    if urr.method & _VOLUME:
        volume = struct.pack(">BQQQ", 7, up + down, up, down)
        if urr.information & _PACKETS:
            counts = struct.pack(">QQQ", packets_up + packets_down, packets_up, packets_down)
            volume = bytes([63]) + volume[1:] + counts
        body += ie(Ie.VOLUME_MEASUREMENT, volume)
    if urr.method & _DURATION:
        body += ie(Ie.DURATION_MEASUREMENT, struct.pack(">I", round(now_s - urr.started_s)))
    return body
