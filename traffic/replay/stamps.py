"""Stamps in the packets of a trace that have room for one.

It is the stamp of traffic.frames.stamp with its checksum and two further bytes, the balance, with which the sum of the
24 bytes in 16-bit words equals that of the recorded ones. So no Internet checksum over them changes; number and time,
which the kernel program writes, do not change the sum (struct stamp of kernel/pktswarm.h).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.dissect import ICMP, ICMP6, TCP, UDP
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.replay.flows import is_plain
from pktswarm.traffic.replay.frames import CHUNK_PACKETS, STAMP_BYTES, Frames
from pktswarm.traffic.replay.oversize import Pieces
from pktswarm.traffic.replay.parse import ETHERNET_BYTES, GTPU_PORT, Columns, Reader
from pktswarm.traffic.replay.words import ONES

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
VARYING = slice(stamp.SEQUENCE_OFFSET, stamp.PLAIN_BYTES)
"""The bytes of a stamp that differ between frames."""
MOST_HEADER_BYTES = 900
"""The receiver parses headers in the first 1023 bytes, minus those of an added tunnel."""
ECHOES = ((ICMP, (0, 8)), (ICMP6, (128, 129)))
INSIDE_IP = (4, 41)
HALF = 0x8000
"""Weight of 1, modulo 0xffff."""
MODULUS32 = 0xFFFFFFFF


def room(pieces: Pieces, dports: Integers, new_tag: bool, headers_only: bool) -> Integers:
    """Offset of each packet's stamp from its IP header; 0: no room for a stamp that a receiver can find.

    `dports`: the destination port of each channel in each instance, as sent. `new_tag`: one tag replaces the recorded
    ones.
    """
    columns = pieces.columns
    at = columns.head_end - columns.l3
    fits = columns.has_l4 & (columns.fragment < 0) & (columns.end - columns.head_end >= STAMP_BYTES)
    fits &= _whole_header(columns) & (at <= MOST_HEADER_BYTES)
    said = (columns.protocol == UDP) & columns.has_l4 & (_number(columns, 2, columns.l4 + 2) == GTPU_PORT)
    is_gtpu = (dports == GTPU_PORT)[columns.channel]
    inside = said & is_gtpu.all(axis=1) | np.isin(columns.protocol, INSIDE_IP)
    if headers_only:  # the packet in a tunnel is not stored
        inside[:] = False
    else:
        fits &= ~said & ~is_gtpu.any(axis=1) | (columns.protocol != UDP)
    odd = (columns.version == 6) & (columns.l4 - columns.l3 != 40)
    odd |= (columns.l3 > ETHERNET_BYTES) if not new_tag else False
    for row in np.flatnonzero(fits & odd | inside).tolist():
        whole = bool(pieces.index[row] == 0 and pieces.last[row])
        at[row] = _looked_up(columns, row, new_tag, whole) if inside[row] else at[row]
        fits[row] = at[row] > 0 if inside[row] else _payload(columns, row, new_tag)[0] == at[row]
    return np.asarray(np.where(fits & (at % 2 == 0), at, 0))


def _number(columns: Columns, size: int, at: Integers) -> Integers:
    return Reader(columns.data).of(size, columns.start + at)


def _whole_header(columns: Columns) -> Flags:
    """Whether the lengths in the headers fit the packet, and it is TCP, UDP or an ICMP echo."""
    l4, size = columns.l4, columns.head_end - columns.l4
    good = (columns.protocol == TCP) & (_number(columns, 1, l4 + 12) // 16 * 4 == size)
    good |= (columns.protocol == UDP) & (_number(columns, 2, l4 + 4) == columns.end - l4)
    kind = _number(columns, 1, l4)
    for protocol, kinds in ECHOES:
        good |= (columns.protocol == protocol) & np.isin(kind, kinds)
    return np.asarray(good)


def _payload(columns: Columns, row: int, new_tag: bool) -> tuple[int, int, int]:
    """(offset of the payload from the IP header, its bytes, the protocol) as a receiver finds them; 0: not found."""
    start, l3 = int(columns.start[row]), int(columns.l3[row])
    frame = bytes(columns.data[start : start + int(columns.captured[row])]).ljust(int(columns.length[row]), b"\0")
    if new_tag:
        kind = b"\x86\xdd" if columns.version[row] == 6 else b"\x08\x00"
        frame, l3 = frame[:12] + kind + frame[l3:], ETHERNET_BYTES
    try:
        found = layout(frame)
    except (IndexError, ValueError):
        return 0, 0, 0
    ports = "src_port" in found.spans
    return found.payload - l3, found.payload_bytes, found.counted.get("protocol", 0) if ports else 0


def _looked_up(columns: Columns, row: int, new_tag: bool, whole: bool) -> int:
    """Offset of the payload of a tunnel's innermost packet from the outer IP header; 0: no room."""
    at, size, protocol = _payload(columns, row, new_tag)
    ends_with_it = at + size == int(columns.end[row] - columns.l3[row])
    within = int(columns.head_end[row] - columns.l3[row]) < at <= MOST_HEADER_BYTES
    return at if whole and within and ends_with_it and size >= STAMP_BYTES and protocol in (TCP, UDP) else 0


def put(frames: Frames, stream: int) -> None:
    """Writes a stamp with number 0 and time 0, which the sender replaces, into every frame that has room."""
    rows = np.flatnonzero(frames.stamp_at)
    for first in range(0, len(rows), CHUNK_PACKETS):
        _put(frames, rows[first : first + CHUNK_PACKETS], stream)


def _put(frames: Frames, rows: NDArray[np.intp], stream: int) -> None:
    words = frames.store.view(">u2")
    at = frames.place[rows] + frames.stamp_at[rows]
    place = (at >> 1)[:, None] + np.arange(STAMP_BYTES // 2)
    kept = words[place].sum(axis=1, dtype=np.int64)
    heads = [stamp.Stamp(stream, 0, 0, 0, summed).pack().ljust(STAMP_BYTES, b"\0") for summed in (False, True)]
    words[place] = 0
    begin, stop = (at + stamp.CHECKED_BYTES).tolist(), _stored_ends(frames, rows).tolist()
    store = frames.store.data
    rest = np.array([stamp.payload_sum(bytes(store[a:b])) for a, b in zip(begin, stop, strict=True)], np.int64)
    # The balance counts twice: itself, and in the checksum, whose 16-bit words have the sum of the rest.
    # The sum of the stamp's own words is 0.
    balance = (kept - rest) % ONES * HALF % ONES
    words[place] = np.frombuffer(b"".join(heads), ">u2").reshape(2, -1)[_summed(frames, rows, kept + rest).astype(int)]
    checksum = (rest + (balance << 16)) % MODULUS32
    for step, value in enumerate((checksum >> 16, checksum & ONES, balance), stamp.CHECKSUM_OFFSET // 2):
        words[place[:, step]] = value


def _summed(frames: Frames, rows: NDArray[np.intp], payload: Integers) -> Flags:
    """Whether the checksums of the IP header and of the TCP or UDP header right before the stamp are right.

    `payload`: the sum of what follows the headers."""
    store, words = frames.store, frames.store.view(">u2")
    place = frames.place[rows]
    ip, l4, at = place + frames.ip_at[rows], place + frames.l4_at[rows], place + frames.stamp_at[rows]
    four = store[ip] >> 4 == 4
    protocol = store[ip + np.where(four, 9, 6)].astype(np.int64)
    size = np.where(protocol == TCP, (store[l4 + 12] >> 4).astype(np.int64) * 4, 8)
    good = (frames.l4_at[rows] > 0) & np.isin(protocol, (TCP, UDP)) & (at - l4 == size) & (four | (l4 - ip == 40))
    good &= (protocol == TCP) | (words[(l4 + 6) >> 1] != 0)
    ends = ip + np.where(four, 12, 8)
    total = payload + protocol + words[(ip + np.where(four, 2, 4)) >> 1].astype(np.int64) - np.where(four, l4 - ip, 0)
    total += _word_sums(words, ends, ends + np.where(four, 8, 32)) + _word_sums(words, l4, l4 + size)
    return np.asarray(good & (total % ONES == 0) & (~four | (_word_sums(words, ip, l4) % ONES == 0)))


def _word_sums(words: NDArray[np.uint16], begin: Integers, end: Integers) -> Integers:
    """Sums of the 16-bit words from each `begin` to its `end`: headers, of at most 30 words."""
    total = np.zeros(len(begin), np.int64)
    for step in range(30):
        some = begin + 2 * step < end
        total[some] += words[(begin[some] >> 1) + step]
    return total


def _stored_ends(frames: Frames, rows: NDArray[np.intp]) -> Integers:
    """End of each IP packet, or of its stored part, in the store: the rest are zeros, which add nothing."""
    place, ip = frames.place[rows], frames.place[rows] + frames.ip_at[rows]
    four = frames.store[ip] >> 4 == 4
    words = frames.store.view(">u2")
    size = words[(ip + np.where(four, 2, 4)) >> 1].astype(np.int64) + np.where(four, 0, 40)
    return np.asarray(np.minimum(ip + size, place + frames.stored[rows]))


def _payload_at(frame: bytes) -> int:
    """Offset of the payload as a receiver finds it; the end of the frame if it finds none."""
    if is_plain(frame):
        return 42 if frame[23] == UDP else 34 + frame[46] // 16 * 4
    try:
        return layout(frame).payload
    except (IndexError, ValueError):
        return len(frame)


def blanked(frame: bytes, stream: int) -> bytes:
    """The frame with number and time of its stamp set to 0; a frame without a stamp of this stream is unchanged."""
    at = _payload_at(frame)
    found = stamp.read_stamp(frame[at : at + STAMP_BYTES]) if len(frame) >= at + STAMP_BYTES else None
    if found is None or found.checksum is None or found.stream != stream:
        return frame
    return frame[: at + VARYING.start] + bytes(VARYING.stop - VARYING.start) + frame[at + VARYING.stop :]
