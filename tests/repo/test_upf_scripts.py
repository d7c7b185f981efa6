"""The scripts that bring a UPF up (docs/upf.md, docs/your-upf.md) are right, and use what the lab gives them."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from pktswarm.lab.plan import plan
from pktswarm.lab.upf_host import environment

ROOT = Path(__file__).parents[2]
PAGES = ("docs/upf.md", "docs/your-upf.md")


def scripts() -> list[str]:
    """Every code block that begins with #!/bin/sh, indented or fenced."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        found += [textwrap.dedent(one) for one in re.findall(r"(?m)^    #!/bin/sh\n(?:    .*\n|\n(?=    ))+", text)]
        found += re.findall(r"(?ms)^```sh\n(#!/bin/sh\n.*?)^```", text)
    return found


def test_there_is_one_for_each_upf() -> None:
    programs = [re.findall(r"(?m)^exec (\S+)", script) for script in scripts()]
    assert programs == [["eupf"], ["open5gs-upfd"], ["my-upfd"]]


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not there")
@pytest.mark.parametrize("script", scripts())
def test_a_script_is_right_as_it_stands(script: str, tmp_path: Path) -> None:
    (tmp_path / "upf.sh").write_text(script)
    command = ["shellcheck", "--exclude=SC2154", str(tmp_path / "upf.sh")]  # the environment's variables
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", scripts())
def test_a_script_uses_what_the_lab_gives_it(script: str) -> None:
    upf = plan("x", dut="exec", command=["true"]).upf
    assert upf is not None
    used = set(re.findall(r"\$\{?([A-Z0-9_]+)", script))
    assert used and used <= set(environment(upf))
