"""The frames of a further instance of a trace: offsets to users, servers, ports and TEIDs, with right checksums.

It is equal to the result of the kernel program, which tests compare with it; engines that replay files use it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.leg import Shift
from pktswarm.traffic.replay.frames import NOT_COVERED, Frames, Integers
from pktswarm.traffic.replay.words import ONES, Words, values_of, words_of

IPV4_BITS, PORT_BITS = 32, 16


def shifted(frames: Frames, shift: Shift) -> Frames:
    """A copy of the frames with the offsets added and the checksums updated (RFC 1624)."""
    made = replace(frames, store=frames.store.copy())
    apply(made, shift)
    return made


def apply(frames: Frames, shift: Shift, rows: slice = slice(None)) -> None:
    """Adds the offsets in place."""
    words = frames.store.view(np.uint16)
    change = _add_address(frames, words, "user", shift.user, rows)
    change += _add_address(frames, words, "server", shift.server, rows)
    _amend(words, *_ipv4_sums(frames, words, rows), change)
    covered = frames.sum_at[rows] > 0
    change[~covered] = 0
    change += _add_port(frames, words, shift.port, rows)
    at = (frames.place[rows] + frames.sum_at[rows]) >> 1
    _amend(words, at, covered, change)
    _keep_udp_sum(words, at, covered, frames, rows)
    _add_teid(frames, words, shift.teid, rows)


def _is_ipv4(frames: Frames, rows: slice) -> NDArray[np.bool_]:
    return np.asarray(frames.store[frames.place[rows] + frames.ip_at[rows]] >> 4 == 4)


def _add_address(frames: Frames, words: Words, role: Literal["user", "server"], amount: int, rows: slice) -> Integers:
    """Adds an offset to addresses. Returns the change of their sum."""
    change = np.zeros(len(frames.place[rows]), np.int64)
    if not amount:
        return change
    four = _is_ipv4(frames, rows)
    # The last four bytes of each address.
    for bit, at4, at6 in ((1, 12, 20), (2, 16, 36)):
        some = np.flatnonzero((frames.ends[rows] & bit > 0) == (role == "server"))
        at = frames.place[rows][some] + frames.ip_at[rows][some] + np.where(four[some], at4, at6)
        covered = frames.ends[rows][some] & NOT_COVERED == 0 if bit == 2 else 1
        change[some] += _add32(words, at >> 1, amount) * covered
    return change


def _add32(words: Words, at: Integers, amount: int) -> Integers:
    value = ((values_of(words[at]) << 16 | values_of(words[at + 1])) + amount) % (1 << IPV4_BITS)
    high, low = words_of(value >> 16), words_of(value & ONES)
    change = high.astype(np.int64) - words[at] + low - words[at + 1]
    words[at], words[at + 1] = high, low
    return np.asarray(change)


def _ipv4_sums(frames: Frames, words: Words, rows: slice) -> tuple[Integers, NDArray[np.bool_]]:
    return (frames.place[rows] + frames.ip_at[rows] + 10) >> 1, _is_ipv4(frames, rows)


def _add_port(frames: Frames, words: Words, amount: int, rows: slice) -> Integers:
    change = np.zeros(len(frames.place[rows]), np.int64)
    some = np.flatnonzero(frames.l4_at[rows] > 0)
    if amount and len(some):
        # The user's port is the source port uplink, the destination port downlink.
        at = (frames.place[rows][some] + frames.l4_at[rows][some] + 2 * frames.down[rows][some]) >> 1
        value = words_of((values_of(words[at]) + amount) % (1 << PORT_BITS))
        change[some] = value.astype(np.int64) - words[at]
        words[at] = value
    return change


def _amend(words: Words, at: Integers, rows: NDArray[np.bool_], change: Integers) -> None:
    """Updates checksums by the change of their sum (RFC 1624)."""
    some = rows & (change != 0)
    recorded = words[at[some]].astype(np.int64)
    words[at[some]] = (ONES - ((ONES - recorded) + change[some]) % ONES) % ONES


def _keep_udp_sum(words: Words, at: Integers, covered: NDArray[np.bool_], frames: Frames, rows: slice) -> None:
    """Updates transport checksums. In UDP 0 means "no checksum" and is sent as 0xFFFF (RFC 768)."""
    udp = covered & (frames.sum_at[rows] - frames.l4_at[rows] == 6)
    zero = udp & (words[np.where(udp, at, 0)] == 0)
    words[at[zero]] = ONES


def _add_teid(frames: Frames, words: Words, amount: int, rows: slice) -> None:
    some = np.flatnonzero(frames.teid_at[rows] > 0)
    if amount and len(some):
        _add32(words, (frames.place[rows][some] + frames.teid_at[rows][some]) >> 1, amount)
