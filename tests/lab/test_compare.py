"""A run that is repeated on a real lab until Ctrl-C, and compared with itself and with one that lost more."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from forked import PKTSWARM
from pktswarm import lab
from running import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces")

SCENARIO = """name: again
streams: [{name: load, size_bytes: 128, rate_pps: 2000, duration_s: 1.5}]
receive: {mode: count, drain_s: 0.3}
expect: {loss: 0, sent: intended}
"""


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `run --repeat 9 --json` printed: three runs that are whole, and Ctrl-C as the next one begins."""
    folder, name = tmp_path_factory.mktemp("repeated"), f"cmp{os.getpid()}"
    state = lab.up(name, 1, 1, folder)
    try:
        (folder / "again.yaml").write_text(SCENARIO)
        yield run(folder, state)
    finally:
        lab.down(name, folder)


def run(folder: Path, state: Any) -> dict[str, Any]:
    words = ["run", folder / "again.yaml", "--hosts", state.inventory, "--results", folder / "results"]
    options = ["--label", "firmware=2.1", "--repeat", "9", "--no-report", "--json", "--junit", folder / "all.xml"]
    command = [str(word) for word in (PKTSWARM, *words, *options)]
    process = forked.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(process, "run 3 of 9: as expected")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3, out + err
    return dict(json.loads(out))


def test_ctrl_c_ends_the_repetition_and_keeps_what_there_is(repeated: dict[str, Any]) -> None:
    folder = Path(repeated["results"])
    assert repeated["problem"] in ("stopped by the user before anything was sent", "interrupted")
    assert [one["status"] for one in repeated["runs"]] == [0, 0, 0]
    assert {folder / one["folder"] for one in repeated["runs"]} == set((folder / "runs").iterdir())
    documents = [json.loads((folder / one["folder"] / "run.json").read_text()) for one in repeated["runs"]]
    assert [(each["dut"]["settings"]["kind"], each["dut"]["labels"]) for each in documents] == [
        ("switch", {"firmware": "2.1"})
    ] * 3
    kept = json.loads((folder / "repeat.json").read_text())
    assert kept == {name: value for name, value in repeated.items() if name not in ("results", "figures")}
    found = {(one["subject"], one["figure"]): one for one in repeated["figures"]}
    sent = found["load", "sent_packets"]
    assert (sent["mean"], sent["sd"], sent["runs"]) == (3000, 0, 3)
    assert found["load", "jitter_sd_ns"]["least"] > 0
    junit = (folder.parents[1] / "all.xml").read_text()
    assert junit.count("<testsuite ") == 3 and "<error " not in junit


def test_compared_with_itself_nothing_differs(repeated: dict[str, Any], tmp_path: Path) -> None:
    done = compare(repeated["results"], repeated["results"], tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 0 and {one["verdict"] for one in document["differences"]} == {"the same"}
    assert document["sides"][0]["left_out"][0].startswith("6 of 9 runs")
    assert (Path(document["results"]) / "compare.html").is_file()


def test_compared_with_one_that_lost_more_it_is_worse(repeated: dict[str, Any], tmp_path: Path) -> None:
    """The same runs, of which each lost 600 packets more."""
    copy = Path(shutil.copytree(repeated["results"], tmp_path / "copy"))
    for path in copy.glob("runs/*/run.json"):
        document = json.loads(path.read_text())
        for row in document["rows"]:
            row["lost_packets"] += 600
        path.write_text(json.dumps(document))
    done = compare(repeated["results"], str(copy), tmp_path)
    assert done.returncode == 1, done.stderr
    worse = {one["figure"] for one in json.loads(done.stdout)["differences"] if one["for_the_worse"]}
    assert worse == {"loss_ratio"}


def compare(one: str, other: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [PKTSWARM, "compare", one, other, "--fail-on-worse", "--json", "--results", folder / "kept"]
    return forked.run(command, timeout=60)
