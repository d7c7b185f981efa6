"""A pytest plugin: fixtures for tests with traffic. pytest loads it by itself where pktswarm is installed.

`pktswarm_cluster`: a Cluster for the session; `pktswarm_lab`: its Lab, unless --pktswarm-hosts names an inventory.
A failing test shows the runs that it made. docs/python.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pktswarm import Cluster, Lab, Result


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pktswarm")
    group.addoption("--pktswarm-hosts", type=Path, metavar="FILE", help="inventory of the nodes; default: a lab")
    group.addoption("--pktswarm-results", type=Path, metavar="FOLDER", default=Path("results"), help="default: results")


@pytest.fixture(scope="session")
def pktswarm_lab_options() -> dict[str, Any]:
    """The arguments of pktswarm.Lab: a fixture of this name in a conftest.py replaces it."""
    return {"transmit": 1, "receive": 1}


@pytest.fixture(scope="session")
def pktswarm_lab(pktswarm_lab_options: dict[str, Any]) -> Iterator[Lab]:
    """A lab that is up for the session. Needs root: else the tests are skipped."""
    from pktswarm import Lab

    if os.geteuid() != 0:
        pytest.skip("a lab of pktswarm needs root; --pktswarm-hosts FILE uses other nodes")
    with Lab(**pktswarm_lab_options) as lab:
        yield lab


@pytest.fixture(scope="session")
def pktswarm_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The nodes of --pktswarm-hosts, or of the lab, whose processes stay up for the session."""
    from pktswarm import Cluster

    hosts: Path | None = request.config.getoption("--pktswarm-hosts")
    inventory = hosts or request.getfixturevalue("pktswarm_lab").inventory
    with Cluster(inventory, request.config.getoption("--pktswarm-results")) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Adds its runs, and their pages, to the report of a test that fails."""
    cluster: Cluster | None = getattr(item, "funcargs", {}).get("pktswarm_cluster")
    before = len(cluster.made) if cluster is not None else 0
    try:
        yield
    except (Exception, pytest.fail.Exception):
        for folder in cluster.made[before:] if cluster is not None else ():
            item.add_report_section("call", "pktswarm", _summary(folder))
        raise


def _summary(folder: Path) -> str:
    from pktswarm import Error, Result

    try:
        result = Result.load(folder)
    except Error as error:
        return f"{folder}: {error}"
    counts = [
        f"  {each.name}: sent {each.sent_packets}, received {each.received_packets}, lost {each.lost_packets} packets"
        for each in result.streams.values()
    ]
    return "\n".join([f"{result.name}: {result.reason}", *counts, *result.doubts, f"  {_page(result)}"])


def _page(result: Result) -> str:
    """Its path, or why it could not be made: the test's own failure is what counts."""
    try:
        return str(result.report)
    except Exception as error:
        return f"the report could not be made: {error}"
