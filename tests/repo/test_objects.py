"""The compiled programs that ship are those that their sources make."""

import shutil
import subprocess
from pathlib import Path

import pytest

SHIPPED = [*Path("nodes/bpf").glob("*.o"), *Path("tests/lab").glob("*.o")]


def test_the_objects_are_compiled_from_the_sources_byte_for_byte(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("needs clang, which ./bootstrap test installs")
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    if version.encode() not in Path("nodes/bpf/send.o").read_bytes():
        pytest.skip(f"the objects were compiled by another version than {version}")
    subprocess.run(["kernel/build.sh", tmp_path], check=True)
    assert len(SHIPPED) >= 6
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in SHIPPED}
    for path in SHIPPED:
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), f"{path} is older than its source"
