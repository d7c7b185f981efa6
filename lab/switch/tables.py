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
from functools import cache
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
    """Frames that came in at a port, by where they went; `dropped`: those that it should send, and that the buffer of
    its cable did not take."""

    port: str
    forwarded: int
    flooded: int
    filtered: int
    discarded: int
    dropped: int


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
        links = {int(link["index"]): link for link in netlink.get_links()}
    names = {index: str(link.get_attr("IFLA_IFNAME")) for index, link in links.items()}
    dropped = {index: int(link.get_attr("IFLA_STATS64")["tx_dropped"]) for index, link in links.items()}
    bridges: dict[int, list[int]] = {}
    for index, link in links.items():
        if (bridge := link.get_attr("IFLA_MASTER")) is not None:
            bridges.setdefault(int(bridge), []).append(index)
    found = [_switch(names, dropped, bridge, ports) for bridge, ports in bridges.items()]
    return sorted((one for one in found if one is not None), key=lambda one: one["switch"])


def _switch(names: dict[int, str], dropped: dict[int, int], bridge: int, ports: list[int]) -> Switch | None:
    """None: a bridge of the kernel."""
    program = libbpf.attached_program(ports[0])
    if not program:
        return None
    with _maps(program) as maps:
        if not {"ports", "stations"} <= maps.keys():
            return None
        rows = [_port(names[port], _counts(maps["ports"], port), dropped[port]) for port in ports]
        stations = [_station(names, key, place) for key, place in _entries(maps["stations"])]
    known = [one for one in stations if one["age_s"] < AGEING_S]
    return {
        "switch": names[bridge],
        "ports": sorted(rows, key=lambda one: one["port"]),
        "stations": sorted(known, key=lambda one: (one["vlan"], one["mac"])),
    }


def _port(name: str, counts: list[int], dropped: int) -> Port:
    forwarded, flooded, filtered, discarded = counts
    return {
        "port": name,
        "forwarded": forwarded,
        "flooded": flooded,
        "filtered": filtered,
        "discarded": discarded,
        "dropped": dropped,
    }


def _counts(ports: libbpf.BpfMap, port: int) -> list[int]:
    """The sums over all processors; the value of each begins with its counts."""
    each = -(-ports.value_bytes // 8) * 8
    values = ports.lookup(_NUMBER.pack(port), each * libbpf.possible_cpus())
    if values is None:
        raise EngineError(libbpf.NAME, f"map {ports.name} has no port {port}")
    parts = [_COUNTS.unpack_from(values, at) for at in range(0, len(values), each)]
    return [sum(part) for part in zip(*parts, strict=True)]


def _entries(table: libbpf.BpfMap) -> Iterator[tuple[bytes, bytes]]:
    """Without those that go meanwhile."""
    for key in list(table.keys()):
        if (value := table.lookup(key)) is not None:
            yield key, value


def _station(names: dict[int, str], key: bytes, place: bytes) -> Station:
    vlan, mac = _STATION.unpack(key)
    port, _, seen_ns = _PLACE.unpack(place)
    age_s = max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - seen_ns / 1e9)
    return {"mac": mac.hex(":"), "vlan": vlan, "port": names.get(port, str(port)), "age_s": age_s}


@contextmanager
def _maps(program: int) -> Iterator[dict[str, libbpf.BpfMap]]:
    """The maps of a loaded program, by name. `program`: its id."""
    opened = [libbpf.program_by_id(program)]
    try:
        maps = []
        for number in _map_ids(opened[0]):
            opened.append(_map_by_id(number))
            maps.append(_map(opened[-1]))
        yield {one.name: one for one in maps}
    finally:
        for fd in opened:
            os.close(fd)


def _map_by_id(number: int) -> int:
    fd = int(_library().bpf_map_get_fd_by_id(ctypes.c_uint32(number)))
    if fd < 0:
        raise EngineError(libbpf.NAME, f"map {number}: {os.strerror(ctypes.get_errno())}")
    return fd


def _map(fd: int) -> libbpf.BpfMap:
    info = _info(fd, _MAP_INFO_BYTES)
    _, _, key_bytes, value_bytes, entries = _MAP_INFO.unpack_from(info)
    name = info[_MAP_NAME_AT : _MAP_NAME_AT + 16].split(b"\0")[0].decode()
    return libbpf.BpfMap(name, fd, key_bytes, value_bytes, entries)


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
    if _library().bpf_obj_get_info_by_fd(fd, info, ctypes.byref(length)):
        raise EngineError(libbpf.NAME, f"information on descriptor {fd}: {os.strerror(ctypes.get_errno())}")
    return info.raw


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(libbpf.LIBRARY, use_errno=True)
