"""The page as PDF, printed by a headless Chromium: the style has rules of its own for paper."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from pktswarm.traffic.errors import BadInput, PktswarmError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 120.0
BEGINS = b"%PDF-"
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
"""Nothing is fetched: the page names nothing, and no name is resolved."""


def chromium() -> str:
    """Raises BadInput where there is none."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    problem = "no Chromium is installed, which prints the page (apt install chromium)"
    raise BadInput("report", problem, key="--pdf", allowed=", ".join(NAMES))


def print_page(page: Path, pdf: Path) -> None:
    """Raises BadInput where there is no Chromium, and PktswarmError where it did not print."""
    program = chromium()
    with tempfile.TemporaryDirectory(prefix="pktswarm-pdf-") as folder:
        made = Path(folder) / "page.pdf"
        words = _run(
            [
                *command(program, Path(folder)),
                "--no-pdf-header-footer",
                f"--print-to-pdf={made}",
                page.resolve().as_uri(),
            ]
        )
        if not made.is_file() or made.read_bytes()[: len(BEGINS)] != BEGINS:
            raise PktswarmError(f"{program} did not print {page}: {_last(words)}")
        try:
            shutil.copyfile(made, pdf)
        except OSError as error:
            raise BadInput(pdf, f"cannot be written: {error.strerror}") from None


def command(program: str, folder: Path) -> list[str]:
    """`folder`: for its profile. Its own sandbox refuses to run as root."""
    return [
        program,
        *OPTIONS,
        f"--user-data-dir={folder / 'profile'}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]


def _run(words: list[str]) -> str:
    """Its output; it and what it started have ended then."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=TIMEOUT_S)[0]
    except subprocess.TimeoutExpired:
        raise PktswarmError(f"{words[0]} did not print within {TIMEOUT_S:.0f} s") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _last(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
