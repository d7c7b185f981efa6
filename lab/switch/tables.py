"""What the lab's switches in XDP know and have counted, read from the tables of the program at a port.

Reads the network namespace of this process. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from pyroute2 import IPRoute

from pktswarm.nodes import libbpf
from pktswarm.traffic.errors import EngineError

COUNTS = ("forwarded", "flooded", "filtered", "discarded")
"""struct port_counts of kernel/switch.h."""
AGEING_S = 300.0
_NUMBER, _STATION, _PLACE = struct.Struct("=I"), struct.Struct("=H6s"), struct.Struct("=IIQ")
_COUNTS = struct.Struct(f"={len(COUNTS)}Q")
# struct bpf_prog_info and struct bpf_map_info of linux/bpf.h, as far as they are needed.
_PROGRAM_MAPS, _PROGRAM_MAP_IDS, _PROGRAM_INFO_BYTES = struct.Struct("=I"), struct.Struct("=Q"), 256
_NR_MAP_IDS_AT, _MAP_IDS_AT, _MOST_MAPS = 52, 56, 16
_MAP_INFO, _MAP_NAME_AT, _MAP_INFO_BYTES = struct.Struct("=IIIII"), 24, 128


class Port(TypedDict):
    """Frames that came in at a port, by where they went."""

    port: str
    forwarded: int
    flooded: int
    filtered: int
    discarded: int


class Station(TypedDict):
    """An entry of the forwarding table. `vlan` 0: untagged."""

    mac: str
    vlan: int
    port: str
    age_s: float


class Switch(TypedDict):
    switch: str
    ports: list[Port]
    stations: list[Station]


def read() -> list[Switch]:
    """The switches in XDP of this network namespace, by name."""
    with IPRoute() as netlink:
        links = netlink.get_links()
    names = {int(link["index"]): str(link.get_attr("IFLA_IFNAME")) for link in links}
    bridges: dict[int, list[int]] = {}
    for link in links:
        if (bridge := link.get_attr("IFLA_MASTER")) is not None:
            bridges.setdefault(int(bridge), []).append(int(link["index"]))
    found = [_switch(names, bridge, sorted(ports)) for bridge, ports in bridges.items()]
    return sorted((one for one in found if one is not None), key=lambda one: one["switch"])


def _switch(names: dict[int, str], bridge: int, ports: list[int]) -> Switch | None:
    """None: a bridge of the kernel."""
    program = libbpf.attached_program(ports[0])
    if not program:
        return None
    with _maps(program) as maps:
        if "stations" not in maps:
            return None
        counted = [(port, _sum(maps["ports"].value(_NUMBER.pack(port)))) for port in ports]
        stations = [_station(names, key, place) for key, place in maps["stations"].entries()]
    return {
        "switch": names[bridge],
        "ports": sorted((_port(names[port], counts) for port, counts in counted), key=lambda one: one["port"]),
        "stations": sorted(
            (one for one in stations if one["age_s"] < AGEING_S), key=lambda one: (one["vlan"], one["mac"])
        ),
    }


def _port(name: str, counts: list[int]) -> Port:
    forwarded, flooded, filtered, discarded = counts
    return {"port": name, "forwarded": forwarded, "flooded": flooded, "filtered": filtered, "discarded": discarded}


def _sum(values: bytes | None) -> list[int]:
    """The counts of all processors; a value begins with them."""
    each = len(values or b"") // libbpf.possible_cpus()
    totals = [0] * len(COUNTS)
    for at in range(0, len(values or b""), each or 1):
        totals = [total + one for total, one in zip(totals, _COUNTS.unpack_from(values or b"", at), strict=True)]
    return totals


def _station(names: dict[int, str], key: bytes, place: bytes) -> Station:
    vlan, mac = _STATION.unpack(key)
    port, _, seen_ns = _PLACE.unpack(place[: _PLACE.size])
    age_s = max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - seen_ns / 1e9)
    return {"mac": mac.hex(":"), "vlan": vlan, "port": names.get(port, str(port)), "age_s": age_s}


class _Map:
    """A map of a loaded program, by its id."""

    def __init__(self, number: int) -> None:
        self._calls = ctypes.CDLL(libbpf.LIBRARY, use_errno=True)
        self.fd = int(self._calls.bpf_map_get_fd_by_id(ctypes.c_uint32(number)))
        if self.fd < 0:
            raise EngineError(libbpf.NAME, f"map {number}: {os.strerror(ctypes.get_errno())}")
        info = _info(self.fd, _MAP_INFO_BYTES)
        kind, _, self._key_bytes, self._value_bytes, _ = _MAP_INFO.unpack_from(info)
        self.name = info[_MAP_NAME_AT : _MAP_NAME_AT + 16].split(b"\0")[0].decode()
        if kind in _PER_CPU:
            self._value_bytes = -(-self._value_bytes // 8) * 8 * libbpf.possible_cpus()

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, without those that go meanwhile."""
        before, after = None, ctypes.create_string_buffer(self._key_bytes)
        while self._calls.bpf_map_get_next_key(self.fd, before, after) == 0:
            before = after.raw
            if (value := self.value(before)) is not None:
                yield before, value

    def value(self, key: bytes) -> bytes | None:
        """None: there is no such key."""
        value = ctypes.create_string_buffer(self._value_bytes)
        return value.raw if self._calls.bpf_map_lookup_elem(self.fd, key, value) == 0 else None


_PER_CPU = (5, 6, 10)
"""BPF_MAP_TYPE_PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH."""


@contextmanager
def _maps(program: int) -> Iterator[dict[str, _Map]]:
    fd = libbpf.program_by_id(program)
    opened: list[_Map] = []
    try:
        opened += [_Map(number) for number in _map_ids(fd)]
        yield {one.name: one for one in opened}
    finally:
        for each in (fd, *(one.fd for one in opened)):
            os.close(each)


def _map_ids(program_fd: int) -> list[int]:
    numbers = (ctypes.c_uint32 * _MOST_MAPS)()
    asked = bytearray(_PROGRAM_INFO_BYTES)
    _PROGRAM_MAPS.pack_into(asked, _NR_MAP_IDS_AT, _MOST_MAPS)
    _PROGRAM_MAP_IDS.pack_into(asked, _MAP_IDS_AT, ctypes.addressof(numbers))
    info = _info(program_fd, _PROGRAM_INFO_BYTES, bytes(asked))
    (count,) = _PROGRAM_MAPS.unpack_from(info, _NR_MAP_IDS_AT)
    return list(numbers[: min(count, _MOST_MAPS)])


def _info(fd: int, size_bytes: int, asked: bytes = b"") -> bytes:
    info, length = ctypes.create_string_buffer(asked, size_bytes), ctypes.c_uint32(size_bytes)
    calls = ctypes.CDLL(libbpf.LIBRARY, use_errno=True)
    if calls.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(length)):
        raise EngineError(libbpf.NAME, f"information on descriptor {fd}: {os.strerror(ctypes.get_errno())}")
    return info.raw
