"""The shell blocks of the guides about UPFs, traces and results, run as those of test_guides.py.

A block that cannot run here has `<!-- not run: reason -->` in the line above.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from guide_blocks import UPF, Block, shell_blocks
from guide_desk import Desk, desk_of
from pktswarm.master.report import pdf

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    yield from desk_of(tmp_path_factory.mktemp("guides"))


MEASURES = {"y1564:3"}
"""Blocks that need senders that are never late."""
BLOCKS = [
    pytest.param(block, marks=[pytest.mark.alone] if str(block) in MEASURES else [], id=str(block))
    for block in shell_blocks()
    if block.page in UPF
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_guides_runs(block: Block, desk: Desk) -> None:
    if block.reason:
        pytest.skip(block.reason)
    if " --pdf" in block.text and not any(map(shutil.which, pdf.NAMES)):
        pytest.skip("no Chromium is installed")
    desk.run(block)
