"""run.json against its types: documents of runs fit, an unknown or wrong field is one message, old formats are read."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.report.folder import read
from pktswarm.master.results import document, read_document, replayed_flows, trace_verify, users
from pktswarm.master.results.document_rows import ConnectionResult, NodeRow, ReplayedFlow, RunRow, UserRow
from pktswarm.master.results.node_rows import NODE_COLUMNS
from pktswarm.master.results.read_document import decode, read_run
from pktswarm.master.results.streams_csv import STREAM_COLUMNS
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.traffic.connections.counts import COLUMNS as CONNECTION_COLUMNS
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import FlowUsers, Leg
from result_folders import Made, changed, leg

USERS = FlowUsers("ipv4.src", "src_ip", 0x0A3C0001, 1, 30)


def test_the_shipped_schema_is_up_to_date() -> None:
    shipped = Path("results/run.schema.json").read_text()
    assert shipped == read_document.schema(), "make it again: pktswarm schema run > results/run.schema.json"


@pytest.mark.parametrize("legs", [[leg(0, "small"), leg(1, "large", "tx2", "rx2")], [leg(0, "small", users=USERS)]])
def test_the_document_of_a_run_fits_its_types(tmp_path: Path, legs: list[Leg]) -> None:
    folder = Made(legs, lost={0: 2}, lost_users=2).write(tmp_path)
    assert read_run(folder) == json.loads((folder / "run.json").read_text())


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (RunRow, [*STREAM_COLUMNS, "leg", "each"]),
        (NodeRow, NODE_COLUMNS),
        (UserRow, users.COLUMNS),
        (ConnectionResult, [*CONNECTION_COLUMNS, "leg"]),
        (ReplayedFlow, replayed_flows.COLUMNS),
        (trace_verify.FlowCountRow, trace_verify.FLOW_COLUMNS),
        (document.LegEntry, [field.name for field in fields(Leg)]),
        (document.HostEntry, [field.name for field in fields(Host)]),
    ],
)
def test_a_row_has_the_columns_of_its_table(kind: type, columns: list[str]) -> None:
    assert set(get_type_hints(kind)) == set(columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.update(colour="red"), r"run\.json: colour = 'red': unknown field"),
        (lambda run: run["rows"][1].update(sent=3), r"rows\.1\.sent = 3: unknown field"),
        (
            lambda run: run["rows"][0].update(sent_packets="3"),
            r"rows\.0\.sent_packets = '3': wrong value .*a whole number",
        ),
        (lambda run: run["rows"][0].update(sent_packets=True), r"rows\.0\.sent_packets = True: wrong value"),
        (lambda run: run["rows"][0].pop("sent_packets"), r"rows\.0\.sent_packets: required field is missing"),
        (lambda run: run["ranks"]["1"]["interface"].update(mtu=None), r"ranks\.1\.interface\.mtu: wrong value"),
        (lambda run: run["verdicts"][0].update(outcome="so-so"), r"verdicts\.0\.outcome = 'so-so': .*held, failed"),
        (lambda run: run["legs"][0].update(counted_with=None), r"legs\.0\.counted_with: unknown field"),
        (lambda run: (run.pop("rows"), run.pop("legs")), r"legs: required field is missing \(and 1 more\)"),
    ],
)
def test_an_unknown_or_wrong_field_is_one_message(tmp_path: Path, change: Any, message: str) -> None:
    folder = changed(Made().write(tmp_path), change)
    for reading in (read, read_run):
        with pytest.raises(BadInput, match=message) as caught:
            reading(folder)
        assert str(caught.value).startswith(f"{folder}/run.json: ") and "\n" not in str(caught.value)


def test_a_long_value_is_not_in_the_message(tmp_path: Path) -> None:
    folder = changed(Made().write(tmp_path), lambda run: run.update(reason=["x"] * 99))
    with pytest.raises(BadInput, match=r"reason = 'list of 495 characters': wrong value"):
        read(folder)


def test_a_scenario_is_open_and_has_a_schema_of_its_own(tmp_path: Path) -> None:
    folder = changed(Made().write(tmp_path), lambda run: run["scenario"].update(later={"added": 1}))
    assert dict(read(folder).document["scenario"])["later"] == {"added": 1}


@pytest.mark.parametrize("file", sorted(Path("configs").glob("*.yaml"))[::4], ids=str)
def test_the_scenario_of_a_run_fits_its_type(file: Path) -> None:
    text = scenarios.load(file).model_dump_json(by_alias=True)
    run = {**document.empty_document(), "scenario": json.loads(text)}
    assert decode(Path("run.json"), run)["scenario"] == run["scenario"]


def test_format_1_is_read_with_the_keys_of_format_2() -> None:
    old = {"id": 1, "stream": "s", "source": "a", "target": "b", "kind": "trace", "counted_with": 0, "also_at": ["c"]}
    run: dict[str, Any] = {**document.empty_document(), "format_version": 1, "legs": [old]}
    (entry,) = decode(Path("run.json"), run)["legs"]
    assert (entry["merged_into"], entry["handover_targets"]) == (0, ["c"]) and len(entry) == len(old)
    found = read_document.leg_of(entry)
    assert (found.merged_into, list(found.handover_targets)) == (0, ["c"])
