"""Capture files that are compressed: gzip, xz and bzip2, which Python's own modules read, zstd and lz4."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import IO

from pktswarm.traffic.errors import BadInput

MOST_BYTES = 16 << 30
"""The largest content: more is a mistake, or a file made to fill the memory."""
PIECE_BYTES = 1 << 24
ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
READ = {
    b"\x1f\x8b": ("gzip", "gzip"),
    b"\xfd7zXZ\x00": ("xz", "lzma"),
    b"BZh": ("bzip2", "bz2"),
    b"\x28\xb5\x2f\xfd": ("zstd", ZSTD),
    b"\x50\x2a\x4d\x18": ("zstd", ZSTD),  # of pzstd, which begins with a frame to be skipped
    b"\x04\x22\x4d\x18": ("lz4", "lz4.frame"),
}
"""How a file begins → the format, and the module that reads it, loaded where it is needed."""
MAGIC_BYTES = max(map(len, READ))


def content(path: Path, begin: bytes, most_bytes: int = MOST_BYTES) -> bytes | None:
    """The content of a file that begins with `begin`; None: it is not compressed. Raises BadInput where it is damaged,
    or too large."""
    for magic, (name, module) in READ.items():
        if begin.startswith(magic):
            return _content(path, name, module, most_bytes)
    return None


def _content(path: Path, name: str, module: str, most_bytes: int) -> bytes:
    from zlib import error as ZlibError

    try:
        reader = importlib.import_module(module)
    except ModuleNotFoundError:
        problem = f"is compressed by {name}, and the Python package {module.removesuffix('.frame')} is not installed"
        raise BadInput(path, f"{problem}: decompress it first ({name} -d {path.name})") from None
    own = [getattr(reader, error) for error in ("LZMAError", "ZstdError") if hasattr(reader, error)]
    try:
        with reader.open(path, "rb") as file:
            return _read(path, file, most_bytes)
    except (OSError, EOFError, ZlibError, RuntimeError, *own) as error:  # RuntimeError: of lz4
        raise BadInput(path, f"is compressed by {name}, and damaged: {error}") from None


def _read(path: Path, file: IO[bytes], most_bytes: int) -> bytes:
    pieces, size = [], 0
    while piece := file.read(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise BadInput(path, f"holds more than {most_bytes:,} bytes when it is decompressed")
    return b"".join(pieces)
