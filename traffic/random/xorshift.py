"""The random generator of kernel/send_fields.h: xorshift64* (Vigna, 2014), for single draws and for many frames.

A step of its state is linear over bits, so a table makes a jump over any number of steps, and the states of many frames
are computed by doubling.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MULTIPLIER = 0x2545F4914F6CDD1D
WORD = 2**64

Words = NDArray[np.uint64]


class KernelDraw(random.Random):
    """Draws as the kernel does from a first state (LegRecord.random); the methods that traffic.frames.template
    calls."""

    def __init__(self, state: int) -> None:
        super().__init__()
        self.state = state

    def next(self) -> int:
        self.state = _step(self.state)
        return self.state * MULTIPLIER % WORD

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self.next() % start

    def randbytes(self, n: int) -> bytes:
        return b"".join(self.next().to_bytes(8, "big") for _ in range(-(-n // 8)))[:n]


def _step(state: int) -> int:
    state ^= state >> 12
    state ^= state << 25 & WORD - 1
    return state ^ state >> 27


def stepped(state: Words) -> Words:
    """Each state one draw later."""
    state = state ^ state >> np.uint64(12)
    state = state ^ state << np.uint64(25)
    return state ^ state >> np.uint64(27)


def drawn(state: Words, number: int) -> Words:
    """The draw `number` (from 0) after each state."""
    for _ in range(number + 1):
        state = stepped(state)
    return state * np.uint64(MULTIPLIER)


class Jump:
    """A jump over some draws. `columns`: the result of each bit of a state."""

    def __init__(self, columns: Words) -> None:
        self.columns = columns
        self.table = np.zeros((8, 256), dtype=np.uint64)
        for bit in range(64):
            byte, low = bit // 8, 1 << bit % 8
            self.table[byte, low : 2 * low] = self.table[byte, :low] ^ columns[bit]

    @classmethod
    def over(cls, draws: int) -> Jump:
        bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
        whole, power = cls(bits), cls(stepped(bits))
        while draws:
            whole = power * whole if draws & 1 else whole
            power, draws = power * power, draws >> 1
        return whole

    def __call__(self, state: Words) -> Words:
        byte = np.uint64(255)
        after: Words = self.table[0][state & byte]
        for number in range(1, 8):
            after ^= self.table[number][state >> np.uint64(8 * number) & byte]
        return after

    def __mul__(self, other: Jump) -> Jump:
        return Jump(self(other.columns))


class FrameStates:
    """The generator's state before each frame. `draws`: the draws of a frame of each size; `slots`: if sizes differ,
    those that a frame's first draw chooses from, or with `in_turn` the sizes of successive frames."""

    def __init__(self, state: int, draws: Sequence[int], slots: Sequence[int], in_turn: bool = False) -> None:
        self.state, self._slots, self._in_turn, self._index = state, slots, in_turn, 0
        self._same = len(set(draws)) == 1
        self._jumps = [Jump.over(number) for number in (draws[:1] if self._same else draws)]

    def take(self, count: int) -> Words:
        """The states of the next `count` frames."""
        return self._doubled(count) if self._same else self._walked(count)

    def _doubled(self, count: int) -> Words:
        states = np.empty(count, dtype=np.uint64)
        states[:1], ready, level = self.state, 1, 0
        while ready < count:
            more = min(ready, count - ready)
            states[ready : ready + more] = self._jump(level)(states[:more])
            ready, level = ready + more, level + 1
        if count:
            self.state = int(self._jumps[0](states[-1:])[0])
        return states

    def _jump(self, level: int) -> Jump:
        """The jump over 2**level frames."""
        while len(self._jumps) <= level:
            self._jumps.append(self._jumps[-1] * self._jumps[-1])
        return self._jumps[level]

    def _walked(self, count: int) -> Words:
        """States one after another: the size of a frame determines the number of its draws."""
        tables = [jump.table.tolist() for jump in self._jumps]
        states, state = [], self.state
        for index in range(self._index, self._index + count):
            states.append(state)
            place = index if self._in_turn else _step(state) * MULTIPLIER % WORD
            state = _looked_up(tables[self._slots[place % len(self._slots)]], state)
        self.state, self._index = state, self._index + count
        return np.array(states, dtype=np.uint64)


def _looked_up(table: list[list[int]], state: int) -> int:
    after = 0
    for row in table:
        after ^= row[state & 255]
        state >>= 8
    return after
