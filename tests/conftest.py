"""For every test: which begin, what another kernel is worth running it for, and a root directory that is a mount point.

`ip netns exec` and `unshare --mount` insist on such a root.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from typer import testing

from pktswarm.lab import namespaces

pytest.register_assert_rewrite(
    *(path.stem for path in Path(__file__).parent.glob("**/*.py") if not path.stem.startswith(("test_", "conftest")))
)
LONGEST = (
    "test_python test_failures test_search test_run test_guides test_standing_cluster test_launched_run "
    "test_guides_upf test_upf_smf test_upf_probe test_without_mpi test_doctor test_lab test_kept_ranks "
    "test_upf_run test_connections test_benchmarks test_damage test_calibrate test_counter_without_tail_calls "
    "test_replay_run test_record test_upf_handover test_echo test_routers test_upf_shape test_sources test_readme "
    "test_installed test_fragments test_preloaded test_xdp_sender_wire test_upf_exec test_cli test_xdp_truth "
    "test_interactive test_conductor test_fuzz_traces test_bit_flips test_report test_configs"
).split()
"""Files of ten seconds and more, roughly the longest first."""

mock.patch.object(testing, "_get_command", cache(testing._get_command)).start()  # type: ignore[attr-defined] # private
"""A command line is built once: that takes longer than most of the commands that are tested."""


def root_is_a_mount_point() -> bool:
    """Not inside a plain chroot, such as a debootstrap that somebody tries this in."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == "/" for line in mounts)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--another-kernel", action="store_true", help="of tests/lab only what depends on the kernel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files begin: what begins last would keep one process busy while the others have no work. With
    --another-kernel, of tests/lab those with the mark `kernel`; its words must be in the test's name."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    if not config.getoption("--another-kernel"):
        return
    chosen = [item for item in items if "tests/lab" not in str(item.path) or _depends_on_the_kernel(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_collection_finish() -> None:
    """The collected tests stay to the end: the collector of garbage, which would take a tenth of the time of the unit
    tests, leaves them out, and looks for other garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _depends_on_the_kernel(item: pytest.Item) -> bool:
    return any(all(word in item.name for word in mark.args) for mark in item.iter_markers("kernel"))


def pytest_configure(config: pytest.Config) -> None:
    """In a mount namespace of the tests' own: "/" bound onto /mnt, and that made the root."""
    if os.geteuid() != 0 or root_is_a_mount_point():
        return
    here = Path.cwd()
    namespaces.unshare(namespaces.MOUNT)
    namespaces.mount("/", "/mnt", "", flags=namespaces.MS_BIND | namespaces.MS_REC)
    os.chroot("/mnt")
    os.chdir(here)
