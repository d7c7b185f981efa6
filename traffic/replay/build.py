"""The frames of a replay: recorded packets with new addresses, ports, tags and tunnels, and right checksums.

Checksum arithmetic is modulo 65535 on words in this machine's byte order (RFC 1071, section 2: the sum is independent
of it). Frames are built in chunks, so that the arrays stay small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic import ragged
from pktswarm.traffic.frames.dissect import ICMP, TCP, UDP
from pktswarm.traffic.frames.headers import GTPU_PORT
from pktswarm.traffic.replay.frames import ALIGN_BYTES, CHUNK_PACKETS, NOT_COVERED, STAMP_BYTES, Frames
from pktswarm.traffic.replay.oversize import Pieces
from pktswarm.traffic.replay.parse import Columns
from pktswarm.traffic.replay.rewrite import OUTER_IP_BYTES, OUTER_UDP_BYTES, Rewrite, Tunnel, gtpu_header
from pktswarm.traffic.replay.words import ONES, Words, values_of, word, words_of

Integers = NDArray[np.int64]
FIN, PSH, CWR = 0x01, 0x08, 0x80
MOST_TRAILER_BYTES = 46


def build(pieces: Pieces, time_ns: Integers, rewrite: Rewrite, stamp: Integers | None = None) -> Frames:
    """The frames of all rows, in their order. `stamp`: offset of the stamp from the IP header; 0: no room."""
    columns = pieces.columns
    head = _head_bytes(columns, rewrite)
    length = head + columns.length - columns.l3
    stored = head + columns.head_end - columns.l3 if rewrite.headers_only else length
    stamp_at = np.zeros(len(columns), np.int64) if stamp is None else np.where(stamp > 0, head + stamp, 0)
    stored = np.maximum(stored, np.where(stamp_at > 0, stamp_at + STAMP_BYTES, 0))
    padded = -(-stored // ALIGN_BYTES) * ALIGN_BYTES
    place = np.cumsum(padded) - padded
    store = np.zeros(int(padded.sum()) + ALIGN_BYTES, np.uint8)
    shift = head - columns.l3
    l4_at = columns.l4 + shift
    ported = columns.has_l4 & ((columns.protocol == TCP) | (columns.protocol == UDP))
    frames = Frames(
        store, place, length, stored, time_ns, columns.l3 + shift, np.where(ported, l4_at, 0),
        np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64), rewrite.direction[columns.pair],
        rewrite.ends[columns.pair] + NOT_COVERED * columns.source_routed,
        columns.channel, columns.number, stamp_at,
    )  # fmt: skip
    tables = _Tables(rewrite)
    for at in range(0, len(columns), CHUNK_PACKETS):
        rows = slice(at, min(at + CHUNK_PACKETS, len(columns)))
        _Chunk(pieces.take(rows), frames, rows, head[rows], rewrite, tables).fill()
    return frames


def _head_bytes(columns: Columns, rewrite: Rewrite) -> Integers:
    """The bytes before the user's IP header."""
    tags = columns.l3 - 14 if rewrite.tag is None else np.full(len(columns), len(rewrite.tag))
    tunnel = rewrite.tunnel.overhead_bytes * (rewrite.direction[columns.pair] == 0) if rewrite.tunnel else 0
    return np.asarray(14 + tags + tunnel)


class _Tables:
    """The addresses of each pair as words."""

    def __init__(self, rewrite: Rewrite) -> None:
        ends = [source + target for source, target in zip(rewrite.source, rewrite.target, strict=True)]
        self.words = np.zeros((len(ends), 16), np.uint16)
        for row, both in enumerate(ends):
            self.words[row, : len(both) // 2] = np.frombuffer(both, np.uint16)
        self.numbered = 0
        """The number of GTP-U sequence numbers used."""


class _Chunk:
    """A chunk of rows: writes their frames into the store."""

    def __init__(
        self, pieces: Pieces, frames: Frames, rows: slice, head: Integers, rewrite: Rewrite, tables: _Tables
    ) -> None:
        self.pieces, self.frames, self.rows, self.head, self.rewrite, self.tables = (
            pieces, frames, rows, head, rewrite, tables,
        )  # fmt: skip
        self.columns = pieces.columns
        self.place = frames.place[rows]
        self.words: Words = frames.store.view(np.uint16)
        self.ip = self.place + head
        self.l4 = self.ip + self.columns.l4 - self.columns.l3
        self.end = self.ip + self.columns.end - self.columns.l3

    def fill(self) -> None:
        self._copy()
        self._put_heads()
        self._mend_segments()
        self._readdress(self._addresses(), self._header_sums(), self._sums())
        self._copy_trailers()

    # --- unchanged bytes ---

    def _copy(self) -> None:
        """Copies from the network header to the end of the IP packet, or of its stored part."""
        columns, store = self.columns, self.frames.store
        stop = columns.head_end if self.rewrite.headers_only else columns.end
        begin = columns.start + columns.l3
        plain = self.pieces.skip == 0
        rows = slice(None) if plain.all() else np.flatnonzero(plain)
        ragged.copy(store, self.ip[rows], columns.data, begin[rows], (stop - columns.l3)[rows])
        source, target = columns.data.data, store.data
        for row in np.flatnonzero(~plain).tolist():
            to, at = int(self.ip[row]), int(begin[row])
            head = int(columns.head_end[row] - columns.l3[row])
            target[to : to + head] = source[at : at + head]
            size = int(stop[row] - columns.head_end[row])
            at += head + int(self.pieces.skip[row])
            target[to + head : to + head + size] = source[at : at + size]

    def _copy_trailers(self) -> None:
        """Copies the padding behind the IP packet; after the sums, which do not cover it."""
        if self.rewrite.headers_only:
            return
        columns = self.columns
        rows = np.flatnonzero(columns.captured.clip(max=columns.length) > columns.end)
        source, store = columns.data, self.frames.store
        first = columns.start[rows] + columns.end[rows]
        size = columns.length[rows] - columns.end[rows]
        for step in range(int(min(size.max(initial=0), MOST_TRAILER_BYTES))):
            some = size > step
            store[self.end[rows[some]] + step] = source[first[some] + step]
        for row in rows[size > MOST_TRAILER_BYTES].tolist():
            at, to, many = (
                int(columns.start[row] + columns.end[row]),
                int(self.end[row]),
                int(columns.length[row] - columns.end[row]),
            )
            store[to : to + many] = source[at : at + many]

    # --- headers before the IP header ---

    def _put_heads(self) -> None:
        store = self.frames.store
        ragged.fill(store, self.place, self.rewrite.macs)
        tag = self.rewrite.tag
        if tag is not None:
            ragged.fill(store, self.place + 12, tag)
        else:
            self._copy_tags()
        tunnel = self.rewrite.tunnel
        inside = self.rewrite.direction[self.columns.pair] == 0 if tunnel else np.zeros(len(self.place), np.bool_)
        # The outer header is always IPv4.
        six = (self.columns.version == 6) & ~inside
        kind_at = self.ip - 2 - (tunnel.overhead_bytes * inside if tunnel else 0)
        self.words[kind_at >> 1] = np.where(six, word(0x86DD), word(0x0800))
        if tunnel is not None:
            self._put_tunnel(np.flatnonzero(inside), tunnel)

    def _copy_tags(self) -> None:
        columns = self.columns
        for row in np.flatnonzero(columns.l3 > 14).tolist():
            at, to, size = int(columns.start[row]) + 12, int(self.place[row]) + 12, int(columns.l3[row]) - 14
            self.frames.store[to : to + size] = columns.data[at : at + size]

    def _put_tunnel(self, rows: NDArray[np.intp], tunnel: Tunnel) -> None:
        inner = self.end[rows] - self.ip[rows]
        at = self.ip[rows] - tunnel.overhead_bytes
        udp, gtpu = at + OUTER_IP_BYTES, at + OUTER_IP_BYTES + OUTER_UDP_BYTES
        header = bytes((0x45, 0, 0, 0, 0, 0, 0x40, 0, tunnel.ttl, UDP, 0, 0)) + tunnel.source + tunnel.target
        ports = GTPU_PORT.to_bytes(2, "big") * 2
        ragged.fill(self.frames.store, at, header + ports + bytes(4) + gtpu_header(tunnel))
        total = inner + tunnel.overhead_bytes
        constant = int(np.frombuffer(header, ">u2").sum())
        self.words[(at + 2) >> 1] = words_of(total)
        self.words[(at + 10) >> 1] = words_of((ONES - (constant + total) % ONES) % ONES)
        self.words[(udp + 4) >> 1] = words_of(total - OUTER_IP_BYTES)
        self.words[(gtpu + 2) >> 1] = words_of(inner + tunnel.header_bytes - 8)
        self._put_teid(rows, gtpu + 4)
        if tunnel.sequence:
            self.words[(gtpu + 8) >> 1] = words_of(self._sequence(rows) & ONES)

    def _put_teid(self, rows: NDArray[np.intp], at: Integers) -> None:
        teid = self.rewrite.teid[self.columns.pair[rows]]
        self.words[at >> 1] = words_of(teid >> 16)
        self.words[(at >> 1) + 1] = words_of(teid & ONES)
        self.frames.teid_at[self.rows][rows] = at - self.place[rows]

    def _sequence(self, rows: NDArray[np.intp]) -> Integers:
        """The next GTP-U sequence numbers of the trace's uplink."""
        before = self.tables.numbered
        self.tables.numbered += len(rows)
        return before + np.arange(len(rows))

    # --- segments of packets that the recording host had merged ---

    def _mend_segments(self) -> None:
        """Sets lengths, IP ids, sequence numbers and flags of packets that were cut (RFC 9293)."""
        pieces, columns = self.pieces, self.columns
        rows = np.flatnonzero(self._cut)
        if not len(rows):
            return
        store, words = self.frames.store, self.words
        four = rows[columns.version[rows] == 4]
        six = rows[columns.version[rows] == 6]
        words[(self.ip[four] + 2) >> 1] = words_of(columns.end[four] - columns.l3[four])
        words[(self.ip[six] + 4) >> 1] = words_of(columns.end[six] - columns.l3[six] - 40)
        at = (self.ip[four] + 4) >> 1
        words[at] = words_of((values_of(words[at]) + pieces.index[four]) & ONES)
        at = (self.l4[rows] + 4) >> 1
        number = (values_of(words[at]) << 16) + values_of(words[at + 1]) + pieces.skip[rows]
        words[at], words[at + 1] = words_of(number >> 16 & ONES), words_of(number & ONES)
        flags = store[self.l4[rows] + 13]
        flags = np.where(pieces.last[rows], flags, flags & (0xFF - FIN - PSH))
        store[self.l4[rows] + 13] = np.where(pieces.index[rows] == 0, flags, flags & (0xFF - CWR))

    # --- addresses, ports and checksums ---

    def _address_at(self) -> tuple[Integers, Integers]:
        """(index of the first word of the source address, words of both addresses)."""
        six = self.columns.version == 6
        return (self.ip + np.where(six, 8, 12)) >> 1, np.where(six, 16, 4)

    def _addresses(self) -> Integers:
        """The sum of both recorded addresses."""
        at, count = self._address_at()
        total = np.zeros(len(at), np.int64)
        for step in range(int(count.max(initial=0))):
            some = count > step
            total[some] += self.words[at[some] + step]
        return total

    def _header_sums(self) -> Integers:
        """The sum of each IPv4 header, its checksum included."""
        four = np.flatnonzero(self.columns.version == 4)
        at, words = self.ip[four] >> 1, (self.l4[four] - self.ip[four]) >> 1
        total = np.zeros(len(four), np.int64)
        for step in range(int(words.max(initial=0))):
            if step < 10:
                total += self.words[at + step]
            else:
                some = words > step
                total[some] += self.words[at[some] + step]
        result = np.zeros(len(self.columns), np.int64)
        result[four] = total
        return result

    def _sums(self) -> Integers:
        """The sum of everything from the transport header to the end of the packet."""
        stop = np.where(self.columns.has_l4, self.end if not self.rewrite.headers_only else self._head_stop(), self.l4)
        base = int(self.place[0]) & ~7
        last = int(self.place[-1] + self.frames.stored[self.rows][-1])
        quads = self.frames.store.view(np.uint32)[base // 4 : -(-last // 4) + 1].astype(np.uint64)
        first, end = -(-(self.l4 - base) // 4), -(-(stop - base) // 4)
        bounds = np.empty(2 * len(first), np.intp)
        bounds[::2], bounds[1::2] = first, np.maximum(end, first)
        bounds = np.minimum(bounds, len(quads) - 1)
        total = np.add.reduceat(quads, bounds)[::2].astype(np.int64)
        total[end <= first] = 0
        # The transport header can begin in the middle of four bytes.
        half = self.l4 % 4 == 2
        total[half] += self.words[self.l4[half] >> 1]
        return total

    def _head_stop(self) -> Integers:
        return self.ip + self.columns.head_end - self.columns.l3

    def _readdress(self, old: Integers, headers: Integers, summed: Integers) -> None:
        columns = self.columns
        at, count = self._address_at()
        for step in range(int(count.max(initial=0))):
            some = slice(None) if step < 4 else np.flatnonzero(count > step)
            self.words[at[some] + step] = self.tables.words[columns.pair[some], step]
        new = self.tables.words[columns.pair].sum(axis=1, dtype=np.int64)
        wrong = self._mend_ipv4(headers, new - old)
        if columns.source_routed.any():
            old, new = self._without_target(old, new)
        wrong |= self._mend_transport(old, new, summed)
        self.frames.mended += int(np.count_nonzero(wrong))

    def _without_target(self, old: Integers, new: Integers) -> tuple[Integers, Integers]:
        """The sums of source-routed packets: the checksum covers the last segment's address, which is not rewritten."""
        for row in np.flatnonzero(self.columns.source_routed).tolist():
            at = int(self.columns.start[row] + self.columns.l3[row]) + 8
            old[row] = int(np.frombuffer(self.columns.data[at : at + 16].tobytes(), np.uint16).sum())
            new[row] = int(self.tables.words[self.columns.pair[row], :8].sum())
        return old, new

    def _mend_ipv4(self, headers: Integers, change: Integers) -> NDArray[np.bool_]:
        """Writes the IPv4 checksums. Returns whether the recorded one was wrong."""
        four = self.columns.version == 4
        at = (self.ip[four] >> 1) + 5
        total = headers[four] - self.words[at] + change[four]
        self.words[at] = (ONES - total % ONES) % ONES
        return np.asarray(four & (headers % ONES != 0) & ~self._cut)

    @property
    def _cut(self) -> NDArray[np.bool_]:
        return np.asarray((self.pieces.index > 0) | ~self.pieces.last)

    def _mend_transport(self, old: Integers, new: Integers, summed: Integers) -> NDArray[np.bool_]:
        """Writes ports and transport checksums. Returns whether the recorded checksum was wrong."""
        columns, words = self.columns, self.words
        change = self._put_ports()
        place = _SUM_AT[np.minimum(columns.protocol, 255)]
        at = (self.l4 + place) >> 1
        has = columns.has_l4 & (place > 0)
        recorded = np.where(has, words[np.where(has, at, 0)], 0).astype(np.int64)
        has &= (columns.protocol != UDP) | (recorded != 0)
        pseudo = columns.protocol != ICMP
        size = columns.end - columns.l4
        fixed = (words_of(columns.protocol).astype(np.int64) + words_of(size & ONES) + words_of(size >> 16)) * pseudo
        old, new = old * pseudo, new * pseudo
        full = self._is_whole()
        right = (summed + old + fixed) % ONES == 0
        # A checksum over bytes that are not there, or not sent, is neither right nor wrong.
        known = (columns.captured >= columns.end) & (not self.rewrite.headers_only)
        wrong = has & full & ~right & ~self._cut & known
        again = summed - recorded + new + fixed + change
        amended = (ONES - recorded) - old + new + change
        value = np.where(full, again, amended)
        value = (ONES - value % ONES) % ONES
        value = np.where((value == 0) & (columns.protocol == UDP), ONES, value)
        words[at[has]] = value[has]
        covers = has & pseudo
        self.frames.sum_at[self.rows] = np.where(covers, self.l4 + place - self.place, 0)
        return np.asarray(wrong)

    def _put_ports(self) -> Integers:
        """Writes the ports. Returns the change of their sum."""
        columns, words = self.columns, self.words
        rows = np.flatnonzero(columns.has_l4 & ((columns.protocol == TCP) | (columns.protocol == UDP)))
        change = np.zeros(len(columns), np.int64)
        at, channel = self.l4[rows] >> 1, columns.channel[rows]
        for step, ports in enumerate((self.rewrite.sport, self.rewrite.dport)):
            value = words_of(ports[channel])
            change[rows] += value.astype(np.int64) - words[at + step]
            words[at + step] = value
        return change

    def _is_whole(self) -> NDArray[np.bool_]:
        """Whether the frame contains everything that the checksum covers, with these addresses."""
        columns = self.columns
        udp = np.flatnonzero(columns.has_l4 & (columns.protocol == UDP))
        fits = np.ones(len(columns), np.bool_)
        fits[udp] = values_of(self.words[(self.l4[udp] + 4) >> 1]) == columns.end[udp] - columns.l4[udp]
        return np.asarray(fits & (columns.fragment < 0) & ~columns.source_routed)


_SUM_AT = np.zeros(256, np.int64)
for _protocol, _place in {6: 16, 17: 6, 1: 2, 58: 2}.items():
    _SUM_AT[_protocol] = _place
