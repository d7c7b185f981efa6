"""The description of a frame: its headers, each a name with its fields, and its payload.

{"headers": [{"ethernet": {"src": …, "dst": …}}, {"ipv4": {…}}, {"udp": {…}}], "payload": {"fill": 0}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

Fields = Mapping[str, object]
"""Field → its value as written: constant, varying or off_by (traffic.frames.values)."""
Headers = Sequence[Mapping[str, Fields]]
"""Outermost first; each entry has one name. `{raw: {hex: …}}` stands for bytes without fields."""


class FrameDescription(TypedDict, total=False):
    """A frame description; traffic.frames.check checks it."""

    headers: Headers
    payload: Mapping[str, object]
    """{"fill": byte}, {"hex": bytes} or {"random": True}; empty: zeros."""


def hex_bytes(given: Mapping[str, object]) -> bytes:
    """The bytes under `hex`; empty without them."""
    return bytes.fromhex(str(given.get("hex", "")))
