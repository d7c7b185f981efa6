"""A headless Chromium that looks at a page, and axe-core that looks with it, where both are installed."""

from __future__ import annotations

import json
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
<script>
axe.run(document, {resultTypes: ["violations"]}).then(
  found => ({violations: found.violations, dark: matchMedia("(prefers-color-scheme: dark)").matches}),
  error => ({error: String(error)}),
).then(told => {
  const here = document.createElement("script");
  here.type = "application/json";
  here.id = "found";
  here.textContent = JSON.stringify(told).replaceAll("<", "\\\\u003c");
  document.body.replaceChildren(here);
});
</script>
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


def looked_at(page: str, folder: Path, scheme: str, width: int = 1280) -> dict[str, Any]:
    """What axe finds in a page in a window so wide: {"violations": […], "dark": bool}."""
    copy = folder / f"{scheme}-{width}.html"
    copy.write_text(page.replace("</body>", f"<script>{axe()}</script>{ASK}</body>"))
    words = [*pdf.command(chromium(), folder), f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    words += [f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", copy.resolve().as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert FOUND in done.stdout, done.stdout[-500:] + done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.split(FOUND)[1].split(END)[0])
    assert "error" not in told, told
    return told
