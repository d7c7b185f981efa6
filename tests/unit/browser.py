"""A headless Chromium that looks at a page, and axe-core that looks with it, where both are installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.report import pdf

HERE = Path("tests/browser")
AXE = HERE / "node_modules/axe-core/axe.min.js"
SCHEMES = {"dark": 0, "light": 1}
"""As Chromium numbers them."""
FOUND, END = '<script type="application/json" id="found">', "</script>"
ASK = """
axe.run(document, {resultTypes: ["violations"]}).then(
  found => ({violations: found.violations, dark: matchMedia("(prefers-color-scheme: dark)").matches})
)
"""
KEEP = """
.catch(error => ({error: String(error)})).then(told => {
  const here = document.createElement("script");
  here.type = "application/json";
  here.id = "found";
  here.textContent = JSON.stringify(told).replaceAll("<", "\\\\u003c");
  document.body.replaceChildren(here);
});
"""


def chromium() -> str:
    """Skips where there is none: `bootstrap` does not install it."""
    found = next(filter(None, map(shutil.which, pdf.NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium, which bootstrap does not install (apt install chromium)")
    return found


@cache
def axe() -> str:
    """axe-core as the lock file pins it. Skips without npm's client, or where it reaches no registry."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, which bootstrap does not install (apt install npm)")
    if not AXE.is_file():
        words = [npm, "ci", "--prefix", str(HERE), "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"npm ci in {HERE}: {done.stderr.strip().splitlines()[-1:]}")
    return AXE.read_text()


def unguarded(page: str) -> str:
    """A page whose policy lets the scripts of tests run."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)


def looked_at(page: str, folder: Path, scheme: str, width: int = 1280) -> dict[str, Any]:
    """What axe finds in a page in a window so wide: {"violations": […], "dark": bool}."""
    scripts = f"<script>{axe()}</script><script>{ASK}{KEEP}</script>"
    return _told(unguarded(page).replace("</body>", f"{scripts}</body>"), folder, scheme, width)


def answered(page: str, folder: Path, script: str) -> dict[str, Any]:
    """The value that a function returns that runs in a page. `script`: its body."""
    asked = f"Promise.resolve((() => {{{script}}})())"
    return _told(unguarded(page).replace("</body>", f"<script>{asked}{KEEP}</script></body>"), folder, "light", 1280)


def dumped(page: str, folder: Path, scheme: str = "light", width: int = 1280) -> str:
    """A page as its scripts leave it."""
    copy = folder / f"{scheme}-{width}.html"
    copy.write_text(page)
    words = [*pdf.command(chromium(), folder), f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    words += [f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", copy.resolve().as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout


def _told(page: str, folder: Path, scheme: str, width: int) -> dict[str, Any]:
    dom = dumped(page, folder, scheme, width)
    assert FOUND in dom, dom[-500:]
    told: dict[str, Any] = json.loads(dom.split(FOUND)[1].split(END)[0])
    assert "error" not in told, told
    return told
