"""The structs of kernel/switch.h, as compiled, and as lab/switch/tables.py unpacks them."""

import re
from pathlib import Path

import pytest

from pktswarm.lab.switch import tables, xdp
from pktswarm.nodes import libbpf

pytestmark = pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing())


@pytest.mark.parametrize(
    ("name", "fields", "size_bytes"),
    [
        ("port_counts", {name: (8 * place, 8) for place, name in enumerate(tables.COUNTS)}, tables._COUNTS.size),
        ("station", {"vlan": (0, 2), "mac": (2, 6)}, tables._STATION.size),
        ("place", {"port": (0, 4), "unused": (4, 4), "seen_ns": (8, 8)}, tables._PLACE.size),
    ],
)
def test_the_structs(name: str, fields: dict[str, tuple[int, int]], size_bytes: int) -> None:
    layout = libbpf.struct_layout(xdp.OBJECT, name)
    assert layout == fields and sum(size for _, size in layout.values()) == size_bytes
    # The counts of a port stand at its begin.
    assert libbpf.struct_layout(xdp.OBJECT, "port")["counts"][0] == 0


def test_the_ageing_is_that_of_the_program() -> None:
    (ageing_ns,) = re.findall(r"define AGEING_NS (\d+)ULL", Path("kernel/switch.h").read_text())
    assert int(ageing_ns) == tables.AGEING_S * 1e9
