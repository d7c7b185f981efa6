"""A network interface as the kernel shows it: its properties, counters and offloads."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from pathlib import Path

from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.plain import plain

SYS_NET = Path("/sys/class/net")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCGIFADDR, _SIOCETHTOOL = 0x8913, 0x8914, 0x8915, 0x8946
_IFF_UP = 1
_NAME_BYTES = 16
# linux/ethtool.h: (get, set) of the offloads that have a command of their own, and the bit of those in flags.
_COMMANDS = {"gro": (0x2B, 0x2C), "gso": (0x23, 0x24), "tso": (0x1E, 0x1F), "rx": (0x14, 0x15), "tx": (0x16, 0x17)}
_GET_FLAGS, _SET_FLAGS = 0x25, 0x26
_FLAGS = {"lro": 1 << 15, "rxvlan": 1 << 8}
_GET_FEATURES, _FEATURE_BLOCKS = 0x3A, 2
_GET_RINGS, _SET_RINGS = 0x10, 0x11
_RINGS = {"rx": (5, 1), "tx": (8, 4)}
"""Where in struct ethtool_ringparam: what is in use, and the most."""
MERGING_OFFLOADS = ("gro", "lro")
"""They make one large frame of several on arrival, which would be counted as one."""


@plain
class Counters:
    """The kernel's own counts since the interface was made. Bytes are without FCS."""

    tx_packets: int
    tx_bytes: int
    tx_dropped: int
    tx_errors: int
    rx_packets: int
    rx_bytes: int
    rx_dropped: int
    rx_errors: int


class Interface:
    """Reads afresh at every access; needs no root but to set something."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def _folder(self) -> Path:
        return SYS_NET / self.name

    def exists(self) -> bool:
        return self.name in (name for _, name in socket.if_nameindex())

    def _read(self, file: str) -> str:
        return (self._folder / file).read_text().strip()

    @property
    def index(self) -> int:
        return int(self._read("ifindex"))

    @property
    def mtu(self) -> int:
        """Bytes of a frame without its 14-byte Ethernet header and FCS."""
        return int(self._read("mtu"))

    @property
    def transmit_queues(self) -> int:
        """Those in use; one where sysfs is that of another network namespace."""
        return len(list(self._folder.glob("queues/tx-*"))) or 1

    @property
    def mac(self) -> str:
        return self._read("address")

    @property
    def ipv4(self) -> str:
        """The first address, empty if there is none."""
        try:
            answer = self._ioctl(_SIOCGIFADDR, struct.pack("16s16x", self._name_field))
        except OSError:
            return ""
        return socket.inet_ntoa(answer[20:24])

    @property
    def driver(self) -> str:
        link = self._folder / "device" / "driver"
        if link.exists():
            return link.resolve().name
        return self._ethtool_driver()

    @property
    def speed_mbps(self) -> int | None:
        """None: the driver does not know, or the link is down."""
        try:
            speed = int(self._read("speed"))
        except (OSError, ValueError):
            return None
        return speed if speed > 0 else None

    @property
    def carrier(self) -> bool:
        try:
            return self._read("carrier") == "1"
        except OSError:  # the kernel refuses the question while the interface is down
            return False

    def is_up(self) -> bool:
        """As it was set, with or without a carrier. OSError where there is no such interface."""
        return bool(self._flags() & _IFF_UP)

    def set_up(self, up: bool) -> None:
        flags = self._flags() | _IFF_UP if up else self._flags() & ~_IFF_UP
        self._ioctl(_SIOCSIFFLAGS, struct.pack("16sH14x", self._name_field, flags))

    def _flags(self) -> int:
        found = self._ioctl(_SIOCGIFFLAGS, struct.pack("16s16x", self._name_field))
        return int(struct.unpack_from("H", found, _NAME_BYTES)[0])

    def counters(self) -> Counters:
        names = Counters.__dataclass_fields__
        return Counters(**{name: int(self._read(f"statistics/{name}")) for name in names})

    def offloads(self) -> dict[str, bool]:
        """gro, gso, tso, rx, tx (checksums) and lro, as far as the driver has them."""
        found = {}
        for name in (*_COMMANDS, "lro"):
            try:
                found[name] = self.offload(name)
            except OSError:
                continue
        return found

    def set_offload(self, name: str, on: bool) -> None:
        """Raises EngineError if the driver refuses, or if it does not hold afterwards."""
        try:
            if name in _FLAGS:
                flags = self._ethtool(_GET_FLAGS)
                self._ethtool(_SET_FLAGS, flags | _FLAGS[name] if on else flags & ~_FLAGS[name])
            else:
                self._ethtool(_COMMANDS[name][1], int(on))
            held = self.offload(name) == on
        except OSError as error:
            raise EngineError("ethtool", f"{self.name}: {name} cannot be set: {error.strerror}") from None
        if not held:
            raise EngineError("ethtool", f"{self.name}: {name} stays {'off' if on else 'on'}")

    def is_fixed(self, name: str) -> bool:
        """Whether the driver lets nobody change `lro` or `rxvlan`. OSError if not readable.

        struct ethtool_gfeatures: the command, the number of blocks that follow, and for each block of 32 features the
        bits that can be changed, and three others. The features of _FLAGS have the same bits there.
        """
        buffer = array.array("I", [_GET_FEATURES, _FEATURE_BLOCKS, *[0] * 4 * _FEATURE_BLOCKS])
        self._ioctl(_SIOCETHTOOL, struct.pack("16sP8x", self._name_field, buffer.buffer_info()[0]))
        return not buffer[2] & _FLAGS[name]

    def ring(self, which: str) -> tuple[int, int]:
        """Descriptors of the ring `rx` or `tx`: how many it has, and the most it can have. OSError if it has none."""
        values = self._rings(_GET_RINGS)
        return values[_RINGS[which][0]], values[_RINGS[which][1]]

    def set_ring(self, which: str, descriptors: int) -> None:
        """Raises OSError where the driver refuses. Drivers take the link down for it, for a second or so."""
        values = self._rings(_GET_RINGS)
        values[_RINGS[which][0]] = descriptors
        self._rings(_SET_RINGS, values)

    def offload(self, name: str) -> bool:
        """Whether an offload of offloads(), or rxvlan (the card strips VLAN tags), is on. OSError if not readable."""
        if name in _FLAGS:
            return bool(self._ethtool(_GET_FLAGS) & _FLAGS[name])
        return bool(self._ethtool(_COMMANDS[name][0]))

    @property
    def _name_field(self) -> bytes:
        return self.name.encode()[: _NAME_BYTES - 1]

    def _ethtool(self, command: int, value: int = 0) -> int:
        """A command of linux/ethtool.h whose answer is struct ethtool_value."""
        buffer = array.array("I", [command, value])
        self._ioctl(_SIOCETHTOOL, struct.pack("16sP8x", self._name_field, buffer.buffer_info()[0]))
        return buffer[1]

    def _rings(self, command: int, values: array.array[int] | None = None) -> array.array[int]:
        """struct ethtool_ringparam: the command, four maxima (rx, mini, jumbo, tx), and the four in use."""
        buffer = array.array("I", values or [0] * 9)
        buffer[0] = command
        self._ioctl(_SIOCETHTOOL, struct.pack("16sP8x", self._name_field, buffer.buffer_info()[0]))
        return buffer

    def _ethtool_driver(self) -> str:
        """ETHTOOL_GDRVINFO: for interfaces without a device of their own, such as veth."""
        buffer = array.array("B", struct.pack("I192x", 3))
        try:
            self._ioctl(_SIOCETHTOOL, struct.pack("16sP8x", self._name_field, buffer.buffer_info()[0]))
        except OSError:
            return ""
        return buffer.tobytes()[4:36].split(b"\0")[0].decode()

    def _ioctl(self, request: int, argument: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            return fcntl.ioctl(channel.fileno(), request, argument)
