"""Queueing disciplines of an interface, as `tc` of iproute2 shows and changes them."""

from __future__ import annotations

import json
from typing import NamedTuple

from pktswarm.nodes.process import iproute2

OF_THE_KERNEL = "0:"
"""Handle of a discipline that the kernel made by itself, and makes again when a configured one is removed."""
HOOKS = ("ingress", "clsact")


class Qdisc(NamedTuple):
    kind: str
    handle: str
    is_root: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.handle}"


def parse(text: str) -> list[Qdisc]:
    """Reads the JSON of `tc qdisc show`, without what is no queue: hooks for incoming packets, and for programs."""
    found = [Qdisc(one["kind"], one["handle"], bool(one.get("root"))) for one in json.loads(text)]
    return [one for one in found if one.kind not in HOOKS]


def of(interface: str) -> list[Qdisc]:
    """Raises EngineError where tc fails."""
    return parse(_tc("show", "dev", interface))


def root(interface: str) -> str:
    """Kind and handle of the outermost one; empty if there is none."""
    return next((str(one) for one in of(interface) if one.is_root), "")


def replace(interface: str, place: str, handle: str, *words: str) -> None:
    """`place`: root, or the parent's class. `handle`: of the new one; "": chosen by the kernel."""
    where = [place] if place == "root" else ["parent", place]
    _tc("replace", "dev", interface, *where, *(["handle", handle] if handle else []), *words)


def remove_root(interface: str) -> None:
    """The kernel then makes its own again."""
    _tc("del", "dev", interface, "root")


def _tc(*words: str) -> str:
    return iproute2("tc", "tc", "-j", "qdisc", *words)
