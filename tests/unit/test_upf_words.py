"""Requests to the lab's UPF in words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pktswarm import lab
from pktswarm.lab.upf import faults, words
from pktswarm.master.cli.app import app
from pktswarm.traffic.errors import BadInput

ALL_N4 = {"refuse_every": 10, "cause": 75, "lose_request_every": 3, "lose_answer_every": 5, "delay_ms": 100}


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("", {"status": {}}),
        ("status", {"status": {}}),
        ("sessions", {"sessions": {}}),
        ("sessions after 1000", {"sessions": {"after": 1000}}),
        ("restart", {"restart": {}}),
        ("restart silent 1500ms", {"restart": {"silent_s": 1.5}}),
        ("restart silent 2", {"restart": {"silent_s": 2.0}}),
        ("fault none", {"faults": {}}),
        ("fault downlink drop 1", {"faults": {"downlink": {"drop": [1]}}}),
        ("fault uplink drop 0,7 10-12", {"faults": {"uplink": {"drop": [0, 7, 10, 11, 12]}}}),
        (
            "fault uplink delay 3=20ms 4=1s 5=7 hold 9=2 downlink wrong-teid 4 drop 5",
            {
                "faults": {
                    "uplink": {"delay_ms": {"3": 20, "4": 1000, "5": 7}, "hold": {"9": 2}},
                    "downlink": {"wrong_teid": [4], "drop": [5]},
                }
            },
        ),
        (
            "fault n4 refuse-every 10 cause 75 lose_request_every 3 lose-answer-every 5 delay 100ms",
            {"faults": {"n4": ALL_N4}},
        ),
        (
            "fault n4 ignore-mbr-every 20 uplink drop 1",
            {"faults": {"n4": {"ignore_mbr_every": 20}, "uplink": {"drop": [1]}}},
        ),
    ],
)
def test_words_make_the_order(text: str, order: dict[str, object]) -> None:
    assert words.order(text.split()) == order
    faults.read(words.order(text.split()).get("faults", {}))


def test_json_is_still_taken() -> None:
    order = {"faults": {"uplink": {"drop": [0, 7]}}}
    assert words.order([json.dumps(order)]) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faulty", "order = 'faulty'.*status, sessions, fault, restart, or JSON"),
        ("status now", "status = 'now'.*superfluous"),
        ("sessions 5", "after = '5'.*after and a SEID"),
        ("sessions after x", "sessions after = 'x'.*a whole number"),
        ("restart silent 2m", "restart silent = '2m'.*ambiguous unit"),
        ("fault", "fault = ''.*uplink, downlink, n4, none"),
        ("fault sideways drop 1", "fault = 'sideways'.*uplink, downlink, n4, none"),
        ("fault uplink", "fault uplink: .*drop, delay, hold"),
        ("fault uplink lose 1", "fault uplink = 'lose'.*drop, delay, hold"),
        ("fault uplink drop", "fault uplink drop: .*packets such as 0 7 10-19"),
        ("fault uplink drop 5-3", "fault uplink drop = '5-3'.*packets such as"),
        ("fault uplink drop 0-99999999999999", "fault uplink drop = '0-9+'.*packets such as"),
        ("fault uplink drop one", "fault uplink drop = 'one'.*packets such as"),
        ("fault uplink drop 1 drop 2", "fault uplink drop = '2'.*given twice"),
        ("fault uplink delay 3", "fault uplink delay = '3'.*not a time.*PACKET=TIME"),
        ("fault uplink delay 3=20 3=30", "fault uplink delay = 3.*two values"),
        ("fault uplink delay 3=20us", "fault uplink delay = '3=20us'.*not a whole number"),
        ("fault uplink hold 9", "fault uplink hold = '9'.*PACKET=PACKETS"),
        ("fault n4", "fault n4: .*refuse-every"),
        ("fault n4 drop 1", "fault n4 = 'drop'.*refuse-every"),
        ("fault n4 cause", "cause.*a value"),
        ("fault n4 cause 75 cause 76", "fault n4 cause = '76'.*given twice"),
        ("fault n4 cause high", "fault n4 cause = 'high'.*a whole number"),
        ("{", "order = '{'.*invalid JSON"),
        ("[1]", r"order = '\[1\]'.*not an order"),
    ],
)
def test_wrong_words_are_refused_with_the_allowed_ones(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        words.order(text.split())
    assert refused.value.exit_status == 2


def test_what_packets_of_the_uplink_cannot_have_is_refused_by_the_upf() -> None:
    with pytest.raises(BadInput, match=r"uplink\.wrong_teid"):
        faults.read(words.order("fault uplink wrong-teid 1".split())["faults"])


def test_the_command_sends_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []

    def order_upf(name: str, order: dict[str, object]) -> dict[str, object]:
        sent.append((name, order))
        return {"faults": 1}

    monkeypatch.setattr(lab, "order_upf", order_upf)
    done = CliRunner().invoke(app, ["lab", "upf", "fault", "downlink", "drop", "1", "--name", "mine"])
    assert (done.exit_code, json.loads(done.output)) == (0, {"faults": 1})
    assert sent == [("mine", {"faults": {"downlink": {"drop": [1]}}})]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"status", "sessions", "fault", "restart"}),
        ("fau", {"fault"}),
        ("sessions ", {"after"}),
        ("fault ", {"uplink", "downlink", "n4", "none"}),
        ("fault uplink ", {"drop", "delay", "hold"}),
        ("fault downlink drop ", set()),
        ("fault downlink drop 1 wr", {"wrong-teid"}),
        ("fault n4 re", {"refuse-every"}),
    ],
)
def test_a_shell_completes_the_words(line: str, expected: set[str]) -> None:
    typed = f"pktswarm lab upf {line}"
    count = len(typed.split()) - (not typed.endswith(" "))
    asked = {"_PKTSWARM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(count)}
    done = subprocess.run(
        [Path(sys.executable).with_name("pktswarm")],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert set(done.stdout.split()) == expected
