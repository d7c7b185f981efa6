"""The wire that most of these tests run over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from wire import Line, Wire


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
