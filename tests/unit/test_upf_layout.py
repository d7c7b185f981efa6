"""The structs of kernel/upf.h, as compiled, and as lab/upf packs them."""

import struct
from pathlib import Path

import pytest

from pktswarm.lab.upf import datapath, session
from pktswarm.nodes import libbpf

pytestmark = pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing())
SIZES = {"B": 1, "H": 2, "I": 4, "Q": 8}


def offsets(form: struct.Struct) -> list[int]:
    """Where each field of a packed format begins, and the end."""
    found, at = [], 0
    number = ""
    for letter in form.format[1:]:
        if letter.isdigit():
            number += letter
            continue
        for size in [int(number)] if letter == "s" else [SIZES[letter]] * int(number or 1):
            found.append(at)
            at += size
        number = ""
    return [*found, at]


@pytest.mark.parametrize(
    ("name", "form", "arrays"),
    [
        ("rule", session._RULE, {"policers": 2}),
        ("policer", datapath._POLICER, {}),
        ("dropped", datapath._DROPPED, {"packets": len(datapath.REASONS)}),
        ("sent", datapath._SENT, {}),
        ("fault_key", datapath._FAULT_KEY, {}),
        ("fault", datapath._FAULT, {}),
        ("event_head", datapath._EVENT, {}),
        ("settings", datapath._SETTINGS, {}),
    ],
)
def test_python_and_the_kernel_lay_a_struct_out_alike(name: str, form: struct.Struct, arrays: dict[str, int]) -> None:
    told = []
    layout = libbpf.struct_layout(datapath.OBJECT, name)
    for field, (at, size) in layout.items():
        count = arrays.get(field, 1)
        told += [at + each * size // count for each in range(count)]
    end = max(at + size for at, size in layout.values())
    assert offsets(form) == [*told, end]


def test_a_table_s_entry_has_as_many_rules_as_python_packs() -> None:
    layout = libbpf.struct_layout(datapath.OBJECT, "rules")
    assert layout["count"] == (0, session._COUNT.size)
    assert layout["rule"] == (4, session.MOST_RULES * session._RULE.size)


def test_there_are_as_many_counters_as_python_hands_out() -> None:
    with libbpf.BpfObject(datapath.OBJECT) as program:
        for name in ("dropped", "policers", *datapath.TABLES):
            assert program.map(name).entries == datapath.MOST_COUNTS


def test_as_many_processors_have_counts_of_their_own() -> None:
    header = (Path(__file__).parents[2] / "kernel/upf.h").read_text()
    assert f"#define OWN_COUNTS {datapath.OWN_COUNTS} " in header
    assert f"#define MOST_COUNTS {datapath.MOST_COUNTS} " in header


def test_there_are_as_many_totals_as_python_reads() -> None:
    layout = libbpf.struct_layout(datapath.OBJECT, "totals")
    assert layout["packets"] == (0, 8 * len(datapath.TOTALS))
    assert sum(layout["unused"]) == datapath._TOTALS.size
