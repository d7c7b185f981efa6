"""A filter for XDP: libpcap's classic BPF translated to an eBPF program that runs before the counting program.

libpcap compiles for a packet socket (traffic.capture.filter). The master translates the result for the kernel of any
node, so a node needs neither a compiler nor libpcap. Matching frames continue in the counting program by a tail call;
all others are counted as filtered and pass to the host.

The rules of classic BPF apply (bpf(4)): a load beyond the end of the frame, or a division by zero, drops the frame.
Registers: r6 the context, r7 A, r8 X, r9 the frame's length, r2 its first byte, r3 its end, r0, r1, r5 scratch; M[] is
the stack.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

from pktswarm.traffic.capture import cbpf
from pktswarm.traffic.errors import BadInput

COUNTING, FILTERED = 0, 1
"""Placeholders for the descriptors of the two maps until the program is loaded."""
MOST_OFFSET = 0x7FFF
"""Longer than any frame in XDP; the verifier needs a bound."""
MOST_JUMP = 0x7FFF
XDP_ABORTED, XDP_PASS = 0, 2
LOOKUP, TAIL_CALL = 1, 12
CONTEXT, A, X, LENGTH, DATA, END, STACK = 6, 7, 8, 9, 2, 3, 10
SCRATCH_WORDS = 16
# linux/bpf_common.h and linux/bpf.h
_LOAD, _LOAD_X, _STORE, _STORE_X, _ALU, _JUMP, _RETURN, _MISC = range(8)
_IMM, _ABS, _IND, _MEM, _LEN, _MSH = range(0x00, 0xC0, 0x20)
_JMP32, _ALU64 = 0x06, 0x07
_SIZES = {0x00: 4, 0x08: 2, 0x10: 1}
_MOV, _DIV, _MOD, _NEG = 0xB0, 0x30, 0x90, 0x80
_SHIFTS = (0x60, 0x70)
_BY_REGISTER = 0x08
_ALWAYS, _EXIT = 0x05, 0x95


class Instruction(NamedTuple):
    """`jump`: a label whose offset is not known yet."""

    code: int
    target: int = 0
    source: int = 0
    offset: int = 0
    imm: int = 0
    jump: str = ""


class _Translator:
    def __init__(self) -> None:
        self.made: list[Instruction] = []
        self.labels: dict[str, int] = {}

    def add(self, code: int, target: int = 0, source: int = 0, offset: int = 0, imm: int = 0, jump: str = "") -> None:
        self.made.append(Instruction(code, target, source, offset, imm, jump))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.made)

    def program(self, classic: cbpf.Program) -> list[Instruction]:
        self._begin()
        for index, one in enumerate(classic):
            self.label(f"classic {index}")
            self._one(index, one)
        self._refuse()
        self._match()
        kept = self._reached()
        places = {at: place for place, at in enumerate(kept)}
        return [self._linked(places, at) for at in kept]

    def _reached(self) -> list[int]:
        """The reachable instructions: the verifier refuses unreachable ones."""
        found, to_do = set(), [0]
        while to_do:
            at = to_do.pop()
            if at in found:
                continue
            found.add(at)
            one = self.made[at]
            if one.code not in (_EXIT, _ALWAYS):
                to_do.append(at + 1)
            if one.jump:
                to_do.append(self.labels[one.jump])
        return sorted(found)

    def _linked(self, places: dict[int, int], at: int) -> Instruction:
        one = self.made[at]
        if not one.jump:
            return one
        offset = places[self.labels[one.jump]] - places[at] - 1
        if not 0 <= offset <= MOST_JUMP:
            raise BadInput("filter", "filter too long", value=offset, allowed=f"jumps of up to {MOST_JUMP}")
        return one._replace(offset=offset, jump="")

    # --- the ends ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.add(0xBF, CONTEXT, 1)
        self.add(0x61, DATA, CONTEXT, 0)  # struct xdp_md: data, data_end
        self.add(0x61, END, CONTEXT, 4)
        self.add(0xBF, LENGTH, END)
        self.add(0x1F, LENGTH, DATA)
        self._set(A, 0)
        self._set(X, 0)
        for word in range(SCRATCH_WORDS):
            self.add(0x62, STACK, offset=self._place(word))

    def _refuse(self) -> None:
        self.label("refuse")
        self.add(0x62, STACK, offset=self._place(0))
        self._map(1, FILTERED)
        self.add(0xBF, 2, STACK)
        self.add(0x07, 2, imm=self._place(0))
        self.add(0x85, imm=LOOKUP)
        self.add(0x15, 0, imm=0, jump="pass")
        for offset, add in ((0, 1), (8, 0)):  # struct filtered
            self.add(0x79, 1, 0, offset)
            self.add(0x0F, 1, LENGTH) if not add else self.add(0x07, 1, imm=add)
            self.add(0x7B, 0, 1, offset)
        self.label("pass")
        self.add(0xB7, 0, imm=XDP_PASS)
        self.add(_EXIT)

    def _match(self) -> None:
        self.label("match")
        self.add(0xBF, 1, CONTEXT)
        self._map(2, COUNTING)
        self.add(0xB7, 3, imm=0)
        self.add(0x85, imm=TAIL_CALL)
        self.add(0xB7, 0, imm=XDP_ABORTED)
        self.add(_EXIT)

    def _map(self, register: int, which: int) -> None:
        self.add(0x18, register, 1, imm=which)
        self.add(0x00)

    @staticmethod
    def _place(word: int) -> int:
        return -4 * (word + 1)

    # --- one instruction --------------------------------------------------------------------------------------------

    def _one(self, index: int, one: cbpf.Instruction) -> None:
        kind = one.code & 7
        if kind == _LOAD:
            self._load(one)
        elif kind == _LOAD_X:
            self._load_x(one)
        elif kind in (_STORE, _STORE_X):
            self.add(0x63, STACK, A if kind == _STORE else X, self._place(_word(one)))
        elif kind == _ALU:
            self._alu(one)
        elif kind == _JUMP:
            self._jump(index, one)
        elif kind == _RETURN:
            self._return(one)
        else:
            self.add(0xBC, *((A, X) if one.code & 0x80 else (X, A)))  # TXA, TAX

    def _set(self, register: int, value: int) -> None:
        self.add(0xB4, register, imm=_signed(value))

    def _load(self, one: cbpf.Instruction) -> None:
        mode, size = one.code & 0xE0, _SIZES[one.code & 0x18]
        if mode == _ABS:
            self._fetch(A, one.k, size)
        elif mode == _IND:
            self.add(0xBC, 5, X)
            self.add(0xB4, 1, imm=_signed(one.k))
            self.add(0x0F, 5, 1)  # in 64 bits, where it cannot wrap
            self._fetch_indirect(size)
        elif mode == _LEN:
            self.add(0xBC, A, LENGTH)
        elif mode == _MEM:
            self.add(0x61, A, STACK, self._place(_word(one)))
        else:
            self._set(A, one.k)

    def _load_x(self, one: cbpf.Instruction) -> None:
        mode = one.code & 0xE0
        if mode == _MSH:
            self._fetch(X, one.k, 1)
            self.add(0x54, X, imm=0xF)
            self.add(0x64, X, imm=2)
        elif mode == _LEN:
            self.add(0xBC, X, LENGTH)
        elif mode == _MEM:
            self.add(0x61, X, STACK, self._place(_word(one)))
        else:
            self._set(X, one.k)

    def _fetch(self, register: int, offset: int, size: int) -> None:
        if offset > MOST_OFFSET:
            if offset >= 0xFFFFF000:
                raise BadInput("filter", "reads packet metadata that XDP does not have", allowed="see pcap-filter(7)")
            self.add(_ALWAYS, jump="refuse")
            return
        self.add(0xBF, 1, DATA)
        self.add(0x07, 1, imm=offset)
        self._take(register, size)

    def _fetch_indirect(self, size: int) -> None:
        self.add(0x25, 5, imm=MOST_OFFSET, jump="refuse")
        self.add(0xBF, 1, DATA)
        self.add(0x0F, 1, 5)
        self._take(A, size)

    def _take(self, register: int, size: int) -> None:
        """The value that r1 points to, in this machine's byte order."""
        self.add(0xBF, 5, 1)
        self.add(0x07, 5, imm=size)
        self.add(0x2D, 5, END, jump="refuse")
        self.add({4: 0x61, 2: 0x69, 1: 0x71}[size], register, 1)
        if size > 1:
            self.add(0xDC, register, imm=8 * size)

    def _alu(self, one: cbpf.Instruction) -> None:
        operation, by_x = one.code & 0xF0, one.code & _BY_REGISTER
        if operation in (_DIV, _MOD):
            if not by_x and not one.k:
                self.add(_ALWAYS, jump="refuse")
                return
            if by_x:
                self.add(0x15 & ~7 | _JMP32, X, imm=0, jump="refuse")
        if operation in _SHIFTS:
            self._shift(operation, one, bool(by_x))
        elif operation == _NEG:
            self.add(_ALU | _NEG, A)
        else:
            self.add(one.code & 0xFF, A, X if by_x else 0, imm=0 if by_x else _signed(one.k))

    def _shift(self, operation: int, one: cbpf.Instruction, by_x: bool) -> None:
        """A shift by 32 or more is 0 in classic BPF; eBPF takes the count modulo 32."""
        if not by_x:
            self._set(A, 0) if one.k > 31 else self.add(_ALU | operation, A, imm=one.k)
            return
        after = f"shifted {len(self.made)}"
        self.add(0xBC, 1, A)
        self._set(A, 0)
        self.add(0x25 & ~7 | _JMP32, X, imm=31, jump=after)
        self.add(0xBC, A, 1)
        self.add(_ALU | operation | _BY_REGISTER, A, X)
        self.label(after)

    def _jump(self, index: int, one: cbpf.Instruction) -> None:
        operation = one.code & 0xF0
        if operation == 0:
            self.add(_ALWAYS, jump=f"classic {index + 1 + one.k}")
            return
        by_x = one.code & _BY_REGISTER
        code = _JMP32 | operation | by_x
        source, imm = (X, 0) if by_x else (0, _signed(one.k))
        self.add(code, A, source, imm=imm, jump=f"classic {index + 1 + one.if_true}")
        if one.if_false:
            self.add(_ALWAYS, jump=f"classic {index + 1 + one.if_false}")

    def _return(self, one: cbpf.Instruction) -> None:
        if one.code & 0x18 == 0x10:
            self.add(0x16, A, imm=0, jump="refuse")
            self.add(_ALWAYS, jump="match")
        else:
            self.add(_ALWAYS, jump="match" if one.k else "refuse")


def translate(classic: cbpf.Program) -> list[Instruction]:
    """Translates a program. BadInput for one that cannot run in XDP."""
    return _Translator().program(classic)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _word(one: cbpf.Instruction) -> int:
    if one.k >= SCRATCH_WORDS:
        raise BadInput("filter", "no such scratch word", value=one.k, allowed=f"0 to {SCRATCH_WORDS - 1}")
    return one.k


def to_hex(program: list[Instruction]) -> str:
    return b"".join(struct.pack(">BBBhi", *one[:5]) for one in program).hex()


def native(text: str, descriptors: dict[int, int]) -> bytes:
    """The program as struct bpf_insn in this machine's byte order, with the descriptors of the maps."""
    made = []
    for code, target, source, offset, imm in struct.iter_unpack(">BBBhi", bytes.fromhex(text)):
        registers = target | source << 4 if sys.byteorder == "little" else target << 4 | source
        made.append(struct.pack("=BBhi", code, registers, offset, descriptors[imm] if code == 0x18 else imm))
    return b"".join(made)
