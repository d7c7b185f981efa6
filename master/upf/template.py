"""A message for many users: encoded by scapy a few times, then patched."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

WIDTHS = {
    "sequence": 3,
    "seid": 8,
    "local_seid": 8,
    "uplink_teid": 4,
    "downlink_teid": 4,
    "ue_v4": 4,
    "ue_v6": 16,
    "gnb_v4": 4,
    "gnb_v6": 16,
}
"""Fields that differ between users, and their bytes on the wire. `seid` is the header's: the receiver's own."""

Values = Mapping[str, bytes]


class Template:
    """A message and the offsets of each field of WIDTHS in it (none, one or several).

    The offsets are found by comparison of messages that differ in one field. Raises ValueError if a field changes the
    message's length, or bytes that are not whole fields.
    """

    def __init__(self, encode: Callable[[Values], bytes]) -> None:
        zeros = {name: bytes(width) for name, width in WIDTHS.items()}
        self.bytes = encode(zeros)
        base = np.frombuffer(self.bytes, dtype=np.uint8)
        self.places: dict[str, list[int]] = {}
        for name, width in WIDTHS.items():
            other = np.frombuffer(encode({**zeros, name: b"\xff" * width}), dtype=np.uint8)
            if len(other) != len(base):
                raise ValueError(f"{name} changes the length of the message")
            differing = np.flatnonzero(base != other)
            if len(differing) % width:
                raise ValueError(f"{name} changes {len(differing)} bytes, not a multiple of {width}")
            places = differing.reshape(-1, width)
            if (places != places[:, :1] + np.arange(width)).any():
                raise ValueError(f"{name} is not {width} consecutive bytes")
            self.places[name] = places[:, 0].tolist()

    def render(self, columns: Mapping[str, NDArray[np.uint8]], count: int) -> NDArray[np.uint8]:
        """Returns (count, length) bytes, a message in each row; `columns`: (count, width) bytes of each field in it."""
        made = np.tile(np.frombuffer(self.bytes, dtype=np.uint8), (count, 1))
        for name, places in self.places.items():
            for place in places:
                made[:, place : place + WIDTHS[name]] = columns[name]
        return made


def big_endian(values: NDArray[np.integer], width: int) -> NDArray[np.uint8]:
    """Returns (n, width) bytes of integers, the most significant first."""
    wide = values.astype(">u8").view(np.uint8).reshape(-1, 8)
    return wide[:, 8 - width :]
