"""Frames in a UPF's tunnels as a recount compares them: without the fields that the UPF chooses.

These are the outer header's TOS, id, DF and TTL, the UDP source port and checksum (TS 29.281, section 4.4.2), and
GTP-U's optional fields and extension headers (section 5.1). The user's packet is compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from pktswarm.traffic.counting.expect import behind_device
from pktswarm.traffic.frames.headers import HEADERS
from pktswarm.traffic.frames.layout import Layout, layout
from pktswarm.traffic.frames.template import Template, put_bits

ETHERNET_BYTES, GTPU_BYTES, UDP_BYTES = (HEADERS[name].size_bytes for name in ("ethernet", "gtpu", "udp"))
OPTION_FLAGS = 0x07
"""E, S and PN."""
VARYING = {
    "gtpu.teid": "teid",
    **{f"{ip}.{end}": f"{end}_ip" for ip in ("ipv4", "ipv6") for end in ("src", "dst")},
    **{f"udp.{end}": f"{end}_port" for end in ("src", "dst")},
}
"""Varying field → its name in `expect`."""
SOURCE_BYTE = {4: 12, 6: 8}
"""IP version → offset of the source address in the header."""


def without_options(frame: bytes) -> bytes:
    """A frame in a tunnel with the user's packet right behind the GTP-U header; any other frame unchanged. Empty if the
    tunnel's lengths do not fit the frame: no sent frame has such lengths."""
    try:
        found = layout(frame)
    except (IndexError, ValueError):
        return frame
    gtpu = _gtpu(found)
    if gtpu is None:
        return frame
    udp = gtpu - UDP_BYTES
    if _number(frame, gtpu + 2) != len(frame) - gtpu - GTPU_BYTES or _number(frame, udp + 4) != len(frame) - udp:
        return b""
    user = found.spans["src_ip"][0] // 8 - SOURCE_BYTE[found.counted["ip_version"]]
    return frame[: gtpu + GTPU_BYTES] + frame[user:]


def shape(template: Template, expected: Mapping[str, object]) -> tuple[bytes, bytes]:
    """(frame, varying bits) of such frames, as behind_device(): the tunnel's own fields can differ, and the bits of a
    user's TEID, address and port that vary between frames."""
    data, varying = behind_device(template, expected)
    free = bytearray(varying)
    for one in template.fields:
        if VARYING.get(".".join(one.name.split(".")[-2:]), "") not in expected:
            put_bits(free, one.bit, one.width_bits, (1 << (one.first ^ one.last).bit_length()) - 1)
    gtpu = _gtpu(layout(data))
    return data, bytes(free if gtpu is None else _loosened(free, template, gtpu))


def _loosened(free: bytearray, template: Template, gtpu: int) -> bytearray:
    for at in range(ETHERNET_BYTES, gtpu + GTPU_BYTES // 2):
        free[at] |= 0xFF ^ template.identity_mask[at]
    free[gtpu - UDP_BYTES : gtpu - UDP_BYTES + 2] = b"\xff\xff"
    free[gtpu] |= OPTION_FLAGS
    return free


def _gtpu(found: Layout) -> int | None:
    """Offset of the GTP-U header, whose second half is the TEID."""
    return found.spans["teid"][0] // 8 - GTPU_BYTES // 2 if "teid" in found.spans else None


def _number(frame: bytes, at: int) -> int:
    return int.from_bytes(frame[at : at + 2], "big")
