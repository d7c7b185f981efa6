"""Pages in a real browser: axe's rules of accessibility, light and dark, wide and narrow; and on paper.

Where Chromium or npm is not installed these tests are skipped; what can be told without them is in test_report.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser import chromium, looked_at
from pktswarm.master import report
from pktswarm.master.compare import run_sets, storage
from pktswarm.master.compare.comparison import Comparison
from pktswarm.traffic.leg import FlowUsers
from result_folders import Made, leg

PKTSWARM = Path(sys.executable).with_name("pktswarm")
PHONE, DESK = 400, 1280


def a_report(folder: Path) -> str:
    few = FlowUsers(field="ipv4.src", by="src_ip", first=0x0A3C0001, step=1, count=30)
    made = Made([leg(0, "small", users=few), leg(1, "large", "tx2", "rx2")], lost={0: 5}, lost_users=2)
    return report.make(made.write(folder)).read_text()


def a_crashed_one(folder: Path) -> str:
    return report.make(Made(lost={0: 5}).write(folder, over=False)).read_text()


def a_comparison(folder: Path) -> str:
    words = [",".join(str(Made(lost={0: n}).write(folder)) for n in losses) for losses in ([0, 1], [90, 95])]
    first, *others = run_sets.sides(words)
    return (storage.keep(Comparison(first, others), folder / "kept") / storage.PAGE).read_text()


PAGES = {"report": a_report, "crashed": a_crashed_one, "comparison": a_comparison}


@pytest.mark.parametrize(("scheme", "width"), [("light", PHONE), ("dark", DESK)])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_that_keeps_a_person_out(tmp_path: Path, name: str, scheme: str, width: int) -> None:
    chromium()
    found = looked_at(PAGES[name](tmp_path), tmp_path, scheme, width)
    assert found["dark"] == (scheme == "dark")
    told = [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]
    assert not told


def test_axe_finds_what_is_wrong(tmp_path: Path) -> None:
    """A test that cannot fail would tell nothing: grey on white, and a picture without words."""
    chromium()
    page = '<!DOCTYPE html><html lang="en"><head><title>t</title></head><body><main><h1 style="color:#ccc">faint</h1>'
    page += '<img src="data:,"></main></body></html>'
    found = {one["id"] for one in looked_at(page, tmp_path, "light")["violations"]}
    assert {"color-contrast", "image-alt"} <= found


def test_the_report_is_printed(tmp_path: Path) -> None:
    chromium()
    folder = Made(lost={0: 5}).write(tmp_path)
    done = subprocess.run(
        [PKTSWARM, "report", folder, "--pdf"], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(folder / "report.html"), str(folder / "report.pdf")]
    printed = (folder / "report.pdf").read_bytes()
    assert printed.startswith(b"%PDF-") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3


def test_without_chromium_nothing_is_made_and_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    folder = Made().write(tmp_path)
    done = subprocess.run(
        [PKTSWARM, "report", folder, "--pdf"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 2 and "--pdf: no Chromium is installed" in done.stderr
    assert "apt install chromium" in done.stderr and not (folder / "report.html").exists()
