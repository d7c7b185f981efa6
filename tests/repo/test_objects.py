"""The compiled programs that ship are those that their sources make."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SHIPPED = [*Path("nodes/bpf").glob("*.o"), *Path("tests/lab").glob("*.o")]

FOR_DEBUGGERS = (".debug_", ".rel.debug_")


def loaded_sections(path: Path) -> list[tuple[str, bytes]]:
    """All of an ELF file (64 bits, little endian) but what debuggers read."""
    data = path.read_bytes()
    (table_at,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, entries, names_in = struct.unpack_from("<3H", data, 0x3A)
    headers = [struct.unpack_from("<2I4Q", data, table_at + n * entry_bytes) for n in range(entries)]
    names_at = headers[names_in][4]
    found = []
    for name_at, _, _, _, at, size in headers:
        name = data[names_at + name_at : data.index(b"\0", names_at + name_at)].decode()
        if not name.startswith(FOR_DEBUGGERS):
            found.append((name, data[at : at + size]))
    return found


def test_the_objects_are_compiled_from_the_sources_byte_for_byte(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("needs clang, which ./bootstrap test installs")
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    if version.encode() not in Path("nodes/bpf/send.o").read_bytes():
        pytest.skip(f"the objects were compiled by another version than {version}")
    subprocess.run(["kernel/build.sh", tmp_path], check=True)
    assert len(SHIPPED) >= 6
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in SHIPPED}
    words = ["dpkg-query", "--show", "linux-libc-dev"]
    headers = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    if headers == Path("kernel/built-with.txt").read_text():
        for path in SHIPPED:
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), f"{path} is older than its source"
    # With other headers all but what debuggers read, which has lines of them. Those of our sources are in BTF, too.
    for path in SHIPPED:
        made, ships = loaded_sections(tmp_path / path.name), loaded_sections(path)
        assert {".BTF", ".BTF.ext", ".maps", "license"} <= {name for name, _ in ships}
        other = [name for (name, data), kept in zip(made, ships, strict=True) if (name, data) != kept]
        assert not other, f"{path} is older than its source: {other}"
