"""Capture files that are compressed: gzip, xz and bzip2, which Python's own modules read."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import IO

from pktswarm.traffic.errors import BadInput

MOST_BYTES = 16 << 30
"""The largest content: more is a mistake, or a file made to fill the memory."""
PIECE_BYTES = 1 << 24
READ = {b"\x1f\x8b": ("gzip", "gzip"), b"\xfd7zXZ\x00": ("xz", "lzma"), b"BZh": ("bzip2", "bz2")}
"""How a file begins → the format, and the module that reads it, loaded where it is needed."""
NOT_READ = {b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"), b"\x04\x22\x4d\x18": ("lz4", "lz4 -d")}
"""How a file begins → the format, and the command that decompresses it."""
MAGIC_BYTES = max(map(len, (*READ, *NOT_READ)))


def content(path: Path, begin: bytes, most_bytes: int = MOST_BYTES) -> bytes | None:
    """The content of a file that begins with `begin`; None: it is not compressed. Raises BadInput where it is damaged,
    or too large."""
    for magic, (name, module) in READ.items():
        if begin.startswith(magic):
            return _content(path, name, module, most_bytes)
    for magic, (name, command) in NOT_READ.items():
        if begin.startswith(magic):
            problem = f"is compressed by {name}: decompress it first ({command} {path.name})"
            raise BadInput(path, problem, allowed=f"plain, or {', '.join(one for one, _ in READ.values())}")
    return None


def _content(path: Path, name: str, module: str, most_bytes: int) -> bytes:
    from lzma import LZMAError
    from zlib import error as ZlibError

    try:
        with importlib.import_module(module).open(path, "rb") as file:
            return _read(path, file, most_bytes)
    except (OSError, EOFError, LZMAError, ZlibError) as error:
        raise BadInput(path, f"is compressed by {name}, and damaged: {error}") from None


def _read(path: Path, file: IO[bytes], most_bytes: int) -> bytes:
    pieces, size = [], 0
    while piece := file.read(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise BadInput(path, f"holds more than {most_bytes:,} bytes when it is decompressed")
    return b"".join(pieces)
