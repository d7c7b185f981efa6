"""Compressed captures are read as the files in them."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest

from pktswarm.traffic.capture import compressed
from pktswarm.traffic.capture.files import read_capture
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay.parse import parse

CAPTURE = Path("configs/traces/lab.pcapng")
ZSTD = importlib.import_module(compressed.ZSTD)


def zstd(data: bytes) -> bytes:
    return bytes(ZSTD.compress(data, options={ZSTD.CompressionParameter.checksum_flag: 1}))


def lz4_frame(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, content_checksum=True))


FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstd,
    "lz4": lz4_frame,
}


def made(name: str, folder: Path) -> Path:
    path = folder / f"a.{name}"
    path.write_bytes(FORMATS[name](CAPTURE.read_bytes()))
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_a_compressed_capture_has_the_packets_of_the_file_in_it(name: str, tmp_path: Path) -> None:
    path = made(name, tmp_path)
    assert path.read_bytes()[:4] != CAPTURE.read_bytes()[:4]
    assert list(read_capture(path)) == list(read_capture(CAPTURE))
    parsed, plain = parse(path), parse(CAPTURE)
    assert (parsed.total, parsed.left_out) == (plain.total, plain.left_out)


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_one_is_refused_with_its_format(name: str, tmp_path: Path) -> None:
    path = made(name, tmp_path)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], data[:40] + bytes(40) + data[80:]):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=rf"a\.{name}: is compressed by {name}, and damaged: \S"):
            index_capture(path)


def test_one_that_holds_too_much_is_refused(tmp_path: Path) -> None:
    path = made("gzip", tmp_path)
    with pytest.raises(BadInput, match="holds more than 1,000 bytes when it is decompressed"):
        compressed.content(path, path.read_bytes()[:6], most_bytes=1000)


@pytest.mark.parametrize("name", FORMATS)
def test_several_parts_are_one_file(name: str, tmp_path: Path) -> None:
    """As `cat` makes of two compressed files, and the parallel tools (pigz, pixz, pzstd) of one."""
    data, path = CAPTURE.read_bytes(), tmp_path / "a"
    path.write_bytes(FORMATS[name](data[:1000]) + FORMATS[name](data[1000:]))
    assert compressed.content(path, path.read_bytes()[: compressed.MAGIC_BYTES]) == data


def test_a_frame_to_be_skipped_may_come_first(tmp_path: Path) -> None:
    data, path = CAPTURE.read_bytes(), tmp_path / "a.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00size" + zstd(data))
    assert compressed.content(path, path.read_bytes()[: compressed.MAGIC_BYTES]) == data


def test_a_format_whose_package_is_missing_is_named_with_the_command_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    path = made("lz4", tmp_path)
    problem = r"a\.lz4: is compressed by lz4, and the Python package lz4 is not installed: decompress it first"
    with pytest.raises(BadInput, match=rf"{problem} \(lz4 -d a\.lz4\)"):
        index_capture(path)


def test_another_file_is_none_of_them() -> None:
    assert compressed.content(CAPTURE, CAPTURE.read_bytes()[:6]) is None
