"""The sessions of all groups in NumPy arrays, one row each: addresses, tunnels and state."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import numpy as np
from numpy.typing import NDArray

from pktswarm.master.scenario.upf import Group, Upf
from pktswarm.master.upf.document import SessionRow
from pktswarm.master.upf.template import big_endian

IDLE, ESTABLISHED, REFUSED, UNANSWERED, DELETED, LOST = range(6)
STATES = ("idle", "established", "refused", "unanswered", "deleted", "lost")
"""lost: the UPF restarted or stopped responding; unanswered: its establishment was (the UPF may hold the session)."""
UPLINK, DOWNLINK, TOTAL = 1, 2, 4
"""Bits of Sessions.measured: the volumes in usage reports."""
ROW_MASK = 2**32 - 1


class Sessions:
    """Rows in the order of the groups. Addresses are whole numbers (IPv4) and 16 bytes (IPv6); 0 is none.

    ue_v4, ue_v6        the user's, assigned here or chosen by the UPF
    uplink_teid, upf_v4, upf_v6   the UPF's end of the tunnel, assigned here or from the Created PDR
    downlink_teid, gnb  the gNB's end of the tunnel; `gnb` is an index into `gnbs`
    remote_seid         the UPF's; 0: the UPF is not known to hold a session
    """

    def __init__(self, upf: Upf) -> None:
        self.upf = upf
        sizes = [group.sessions for group in upf.groups]
        self.count = sum(sizes)
        self.starts = np.cumsum([0, *sizes])
        self.group = np.repeat(np.arange(len(sizes), dtype=np.uint16), sizes)
        self.gnbs = list(upf.gnbs)
        self.gnb_addresses = [ip_address(address) for address in upf.gnbs.values()]
        self.state = np.zeros(self.count, dtype=np.uint8)
        self.generation = np.zeros(self.count, dtype=np.uint64)
        """Number of a row's session; part of its SEID, so that a late response is not taken for the next session's."""
        self.remote_seid = np.zeros(self.count, dtype=np.uint64)
        self.ue_v4 = np.zeros(self.count, dtype=np.uint32)
        self.ue_v6 = np.zeros((self.count, 16), dtype=np.uint8)
        self.uplink_teid = np.zeros(self.count, dtype=np.uint32)
        self.upf_v4 = np.zeros(self.count, dtype=np.uint32)
        self.upf_v6 = np.zeros((self.count, 16), dtype=np.uint8)
        self.downlink_teid = np.zeros(self.count, dtype=np.uint32)
        self.gnb = np.zeros(self.count, dtype=np.uint16)
        self.target = np.zeros(self.count, dtype=np.uint16)
        """The gNB of the next modification."""
        self.uplink_bytes = np.zeros(self.count, dtype=np.uint64)
        """Sum of the UPF's usage reports."""
        self.downlink_bytes = np.zeros(self.count, dtype=np.uint64)
        self.total_bytes = np.zeros(self.count, dtype=np.uint64)
        self.measured = np.zeros(self.count, dtype=np.uint8)
        self.usage_reports = np.zeros(self.count, dtype=np.uint32)
        self.notifications = np.zeros(self.count, dtype=np.uint32)
        for number, group in enumerate(upf.groups):
            self.fill(number, group)
        self._gnb_bytes = self._packed_gnbs()

    def fill(self, number: int, group: Group) -> None:
        """Sets the addresses and TEIDs of one group that the UPF does not choose."""
        rows = self.rows(number)
        for pool in group.pools():
            packed = pool.packed(group.sessions)
            if pool.version == 4:
                self.ue_v4[rows] = packed.view(">u4")[:, 0]
            else:
                self.ue_v6[rows] = packed
        each = np.arange(group.sessions, dtype=np.uint32)
        if group.first_teid != "choose":
            self.uplink_teid[rows] = group.first_teid + each
            n3 = ip_address(self.upf.n3 or "0.0.0.0")  # noqa: S104 - never used: groups.py asks for n3
            if n3.version == 4:
                self.upf_v4[rows] = int(n3)
            else:
                self.upf_v6[rows] = np.frombuffer(n3.packed, dtype=np.uint8)
        self.downlink_teid[rows] = self.upf.first_downlink_teids()[number] + each
        own = np.array([self.gnbs.index(name) for name in self.upf.gnbs_of(group)], dtype=np.uint16)
        self.gnb[rows] = self.target[rows] = own[each % len(own)]

    def rows(self, number: int) -> slice:
        """Returns the rows of one group."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def rows_of(self, name: str) -> NDArray[np.int64]:
        number = [group.name for group in self.upf.groups].index(name)
        return np.arange(self.starts[number], self.starts[number + 1])

    @property
    def local_seid(self) -> NDArray[np.uint64]:
        return self.generation << np.uint64(32) | np.arange(1, self.count + 1, dtype=np.uint64)

    def row_of(self, seid: int) -> int | None:
        """Returns the row of a SEID; None for an unknown one, or that of an earlier session of the row."""
        row = (seid & ROW_MASK) - 1
        if 0 <= row < self.count and int(self.generation[row]) == seid >> 32:
            return row
        return None

    def columns(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.uint8]]:
        """Returns (n, width) bytes of each field of a user (template.WIDTHS) but `sequence`."""
        local = self.generation[rows] << np.uint64(32) | (rows + 1).astype(np.uint64)
        gnb = self._gnb_bytes[self.target[rows]]
        return {
            "seid": big_endian(self.remote_seid[rows], 8),
            "local_seid": big_endian(local, 8),
            "uplink_teid": big_endian(self.uplink_teid[rows], 4),
            "downlink_teid": big_endian(self.downlink_teid[rows], 4),
            "ue_v4": big_endian(self.ue_v4[rows], 4),
            "ue_v6": self.ue_v6[rows],
            "gnb_v4": gnb[:, 12:],
            "gnb_v6": gnb,
        }

    def _packed_gnbs(self) -> NDArray[np.uint8]:
        """Returns (gNBs, 16) bytes; an IPv4 address is the last four."""
        packed = [address.packed.rjust(16, b"\0") for address in self.gnb_addresses]
        return np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(len(packed), 16)

    def held(self) -> NDArray[np.int64]:
        """Returns the rows of which the UPF holds a session, complete or not."""
        return np.flatnonzero((self.remote_seid != 0) & (self.state != DELETED) & (self.state != LOST))

    def user(self, row: int) -> SessionRow:
        gnb = self.gnb_addresses[int(self.gnb[row])]
        return {
            "group": self.upf.groups[int(self.group[row])].name,
            "state": STATES[int(self.state[row])],
            "ue_v4": _v4(self.ue_v4[row]),
            "ue_v6": _v6(self.ue_v6[row]),
            "local_seid": int(self.generation[row]) << 32 | row + 1,
            "remote_seid": int(self.remote_seid[row]),
            "uplink_teid": int(self.uplink_teid[row]),
            "upf": _v4(self.upf_v4[row]) if gnb.version == 4 else _v6(self.upf_v6[row]),
            "downlink_teid": int(self.downlink_teid[row]),
            "gnb": self.gnbs[int(self.gnb[row])],
        }


def _v4(value: np.uint32) -> str | None:
    return str(IPv4Address(int(value))) if value else None


def _v6(value: NDArray[np.uint8]) -> str | None:
    return str(IPv6Address(value.tobytes())) if value.any() else None
