"""Pages in a real browser: axe's rules of accessibility, light and dark, wide and narrow; and on paper.

Where Chromium or npm is not installed these tests are skipped; what can be told without them is in test_report.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser import answered, chromium, dumped, looked_at
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


POINTER = """
const svg = document.querySelector("svg[data-plot]"), plot = JSON.parse(svg.dataset.plot);
const figure = svg.closest("figure");
const [left, top, right, bottom] = plot.box, matrix = svg.getScreenCTM();
function point(type, share, y = (top + bottom) / 2) {
  const at = new DOMPoint(left + share * (right - left), y).matrixTransform(matrix);
  svg.setPointerCapture = () => {};
  svg.dispatchEvent(new PointerEvent(type, {clientX: at.x, clientY: at.y, button: 0, bubbles: true}));
}
function key(name) {
  const event = new KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true});
  figure.querySelector("input").dispatchEvent(event);
}
const values = () => [...figure.querySelectorAll(".values div")].map(one => one.textContent);
const ticks = () => [...svg.querySelectorAll("g > text")].filter(one => one.checkVisibility()).length;
const added = () => [...svg.querySelectorAll("text[font-size]")].map(one => one.textContent);
const button = figure.querySelector("button");
"""


def test_values_are_shown_under_the_pointer_and_a_plot_is_zoomed(tmp_path: Path) -> None:
    chromium()
    told = answered(
        a_report(tmp_path),
        tmp_path,
        POINTER
        + """
        point("pointermove", 0.25);
        const shown = values(), all = ticks();
        point("pointerdown", 0.2); point("pointermove", 0.4); point("pointerup", 0.4);
        const zoomed = added(), offered = !button.hidden;
        point("pointermove", 0.5);
        const inside = values();
        button.click();
        const after = [ticks() === all, added().length, button.hidden];
        return {limits: plot.x.limits, shown, zoomed, offered, inside, after};
        """,
    )
    low, high = told["limits"]
    time_s = float(told["shown"][0].removeprefix("time since the start, s: "))
    assert time_s == pytest.approx(low + 0.25 * (high - low), rel=0.01)
    for name, line in zip(("in", "out"), told["shown"][1:3], strict=True):
        found = re.fullmatch(rf"{name}: ([\d.,]+) \(([\d.]+) to ([\d.]+)\)", line)
        assert found and float(found[2]) <= time_s <= float(found[3]), line
        assert float(found[1].replace(",", "")) == pytest.approx(200, rel=0.1), "two streams of 100 packets/s"
    assert told["offered"] and len(told["zoomed"]) > 5
    inside_s = float(told["inside"][0].removeprefix("time since the start, s: "))
    assert inside_s == pytest.approx(low + 0.3 * (high - low), abs=0.01), "the middle of what was marked"
    assert told["after"] == [True, 0, True]


def test_a_plot_is_read_and_zoomed_by_keyboard(tmp_path: Path) -> None:
    chromium()
    told = answered(
        a_report(tmp_path),
        tmp_path,
        POINTER
        + """
        const slider = figure.querySelector("input");
        slider.value = 500;
        slider.dispatchEvent(new Event("input"));
        const read = slider.getAttribute("aria-valuetext");
        key("+");
        const zoomed = added().length;
        key("Escape");
        return {read, name: slider.getAttribute("aria-label"), zoomed, after: added().length};
        """,
    )
    assert re.match(r"time since the start, s: [\d.]+; in: [\d.,]+ \(", told["read"])
    assert told["name"].startswith("Values of: Packets in and out") and told["zoomed"] > 5 and told["after"] == 0


def test_the_policy_of_a_page_runs_its_script_only(tmp_path: Path) -> None:
    chromium()
    dom = dumped(a_report(tmp_path).replace("</body>", "<script>document.title = 'run';</script></body>"), tmp_path)
    assert 'class="controls"' in dom and "<title>run</title>" not in dom


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
