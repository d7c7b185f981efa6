"""A plain class behaves as the frozen dataclass of the same fields."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from typing import ClassVar

import pytest

from pktswarm.traffic.plain import plain


@plain
class Port:
    UNIT: ClassVar[str] = "port"
    number: int
    name: str = ""
    tags: list[str] = field(default_factory=list)
    seen: int = field(default=0, repr=False, compare=False)


@plain
class Range(Port):
    last: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Frozen:
    number: int
    name: str = ""
    tags: list[str] = field(default_factory=list)
    seen: int = field(default=0, repr=False, compare=False)


@plain
class ByName:
    name: str
    rate: float = 0.0

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


@plain
class Pair:
    first: int
    second: str


def test_it_is_shown_copied_and_taken_apart_as_a_dataclass() -> None:
    ours, theirs = Port(80, "http", ["a"], 7), Frozen(80, "http", ["a"], 7)
    assert repr(ours) == repr(theirs).replace("Frozen", "Port")
    assert asdict(ours) == asdict(theirs)
    assert replace(ours, number=81) == Port(81, "http", ["a"])
    assert copy.deepcopy(ours) == ours and copy.copy(ours).seen == 7
    assert Port(1).tags is not Port(1).tags


def test_it_is_compared_by_the_fields_that_are() -> None:
    assert Port(80, seen=1) == Port(80, seen=2) != Port(81)
    assert Port(80) != Range(80)
    assert hash(Pair(1, "a")) == hash(Pair(1, "a")) and len({Pair(1, "a"), Pair(1, "a"), Pair(2, "a")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Port(80))


def test_it_cannot_be_changed() -> None:
    port = Port(80)
    for name in ("number", "name", "seen"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(port, name, 1)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(port, name)
    assert port == Port(80)


def test_what_a_class_defines_itself_stays() -> None:
    one = ByName("a", 1.0)
    assert repr(one) == "a" and hash(one) == hash("a") and one != ByName("a", 2.0)


def test_a_field_of_a_derived_class() -> None:
    assert repr(Range(1, last=9)) == "Range(number=1, name='', tags=[], last=9)"
    with pytest.raises(TypeError):
        Range(*[1, "", [], 0, 9])  # type: ignore[arg-type] # by place


def test_what_a_rank_loads_is_plain() -> None:
    """A frozen dataclass among its modules would cost the start of every rank half a millisecond."""
    program = """
import sys
import pktswarm.nodes.__main__, pktswarm.nodes.probe, pktswarm.nodes.rank
for module in [one for name, one in sys.modules.items() if name.startswith("pktswarm.")]:
    for kind in vars(module).values():
        made = getattr(kind, "__dataclass_params__", None)
        if isinstance(kind, type) and kind.__module__ == module.__name__ and made and made.frozen:
            print(kind)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
