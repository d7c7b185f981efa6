"""Numbers of the formats pcap and pcapng (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).

They are defined here because importing a packet library takes longer than the rest of a node's start.
"""

from __future__ import annotations

PCAP_MAGIC, PCAP_MAGIC_NS = 0xA1B2C3D4, 0xA1B23C4D
LINKTYPE_ETHERNET, LINKTYPE_RAW = 1, 101

SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET = 0x0A0D0D0A, 1, 6
OBSOLETE_PACKET, SIMPLE_PACKET = 2, 3
BYTE_ORDER_MAGIC = 0x1A2B3C4D
OPTION_END, OPTION_COMMENT, OPTION_IF_TSRESOL, OPTION_IF_TSOFFSET = 0, 1, 9, 14

NS_PER_S = 1_000_000_000
PCAP_NS_PER_TICK = {PCAP_MAGIC: 1000, PCAP_MAGIC_NS: 1}
PCAP_HEADER_BYTES, PCAP_RECORD_BYTES = 24, 16
"""The file's header, and that of each packet."""
SNAPLEN_BYTES = 262_144
LONGEST_WIRE_BYTES = 1 << 20
"""Twice the kernel's GSO_MAX_SIZE; a longer packet means a damaged file."""
