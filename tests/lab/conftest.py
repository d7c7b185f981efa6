"""The wire that most of these tests run over, and labs with their own UPF that several files share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from running import cluster_of
from upf_cluster import UpfCluster
from wire import Line, Wire
from xdp_bench import bench as bench  # fixtures
from xdp_bench import program as program

if TYPE_CHECKING:
    from upf_ends import Ends

cluster = cluster_of(UpfCluster, "session")


@pytest.fixture(scope="session")
def lab_ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """One lab for the files about its UPF; each test associates anew, and so begins without sessions."""
    from upf_ends import Ends  # with scapy, which takes a second

    with Ends(tmp_path_factory.mktemp("hosts")) as ends:
        yield ends


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """Its queues: the fixture's parameter, or QUEUES of the test's module."""
    one = Wire(getattr(request, "param", getattr(request.module, "QUEUES", None)))
    try:
        one.up()
        yield one
    finally:
        one.down()


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    """With room for a device under test; the parameter is its number of queues."""
    one = Line(getattr(request, "param", None))
    try:
        one.up()
        yield one
    finally:
        one.down()


@pytest.fixture
def live_frames(request: pytest.FixtureRequest) -> None:
    """Where there is a wire, its far end takes them."""
    if "wire" in request.fixturenames:
        request.getfixturevalue("wire").take_live_frames(True)


@pytest.fixture(params=["xdp", "tc"])
def engine(request: pytest.FixtureRequest) -> str:
    """Both ways out of the kernel's sender."""
    return str(request.param)
