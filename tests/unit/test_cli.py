"""The command line from outside: help, exit statuses, one message for what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PKTSWARM = Path(sys.executable).with_name("pktswarm")
EXAMPLE = ["--hosts", "hosts/example.yml"]


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PKTSWARM, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["run", "check", "schema", "recount", "lab up", "lab down", "lab exec", "lab vm"])
def test_every_command_has_help(command: str) -> None:
    done = call(*command.split(), "--help")
    assert done.returncode == 0 and "Usage: pktswarm" in done.stdout


def test_check_explains_every_scenario_that_ships_on_the_references_cluster() -> None:
    for scenario in sorted(Path("configs").glob("*.yaml")):
        done = call("check", scenario, *EXAMPLE)
        assert done.returncode == 0, done.stderr
        assert "odroid-t1 → odroid-r1" in done.stdout and "sending takes about" in done.stdout


def test_check_as_json_has_every_leg() -> None:
    document = json.loads(call("check", "configs/demo.yaml", *EXAMPLE, "--json").stdout)
    assert sum(leg["intended_packets"] for leg in document["legs"]) == 9000 + 9000 + 4500 + 897


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "nowhere.yaml", *EXAMPLE], "nowhere.yaml: there is no such file"),
        (["check", "configs/demo.yaml", "--hosts", "hosts/lab-gone.yml"], "pktswarm lab up --name gone"),
        (["recount", "nowhere"], "nowhere: no results of a run here"),
        (["lab", "up", "--transmit", "0"], "transmit"),
    ],
)
def test_bad_input_is_one_message_and_status_2(arguments: list[str], words: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["run"], ["fly"], ["check", "--speed", "9"]])
def test_wrong_words_are_status_2(arguments: list[str]) -> None:
    assert call(*arguments).returncode == 2
