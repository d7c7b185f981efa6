"""Classic BPF programs composed of small tests, for filters that a pcap expression cannot express.

The kernel removes the outermost VLAN tag from a received frame before a packet socket gets it, and keeps the tag beside
the frame (linux/filter.h, SKF_AD_VLAN_*). An expression compiled without the interface does not read it there.

A program is a list of instructions whose branches all end with RET: 0 drops the frame, any other value is the number of
bytes to accept. Programs are combined by replacing their RETs with jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

LOAD_BYTE, LOAD_HALF, LOAD_WORD, LOAD_LENGTH = 0x30, 0x28, 0x20, 0x80
AND, JUMP, JUMP_EQUAL, JUMP_GREATER, JUMP_NOT_LESS, RETURN = 0x54, 0x05, 0x15, 0x25, 0x35, 0x06

_BESIDE_THE_FRAME = 0xFFFFF000
PACKET_TYPE = _BESIDE_THE_FRAME + 4
VLAN_TCI = _BESIDE_THE_FRAME + 44
VLAN_PRESENT = _BESIDE_THE_FRAME + 48
VLAN_TPID = _BESIDE_THE_FRAME + 60
OUTGOING = 4
"""PACKET_OUTGOING: frames that the node itself sends."""
WHOLE_FRAME = 0xFFFF
MOST_INSTRUCTIONS = 4096
"""BPF_MAXINSNS of the kernel."""


class Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    k: int


Program = list[Instruction]

ACCEPT: Program = [Instruction(RETURN, 0, 0, WHOLE_FRAME)]
REFUSE: Program = [Instruction(RETURN, 0, 0, 0)]


def test(load: int, at: int, jump: int, k: int, mask: int | None = None) -> Program:
    """Accepts if the masked value that `load` reads at `at` satisfies `jump` with `k`. Drops shorter frames."""
    program = [Instruction(load, 0, 0, at)]
    if mask is not None:
        program.append(Instruction(AND, 0, 0, mask))
    return [*program, Instruction(jump, 0, 1, k), *ACCEPT, *REFUSE]


def negate(program: Program) -> Program:
    def turned(one: Instruction) -> Instruction:
        return one._replace(k=0 if one.k else WHOLE_FRAME) if one.code == RETURN else one

    return [turned(one) for one in program]


def all_of(*programs: Program) -> Program:
    """Accepts frames that every program accepts, with the number of bytes of the last one."""
    return _chain(programs, keep=lambda one: one.k == 0) if programs else ACCEPT


def any_of(*programs: Program) -> Program:
    return _chain(programs, keep=lambda one: one.k != 0) if programs else REFUSE


def _chain(programs: tuple[Program, ...], keep: Callable[[Instruction], bool]) -> Program:
    """Concatenates programs: a RET that is not kept continues with the next program."""
    linked: Program = []
    for program in programs[:-1]:
        for index, one in enumerate(program):
            ends = one.code != RETURN or keep(one)
            linked.append(one if ends else Instruction(JUMP, 0, 0, len(program) - index - 1))
    return linked + programs[-1]


def snapped(program: Program, size_bytes: int) -> Program:
    """The same program, with at most `size_bytes` of each frame."""
    return [one._replace(k=min(one.k, size_bytes)) if one.code == RETURN else one for one in program]


def to_text(program: Program) -> str:
    """The program in the file format of netsniff-ng and bpfc."""
    return "".join(f"{{ {i.code:#x}, {i.if_true}, {i.if_false}, {i.k:#010x} }}\n" for i in program)
