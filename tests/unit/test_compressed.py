"""Compressed captures are read as the files in them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from pktswarm.traffic.capture import compressed
from pktswarm.traffic.capture.files import read_capture
from pktswarm.traffic.capture.index import index_capture
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.replay.parse import parse

CAPTURE = Path("configs/traces/lab.pcapng")
FORMATS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress}


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


@pytest.mark.parametrize(("magic", "name"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4")])
def test_a_format_that_is_not_read_is_named_with_the_command_for_it(magic: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(magic + bytes(60))
    problem = (
        rf"is compressed by {name}: decompress it first \({name} -d a\.pcap\) \(allowed: plain, or gzip, xz, bzip2\)"
    )
    with pytest.raises(BadInput, match=problem):
        index_capture(path)


def test_another_file_is_none_of_them() -> None:
    assert compressed.content(CAPTURE, CAPTURE.read_bytes()[:6]) is None
